package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"time"

	"messagesender/internal/appendlog"
)

// heartbeat is how often a silent stream shows that it is alive, to both ends
// and to proxies between them.
const heartbeat = 15 * time.Second

// Events answers GET /outbox/events: server-sent events of the account, until
// the client leaves or StopStreams is called.
//
//	message   data is the message's record, id its messageId
//	presence  a presence is shown, or has ended; without id
//	clear     all messages before it were deleted; without id
//
// With a Last-Event-ID header or the parameter "after", both a messageId, the
// stream begins with the messages after that one, and none is missed or doubled;
// otherwise it begins with what happens from now on. Presences that are shown
// right now follow in both cases. A message that is deleted or evicted before
// its turn is left out. A reader that does not keep up is
// disconnected, and comes back with Last-Event-ID.
func (s *Store) Events(w http.ResponseWriter, r *http.Request, account string) error {
	values, err := parameters(r, "after")
	if err != nil {
		return err
	}
	// A browser that reconnects repeats the URL: the header knows better.
	field, last := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if last == "" {
		field, last = "after", values["after"]
	}
	after, err := parseAfter(field, last)
	if err != nil {
		return err
	}
	reader, after, err := s.subscribe(account, after, last == "")
	if err != nil {
		return err
	}
	defer s.unregister(reader)

	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	noStore(h)
	out := newWriter(w)
	defer out.finish()
	stream := &stream{store: s, reader: reader, out: out, after: after}
	// Whatever ended it, the client has had its answer and may come back.
	_ = stream.run(r.Context())
	return nil
}

// stream is what one reader is sent.
type stream struct {
	store  *Store
	reader *reader
	out    *writer
	after  uint64 // the last message sent
	buf    []byte
}

var (
	errSlow    = errors.New("the reader is too slow")
	errStopped = errors.New("streams are stopped")
)

func (st *stream) run(ctx context.Context) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	if err := st.comment(); err != nil { // so that the client sees the answer begin
		return err
	}
	for {
		if err := st.sendNews(); err != nil {
			return err
		}
		select {
		case <-st.reader.wakeup:
		case <-beat.C:
			if err := st.comment(); err != nil {
				return err
			}
		case <-st.store.stop:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendNews sends messages and events in the order in which they happened.
func (st *stream) sendNews() error {
	entries, events, ok := st.store.news(st.reader, st.after)
	if !ok {
		return errSlow
	}
	for _, ev := range events {
		n := sort.Search(len(entries), func(i int) bool { return entries[i].sequence > ev.after })
		if err := st.sendMessages(entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
		if _, err := fmt.Fprintf(st.out, "event: %s\ndata: %s\n\n", ev.name, ev.data); err != nil {
			return err
		}
	}
	if err := st.sendMessages(entries); err != nil {
		return err
	}
	return st.out.flush()
}

func (st *stream) sendMessages(entries []*entry) error {
	for _, e := range entries {
		select {
		case <-st.store.stop:
			return errStopped
		default:
		}
		var record []byte
		var err error
		record, st.buf, err = st.store.read(e, st.buf)
		st.after = e.sequence
		if errors.Is(err, appendlog.ErrDropped) {
			continue // evicted meanwhile
		}
		if err != nil {
			st.store.logger.Error("the outbox cannot read a message", "error", err)
			return err
		}
		if _, err := fmt.Fprintf(st.out, "event: %s\nid: %s\ndata: %s\n\n", eventMessage, e.id, record); err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) comment() error {
	if _, err := io.WriteString(st.out, ":\n\n"); err != nil {
		return err
	}
	return st.out.flush()
}
