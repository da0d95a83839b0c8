package whatsapp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// writeTimeout bounds each single write, so that a platform that stops reading
// in the middle of an upload is noticed long before the upload's own bound.
const writeTimeout = 30 * time.Second

var errSealed = errors.New("connection is sealed")

// conn counts what the client asked to be written. It is the only proof that
// nothing of a request left: httptrace reports headers as written before they
// are flushed. Over TLS it stands on the plain-text side, because a handshake or
// a closing alert is not part of a request.
type conn struct {
	net.Conn
	wire *wire // what really left; the same connection as Conn without TLS

	mu      sync.Mutex // held while writing
	written int64      // bytes that left on behalf of requests, all of them together
	sealed  bool
}

// wire counts the bytes below TLS: a record that left in part is not counted by
// tls.Conn, which reports only whole ones.
type wire struct {
	net.Conn
	written atomic.Int64
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.written.Add(int64(n))
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return 0, errSealed
	}
	if err := c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	before := c.wire.written.Load()
	n, err := c.Conn.Write(p)
	c.written += c.wire.written.Load() - before
	return n, err
}

// count is what has left so far. Between two requests nothing is being written.
func (c *conn) count() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written
}

// seal ends the connection and returns its final count. net/http may report a
// failure while its writing goroutine is still on its way: after seal nothing
// more can leave, so a count that has not grown is proof.
func (c *conn) seal() int64 {
	_ = c.wire.Conn.Close() // frees a write that is blocked
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.written
}

// dialer makes the counted connections.
type dialer struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	tls  *tls.Config
}

func (d dialer) plain(ctx context.Context, network, address string) (net.Conn, error) {
	w, err := d.wire(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: w, wire: w}, nil
}

func (d dialer) secure(ctx context.Context, network, address string) (net.Conn, error) {
	w, err := d.wire(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.tls.Clone()
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			_ = w.Close()
			return nil, err
		}
		config.ServerName = host
	}
	secured := tls.Client(w, config)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = w.Close()
		return nil, err
	}
	return &conn{Conn: secured, wire: w}, nil
}

func (d dialer) wire(ctx context.Context, network, address string) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c}, nil
}
