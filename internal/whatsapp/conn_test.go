package whatsapp

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
)

func pipe(t *testing.T) (c *conn, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	w := &wire{Conn: near}
	return &conn{Conn: w, wire: w}, far
}

func TestNothingLeavesASealedConnection(t *testing.T) {
	c, far := pipe(t)
	if n := c.seal(); n != 0 {
		t.Errorf("sealed at %d bytes, want 0", n)
	}
	if n, err := c.Write([]byte("late")); n != 0 || !errors.Is(err, errSealed) {
		t.Errorf("a late write: %d, %v; want 0, %v", n, err, errSealed)
	}
	if b, err := io.ReadAll(far); len(b) != 0 || err != nil {
		t.Errorf("the far side got %q, %v; want nothing", b, err)
	}
}

// TestSealFreesABlockedWrite: what did leave of it is counted.
func TestSealFreesABlockedWrite(t *testing.T) {
	c, far := pipe(t)
	written := make(chan int)
	go func() {
		n, _ := c.Write([]byte("hello"))
		written <- n
	}()
	if _, err := io.ReadFull(far, make([]byte, 2)); err != nil { // the write has begun, and blocks
		t.Fatal(err)
	}
	if n := c.seal(); n != 2 {
		t.Errorf("sealed at %d bytes, want 2", n)
	}
	if n := <-written; n != 2 {
		t.Errorf("the write reports %d bytes, want 2", n)
	}
}

// deaf is a connection that takes one request and fails the next, before a byte
// of it.
type deaf struct {
	net.Conn
	requests int
}

func (c *deaf) Write(p []byte) (int, error) {
	if c.requests++; c.requests > 1 {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// TestOnlyThisRequestCounts: what earlier requests wrote on a kept connection
// says nothing about this one, which is therefore certainly not sent.
func TestOnlyThisRequestCounts(t *testing.T) {
	meta := newMeta(t)
	var dials atomic.Int64
	r := newRig(t, Settings{BaseURL: meta.server.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &deaf{Conn: c}, err
	}})
	const sends = 5
	for range sends {
		if _, err := r.send(t.Context(), text("Hello")); err != nil {
			t.Fatal(err)
		}
	}
	if got := meta.received(); got != sends {
		t.Errorf("%d messages arrived, want %d", got, sends)
	}
	if got := dials.Load(); got != sends || len(*r.pauses) != sends-1 {
		t.Errorf("%d connections and %d repetitions, want %d and %d", got, len(*r.pauses), sends, sends-1)
	}
}
