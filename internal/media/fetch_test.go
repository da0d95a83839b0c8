package media

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var png = append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), make([]byte, 100)...)

// fetchRig is a Fetcher with its own spool, which must be empty at the end.
type fetchRig struct {
	t       *testing.T
	spool   *Spool
	dir     string
	fetcher *Fetcher
}

// newFetchRig allows loopback addresses unless allow says something else.
func newFetchRig(t *testing.T, o FetchOptions, allow ...string) *fetchRig {
	t.Helper()
	dir := t.TempDir()
	spool, err := OpenSpool(dir, Limits{Blob: 1 << 20, Total: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	list := "127.0.0.1/32"
	if len(allow) > 0 {
		list = allow[0]
	}
	if o.Allow, err = ParseAllow(list); err != nil {
		t.Fatal(err)
	}
	if o.Resolver == nil {
		o.Resolver = noNames()
	}
	o.Spool = spool
	rig := &fetchRig{t: t, spool: spool, dir: dir, fetcher: NewFetcher(o)}
	t.Cleanup(rig.checkEmpty)
	return rig
}

func (r *fetchRig) checkEmpty() {
	if files, err := os.ReadDir(r.dir); err != nil || len(files) != 0 {
		r.t.Errorf("the spool directory holds %v (%v), want nothing", files, err)
	}
	if used := r.spool.Used(); used != 0 {
		r.t.Errorf("the spool counts %d bytes in use, want 0", used)
	}
}

// fail fetches url, which must fail, and returns how.
func (r *fetchRig) fail(url string) *FetchError {
	r.t.Helper()
	blob, _, err := r.fetcher.Fetch(r.t.Context(), url)
	if err == nil {
		blob.Close()
		r.t.Fatalf("Fetch(%q) succeeded, want a failure", url)
	}
	var failed *FetchError
	if !errors.As(err, &failed) {
		r.t.Fatalf("Fetch(%q) = %v (%T), want a *FetchError", url, err, err)
	}
	return failed
}

// noNames is a resolver to which no name is known, and which asks nobody.
func noNames() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name is known here")
	}}
}

// backTo waits until no more goroutines run than before.
func backTo(t *testing.T, before int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// rawServer answers every connection by answer, which is given the request's
// header, and then closes it. The returned address has the form host:port.
func rawServer(t *testing.T, answer func(conn net.Conn, request string)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { serveRaw(conn, answer) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

func serveRaw(conn net.Conn, answer func(net.Conn, string)) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Hour)) // in fake time as well
	var request strings.Builder
	for reader := bufio.NewReader(conn); !strings.HasSuffix(request.String(), "\r\n\r\n"); {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		request.WriteString(line)
	}
	answer(conn, request.String())
}

// untilClosed blocks until the client has gone.
func untilClosed(conn net.Conn) { io.Copy(io.Discard, conn) }

func TestFetch(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		rig := newFetchRig(t, FetchOptions{})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8") // wrong, and without effect
			w.Write(png)
		}))
		defer server.Close()
		blob, fetched, err := rig.fetcher.Fetch(t.Context(), server.URL+"/a/pic%20ture.png?sig=1")
		if err != nil {
			t.Fatal(err)
		}
		defer blob.Close()
		if got, _ := io.ReadAll(blob.NewReader()); !bytes.Equal(got, png) {
			t.Errorf("fetched %q, want %q", got, png)
		}
		if !blob.Type().Is(Image) {
			t.Errorf("the type is %v, want an image: content decides", blob.Type())
		}
		if want := (Fetched{Status: 200, ContentType: "text/plain", FileName: "pic ture.png"}); fetched != want {
			t.Errorf("fetched %+v, want %+v", fetched, want)
		}
	})
	backTo(t, before)
}

