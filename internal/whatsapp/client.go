package whatsapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"time"
)

// DefaultBaseURL and DefaultVersion are where Meta serves the Cloud API.
const (
	DefaultBaseURL = "https://graph.facebook.com"
	DefaultVersion = "v25.0"
)

const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	responseTimeout  = 30 * time.Second // from the last byte of a request to the first of its answer
	callTimeout      = time.Minute      // a call without media, with all its attempts

	// idleTimeout is below what servers and their balancers keep (60 s and more),
	// so that a request seldom meets a connection that is being closed.
	idleTimeout = 30 * time.Second
	// maxConns bounds the connections to the platform; further calls wait for one.
	maxConns = 256

	maxAnswer       = 1 << 20
	maxAnswerHeader = 64 << 10
)

// Settings say where the platform is and how to speak to it.
type Settings struct {
	BaseURL   string // http or https; empty: DefaultBaseURL
	Version   string // of the Graph API, "v25.0"; empty: DefaultVersion
	UserAgent string // "name/1.2.3"

	// Links passes the URL of a media message on to the platform, which fetches it
	// itself and reports a bad one only later, by webhook. Otherwise media comes to
	// Prepare as bytes.
	Links bool

	// Retried and PresenceNotShown count calls that are made again within a request,
	// and presences that could not be shown; nil: nobody counts.
	Retried, PresenceNotShown func()

	// Dial opens the connections; nil: a net.Dialer. TLS configures them; nil: the
	// system's roots. A proxy from the environment is not used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	TLS  *tls.Config
}

// Client is the way to the platform: the connections that all accounts share.
// It is safe for concurrent use.
type Client struct {
	base      *url.URL // with the version
	userAgent string
	links     bool
	transport *http.Transport
	pause     func(ctx context.Context, d time.Duration) error // between two attempts

	retried, notShown func()
}

var (
	versionForm   = regexp.MustCompile(`^v[0-9]{1,3}\.[0-9]{1,3}$`)
	userAgentForm = regexp.MustCompile(`^[A-Za-z0-9_-]+/[0-9]+\.[0-9]+\.[0-9]+$`)
)

// NewClient checks the settings. It connects to nothing yet.
func NewClient(s Settings) (*Client, error) {
	if s.BaseURL == "" {
		s.BaseURL = DefaultBaseURL
	}
	if s.Version == "" {
		s.Version = DefaultVersion
	}
	base, err := url.Parse(s.BaseURL)
	if err != nil {
		return nil, errors.New("the platform's URL cannot be read")
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("the platform's URL must be http or https, with a host, without user, query and fragment")
	}
	if base.Path == "" {
		base.Path = "/" // or JoinPath makes a path that a request line cannot hold
	}
	if !versionForm.MatchString(s.Version) {
		return nil, fmt.Errorf("the platform's version %q is not of the form %s", s.Version, DefaultVersion)
	}
	if !userAgentForm.MatchString(s.UserAgent) {
		return nil, fmt.Errorf("the user agent %q is not of the form name/1.2.3", s.UserAgent)
	}
	d := dialer{dial: s.Dial, tls: s.TLS}
	if d.dial == nil {
		d.dial = (&net.Dialer{}).DialContext
	}
	if d.tls == nil {
		d.tls = &tls.Config{}
	}
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	return &Client{
		base:      base.JoinPath(s.Version),
		userAgent: s.UserAgent,
		links:     s.Links,
		transport: &http.Transport{
			DialContext:            d.plain,
			DialTLSContext:         d.secure,
			Protocols:              http1, // a count of bytes belongs to one request only in HTTP/1.1
			DisableCompression:     true,
			MaxConnsPerHost:        maxConns,
			MaxIdleConnsPerHost:    maxConns,
			IdleConnTimeout:        idleTimeout,
			ResponseHeaderTimeout:  responseTimeout,
			MaxResponseHeaderBytes: maxAnswerHeader,
		},
		pause:    sleep,
		retried:  orNothing(s.Retried),
		notShown: orNothing(s.PresenceNotShown),
	}, nil
}

func orNothing(f func()) func() {
	if f == nil {
		return func() {}
	}
	return f
}

// Close ends the idle connections. It may be called more than once; calls that
// are still running end by themselves.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// call is one request as often as it may have to be made.
type call struct {
	url         *url.URL
	token       string
	contentType string
	body        func() io.Reader // a fresh one for each attempt
	size        int64            // of the body, bytes; never 0
	effect      effect
	attempts    int           // at most
	timeout     time.Duration // of all attempts together
}

// answer is a complete HTTP answer.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// interruption is a call without a complete answer.
type interruption struct {
	written bool // false: certainly not one byte of the request left
	cause   error
}

func (i *interruption) Error() string {
	if i.written {
		return "no readable answer: " + i.cause.Error()
	}
	return "nothing was sent: " + i.cause.Error()
}

func (i *interruption) Unwrap() error { return i.cause }

var errOversized = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)

// exchange makes the call once, never twice: net/http repeats a request by
// itself where it can read its body again (GetBody) or finds an Idempotency-Key
// header, so there is neither. The error is an *interruption.
func (c *Client) exchange(ctx context.Context, k call) (answer, error) {
	var (
		used  *conn
		start int64 // what had left on it before
	)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		used = info.Conn.(*conn)
		start = used.count()
	}})
	req := (&http.Request{
		Method: http.MethodPost,
		URL:    k.url,
		Header: http.Header{
			"Authorization": {"Bearer " + k.token},
			"Content-Type":  {k.contentType},
			"User-Agent":    {c.userAgent},
		},
		Body:          io.NopCloser(k.body()),
		ContentLength: k.size,
	}).WithContext(ctx)
	// RoundTrip instead of a Client: no redirects, no cookies, and no *url.Error,
	// which would print the URL.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return answer{}, &interruption{written: used != nil && used.seal() > start, cause: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errOversized
	}
	if err != nil {
		return answer{}, &interruption{written: true, cause: err}
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: body}, nil
}
