package outbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"messagesender/internal/appendlog"
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

func TestRecords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("", 3600))
	no := false
	picture := png(10)
	for _, test := range []struct {
		name     string
		delay    time.Duration
		presence message.Presence
		content  message.Content
		want     string // without id and times but requestedAt
	}{
		{"text", 0, message.None, message.Text{Body: "a <b> \"ü\" \u2028"},
			`{"state":"sent","operation":"text","number":"4917012345678","delay":0,"text":"a <b> \"ü\" \u2028"}`},
		{"text with everything", 1500500 * time.Microsecond, message.Composing, message.Text{Body: "x", LinkPreview: &no},
			`{"state":"sent","operation":"text","number":"4917012345678","presence":"composing","delay":1500.5,"text":"x","linkPreview":false}`},
		{"media from a URL", 2 * time.Second, message.None, message.File{Kind: media.Video, Source: media.Source{URL: "https://example.com/v?a=1&b=2"}},
			`{"state":"sent","operation":"media","number":"4917012345678","delay":2000,"mediaType":"video","sourceUrl":"https://example.com/v?a=1&b=2"}`},
		{"media from bytes", 0, message.Recording, message.File{Kind: media.Document, Name: "ü.png", Caption: "c", Source: blob(t, picture)},
			`{"mediaUrl":"messages/ID/media","state":"sent","operation":"media","number":"4917012345678","presence":"recording","delay":0,"mediaType":"document","fileName":"ü.png","caption":"c","contentType":"image/png","size":26,"sha256":"` + fmt.Sprintf("%x", sha256.Sum256(picture)) + `"}`},
		{"audio from a URL", 0, message.None, message.Voice{Encode: true, Source: media.Source{URL: "http://example.com/"}},
			`{"state":"sent","operation":"audio","number":"4917012345678","delay":0,"sourceUrl":"http://example.com/","encoding":true}`},
		{"audio not to be encoded", 0, message.None, message.Voice{Source: media.Source{URL: "http://example.com/"}},
			`{"state":"sent","operation":"audio","number":"4917012345678","delay":0,"sourceUrl":"http://example.com/","encoding":false}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			id := send(t, s, message.Message{Account: "a", Number: "4917012345678", Presence: test.presence, Delay: test.delay, Content: test.content, RequestedAt: at})
			w := do(s, "GET", "messages/"+id)
			var got, want map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if err := json.Unmarshal([]byte(strings.ReplaceAll(test.want, "ID", id)), &want); err != nil {
				t.Fatal(err)
			}
			want["messageId"], want["requestedAt"] = id, "2026-01-02T02:04:05.6789Z"
			sent, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["sentAt"]))
			if err != nil || time.Since(sent) > time.Minute {
				t.Errorf("sentAt: got %v", got["sentAt"])
			}
			want["sentAt"] = got["sentAt"]
			if test.presence != message.None {
				want["presenceFrom"], want["presenceUntil"] = got["presenceFrom"], got["sentAt"]
				if from, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["presenceFrom"])); err != nil || from.After(sent) {
					t.Errorf("presenceFrom: got %v, sentAt %v", got["presenceFrom"], got["sentAt"])
				}
			}
			if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
				t.Errorf("got  %s\nwant %s", g, w)
			}
			if _, ok := parseID(id); !ok {
				t.Errorf("messageId %q is not one", id)
			}
			if listed := list(t, s, ""); len(listed) != 1 || fmt.Sprint(listed[0]) != fmt.Sprint(got) {
				t.Errorf("listed: got %v, want %v", listed, got)
			}
		})
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	sent := []string{send(t, s, text("one")), send(t, s, file(blob(t, png(50)), "f.png", "two")), send(t, s, file(blob(t, png(5000)), "", "three"))}
	other := text("other's")
	other.Account = "b"
	send(t, s, other)
	before, bytesBefore := do(s, "GET", "messages").Body.String(), s.Bytes()
	s.Close()

	s = open(t, Options{Dir: dir})
	if got := do(s, "GET", "messages").Body.String(); got != before {
		t.Errorf("after a restart: got %s\nwant %s", got, before)
	}
	if s.Count() != 4 || s.Bytes() != bytesBefore {
		t.Errorf("got %d messages, %d bytes, want 4, %d", s.Count(), s.Bytes(), bytesBefore)
	}
	for i, n := range []int{50, 5000} {
		if w := do(s, "GET", "messages/"+sent[i+1]+"/media"); !bytes.Equal(w.Body.Bytes(), png(n)) {
			t.Errorf("media of %s: got %d with %d bytes", sent[i+1], w.Code, w.Body.Len())
		}
	}
	next := send(t, s, text("next"))
	if !slices.IsSorted(append(sent, next)) {
		t.Errorf("ids do not go on rising: %v, %v", sent, next)
	}
	if got := ids(t, s, "?after="+sent[2]); !slices.Equal(got, []string{next}) {
		t.Errorf("after the last one before the restart: got %v, want %v", got, next)
	}
}

func TestIDsRiseOverAWipedDirectory(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	first := send(t, s, text("x"))
	time.Sleep(2 * time.Millisecond) // the real clock is what this is about
	s = open(t, Options{Dir: t.TempDir()})
	if second := send(t, s, text("x")); second[:14] <= first[:14] {
		t.Errorf("got %s after %s", second, first)
	}
}

// lastSegment is the path of the log's last file.
func lastSegment(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("segments: got %v, %v", paths, err)
	}
	return paths[len(paths)-1]
}

func TestTornTailIsDroppedWithAWarning(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	send(t, s, text("one"))
	send(t, s, text("two"))
	send(t, s, file(blob(t, png(50)), "", ""))
	end := s.log.Size()
	s.Close()
	if err := os.Truncate(lastSegment(t, dir), end-100); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s = open(t, Options{Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if got := texts(t, s, ""); got != "one two" {
		t.Errorf("got %q, want what was complete", got)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "bytes=") {
		t.Errorf("log: got %q, want a warning with the number of bytes", &log)
	}
	if got := mediaFiles(t, dir); len(got) != 0 {
		t.Errorf("media without a record: got %v, want none", got)
	}
	send(t, s, text("three"))
	s.Close()
	if got := texts(t, open(t, Options{Dir: dir}), ""); got != "one two three" {
		t.Errorf("got %q", got)
	}
}

func TestDamageIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	send(t, s, text("one"))
	send(t, s, text("two"))
	s.Close()
	path := lastSegment(t, dir)
	b, _ := os.ReadFile(path)
	b[bytes.Index(b, []byte("one"))] = 'O'
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var damage *appendlog.DamageError
	if _, err := Open(Options{Dir: dir}); !errors.As(err, &damage) {
		t.Errorf("got %v, want a DamageError", err)
	}
}

func TestUnknownRecordIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, _, err := appendlog.Open(filepath.Join(dir, "log"), appendlog.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Append([]byte("something else entirely, but long enough"))
	l.Close()
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, errUnknownRecord) {
		t.Errorf("got %v, want %v", err, errUnknownRecord)
	}
}

func TestNegativeLimitsAreRefused(t *testing.T) {
	for _, o := range []Options{{MaxMessages: -1}, {MaxBytes: -1}} {
		o.Dir = t.TempDir()
		if _, err := Open(o); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

func TestEvictionByCount(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, MaxMessages: 3}
	s := open(t, o)
	gone := send(t, s, file(blob(t, png(200)), "", ""))
	other := text("other's")
	other.Account = "b"
	send(t, s, other)
	for i := range 4 {
		send(t, s, text(fmt.Sprint(i)))
	}
	check := func(s *Store, when string, want string) {
		t.Helper()
		if got := texts(t, s, ""); got != want || s.Count() != len(strings.Fields(want)) {
			t.Errorf("%s: got %q, count %d, want %q", when, got, s.Count(), want)
		}
		if w := do(s, "GET", "messages/"+gone); w.Code != 404 {
			t.Errorf("%s: the oldest: got %d, want 404", when, w.Code)
		}
		if got := mediaFiles(t, dir); len(got) != 0 {
			t.Errorf("%s: media: got %v, want none", when, got)
		}
	}
	check(s, "at once", "1 2 3")
	s.Close()
	s = open(t, o)
	check(s, "after a restart", "1 2 3")
	s.Close()
	o.MaxMessages = 2
	s = open(t, o)
	check(s, "with a lower limit", "2 3")
	send(t, s, text("4"))
	s.Close()
	o.MaxMessages = 10
	check(open(t, o), "with a higher limit nothing comes back that was evicted before the last record", "2 3 4")
}

func TestEvictionByBytes(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, MaxBytes: 64 << 10}
	s := open(t, o)
	disk := func() (n int64) {
		filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				n += info.Size()
			}
			return nil
		})
		return n
	}
	var all []string
	for i := range 60 {
		if i%3 == 0 {
			all = append(all, send(t, s, file(blob(t, png(3000)), "", "")))
		} else {
			all = append(all, send(t, s, text(strings.Repeat("x", 2000))))
		}
		if d, b := disk(), s.Bytes(); d != b || d > o.MaxBytes {
			t.Fatalf("after %d messages: got %d bytes on disk, counted %d, want at most %d", i+1, d, b, o.MaxBytes)
		}
	}
	got := ids(t, s, "")
	if len(got) < 10 || !slices.Equal(got, all[len(all)-len(got):]) {
		t.Errorf("got %d messages, want the newest", len(got))
	}
	s.Close()
	s = open(t, o)
	if again := ids(t, s, ""); !slices.Equal(again, got) {
		t.Errorf("after a restart: got %d messages, want %d", len(again), len(got))
	}
}

func TestDeletedMessagesOfOneAccountDoNotFillTheDisk(t *testing.T) {
	o := Options{Dir: t.TempDir(), MaxBytes: 64 << 10}
	s := open(t, o)
	old := text("old")
	old.Account = "b"
	send(t, s, old)
	for range 100 {
		send(t, s, text(strings.Repeat("x", 2000)))
		do(s, "DELETE", "messages")
		if b := s.Bytes(); b > o.MaxBytes {
			t.Fatalf("got %d bytes, want at most %d", b, o.MaxBytes)
		}
	}
}

func TestWhatCannotBeKeptIsRefused(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), MaxBytes: 10_000})
	for name, m := range map[string]message.Message{
		"text":  text(strings.Repeat("x", maxStrings+1)),
		"media": file(blob(t, png(5001)), "", ""),
	} {
		_, err := s.Prepare(context.Background(), m)
		if e, ok := err.(*message.Error); !ok || e.Reason != message.PlatformLimit {
			t.Errorf("%s: got %v, want %s", name, err, message.PlatformLimit)
		}
	}
	s = open(t, Options{Dir: t.TempDir()})
	id := send(t, s, text(strings.Repeat("\x01", maxStrings))) // the most that JSON makes of it
	if w := do(s, "GET", "messages/"+id); w.Body.Len() < 6*maxStrings {
		t.Errorf("got %d bytes", w.Body.Len())
	}
}

func TestClear(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir})
	send(t, s, text("one"))
	send(t, s, file(blob(t, png(50)), "", ""))
	other := text("other's")
	other.Account = "b"
	send(t, s, other)
	for _, want := range []string{`{"deleted":2}`, `{"deleted":0}`} {
		if w := do(s, "DELETE", "messages"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
		}
	}
	if got := mediaFiles(t, dir); len(got) != 0 {
		t.Errorf("media: got %v, want none", got)
	}
	send(t, s, text("after"))
	for range 2 {
		if got := texts(t, s, ""); got != "after" {
			t.Errorf("got %q, want %q", got, "after")
		}
		if got := texts(t, s, "", "account: b"); got != "other's" {
			t.Errorf("the other account: got %q", got)
		}
		s.Close()
		s = open(t, Options{Dir: dir})
	}
	for _, refused := range [][]string{
		{"messages", "Sec-Fetch-Site: cross-site"},
		{"messages", "Origin: https://elsewhere.example"},
		{"messages?number=4917012345678"},
	} {
		if w := do(s, "DELETE", refused[0], refused[1:]...); w.Code != 400 {
			t.Errorf("%v: got %d %s, want 400", refused, w.Code, w.Body)
		}
	}
	if w := do(s, "DELETE", "messages", "Sec-Fetch-Site: same-origin"); w.Code != 200 {
		t.Errorf("same origin: got %d %s, want 200", w.Code, w.Body)
	}
}

func TestOtherAccountSeesNothing(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	id := send(t, s, file(blob(t, png(50)), "", ""))
	for _, path := range []string{"messages/" + id, "messages/" + id + "/media"} {
		if w := do(s, "GET", path, "account: b"); w.Code != 404 {
			t.Errorf("%s: got %d, want 404", path, w.Code)
		}
	}
	if got := list(t, s, "", "account: b"); len(got) != 0 {
		t.Errorf("list: got %v", got)
	}
	if w := do(s, "DELETE", "messages", "account: b"); !strings.Contains(w.Body.String(), ":0}") || s.Count() != 1 {
		t.Errorf("delete: got %s, %d left", w.Body, s.Count())
	}
}

func TestFailingDiskMeansNotSent(t *testing.T) {
	for _, test := range []struct {
		name string
		harm func(t *testing.T, s *Store, dir string)
		m    func(t *testing.T) message.Message
	}{
		{"the media cannot be moved", func(t *testing.T, s *Store, dir string) { os.RemoveAll(filepath.Join(dir, "media")) },
			func(t *testing.T) message.Message { return file(blob(t, png(500)), "", "") }},
		{"the media is there, the record cannot be written", func(t *testing.T, s *Store, dir string) { s.log.Close() },
			func(t *testing.T) message.Message { return file(blob(t, png(50)), "", "") }},
		{"the record cannot be written", func(t *testing.T, s *Store, dir string) { s.log.Close() },
			func(t *testing.T) message.Message { return text("x") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Options{Dir: dir})
			test.harm(t, s, dir)
			m := test.m(t)
			m.Presence = message.Composing
			_, err := trySend(s, m)
			var e *message.Error
			if !errors.As(err, &e) || e.Reason != message.Unavailable || e.Cause == nil {
				t.Errorf("got %v, want %s with a cause", err, message.Unavailable)
			}
			if got := list(t, s, ""); len(got) != 0 || s.Count() != 0 {
				t.Errorf("listed: got %v", got)
			}
			if entries, _ := os.ReadDir(filepath.Join(dir, "media")); len(entries) != 0 {
				t.Errorf("media left: %v", entries)
			}
			if n := len(s.accounts["a"].presences); n != 0 {
				t.Errorf("%d presences are still shown", n)
			}
		})
	}
}

func TestConcurrentSends(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, MaxBytes: 1 << 20})
	const workers, each = 16, 40
	sent := make([][]string, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				m := text(fmt.Sprintf("%d/%d", w, i))
				if i%10 == 0 {
					m = file(blob(t, png(150*w)), "", fmt.Sprintf("%d/%d", w, i))
				}
				m.Presence = message.Composing
				id, err := trySend(s, m)
				if err != nil {
					t.Errorf("send: %v", err)
				}
				sent[w] = append(sent[w], id)
			}
		})
	}
	wg.Wait()
	for range 2 {
		got := list(t, s, "")
		if len(got) != workers*each {
			t.Fatalf("got %d messages, want %d", len(got), workers*each)
		}
		last := ""
		byID := map[string]string{}
		for _, m := range got {
			id := m["messageId"].(string)
			if id <= last {
				t.Errorf("%s is listed after %s", id, last)
			}
			last = id
			byID[id] = fmt.Sprint(m["text"], m["caption"])
			if url, ok := m["mediaUrl"]; ok && url != "messages/"+id+"/media" {
				t.Errorf("mediaUrl of %s: got %v", id, url)
			}
		}
		for w := range workers {
			if !slices.IsSorted(sent[w]) {
				t.Errorf("ids of one sender do not rise: %v", sent[w])
			}
			for i, id := range sent[w] {
				if want := fmt.Sprintf("%d/%d", w, i); !strings.Contains(byID[id], want) {
					t.Errorf("%s: got %q, want %q", id, byID[id], want)
				}
			}
		}
		s.Close()
		s = open(t, Options{Dir: dir, MaxBytes: 1 << 20})
	}
}

func FuzzDecode(f *testing.F) {
	e := &entry{id: id{sequence: 5}, account: "a", number: "4917012345678", media: noMedia}
	b, err := encode(e, newRecord(text("x"), e.id, time.Time{}, time.Now()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(encodeClear("a", 5, 3))
	f.Add(b[:30])
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decode(b)
		if err != nil {
			return
		}
		if len(l.entry.account)+len(l.json) > len(b) || int(l.entry.kind) >= len(kinds) && l.what == loggedMessage {
			t.Errorf("got %+v", l)
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("OB0123456789ab0123456789ab")
	f.Add("OB0123456789AB0123456789ab")
	f.Add("OB+123456789ab0123456789ab")
	f.Fuzz(func(t *testing.T, s string) {
		if i, ok := parseID(s); ok && i.String() != s {
			t.Errorf("%q: got %s", s, i)
		}
	})
}

func BenchmarkSend(b *testing.B) {
	for _, senders := range []int{1, 64} {
		b.Run(fmt.Sprint(senders), func(b *testing.B) {
			s := open(b, Options{Dir: b.TempDir()})
			b.SetParallelism(max(1, senders/2))
			if senders == 1 {
				for b.Loop() {
					send(b, s, text("Hello, this is a small text."))
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := trySend(s, text("Hello, this is a small text.")); err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