// TestURLIsNotTouched: a presigned URL holds only while every byte of it stays.
func TestURLIsNotTouched(t *testing.T) {
	var seen atomic.Value
	addr := rawServer(t, func(conn net.Conn, request string) {
		seen.Store(request)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
	})
	rig := newFetchRig(t, FetchOptions{})
	for _, target := range []string{
		"/", "/a%2fb%2Fc/%7Euser/~user", "/a//b/../c/./d", "/x?", "/x?b=1&a=2&b=0", "/x?X-Amz-Signature=ab%2Bcd%2b+e%20f&Z&=1",
		"/(a)!$&'*,;:@=", "/x?q=/?:@!$'()*,;[]{}|^`", "/%e2%82%ac/%E2%82%AC", "/x?%zz&a%", "/x;p=1;q=2",
	} {
		blob, _, err := rig.fetcher.Fetch(t.Context(), "http://"+addr+target+"#fragment")
		if err != nil {
			t.Errorf("%s: %v", target, err)
			continue
		}
		blob.Close()
		line, header, _ := strings.Cut(seen.Load().(string), "\r\n")
		if want := "GET " + target + " HTTP/1.1"; line != want {
			t.Errorf("the request line is %q, want %q", line, want)
		}
		for _, field := range []string{"Referer", "Cookie", "Authorization", "Range"} {
			if strings.Contains(header, "\r\n"+field+":") {
				t.Errorf("the request has a %s: %q", field, header)
			}
		}
		if !strings.Contains(header, "\r\nAccept-Encoding: identity\r\n") {
			t.Errorf("the request does not ask for the identity encoding: %q", header)
		}
	}
}

