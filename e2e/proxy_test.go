package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// numbers counts those that were given out.
var numbers atomic.Int64

// newNumber is a number that no other message goes to: messages to one number wait
// for each other.
func newNumber() string { return fmt.Sprint(15550100000 + numbers.Add(1)) }

// longHold is a minute where that has been asked for, and otherwise long enough
// to be told from an answer at once.
func longHold() time.Duration {
	if *full || os.Getenv("CI") != "" {
		return time.Minute
	}
	return 5 * time.Second
}

func TestThroughProxy(t *testing.T) {
	for _, program := range proxies {
		t.Run(program.program, func(t *testing.T) {
			need(t, program.program)
			t.Parallel()
			s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-trusted-proxies", "127.0.0.1")
			p := program.start(t, strings.TrimPrefix(s.url, "http://"))
			through := p.in(s)
			for _, http2 := range []bool{false, true} {
				client := p.newClient(http2)
				t.Run(map[bool]string{false: "HTTP1", true: "HTTP2"}[http2], func(t *testing.T) {
					t.Run("events arrive as they happen", func(t *testing.T) { testEvents(t, through, client) })
					t.Run("a client that leaves", func(t *testing.T) { testLeaving(t, through, client) })
					t.Run("refused while it is sent", func(t *testing.T) { testRefusedUpload(t, through, client) })
					t.Run("large upload", func(t *testing.T) { testUpload(t, p, through, client) })
				})
			}
			t.Logf("measured: %s: %d MiB at most in one process, 100 MiB uploads among the requests", program.program, p.peak())
			s.signal(syscall.SIGTERM)
			if got := s.wait(); got != 0 {
				t.Errorf("got exit status %d, want 0", got)
			}
			if log := s.stderr.String(); !strings.Contains(log, "client=127.0.0.2") {
				t.Error("the log does not have the real address of the client")
			} else if strings.Contains(log, "203.0.113.9") {
				t.Error("the log has the address that a client made up")
			}
		})
	}
}

// The holds go on at the same time: they are most of what the tests here take.
func TestLongHolds(t *testing.T) {
	for _, program := range proxies {
		need(t, program.program)
	}
	t.Parallel()
	type way struct {
		name    string
		service *service
		client  *http.Client
	}
	s, client := startTLS(t, t.TempDir())
	ways := []way{{"directly over HTTP/2", s, client}}
	for _, program := range proxies {
		s := start(t, filepath.Join(t.TempDir(), "data"), account())
		p := program.start(t, strings.TrimPrefix(s.url, "http://"))
		ways = append(ways, way{program.program + " over HTTP/1.1", p.in(s), p.newClient(false)}, way{program.program + " over HTTP/2", p.in(s), p.newClient(true)})
	}
	hold := longHold()
	var wait sync.WaitGroup
	for _, w := range ways {
		wait.Go(func() {
			begin := time.Now()
			a, err := w.service.sendWith(w.client, "sendText", textTo(newNumber(), int(hold.Milliseconds()), "long hold"))
			if took := time.Since(begin); err != nil || a.Status != 200 || took < hold || took > hold+3*time.Second {
				t.Errorf("%s: got %v %v after %v, want 200 after %v", w.name, a, err, took, hold)
			}
		})
	}
	wait.Wait()
	t.Logf("measured: held for %v in %d ways", hold, len(ways))
}

func testEvents(t *testing.T, s *service, client *http.Client) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/outbox/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Apikey": {key}, "X-Forwarded-For": {"203.0.113.9"}}
	begin := time.Now()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if took := time.Since(begin); response.StatusCode != 200 || took > 2*time.Second {
		t.Fatalf("got %d after %v, want 200 at once", response.StatusCode, took)
	}
	mark := "event " + rand.Text()
	sent := time.Now()
	if a, err := s.sendWith(client, "sendText", textTo(newNumber(), 0, mark)); err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	var seen bytes.Buffer
	for piece := make([]byte, 4096); !bytes.Contains(seen.Bytes(), []byte(mark)); {
		n, err := response.Body.Read(piece)
		seen.Write(piece[:n])
		if err != nil {
			t.Fatalf("the stream ended before the event came: %v", err)
		}
	}
	took := time.Since(sent)
	if took > 2*time.Second {
		t.Errorf("the event came after %v, want at once", took)
	}
	t.Logf("measured: event after %v", took)
}

