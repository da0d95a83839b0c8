package body

import (
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// connection is a ResponseWriter whose body arrives byte by byte.
type connection struct {
	http.ResponseWriter
	every    time.Duration // between two pieces
	piece    int           // bytes of each
	left     int           // bytes until the end of the body
	deadline time.Time
	read     int
}

func (c *connection) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }

func (c *connection) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	if wait := time.Until(c.deadline); !c.deadline.IsZero() && wait < c.every {
		time.Sleep(wait)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(c.every)
	n := min(c.piece, len(b), c.left)
	c.left -= n
	c.read += n
	return n, nil
}

func TestBodyHasToKeepComing(t *testing.T) {
	for _, c := range []struct {
		name string
		conn connection
		want error
		took time.Duration
	}{
		{"at once", connection{piece: 1 << 20, left: 10 << 20}, nil, 0},
		{"at twice the rate, for ten minutes", connection{piece: 128 << 10, every: time.Second, left: 600 * 128 << 10}, nil, 10 * time.Minute},
		{"slow, and over within the grace", connection{piece: 1, every: time.Second, left: 29}, nil, 29 * time.Second},
		{"a byte a second", connection{piece: 1, every: time.Second, left: 1000}, os.ErrDeadlineExceeded, 30 * time.Second},
		{"nothing", connection{piece: 1, every: time.Hour, left: 1}, os.ErrDeadlineExceeded, 30 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				r := NewReader(&c.conn, http.NewResponseController(&c.conn))
				_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 128<<10))
				if !errors.Is(err, c.want) || time.Since(begin).Truncate(time.Second) != c.took {
					t.Errorf("got %v after %v, want %v after %v", err, time.Since(begin), c.want, c.took)
				}
				if r.Done(); !c.conn.deadline.IsZero() {
					t.Error("Done leaves a deadline behind")
				}
			})
		})
	}
}

func TestDrainIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		conn connection
		read int
		took time.Duration
	}{
		{"to its end", connection{piece: 1 << 10, left: 1 << 20}, 1 << 20, 0},
		{"endless", connection{piece: 32 << 10, left: 1 << 40}, drainBytes, 0},
		{"silent", connection{piece: 1, every: time.Hour, left: 1}, 0, drainPause},
		{"slow", connection{piece: 1, every: time.Second, left: 1000}, 10, drainTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				Drain(&c.conn, http.NewResponseController(&c.conn))
				if c.conn.read != c.read || time.Since(begin) != c.took {
					t.Errorf("read %d bytes in %v, want %d in %v", c.conn.read, time.Since(begin), c.read, c.took)
				}
			})
		})
	}
}