func TestRedirects(t *testing.T) {
	var requests []string
	var lock sync.Mutex
	mux := http.NewServeMux()
	mux.HandleFunc("/end", func(w http.ResponseWriter, r *http.Request) { w.Write(png) })
	mux.HandleFunc("/{hops}/{code}", func(w http.ResponseWriter, r *http.Request) {
		lock.Lock()
		requests = append(requests, r.Header.Get("Referer")+r.Header.Get("Cookie"))
		lock.Unlock()
		hops, _ := strconv.Atoi(r.PathValue("hops"))
		code, _ := strconv.Atoi(r.PathValue("code"))
		to := "../end"
		if hops > 1 {
			to = fmt.Sprintf("../%d/%d", hops-1, code)
		}
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		w.Header().Set("Location", to)
		w.WriteHeader(code)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	rig := newFetchRig(t, FetchOptions{})
	for _, code := range []int{301, 302, 303, 307, 308} {
		blob, fetched, err := rig.fetcher.Fetch(t.Context(), fmt.Sprintf("%s/3/%d", server.URL, code))
		if err != nil {
			t.Fatalf("3 redirects by %d: %v", code, err)
		}
		if fetched.FileName != "end" {
			t.Errorf("3 redirects by %d: the name is %q, want %q", code, fetched.FileName, "end")
		}
		blob.Close()
		if got := rig.fail(fmt.Sprintf("%s/4/%d", server.URL, code)); got.Text != "the server redirected more than 3 times" || got.Retryable {
			t.Errorf("4 redirects by %d: %+v, want a refusal", code, got)
		}
	}
	for _, r := range requests {
		if r != "" {
			t.Errorf("a request carried a Referer or a cookie: %q", r)
		}
	}
}

// hostile is what servers do, what the client is told, and whether it may try again.
var hostile = []struct {
	name, answer string
	text         string
	retryable    bool
}{
	{"404 with an HTML page", "HTTP/1.1 404 Not Found\r\nContent-Type: Text/HTML; charset=utf-8\r\nContent-Length: 4\r\n\r\n<ht>", "the server answered 404 with text/html", false},
	{"403 without a type", "HTTP/1.1 403 Forbidden\r\n\r\n", "the server answered 403 with no content type", false},
	{"404 with a type that is none", "HTTP/1.1 404 Not Found\r\nContent-Type: <script>\r\n\r\n", "the server answered 404 with no content type", false},
	{"429", "HTTP/1.1 429 Slow\r\nContent-Type: text/plain\r\n\r\n", "the server answered 429 with text/plain", true},
	{"500", "HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\n\r\n", "the server answered 500 with text/plain", true},
	{"206 that nobody asked for", "HTTP/1.1 206 Part\r\nContent-Type: image/png\r\nContent-Length: 1\r\n\r\nx", "the server answered 206 with image/png", false},
	{"304", "HTTP/1.1 304 Not Modified\r\n\r\n", "the server answered 304 with no content type", false},
	{"101", "HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "the server answered 101 with no content type", false},
	{"redirect without Location", "HTTP/1.1 302 Found\r\n\r\n", "the server answered 302 without a valid Location", false},
	{"redirect to what is no URL", "HTTP/1.1 302 Found\r\nLocation: http://[secret/\r\n\r\n", "the server answered 302 without a valid Location", false},
	{"redirect loop", "HTTP/1.1 302 Found\r\nLocation: /x?token=secret\r\n\r\n", "the server redirected more than 3 times", false},
	{"gzip bomb", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", "the server sent the content compressed, which was not asked for", false},
	{"two encodings", "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Encoding: br\r\n\r\nx", "the server sent the content compressed, which was not asked for", false},
	{"no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "the server sent an empty body", false},
	{"204", "HTTP/1.1 204 No Content\r\n\r\n", "the server sent an empty body", false},
	{"body shorter than announced", "HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n" + strings.Repeat("x", 120), "the server sent 120 of 4096 bytes", true},
	{"body cut between chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "the server stopped after 3 bytes", true},
	{"chunk of no size", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nsecret\r\n", "the server stopped after 3 bytes", true},
	{"more announced than is allowed", "HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n", "the server announced 1048577 bytes, which is more than the limit of 1048576 bytes", false},
	{"more sent than is allowed", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1<<20+1), "the content is larger than the limit of 1048576 bytes", false},
	{"not HTTP", "secret secret\r\n\r\n", "the server gave no usable answer", true},
	{"no answer", "", "the server gave no usable answer", true},
	{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "the server gave no usable answer", true},
	{"endless header", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("secret", 100)+"\r\n", 1000), "the server gave no usable answer", true},
}

func TestHostileServers(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			rig := newFetchRig(t, FetchOptions{})
			addr := rawServer(t, func(conn net.Conn, _ string) { io.WriteString(conn, tt.answer) })
			before := runtime.NumGoroutine()
			got := rig.fail("http://" + addr + "/path?token=secret")
			backTo(t, before)
			if got.Text != tt.text || got.Retryable != tt.retryable {
				t.Errorf("got %q, retryable %v; want %q, retryable %v", got.Text, got.Retryable, tt.text, tt.retryable)
			}
			for _, secret := range []string{"secret", "/path", "127.0.0.1"} {
				if strings.Contains(got.Text, secret) || secret != "127.0.0.1" && strings.Contains(got.Error(), secret) {
					t.Errorf("the error %q repeats %q", got.Error(), secret)
				}
			}
			if tooLarge := new(TooLargeError); errors.As(got, &tooLarge) != strings.Contains(tt.text, "limit") {
				t.Errorf("%v: wrongly or not a TooLargeError", got)
			}
		})
	}
}

func TestBodyLongerThanAnnouncedIsCut(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{})
	addr := rawServer(t, func(conn net.Conn, _ string) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdefgh")
	})
	blob, _, err := rig.fetcher.Fetch(t.Context(), "http://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	if got, _ := io.ReadAll(blob.NewReader()); string(got) != "abc" {
		t.Errorf("fetched %q, want %q", got, "abc")
	}
}

func TestPageInsteadOfAPictureIsSeen(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{})
	addr := rawServer(t, func(conn net.Conn, _ string) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n<!DOCTYPE html><html><body>Sign in</body></html>")
	})
	blob, _, err := rig.fetcher.Fetch(t.Context(), "http://"+addr+"/picture.png")
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	if blob.Type().Is(Image) {
		t.Errorf("a page counts as an image (%v)", blob.Type())
	}
}

