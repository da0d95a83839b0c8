package whatsapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"messagesender/internal/message"
)

// What a connection can do, and when.
var (
	faults = []string{"refuse", "reset", "stall", "truncate", "slow", "corrupt"}
	phases = []string{"dial", "TLS", "request headers", "request body", "before response", "mid-response"}
)

// outcomes is what each cell has to be reported as: not sent, unknown, or sent.
var outcomes = map[string]string{
	//                 refuse   reset    stall    truncate slow  corrupt
	"dial":            "not not not not sent not",
	"TLS":             "not not not not sent not",
	"request headers": "not not not unknown sent unknown",
	"request body":    "unknown unknown unknown unknown sent unknown",
	"before response": "unknown unknown unknown unknown sent unknown",
	"mid-response":    "unknown unknown unknown unknown sent unknown",
}

// faultConn does one thing wrong at one moment of a request. A write that
// begins with the record type of application data, or any write without TLS,
// belongs to the request.
type faultConn struct {
	net.Conn
	fault, phase string
	secure       bool
	stalled      func() // called when it does

	mu       sync.Mutex
	requests int // writes that belonged to the request
	answered int // bytes of the answer that were read
	done     bool
	closed   chan struct{}
	once     sync.Once

	buffer [64 << 10]byte
	rest   []byte // of buffer: read and not yet given
}

func (c *faultConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// due tells whether the fault is to happen now. A slow connection stays slow.
func (c *faultConn) due(phase string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != phase || c.done && c.fault != "slow" {
		return false
	}
	c.done = true
	return true
}

func (c *faultConn) Write(p []byte) (int, error) {
	phase := "request body"
	switch {
	case c.secure && p[0] != 23: // RFC 8446, section 5.1; with TLS 1.2
		phase = "TLS"
	default:
		c.mu.Lock()
		if c.requests == 0 {
			phase = "request headers"
		}
		c.requests++
		c.mu.Unlock()
	}
	if !c.due(phase) {
		return c.Conn.Write(p)
	}
	switch c.fault {
	case "refuse":
		return 0, syscall.ECONNREFUSED
	case "reset":
		c.reset()
		return 0, syscall.ECONNRESET
	case "stall":
		c.stalled()
		<-c.closed
		return 0, net.ErrClosed
	case "truncate":
		n, _ := c.Conn.Write(p[:len(p)/2])
		return n, syscall.EPIPE
	case "slow":
		n, err := c.Conn.Write(p[:len(p)/2])
		if err != nil {
			return n, err
		}
		time.Sleep(3 * time.Millisecond)
		rest, err := c.Conn.Write(p[n:])
		return n + rest, err
	default:
		return c.Conn.Write(spoil(p))
	}
}

func spoil(p []byte) []byte {
	p = append([]byte(nil), p...)
	p[len(p)/2] ^= 0x20
	p[0] ^= 0x20
	return p
}

// Read gives the first bytes of an answer by themselves, so that there is a
// middle. It is called before the request is written, too: net/http waits for
// the answer from then on.
func (c *faultConn) Read(p []byte) (int, error) {
	const head = 30 // bytes of an answer that come before "mid-response"
	var err error
	if len(c.rest) == 0 {
		var n int
		n, err = c.Conn.Read(c.buffer[:])
		c.rest = c.buffer[:n]
	}
	c.mu.Lock()
	asked, phase := c.requests > 0, "before response"
	n := min(len(p), len(c.rest))
	if asked && c.answered < head {
		n = min(n, head-c.answered)
	} else if asked {
		phase = "mid-response"
	}
	if asked {
		c.answered += n
	}
	c.mu.Unlock()
	copy(p, c.rest[:n])
	c.rest = c.rest[n:]
	if n > 0 {
		err = nil
	}
	if !asked || err != nil || !c.due(phase) {
		return n, err
	}
	if c.fault != "slow" && c.fault != "corrupt" {
		c.rest = nil // nothing more comes
	}
	switch c.fault {
	case "refuse":
		c.reset()
		return 0, syscall.ECONNREFUSED
	case "reset":
		c.reset()
		return 0, syscall.ECONNRESET
	case "stall":
		c.stalled()
		<-c.closed
		return 0, net.ErrClosed
	case "truncate":
		_ = c.Conn.Close()
		return 0, io.EOF
	case "slow":
		time.Sleep(3 * time.Millisecond)
		return n, nil
	default:
		copy(p, spoil(p[:n]))
		return n, nil
	}
}

func (c *faultConn) reset() {
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Conn.Close()
}

// faultDialer makes the first broken connections of many, or all of them.
type faultDialer struct {
	fault, phase string
	secure       bool
	broken       int64 // how many connections are
	stalled      func()
	dials        atomic.Int64
}

func (d *faultDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil || d.dials.Add(1) > d.broken {
		return c, err
	}
	if d.phase != "dial" {
		return &faultConn{Conn: c, fault: d.fault, phase: d.phase, secure: d.secure, stalled: d.stalled, closed: make(chan struct{})}, nil
	}
	switch d.fault {
	case "slow":
		time.Sleep(3 * time.Millisecond)
		return c, nil
	case "truncate": // gone as soon as it is there
		_ = c.Close()
		return c, nil
	case "stall":
		d.stalled()
		<-ctx.Done()
		err = ctx.Err()
	case "refuse":
		err = syscall.ECONNREFUSED
	case "reset":
		err = syscall.ECONNRESET
	case "corrupt":
		err = &net.DNSError{Err: "garbled", Name: "graph.facebook.com"}
	}
	_ = c.Close()
	return nil, err
}

// counter is a platform that counts what really arrived: requests that are
// complete and as they were sent.
type counter struct {
	server  *httptest.Server
	arrived atomic.Int64
}

func newCounter(t *testing.T, secure bool, body string) *counter {
	t.Helper()
	c := &counter{}
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || !strings.Contains(string(got), body) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.arrived.Add(1)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		fmt.Fprintf(w, `{"messages":[{"id":"wamid.%d"}]}`, c.arrived.Load())
	}))
	c.server.Config.ErrorLog = discardLog()
	if secure {
		c.server.StartTLS()
	} else {
		c.server.Start()
	}
	return c
}

