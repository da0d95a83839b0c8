package outbox

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"messagesender/internal/appendlog"
	"messagesender/internal/message"
)

// The methods in this file, list.go, media.go and events.go answer the outbox's part of the HTTP
// API (contract 4.6), for an account that is authenticated. What they return is
// a *message.Error, and then nothing has been written. A failure after that
// aborts the answer with http.ErrAbortHandler, so that half of it is not taken
// for all.

// writeTimeout is how long a client may take to accept writePiece bytes.
const (
	writeTimeout = 10 * time.Second
	writePiece   = 32 << 10
)

// read returns a message's JSON, in buf, which is returned as well, perhaps
// larger.
func (s *Store) read(e *entry, buf []byte) (record, grown []byte, err error) {
	b, err := s.log.ReadAt(e.at, buf)
	if err != nil {
		return nil, buf, err
	}
	l, err := decode(b)
	return l.json, b, err
}

func unreadable(err error) error {
	return message.NewError(message.Internal, "the outbox cannot read a message").Because(err)
}

func notFound() error {
	return message.NewError(message.NotFound, "the outbox has no such message")
}

// One answers GET /outbox/messages/{messageId}: the message's record.
func (s *Store) One(w http.ResponseWriter, r *http.Request, account string) error {
	_, b, err := s.lookUp(r, account)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	noStore(w.Header())
	out := newWriter(w)
	defer out.finish()
	out.send(append(b, '\n'))
	return nil
}

// lookUp finds the message that a request is about and reads its record.
func (s *Store) lookUp(r *http.Request, account string) (*entry, []byte, error) {
	e := s.find(account, r.PathValue("messageId"))
	if e == nil {
		return nil, nil, notFound()
	}
	b, _, err := s.read(e, nil)
	if errors.Is(err, appendlog.ErrDropped) {
		return nil, nil, notFound()
	}
	if err != nil {
		return nil, nil, unreadable(err)
	}
	return e, b, nil
}

// Clear answers DELETE /outbox/messages: the account's messages are gone, also
// after a restart. A browser may only ask for it from a page of this server,
// because it would add the credentials to any other page's request, too.
func (s *Store) Clear(w http.ResponseWriter, r *http.Request, account string) error {
	if err := s.crossOrigin.Check(r); err != nil {
		return message.NewError(message.InvalidRequest, "messages cannot be deleted from a page of another origin").Because(err)
	}
	if _, err := parameters(r); err != nil {
		return err
	}
	deleted, err := s.clear(account)
	if err != nil {
		return message.NewError(message.Unavailable, "the outbox cannot delete the messages").Because(err)
	}
	w.Header().Set("Content-Type", "application/json")
	noStore(w.Header())
	out := newWriter(w)
	defer out.finish()
	out.send(fmt.Appendf(nil, "{\"deleted\":%d}\n", deleted))
	return nil
}

func noStore(h http.Header) {
	h.Set("Cache-Control", "private, no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// writer writes an answer in pieces, each with a deadline of its own: an answer
// may be long, but a client that does not read it is not waited for.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
}

func newWriter(w http.ResponseWriter) *writer {
	return &writer{w, http.NewResponseController(w)}
}

func (w *writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		w.extend()
		m, err := w.ResponseWriter.Write(b[:min(len(b), writePiece)])
		n += m
		if err != nil {
			return n, err
		}
		b = b[m:]
	}
	return n, nil
}

// send writes where there is nothing left to do about a failure but to stop.
func (w *writer) send(b []byte) {
	if _, err := w.Write(b); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (w *writer) extend() {
	// Not every ResponseWriter can: then its server's own limits are all there is.
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout))
}

// flush sends what is buffered on its way.
func (w *writer) flush() error {
	w.extend()
	return w.control.Flush()
}

// finish sends the rest and lifts the deadline, which would otherwise hit a
// later answer on the same connection.
func (w *writer) finish() {
	_ = w.flush()
	_ = w.control.SetWriteDeadline(time.Time{})
}
