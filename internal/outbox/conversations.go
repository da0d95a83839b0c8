package outbox

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"messagesender/internal/appendlog"
	"messagesender/internal/media"
	"messagesender/internal/message"
)

const (
	maxConversations = 50  // in one answer
	maxPreview       = 160 // bytes of a text or caption in a conversation
)

// conversations is the answer of Conversations.
type conversations struct {
	// Newest is the place in front of which all of this happened: given as "after"
	// to Events it continues the list without a gap. It exists also when there is
	// no message.
	Newest        string         `json:"newest"`
	Conversations []conversation `json:"conversations"`
}

// conversation is all that was sent to one number.
type conversation struct {
	Number message.Number `json:"number"`
	Last   summary        `json:"last"`
}

// summary is what a list shows of a message.
type summary struct {
	MessageID string            `json:"messageId"`
	Operation message.Operation `json:"operation"`
	MediaType media.Kind        `json:"mediaType,omitempty"`
	FileName  string            `json:"fileName,omitempty"`
	Text      string            `json:"text,omitempty"`    // at most maxPreview bytes of it
	Caption   string            `json:"caption,omitempty"` // at most maxPreview bytes of it
	SentAt    time.Time         `json:"sentAt"`
}

// Conversations answers GET /outbox/conversations: the numbers that messages
// were sent to, the one with the newest message first, at most limit of them and
// never more than maxConversations. With number, only those that contain these
// digits. With before, a messageId, only those whose last message is older:
// given the last one of an answer it asks for the next page.
func (s *Store) Conversations(w http.ResponseWriter, r *http.Request, account string) error {
	values, err := parameters(r, "number", "before", "limit")
	if err != nil {
		return err
	}
	digits := values["number"]
	if strings.Trim(digits, "0123456789") != "" {
		return invalid("number", "must be digits")
	}
	before, err := parseAfter("before", values["before"])
	if err != nil {
		return err
	}
	limit, err := parseCount("limit", values["limit"])
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = maxConversations
	}
	answer, err := s.converse(account, digits, before, min(limit, maxConversations))
	if err != nil {
		return err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return unreadable(err)
	}
	w.Header().Set("Content-Type", "application/json")
	noStore(w.Header())
	out := newWriter(w)
	defer out.finish()
	out.send(append(b, '\n'))
	return nil
}

func (s *Store) converse(account, digits string, before uint64, limit int) (conversations, error) {
	entries, newest := s.since(account, 0)
	answer := conversations{id{sequence: newest}.String(), []conversation{}}
	seen := map[message.Number]bool{}
	var buf []byte
	for _, e := range slices.Backward(entries) {
		if len(answer.Conversations) == limit {
			break
		}
		if seen[e.number] {
			continue
		}
		seen[e.number] = true
		if before != 0 && e.sequence >= before || !strings.Contains(string(e.number), digits) {
			continue
		}
		var record []byte
		var err error
		record, buf, err = s.read(e, buf)
		if errors.Is(err, appendlog.ErrDropped) {
			continue // evicted meanwhile
		}
		if err != nil {
			return conversations{}, unreadable(err)
		}
		c := conversation{Number: e.number}
		if err := json.Unmarshal(record, &c.Last); err != nil {
			return conversations{}, unreadable(err)
		}
		c.Last.Text, c.Last.Caption = preview(c.Last.Text), preview(c.Last.Caption)
		answer.Conversations = append(answer.Conversations, c)
	}
	return answer, nil
}

// preview cuts s to maxPreview bytes, between characters.
func preview(s string) string {
	if len(s) <= maxPreview {
		return s
	}
	n := maxPreview
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
