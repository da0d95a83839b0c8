package whatsapp

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/platformtest"
)

// description is Meta's own OpenAPI description of the two endpoints, which
// stands beside the project and is no part of it.
const description = "../../../shared/whatsapp-cloud/bm-sending.yaml"

// prism serves the description, checks every request against it, and answers as
// the header Prefer says. The test does not run where it or the description is
// absent; in CI both have to be there.
func startPrism(t *testing.T) (address string, output *logBuffer) {
	t.Helper()
	absent := func(what string) {
		t.Helper()
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is absent, and CI must have it", what)
		}
		t.Skipf("%s is absent", what)
	}
	yaml, err := filepath.Abs(description)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(yaml); err != nil {
		absent("Meta's description (" + description + ")")
	}
	program := os.Getenv("PRISM")
	if program == "" {
		program = "prism"
	}
	if program, err = exec.LookPath(program); err != nil {
		absent("prism (npm: @stoplight/prism-cli 5.14; on PATH, or named by PRISM)")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	output = &logBuffer{}
	cmd := exec.Command(program, "mock", "-h", "127.0.0.1", "-p", port, "--errors", yaml)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		select {
		case <-ended:
			t.Fatalf("prism ended:\n%s", output)
		default:
		}
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address, output
		}
	}
	t.Fatalf("prism does not come up:\n%s", output)
	return "", nil
}

// prefer is a reverse proxy that tells prism which answer to give.
type prefer struct {
	proxy *httputil.ReverseProxy

	mu     sync.Mutex
	next   string            // value of Prefer; empty: what prism answers by itself
	change *strings.Replacer // of the answer; nil: none
	answer string            // prism's last answer, for reports
	calls  int
}

func newPrefer(t *testing.T, address string) (*prefer, string) {
	p := &prefer{}
	target := &url.URL{Scheme: "http", Host: address}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.calls++
			if p.next != "" {
				r.Out.Header.Set("Prefer", p.next)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.answer = string(b)
			if p.change != nil {
				p.answer = p.change.Replace(p.answer)
			}
			r.Body = io.NopCloser(strings.NewReader(p.answer))
			r.ContentLength = int64(len(p.answer))
			r.Header.Set("Content-Length", fmt.Sprint(len(p.answer)))
			return nil
		},
		ErrorLog: discardLog(),
	}
	server := httptest.NewServer(p.proxy)
	t.Cleanup(server.Close)
	return p, server.URL
}

func (p *prefer) set(next string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.change, p.calls = next, nil, 0
}

func (p *prefer) last() (answer string, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answer, p.calls
}

