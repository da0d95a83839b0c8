package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// text is a message of the account "a".
func text(body string) message.Message {
	return message.Message{Account: "a", Number: "4917012345678", Content: message.Text{Body: body}, RequestedAt: time.Now()}
}

// blob spools bytes for a test, in memory or, when they are many, in a file.
func blob(t testing.TB, content []byte) media.Source {
	t.Helper()
	spool, err := media.OpenSpool(filepath.Join(t.TempDir(), "spool"), media.Limits{Blob: 1 << 20, Total: 1 << 20, Memory: 100})
	if err != nil {
		t.Fatal(err)
	}
	w := spool.NewWriter()
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	b, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return media.Source{Blob: b}
}

func png(size int) []byte {
	return append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), bytes.Repeat([]byte("p"), size)...)
}

func file(source media.Source, name, caption string) message.Message {
	m := text("")
	m.Content = message.File{Kind: media.Image, Name: name, Caption: caption, Source: source}
	return m
}

func send(t testing.TB, s *Store, m message.Message) string {
	t.Helper()
	id, err := trySend(s, m)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	return id
}

func trySend(s *Store, m message.Message) (string, error) {
	ctx := context.Background()
	d, err := s.Prepare(ctx, m)
	if err != nil {
		return "", err
	}
	if _, err := d.ShowPresence(ctx); err != nil {
		return "", err
	}
	id, err := d.Deliver(ctx)
	return id, errors.Join(err, d.Close(ctx))
}

// api serves a store to the account that the header "account" names.
func api(s *Store) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request, string) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			account := r.Header.Get("account")
			if account == "" {
				account = "a"
			}
			err := h(w, r, account)
			if e, ok := err.(*message.Error); ok {
				w.Header().Set("Retry-After", fmt.Sprint(e.RetryAfter.Seconds()))
				w.WriteHeader(e.Reason.Status())
				fmt.Fprintf(w, "%s %+v", e.Text, e.Details)
			} else if err != nil {
				panic(err)
			}
		})
	}
	handle("GET /outbox/messages", s.List)
	handle("GET /outbox/messages/{messageId}", s.One)
	handle("GET /outbox/messages/{messageId}/media", s.Media)
	handle("DELETE /outbox/messages", s.Clear)
	handle("GET /outbox/events", s.Events)
	return mux
}

// do makes a request of the outbox; header is "name: value".
func do(s *Store, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/outbox/"+path, nil)
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	api(s).ServeHTTP(w, r)
	return w
}

// list returns the messages that a query finds.
func list(t testing.TB, s *Store, query string, header ...string) []map[string]any {
	t.Helper()
	w := do(s, "GET", "messages"+query, header...)
	var got struct{ Messages []map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != 200 || err != nil || got.Messages == nil {
		t.Fatalf("list %s: got %d %s", query, w.Code, w.Body)
	}
	return got.Messages
}

func ids(t testing.TB, s *Store, query string, header ...string) []string {
	t.Helper()
	ids := []string{}
	for _, m := range list(t, s, query, header...) {
		ids = append(ids, m["messageId"].(string))
	}
	return ids
}

// texts joins the texts that a query finds, with spaces.
func texts(t testing.TB, s *Store, query string, header ...string) string {
	t.Helper()
	var found []string
	for _, m := range list(t, s, query, header...) {
		found = append(found, fmt.Sprint(m["text"]))
	}
	return strings.Join(found, " ")
}

func mediaFiles(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "media"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
