package whatsapp

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"messagesender/internal/message"
)

const (
	// maxNotice bounds a notification in bytes. The platform sends up to 3 MB.
	maxNotice = 4 << 20
	// maxChallenge bounds what the handshake echoes, in bytes.
	maxChallenge = 256
)

// ServeWebhook serves the platform's notifications for the account: GET is the
// handshake that sets the webhook up, POST a notification. Errors are
// *message.Error and nothing was written yet. Other methods are the caller's to
// refuse.
func (p *Platform) ServeWebhook(w http.ResponseWriter, r *http.Request) error {
	if p.account.AppSecret == "" || p.account.VerifyToken == "" {
		return message.NewError(message.NotFound, "there is no webhook here")
	}
	if r.Method == http.MethodGet {
		return p.handshake(w, r)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxNotice))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return message.NewError(message.TooLarge, "the notification is longer than "+strconv.Itoa(maxNotice)+" bytes")
		}
		return message.NewError(message.RequestTimeout, "the notification did not arrive in full").Because(err)
	}
	if !signed(body, r.Header.Get("X-Hub-Signature-256"), p.account.AppSecret) {
		return message.NewError(message.Unauthorized, "the signature is missing or wrong")
	}
	if !p.take(body) {
		// It is the platform's own; refused, it would come again for days.
		p.log.Warn("a notification could not be read", "account", p.account.Name, "bytes", len(body))
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

func (p *Platform) handshake(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	challenge := q.Get("hub.challenge")
	if q.Get("hub.mode") != "subscribe" || !same(q.Get("hub.verify_token"), p.account.VerifyToken) {
		return message.NewError(message.Unauthorized, "the verify token is missing or wrong")
	}
	if challenge == "" || len(challenge) > maxChallenge || strings.ContainsFunc(challenge, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return message.NewError(message.InvalidRequest, "hub.challenge must be 1 to "+strconv.Itoa(maxChallenge)+" visible ASCII characters")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, challenge)
	return nil
}

// same compares in a time that tells nothing of the content, nor of the length.
func same(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// signed verifies "sha256=<hex>", the HMAC of the raw body.
func signed(body []byte, header, secret string) bool {
	digits, ok := strings.CutPrefix(header, "sha256=")
	if !ok {
		return false
	}
	got, err := hex.DecodeString(digits)
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return hmac.Equal(got, mac.Sum(nil))
}

// notice is the part of a notification that is used. Its items are read one by
// one, so that an odd one does not take the others with it.
type notice struct {
	Entry []struct {
		Changes []struct {
			Value struct {
				Metadata struct {
					PhoneNumberID string `json:"phone_number_id"`
				} `json:"metadata"`
				Messages []json.RawMessage `json:"messages"`
				Statuses []json.RawMessage `json:"statuses"`
			} `json:"value"`
		} `json:"changes"`
	} `json:"entry"`
}

type receivedMessage struct {
	From      string `json:"from"`
	ID        string `json:"id"`
	Timestamp string `json:"timestamp"` // seconds since 1970
}

type statusNotice struct {
	ID        string `json:"id"`
	Status    string `json:"status"`
	Timestamp string `json:"timestamp"`
	Errors    []struct {
		Code    int    `json:"code"`
		Title   string `json:"title"`
		Message string `json:"message"`
		Data    struct {
			Details string `json:"details"`
		} `json:"error_data"`
	} `json:"errors"`
}

// take records what a notification says about this account's number; false: it
// is not JSON.
func (p *Platform) take(body []byte) bool {
	var n notice
	if !decode(body, &n) {
		return false
	}
	now := time.Now()
	for _, entry := range n.Entry {
		for _, change := range entry.Changes {
			v := change.Value
			if v.Metadata.PhoneNumberID != p.account.PhoneNumberID {
				continue
			}
			for _, raw := range v.Messages {
				p.takeMessage(raw, now)
			}
			for _, raw := range v.Statuses {
				p.takeStatus(raw, now)
			}
		}
	}
	return true
}

func (p *Platform) takeMessage(raw json.RawMessage, now time.Time) {
	var m receivedMessage
	if !decode(raw, &m) || !usableID(m.ID) || m.From == "" || len(m.From) > maxID {
		return
	}
	at := moment(m.Timestamp, now)
	if now.Sub(at) >= inboundLife {
		return
	}
	p.records.note(p.records.inbound.put(p.account.Name, m.From, m.ID, at))
}

func (p *Platform) takeStatus(raw json.RawMessage, now time.Time) {
	var n statusNotice
	if !decode(raw, &n) || !usableID(n.ID) {
		return
	}
	s := Status{State: State(n.Status), UpdatedAt: moment(n.Timestamp, now)}
	switch s.State {
	case "played":
		s.State = Read
	case Failed:
		s.Error = &StatusError{}
		if len(n.Errors) > 0 {
			e := n.Errors[0]
			text := e.Message
			if text == "" {
				text = e.Title
			}
			s.Error = &StatusError{Code: e.Code, Text: platformText(text, e.Data.Details, p.account.AccessToken)}
		}
	case Sent, Delivered, Read:
	default:
		return // such as "deleted" or "warning": not a state of the contract
	}
	p.records.note(p.records.statuses.put(p.account.Name, n.ID, s))
}

// moment reads a timestamp; one that is missing, odd or in the future is now.
func moment(timestamp string, now time.Time) time.Time {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || seconds <= 0 || seconds > now.Unix() {
		return now
	}
	return time.Unix(seconds, 0)
}