// TestAgainstMetasDescription sends every request that the platform can make to
// Meta's description of itself, and every failure that the description scripts.
func TestAgainstMetasDescription(t *testing.T) {
	address, output := startPrism(t)
	proxy, base := newPrefer(t, address)
	r := newRig(t, Settings{BaseURL: base, Links: true})
	r.heard(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("prism says:\n%s", output)
		}
	})

	yes, no := true, false
	blob := func(content string) media.Source { return media.Source{Blob: platformtest.Blob(t, content)} }
	link := media.Source{URL: "https://example.org/a.bin?b=c&d=e"}
	for name, c := range map[string]message.Content{
		"text":                 message.Text{Body: "Hello & <welcome>\n👋"},
		"longest text":         message.Text{Body: strings.Repeat("x", maxText)},
		"longest in emoji":     message.Text{Body: strings.Repeat("👋", maxText)},
		"text with preview":    message.Text{Body: "https://example.org/", LinkPreview: &yes},
		"text without preview": message.Text{Body: "https://example.org/", LinkPreview: &no},
		"image":                message.File{Kind: media.Image, Caption: "c", Source: blob(platformtest.PNG)},
		"longest caption":      message.File{Kind: media.Image, Caption: strings.Repeat("x", maxCaption), Source: blob(platformtest.JPEG)},
		"video":                message.File{Kind: media.Video, Source: blob(platformtest.MP4)},
		"document":             message.File{Kind: media.Document, Name: "Bericht \"März\".pdf", Caption: "c", Source: blob(platformtest.PDF)},
		"large document":       message.File{Kind: media.Document, Name: "large.pdf", Source: blob(platformtest.PDF + strings.Repeat("% \n", 1<<20))},
		"audio":                message.File{Kind: media.Audio, Source: blob(platformtest.AMR)},
		"voice note":           message.Voice{Source: blob(platformtest.Opus)},
		"voice, no note":       message.Voice{Source: blob(platformtest.AMR)},
		"image by link":        message.File{Kind: media.Image, Caption: "c", Source: link},
		"video by link":        message.File{Kind: media.Video, Source: link},
		"document by link":     message.File{Kind: media.Document, Name: "a.pdf", Source: link},
		"audio by link":        message.File{Kind: media.Audio, Source: link},
		"voice by link":        message.Voice{Source: link},
	} {
		t.Run(name, func(t *testing.T) {
			// Without a preference the mock may pick the answer to a typing call.
			m := text("")
			m.Content, m.Presence = c, message.Recording
			proxy.set("")
			d, err := r.Prepare(t.Context(), m)
			if err != nil {
				answer, _ := proxy.last()
				t.Fatalf("Prepare: %v\n%s", err, answer)
			}
			proxy.set("example=Send typing indicator and read receipt")
			if _, err := d.ShowPresence(t.Context()); err != nil {
				answer, _ := proxy.last()
				t.Fatalf("ShowPresence: %v\n%s", err, answer)
			}
			proxy.set("example=Send Text Message")
			id, err := d.Deliver(t.Context())
			if err != nil || !strings.HasPrefix(id, "wamid.") {
				answer, _ := proxy.last()
				t.Fatalf("Deliver: id %q, %v\n%s", id, err, answer)
			}
		})
	}

	t.Run("the description is held against requests", func(t *testing.T) {
		for _, body := range []string{
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"1","type":"image","image":{"id":"1","link":"https://example.org/"}}`,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"1","type":"text","text":{"body":"x","unknown":1}}`,
			`{"messaging_product":"whatsapp","recipient_type":"individual","to":"1","type":"text","text":{"body":""}}`,
		} {
			proxy.set("example=Send Text Message")
			if _, err := r.do(t.Context(), r.messages([]byte(body), once, 1), sentID); err == nil {
				t.Errorf("taken: %s", body)
			}
		}
	})

	for _, c := range []struct {
		code, status int // as the description has them
		want         message.Reason
		answered     int // the status of our own answer
		retryable    bool
		after        time.Duration
		calls        int
		like         int // the description lacks this code; the answer is made from another's. 0: it has it
	}{
		{100, 400, message.PlatformRejected, 502, false, 0, 1, 0},
		{131026, 400, message.RecipientUnavailable, 422, false, 0, 1, 0},
		{131047, 400, message.RecipientUnavailable, 422, false, 0, 1, 0},
		{131053, 400, message.MediaUnavailable, 422, false, 0, 1, 0},
		{131056, 400, message.RateLimited, 429, true, pairWait, 1, 0},
		{190, 401, message.PlatformRejected, 502, false, 0, 1, 0},
		{130429, 429, message.RateLimited, 429, true, throughputWait, maxAttempts, 0},
		{80007, 429, message.RateLimited, 429, true, quotaWait, 1, 0},
		{2, 503, message.Unavailable, 503, true, unreachableWait, maxAttempts, 0},
		{4, 429, message.RateLimited, 429, true, quotaWait, 1, 80007},
		{368, 401, message.PlatformRejected, 502, false, 0, 1, 190},
		{131016, 503, message.Unavailable, 503, true, unreachableWait, maxAttempts, 0},
	} {
		t.Run(fmt.Sprint("code ", c.code), func(t *testing.T) {
			proxy.set(fmt.Sprintf("code=%d, example=e%d", c.status, cmp.Or(c.like, c.code)))
			if c.like != 0 {
				proxy.change = strings.NewReplacer(fmt.Sprint(c.like), fmt.Sprint(c.code))
			}
			_, err := r.send(t.Context(), text("Hello"))
			answer, calls := proxy.last()
			var e *message.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v\n%s", err, answer)
			}
			if e.Reason != c.want || e.Reason.Status() != c.answered || e.Retryable != c.retryable || e.RetryAfter != c.after {
				t.Errorf("got %s (%d), retryable %t, after %v; want %s (%d), %t, %v\n%s", e.Reason, e.Reason.Status(),
					e.Retryable, e.RetryAfter, c.want, c.answered, c.retryable, c.after, answer)
			}
			if len(e.Details) != 1 || e.Details[0].PlatformCode != c.code || e.Details[0].Message == "" {
				t.Errorf("details %+v, want the platform's code %d and words", e.Details, c.code)
			}
			if calls != c.calls {
				t.Errorf("%d calls, want %d", calls, c.calls)
			}
		})
	}
}
