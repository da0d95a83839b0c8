// Package body bounds the time that the body of an HTTP request may take: to
// arrive, and to be read away when nobody wants it any more.
package body

import (
	"io"
	"net/http"
	"time"
)

const (
	// A body has grace plus the time it takes at minRate to arrive.
	grace   = 30 * time.Second
	minRate = 64 << 10 // bytes a second
	step    = time.Second

	// What is read of a body that nobody wants. A client that is silent for pause
	// has stopped sending.
	drainBytes = 256 << 20
	drainTime  = 10 * time.Second
	drainPause = 2 * time.Second
)

// Reader reads a body that has to keep coming. Its error then is
// os.ErrDeadlineExceeded.
type Reader struct {
	body    io.Reader
	control *http.ResponseController
	start   time.Time
	due     time.Time // the deadline that is set; zero: none yet
	bytes   int64
}

// NewReader makes a Reader whose time begins now.
func NewReader(body io.Reader, control *http.ResponseController) *Reader {
	return &Reader{body: body, control: control, start: time.Now()}
}

func (r *Reader) Read(b []byte) (int, error) {
	// Setting a deadline costs more than reading a small body: it is moved on by
	// whole steps.
	if due := r.start.Add(grace + time.Duration(r.bytes)*time.Second/minRate); due.Sub(r.due) >= step {
		r.due = due
		_ = r.control.SetReadDeadline(due) // only a test's connection has no deadlines
	}
	n, err := r.body.Read(b)
	r.bytes += int64(n)
	return n, err
}

// Done takes the time limit away again. It is called when the body has been read
// to its end: net/http goes on reading, to notice that the client leaves.
func (r *Reader) Done() { _ = r.control.SetReadDeadline(time.Time{}) }

// Drain reads away what is left of a body, within bounds, so that a client that
// only listens after it has sent everything can read the answer.
func Drain(body io.Reader, control *http.ResponseController) {
	buffer := make([]byte, 32<<10)
	end := time.Now().Add(drainTime)
	for left := int64(drainBytes); left > 0 && time.Now().Before(end); {
		_ = control.SetReadDeadline(time.Now().Add(drainPause))
		n, err := body.Read(buffer)
		if err != nil {
			return
		}
		left -= int64(n)
	}
}