func testLeaving(t *testing.T, s *service, client *http.Client) {
	const hold = 2 * time.Second
	mark := "left " + rand.Text()
	ctx, leave := context.WithTimeout(t.Context(), hold/4)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/message/sendText/"+token, textTo(newNumber(), int(hold.Milliseconds()), mark))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Apikey": {key}, "Content-Type": {"application/json"}}
	if _, err := client.Do(r); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want that the client left", err)
	}
	time.Sleep(hold)
	if status, found := s.find(client, mark); status != 200 || found {
		t.Errorf("the outbox answers %d, and has the message: %v; want 200 and no message", status, found)
	}
}

// find asks the outbox whether it has a text.
func (s *service) find(client *http.Client, text string) (status int, found bool) {
	s.t.Helper()
	r, err := http.NewRequest("GET", s.url+"/outbox/messages?text="+strings.ReplaceAll(text, " ", "%20"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("apikey", key)
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, bytes.Contains(content, []byte(`"`+text+`"`))
}

// The answer to a request that is refused before its body has come reaches the
// client as the service gave it.
func testRefusedUpload(t *testing.T, s *service, client *http.Client) {
	for _, c := range []struct {
		name, key string
		size      int64
		want      int
		code      string
	}{
		{"wrong key", "wrong", 20 << 20, 401, "unauthorized"},
		{"announced as too large", key, 400 << 20, 413, "too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := io.LimitReader(neverEnding{}, c.size)
			r, err := http.NewRequest("POST", s.url+"/message/sendMedia/"+token, body)
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = c.size
			r.Header = http.Header{"Apikey": {c.key}, "Content-Type": {"application/json"}}
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var a answer
			if err := json.NewDecoder(response.Body).Decode(&a); err != nil || response.StatusCode != c.want || a.Error.Code != c.code {
				t.Errorf("got %d %+v %v, want %d %s", response.StatusCode, a, err, c.want, c.code)
			}
		})
	}
}

// neverEnding is white space without end, a body that is never a JSON value.
type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// 100 MiB are with the service while the client still sends, and on no disk of
// the proxy.
func testUpload(t *testing.T, p *proxy, s *service, client *http.Client) {
	_, body := document(100 << 20)
	paused, proceed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(proceed)
		<-paused
		eventually(t, "the service has most of the first half", func() bool { return spooled(t, s) >= 40<<20 })
		if files, _ := filepath.Glob(filepath.Join(p.dir, "temp", "*")); len(files) > 0 {
			t.Errorf("the proxy has written %d files", len(files))
		}
	}()
	a, err := s.sendWith(client, "sendMedia", &pausingReader{body, 66 << 20, paused, proceed})
	if err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
}

// spooled is how much media is on its way through the service, in bytes.
func spooled(t *testing.T, s *service) (total int64) {
	files, err := os.ReadDir(filepath.Join(s.data, "spool"))
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil { // it may have gone meanwhile
			total += info.Size()
		}
	}
	return total
}

// pausingReader closes paused after some bytes and then waits for proceed.
type pausingReader struct {
	io.Reader
	before          int
	paused, proceed chan struct{}
}

func (r *pausingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if r.before > 0 && r.before <= n {
		close(r.paused)
		<-r.proceed
	}
	r.before -= n
	return n, err
}

