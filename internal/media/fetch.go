package media

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	maxRedirects   = 3
	maxFetchHeader = 64 << 10    // bytes of an answer's header, a guard against endless ones
	fetchBuffer    = 256 << 10   // bytes read at once; each download has two such buffers
	wholePerMiB    = time.Second // what each MiB of the size limit adds to FetchLimits.Whole
	fetchAgent     = "messagesender/1"
)

// The values for 0 in FetchLimits, for servers on the public internet. A file
// of 100 MiB may take 220 s, which is 4 Mbit/s.
const (
	defaultConnect   = 10 * time.Second
	defaultFirstByte = 15 * time.Second
	defaultStall     = 15 * time.Second
	defaultMinBytes  = 15 << 10
	defaultWhole     = 2 * time.Minute
)

// FetchLimits bounds how long a download may take. 0 is the default in brackets.
type FetchLimits struct {
	Connect   time.Duration // name look-up and connection, for each hop [10 s]
	FirstByte time.Duration // the TLS handshake, and then the answer's header, for each hop [15 s]
	Stall     time.Duration // without one byte of the body [15 s]
	MinBytes  int64         // what each Stall of waiting for the body must bring [15 KiB]
	Whole     time.Duration // everything; each MiB of the size limit adds a second [2 min]
}

// FetchOptions is what a Fetcher is made of.
type FetchOptions struct {
	Spool    *Spool        // where the bytes go; its size limit holds
	Allow    AllowList     // what may be reached besides public addresses
	Resolver *net.Resolver // nil: the system's
	Limits   FetchLimits
}

// Fetcher downloads media from URLs that nobody vouches for. Only public
// addresses and what the allow-list adds are ever connected to; the judgement
// is over the dialled address of each hop. It takes no proxy from the
// environment, keeps no cookies and no connections, and sends no Referer.
// It is safe for concurrent use.
type Fetcher struct {
	spool     *Spool
	limits    FetchLimits
	transport *http.Transport
}

// Fetched is what a server said of what it sent. It is claimed, not proven:
// what the bytes are stands in the Blob's Type.
type Fetched struct {
	Status      int    // of the last answer; 0: there was none
	ContentType string // type/subtype in lower case; empty: none, or unreadable
	FileName    string // by the fileName rule (contract 4.2); empty: none was offered, or none that passes
}

// FetchError is a download that failed by its URL or its server.
type FetchError struct {
	Text      string // for the client: what was received. It holds nothing of the URL and no address
	Retryable bool   // the same URL may work later
	Cause     error  // for the operator, without the URL; nil: Text says it all
}

// Error is the operator's text.
func (e *FetchError) Error() string {
	if e.Cause != nil {
		return e.Text + ": " + e.Cause.Error()
	}
	return e.Text
}

func (e *FetchError) Unwrap() error { return e.Cause }

// Why a download is cut, as the cause of its context.
var (
	errWhole   = errors.New("the time for the whole download is over")
	errStalled = errors.New("no byte arrived")
	errSlow    = errors.New("too few bytes arrived")
)

// NewFetcher makes a Fetcher, which needs no closing.
func NewFetcher(o FetchOptions) *Fetcher {
	l := o.Limits
	l.Connect = orDefault(l.Connect, defaultConnect)
	l.FirstByte = orDefault(l.FirstByte, defaultFirstByte)
	l.Stall = orDefault(l.Stall, defaultStall)
	l.MinBytes = orDefault(l.MinBytes, defaultMinBytes)
	l.Whole = orDefault(l.Whole, defaultWhole) + time.Duration(o.Spool.blob>>20)*wholePerMiB
	g := &guard{allow: o.Allow, dialer: net.Dialer{Timeout: l.Connect, Resolver: o.Resolver}}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &Fetcher{
		spool:  o.Spool,
		limits: l,
		transport: &http.Transport{
			Proxy:                  nil, // a proxy would do the dialling, unjudged
			DialContext:            g.DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    l.FirstByte,
			ResponseHeaderTimeout:  l.FirstByte,
			MaxResponseHeaderBytes: maxFetchHeader,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			Protocols:              protocols,
		},
	}
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Fetch downloads rawURL into the spool. The caller closes the Blob. After an
// error nothing is left: no file, no connection, no goroutine. What the URL or
// its server caused is a *FetchError, with a *TooLargeError inside when it was
// the size; any other error, such as ErrSpoolFull, is the spool's own. Fetched
// is filled in as far as the download came, also beside an error.
func (f *Fetcher) Fetch(ctx context.Context, rawURL string) (*Blob, Fetched, error) {
	ctx, stop := context.WithTimeoutCause(ctx, f.limits.Whole, errWhole)
	defer stop()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	answer, err := f.open(ctx, rawURL)
	if err != nil {
		// Ends a dial that was given up: Transport goes on with it otherwise.
		f.transport.CloseIdleConnections()
		return nil, Fetched{}, f.openError(ctx, err)
	}
	defer answer.Body.Close()
	fetched := Fetched{Status: answer.StatusCode, ContentType: contentType(answer.Header)}
	if err := f.judgeAnswer(answer, fetched); err != nil {
		return nil, fetched, err
	}
	body := &watchedBody{
		body: answer.Body, announced: answer.ContentLength, limits: f.limits, cut: cut,
		stall: time.AfterFunc(f.limits.Stall, func() { cut(errStalled) }),
	}
	defer body.stall.Stop()
	blob, err := f.store(ctx, body)
	if err != nil {
		return nil, fetched, err
	}
	fetched.FileName = offeredName(answer)
	return blob, fetched, nil
}

// open follows redirects to an answer that is none; the caller closes its
// body. It is a loop over RoundTrip, not an http.Client, which would add a
// Referer and put the URL into its errors.
func (f *Fetcher) open(ctx context.Context, rawURL string) (*http.Response, error) {
	target, err := url.Parse(rawURL)
	if err != nil {
		return nil, &FetchError{Text: "the URL is not valid"} // err repeats it
	}
	for hop := 0; ; hop++ {
		if err := judgeTarget(target); err != nil {
			return nil, err
		}
		request := (&http.Request{Method: http.MethodGet, URL: target, Host: target.Host, Header: http.Header{
			"Accept":          {"*/*"},
			"Accept-Encoding": {"identity"},
			"User-Agent":      {fetchAgent},
		}}).WithContext(ctx)
		answer, err := f.transport.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		switch answer.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
			http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return answer, nil
		}
		answer.Body.Close()
		if hop == maxRedirects {
			return nil, &FetchError{Text: fmt.Sprintf("the server redirected more than %d times", maxRedirects)}
		}
		if target, err = answer.Location(); err != nil {
			return nil, &FetchError{Text: fmt.Sprintf("the server answered %d without a valid Location", answer.StatusCode)}
		}
	}
}

