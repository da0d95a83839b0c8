package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"messagesender/internal/appendlog"
	"messagesender/internal/message"
)

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

func TestKillLosesNothing(t *testing.T) {
	dir, left := t.TempDir(), t.TempDir()
	s := open(t, Options{Dir: dir})
	send(t, s, text("one"))
	id := send(t, s, file(blob(t, png(50)), "", ""))
	// What a process leaves that is killed now: the store is still open.
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	want := do(s, "GET", "messages").Body.String()
	s = open(t, Options{Dir: left})
	if got := do(s, "GET", "messages").Body.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if w := do(s, "GET", "messages/"+id+"/media"); !bytes.Equal(w.Body.Bytes(), png(50)) {
		t.Errorf("media: got %d with %d bytes", w.Code, w.Body.Len())
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
