package outbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"messagesender/internal/message"
)

// converse returns the answer to a query for conversations, and a word of it:
// number and last text of each.
func converse(t *testing.T, s *Store, query string) (conversations, string) {
	t.Helper()
	w := httptest.NewRecorder()
	if err := s.Conversations(w, httptest.NewRequest("GET", "/outbox/conversations"+query, nil), "a"); err != nil {
		t.Fatalf("%s: got %v", query, err)
	}
	var got conversations
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("%s: got %s", query, w.Body)
	}
	var word []string
	for _, c := range got.Conversations {
		word = append(word, string(c.Number)+":"+c.Last.Text+c.Last.Caption)
	}
	return got, strings.Join(word, " ")
}

func TestConversations(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	empty, word := converse(t, s, "")
	if empty.Newest == "" || word != "" {
		t.Errorf("an empty outbox: got %+v, want no conversation and a place to go on from", empty)
	}
	for i, number := range []message.Number{"491", "492", "491", "153", "492", "4915"} {
		m := text(fmt.Sprint(i))
		m.Number = number
		send(t, s, m)
	}
	other := text("of another account")
	other.Account = "b"
	send(t, s, other)

	all, word := converse(t, s, "")
	if want := "4915:5 492:4 153:3 491:2"; word != want {
		t.Errorf("all: got %q, want %q", word, want)
	}
	if got := texts(t, s, "?after="+empty.Newest); got != "0 1 2 3 4 5" {
		t.Errorf("after the place in the empty outbox: got %q, want all six", got)
	}
	if got := texts(t, s, "?after="+all.Newest); got != "" {
		t.Errorf("after the newest: got %q, want none", got)
	}
	third := all.Conversations[2].Last.MessageID
	for query, want := range map[string]string{
		"?limit=2":                   "4915:5 492:4",
		"?limit=1000":                "4915:5 492:4 153:3 491:2",
		"?before=" + third:           "491:2",
		"?before=&limit=&number=":    "4915:5 492:4 153:3 491:2",
		"?number=15":                 "4915:5 153:3",
		"?number=15&limit=1":         "4915:5",
		"?number=999":                "",
		"?before=" + empty.Newest:    "",
		"?number=49&before=" + third: "491:2",
	} {
		if _, got := converse(t, s, query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	for query, field := range map[string]string{
		"?limit=0": "limit", "?limit=x": "limit", "?before=x": "before", "?number=%2B49": "number", "?text=x": "text",
	} {
		err := s.Conversations(httptest.NewRecorder(), httptest.NewRequest("GET", "/outbox/conversations"+query, nil), "a")
		if e, ok := err.(*message.Error); !ok || e.Reason != message.InvalidRequest || e.Details[0].Field != field {
			t.Errorf("%s: got %v, want invalid_request about %s", query, err, field)
		}
	}
}

func TestConversationsShortenWhatIsLong(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	for _, c := range []struct{ name, text, want string }{
		{"short", "ü", "ü"},
		{"just fitting", strings.Repeat("x", maxPreview), strings.Repeat("x", maxPreview)},
		{"long", strings.Repeat("x", 100_000), strings.Repeat("x", maxPreview)},
		{"cut within a character", "x" + strings.Repeat("€", 100), "x" + strings.Repeat("€", (maxPreview-1)/3)},
	} {
		send(t, s, text(c.text))
		if got, _ := converse(t, s, ""); got.Conversations[0].Last.Text != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got.Conversations[0].Last.Text, c.want)
		}
	}
}

func TestListFromTheEnd(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	var sent []string
	for i := range 6 {
		m := text(fmt.Sprint([]string{"even", "odd"}[i%2], i))
		m.Number = message.Number(fmt.Sprint(49170000000 + i%2))
		sent = append(sent, send(t, s, m))
	}
	for query, want := range map[string]string{
		"?newest=2":                                      "even4 odd5",
		"?newest=100":                                    "even0 odd1 even2 odd3 even4 odd5",
		"?newest=2&number=49170000000":                   "even2 even4",
		"?newest=2&text=ODD":                             "odd3 odd5",
		"?newest=3&limit=1":                              "odd3",
		"?newest=1&text=nowhere":                         "",
		"?before=" + sent[2]:                             "even0 odd1",
		"?before=" + sent[0]:                             "",
		"?newest=1&before=" + sent[4] + "&text=even":     "even2",
		"?after=" + sent[0] + "&before=" + sent[3]:       "odd1 even2",
		"?newest=&before=":                               "even0 odd1 even2 odd3 even4 odd5",
		"?newest=2&type=image":                           "",
		"?newest=1&after=" + sent[5] + "&wait=1ms":       "",
		"?newest=1&number=49170000001&before=" + sent[5]: "odd3",
	} {
		if got := texts(t, s, query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	for query, field := range map[string]string{"?newest=0": "newest", "?newest=-1": "newest", "?before=x": "before"} {
		if w := do(s, "GET", "messages"+query); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), field) {
			t.Errorf("%s: got %d %s, want 400 about %s", query, w.Code, w.Body, field)
		}
	}
}