func TestEndlessBody(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{})
	addr := rawServer(t, func(conn net.Conn, _ string) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		for chunk := make([]byte, 1<<16); ; {
			if _, err := conn.Write(chunk); err != nil {
				return
			}
		}
	})
	before := runtime.NumGoroutine()
	if got := rig.fail("http://" + addr); got.Text != "the content is larger than the limit of 1048576 bytes" {
		t.Errorf("got %q", got.Text)
	}
	backTo(t, before)
}

// TestTime runs the true limits in fake time, over pipes instead of sockets.
func TestTime(t *testing.T) {
	every := func(pause time.Duration, what string) func(net.Conn, string) {
		return func(conn net.Conn, _ string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n")
			for {
				if _, err := io.WriteString(conn, what); err != nil {
					return
				}
				time.Sleep(pause)
			}
		}
	}
	tests := []struct {
		name   string
		answer func(net.Conn, string)
		text   string
		took   time.Duration
	}{
		{"stall before the header", func(conn net.Conn, _ string) { untilClosed(conn) }, "no answer within 15s", 15 * time.Second},
		{"stall in the header", func(conn net.Conn, _ string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nA: ")
			untilClosed(conn)
		}, "no answer within 15s", 15 * time.Second},
		{"stall before the body", func(conn net.Conn, _ string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
			untilClosed(conn)
		}, "the server sent nothing for 15s, after 0 bytes", 15 * time.Second},
		{"stall in the body", func(conn net.Conn, _ string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n"+strings.Repeat("x", 120))
			untilClosed(conn)
		}, "the server sent nothing for 15s, after 120 of 4096 bytes", 15 * time.Second},
		{"a byte a second", every(time.Second, "x"), "the server sent less than 15360 bytes in 15s, after 16 of 900000 bytes", 15 * time.Second},
		{"a little over the lowest rate", every(900*time.Millisecond, strings.Repeat("x", 1000)), "the download was cut after 2m1s, after 135000 of 900000 bytes", 121 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rig := newFetchRig(t, FetchOptions{})
				overPipes(t, rig.fetcher, tt.answer)
				start := time.Now()
				got := rig.fail("http://media.example/")
				if got.Text != tt.text || !got.Retryable {
					t.Errorf("got %q, retryable %v; want %q, retryable", got.Text, got.Retryable, tt.text)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
			})
		})
	}
	t.Run("a slow server that ends in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rig := newFetchRig(t, FetchOptions{})
			overPipes(t, rig.fetcher, func(conn net.Conn, _ string) {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234")
				time.Sleep(14 * time.Second)
				io.WriteString(conn, "56789")
			})
			blob, _, err := rig.fetcher.Fetch(t.Context(), "http://media.example/")
			if err != nil {
				t.Fatal(err)
			}
			blob.Close()
		})
	})
}

// overPipes connects f to a server in the same bubble of fake time.
func overPipes(t *testing.T, f *Fetcher, answer func(net.Conn, string)) {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	f.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		running.Go(func() { serveRaw(server, answer) })
		return client, nil
	}
}

func TestConnectLimit(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{
		Limits: FetchLimits{Connect: 20 * time.Millisecond},
		Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done() // a name server that never answers
			return nil, ctx.Err()
		}},
	})
	before := runtime.NumGoroutine()
	if got := rig.fail("http://media.example/"); got.Text != "no connection within 20ms" || !got.Retryable {
		t.Errorf("got %q, retryable %v", got.Text, got.Retryable)
	}
	backTo(t, before)
}

func TestNobodyListens(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	if got := rig.fail("http://" + listener.Addr().String()); got.Text != "no connection to the server" || !got.Retryable {
		t.Errorf("got %q, retryable %v", got.Text, got.Retryable)
	}
}

