package outbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"messagesender/internal/message"
)

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