// TestFaults holds what is reported against what arrived, for every fault in
// every phase, over TLS and without.
func TestFaults(t *testing.T) {
	// Larger than the client's write buffer and its first TLS records, so that
	// headers and body leave in several writes.
	body := strings.Repeat("\U0001F44B", maxText)
	for _, secure := range []bool{true, false} {
		for _, phase := range phases {
			for i, fault := range faults {
				if phase == "TLS" && !secure {
					continue
				}
				want := strings.Fields(outcomes[phase])[i]
				for _, broken := range []int64{1, 1000} {
					name := fmt.Sprintf("secure=%t/%s/%s/broken=%d", secure, phase, fault, broken)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						testFault(t, secure, phase, fault, body, want, broken)
					})
				}
			}
		}
	}
}

func testFault(t *testing.T, secure bool, phase, fault, body, want string, broken int64) {
	platform := newCounter(t, secure, body)
	defer platform.server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := &faultDialer{fault: fault, phase: phase, secure: secure, broken: broken, stalled: cancel}
	settings := Settings{BaseURL: platform.server.URL, Dial: d.dial}
	if secure {
		pool := platform.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		settings.TLS = &tls.Config{RootCAs: pool, ServerName: "example.com", MaxVersion: tls.VersionTLS12}
	}
	r := newRig(t, settings)
	id, err := r.send(ctx, text(body))
	platform.server.CloseClientConnections()
	platform.server.Close() // waits for what is still being handled
	arrived := platform.arrived.Load()

	got := "sent"
	var e *message.Error
	if errors.As(err, &e) {
		got = "unknown"
		if e.Reason != message.DeliveryUnknown {
			got = "not"
		}
	} else if err != nil || id == "" {
		t.Fatalf("got id %q, error %v", id, err)
	}
	switch {
	case arrived > 1:
		t.Errorf("the message arrived %d times", arrived)
	case got == "not" && arrived != 0:
		t.Errorf("reported as not sent (%v), and it arrived", err)
	case got == "sent" && arrived != 1:
		t.Error("reported as sent, and it did not arrive")
	}
	if want == "not" && broken == 1 && fault != "stall" {
		want = "sent" // by the second attempt
	}
	// Without TLS, what is spoiled can still be read, and be refused or be taken.
	if got != want && (secure || fault != "corrupt") {
		t.Errorf("reported as %s (%v), want %s", got, err, want)
	}
	if dials := d.dials.Load(); got == "unknown" && dials != 1 {
		t.Errorf("%d connections were made for an unknown outcome, want 1", dials)
	}
}