func TestClientLeaves(t *testing.T) {
	for _, phase := range []string{"while dialling", "before the header", "in the body"} {
		t.Run(phase, func(t *testing.T) {
			arrived, arrive := context.WithCancel(t.Context())
			rig := newFetchRig(t, FetchOptions{Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				arrive()
				<-ctx.Done()
				return nil, ctx.Err()
			}}})
			addr := rawServer(t, func(conn net.Conn, _ string) {
				if phase == "in the body" {
					io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"+strings.Repeat("x", 1000))
				}
				arrive()
				untilClosed(conn)
			})
			if phase == "while dialling" {
				addr = "media.example"
			}
			before := runtime.NumGoroutine()
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-arrived.Done(); cancel() }()
			_, _, err := rig.fetcher.Fetch(ctx, "http://"+addr)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
			backTo(t, before)
		})
	}
}

func TestSpoolFullStaysRecognisable(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{})
	rig.spool.total.limit = 1000
	addr := rawServer(t, func(conn net.Conn, _ string) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		conn.Write(make([]byte, 1<<20))
	})
	_, _, err := rig.fetcher.Fetch(t.Context(), "http://"+addr)
	if !errors.Is(err, ErrSpoolFull) {
		t.Errorf("got %v, want %v", err, ErrSpoolFull)
	}
}

func TestHTTPS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("the request came by %s, want HTTP/1.1", r.Proto)
		}
		w.Write(png)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	rig := newFetchRig(t, FetchOptions{})
	if got := rig.fail(server.URL); got.Text != "the server's certificate is not valid" || got.Retryable {
		t.Errorf("got %q, retryable %v", got.Text, got.Retryable)
	}
	plain := httptest.NewServer(nil)
	defer plain.Close()
	if got := rig.fail("https" + strings.TrimPrefix(plain.URL, "http")); got.Text != "the server does not speak TLS" || got.Retryable {
		t.Errorf("got %q, retryable %v", got.Text, got.Retryable)
	}
	rig.fetcher.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	rig.fetcher.transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	blob, _, err := rig.fetcher.Fetch(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	blob.Close()
}

func TestOfferedName(t *testing.T) {
	tests := []struct{ name, disposition, path, want string }{
		{"in the path", "", "/files/report.pdf", "report.pdf"},
		{"escaped in the path", "", "/r%C3%A9sum%C3%A9%20.pdf", "résumé .pdf"},
		{"no path", "", "", ""},
		{"a folder", "", "/files/", ""},
		{"dots", "", "/files/..", ""},
		{"escaped slash", "", "/files/..%2f..%2fetc%2fpasswd", ""},
		{"escaped control character", "", "/a%0Ab.pdf", ""},
		{"filename", `attachment; filename="a b.pdf"`, "/x", "a b.pdf"},
		{"filename*", `attachment; filename="x.pdf"; filename*=UTF-8''%e2%82%ac.pdf`, "/x", "€.pdf"},
		{"path on the server's disk", `attachment; filename="C:\docs\x.pdf"`, "/x", "x.pdf"},
		{"path upwards", `attachment; filename="../../x.pdf"`, "/y", "x.pdf"},
		{"bidi override", "attachment; filename*=UTF-8''a%E2%80%AEfdp.exe", "/y.pdf", "y.pdf"},
		{"too long", `attachment; filename="` + strings.Repeat("x", 256) + `"`, "/y", "y"},
		{"not to be read", "attachment; filename=a b c", "/y", "y"},
		{"no name in it", "inline", "/y", "y"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			request, err := http.NewRequest("GET", "http://h"+tt.path+"?q=1", nil)
			if err != nil {
				t.Fatal(err)
			}
			answer := &http.Response{Request: request, Header: http.Header{}}
			answer.Header.Set("Content-Disposition", tt.disposition)
			if got := offeredName(answer); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