// judgeTarget checks the form of one hop's URL; its address is judged when it is dialled.
func judgeTarget(u *url.URL) error {
	_, portErr := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return &FetchError{Text: "only http and https URLs are fetched"}
	case u.User != nil:
		return &FetchError{Text: "a URL with a user name or password is not fetched"}
	case u.Hostname() == "" || u.Opaque != "":
		return &FetchError{Text: "the URL names no host"}
	case u.Port() != "" && portErr != nil:
		return &FetchError{Text: "the URL is not valid"}
	case strings.Contains(u.Hostname(), "%"): // an IPv6 zone
		return &FetchError{Text: errAddressDenied.Error()}
	}
	return nil
}

// judgeAnswer decides by the header whether the body is worth reading.
func (f *Fetcher) judgeAnswer(answer *http.Response, fetched Fetched) error {
	status := answer.StatusCode
	switch {
	// 206 would be a part of the file that nobody asked for.
	case status < 200 || status > 299 || status == http.StatusPartialContent:
		with := "no content type"
		if fetched.ContentType != "" {
			with = fetched.ContentType
		}
		return &FetchError{
			Text:      fmt.Sprintf("the server answered %d with %s", status, with),
			Retryable: status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500,
		}
	case !isIdentity(answer.Header):
		return &FetchError{Text: "the server sent the content compressed, which was not asked for"}
	case answer.ContentLength > f.spool.blob:
		limit := f.spool.blob
		return &FetchError{
			Text:  fmt.Sprintf("the server announced %d bytes, which is more than the limit of %d bytes", answer.ContentLength, limit),
			Cause: &TooLargeError{Limit: limit},
		}
	}
	return nil
}

// isIdentity holds when the body is the content itself. Anything else stays
// packed: a few bytes can unpack to more than any disk holds.
func isIdentity(h http.Header) bool {
	for _, value := range h.Values("Content-Encoding") {
		if value = strings.TrimSpace(value); value != "" && !strings.EqualFold(value, "identity") {
			return false
		}
	}
	return true
}

// store takes body into the spool; nothing of it stays there after an error. A
// second goroutine reads on while the piece before is hashed and written; it has
// ended when store returns.
func (f *Fetcher) store(ctx context.Context, body *watchedBody) (*Blob, error) {
	size := int64(fetchBuffer)
	if body.announced >= 0 {
		size = min(size, body.announced+1) // 1 more, to see the end with the last bytes
	}
	free, pieces := make(chan []byte, 2), make(chan []byte)
	for range cap(free) {
		free <- make([]byte, size)
	}
	go func() {
		defer close(pieces)
		for {
			buffer := <-free
			n, err := io.ReadFull(body, buffer)
			pieces <- buffer[:n]
			if err != nil {
				return
			}
		}
	}()
	w := f.spool.NewWriter()
	defer w.Close()
	var failed error
	for piece := range pieces {
		if failed == nil {
			if _, failed = w.Write(piece); failed != nil {
				body.cut(failed) // ends the reading, and with it this loop
			}
		}
		free <- piece[:cap(piece)]
	}
	switch {
	case failed != nil:
		return nil, storeError(failed)
	case body.err != nil:
		return nil, f.bodyError(ctx, body)
	case body.n == 0:
		return nil, &FetchError{Text: "the server sent an empty body"}
	}
	return w.Finish()
}

// watchedBody reads an answer's body and cuts it when it stalls or is hopelessly slow.
type watchedBody struct {
	body      io.Reader
	announced int64 // its Content-Length; below 0: there was none
	limits    FetchLimits
	cut       context.CancelCauseFunc // of the request
	stall     *time.Timer             // calls cut

	n      int64         // bytes read
	err    error         // why reading failed; nil at the end of the body
	waited time.Duration // spent reading since the last check of the rate
	fresh  int64         // bytes read since then
}

func (b *watchedBody) Read(p []byte) (int, error) {
	start := time.Now()
	b.stall.Reset(b.limits.Stall)
	n, err := b.body.Read(p)
	b.stall.Stop() // the time it takes to store is not the server's
	b.n += int64(n)
	b.fresh += int64(n)
	if b.waited += time.Since(start); err == nil && b.waited >= b.limits.Stall {
		if b.fresh < b.limits.MinBytes {
			b.cut(errSlow)
			err = errSlow
		}
		b.waited, b.fresh = 0, 0
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}