// The service is told to stop while requests are held and new ones come.
func TestTermBehindProxy(t *testing.T) {
	for _, program := range proxies {
		t.Run(program.program, func(t *testing.T) {
			need(t, program.program)
			t.Parallel()
			s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-shutdown-grace", "3s")
			p := program.start(t, strings.TrimPrefix(s.url, "http://"))
			through := p.in(s)

			const holds, workers = 200, 8
			answers := make(map[string]answer) // by text
			var mu sync.Mutex
			send := func(delay int, mark string) bool {
				a, err := through.sendWith(p.client, "sendText", textTo(newNumber(), delay, mark))
				if err != nil {
					t.Errorf("%s got no whole answer: %v", mark, err)
				}
				mu.Lock()
				defer mu.Unlock()
				answers[mark] = a
				return a.Status == 200
			}
			var wait sync.WaitGroup
			for i := range holds {
				wait.Go(func() { send([]int{2000, 60_000}[i%2], fmt.Sprint("hold ", i)) })
			}
			time.Sleep(time.Second)
			for w := range workers {
				wait.Go(func() {
					for i := 0; send(0, fmt.Sprint("worker ", w, " ", i)); i++ {
					}
				})
			}
			time.Sleep(200 * time.Millisecond)
			s.signal(syscall.SIGTERM)
			wait.Wait()
			if got := s.wait(); got != 0 {
				t.Errorf("got exit status %d, want 0", got)
			}

			sent := map[string]bool{}
			for _, m := range start(t, s.data, account()).outbox() {
				sent[m.Text] = true
			}
			told := map[string]int{}
			for mark, a := range answers {
				told[fmt.Sprint(a.Status, " ", a.Error.Code)]++
				if a.Status != 200 && a.Error.Code != "shutting_down" && a.Error.Code != "unavailable" || sent[mark] != (a.Status == 200) {
					t.Errorf("%s was answered %d %s; in the outbox: %v", mark, a.Status, a.Error.Code, sent[mark])
				}
			}
			if told["503 shutting_down"] < holds/2 {
				t.Errorf("got answers %v, want at least %d times shutting_down", told, holds/2)
			}
			t.Logf("measured: SIGTERM behind %s: %v", program.program, told)
		})
	}
}

// What a proxy says in place of a service that is not there, or is there no more.
func TestProxyWithoutService(t *testing.T) {
	for _, program := range proxies {
		t.Run(program.program, func(t *testing.T) {
			need(t, program.program)
			t.Parallel()
			s := start(t, filepath.Join(t.TempDir(), "data"), account())
			p := program.start(t, strings.TrimPrefix(s.url, "http://"))
			type result struct {
				answer
				err   error
				keyed bool
			}
			results := make(chan result, 2)
			for _, keyed := range []bool{false, true} {
				go func() {
					r, err := p.request(textTo(newNumber(), 30_000, "held"))
					if keyed {
						r.Header.Set("Idempotency-Key", "one")
					}
					if err != nil {
						results <- result{err: err}
						return
					}
					a, _, err := p.do(r)
					results <- result{a, err, keyed}
				}()
			}
			time.Sleep(time.Second)
			s.kill()
			for range 2 {
				if r := <-results; r.err != nil || r.Status != 504 || r.Error.Code != "delivery_unknown" || r.Error.Retryable != r.keyed {
					t.Errorf("held while the service was killed, with a key: %v: got %d %+v %v, want 504 delivery_unknown, retryable with a key", r.keyed, r.Status, r.answer, r.err)
				}
			}
			for range 3 {
				r, err := p.request(textTo(newNumber(), 0, "x"))
				if err != nil {
					t.Fatal(err)
				}
				a, h, err := p.do(r)
				if err != nil || a.Status != 503 || a.Error.Code != "unavailable" || !a.Error.Retryable || h.Get("Retry-After") == "" || h.Get("X-Request-Id") == "" || h.Get("Content-Type") != "application/json" {
					t.Errorf("got %d %+v with %v (%v), want 503 unavailable, retryable, with Retry-After and X-Request-Id", a.Status, a, h, err)
				}
			}
		})
	}
}
