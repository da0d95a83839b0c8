package outbox

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"messagesender/internal/appendlog"
)

// List answers GET /outbox/messages: the account's messages that match, oldest
// first, or with newest only the last of them. With wait it is held until something matches; when the time is over
// first, or StopStreams is called, the list is empty.
func (s *Store) List(w http.ResponseWriter, r *http.Request, account string) error {
	q, err := parseQuery(r)
	if err != nil {
		return err
	}
	list := lister{store: s, query: q}
	if err := s.wait(r, account, &list); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	noStore(w.Header())
	out := newWriter(w)
	defer out.finish()
	out.send([]byte(`{"messages":[`))
	for n := 0; list.record != nil; n++ {
		if n > 0 {
			out.send([]byte(","))
		}
		out.send(list.record)
		if n+1 == q.limit {
			break
		}
		if err := list.next(); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	out.send([]byte("]}\n"))
	return nil
}

// wait brings list to its first match, if there is one before the time is over.
func (s *Store) wait(r *http.Request, account string, list *lister) error {
	after := list.query.after
	look := func() (found bool, err error) {
		entries, newest := s.since(account, after)
		after = newest
		list.entries = entries
		if err = list.keepNewest(); err == nil {
			err = list.next()
		}
		return list.record != nil, err
	}
	if found, err := look(); found || err != nil || list.query.wait == 0 {
		return err
	}
	reader, err := s.listen(account)
	if err != nil {
		return err
	}
	defer s.unregister(reader)
	timeout := time.NewTimer(list.query.wait)
	defer timeout.Stop()
	for {
		// Also before the first waiting: it may have come before listening.
		if found, err := look(); found || err != nil {
			return err
		}
		select {
		case <-reader.wakeup:
		case <-timeout.C:
			return nil
		case <-s.stop:
			return nil
		case <-r.Context().Done():
			return nil // nobody reads the answer
		}
	}
}

// lister goes through messages that match a query.
type lister struct {
	store   *Store
	query   query
	entries []*entry // still to be looked at
	record  []byte   // of the match, valid until the next; nil: none is left
	buf     []byte
}

func (l *lister) next() (err error) {
	l.record = nil
	for len(l.entries) > 0 && l.record == nil {
		e := l.entries[0]
		l.entries = l.entries[1:]
		if l.record, err = l.match(e); err != nil {
			return err
		}
	}
	return nil
}

// match returns e's record if e matches, otherwise nil.
func (l *lister) match(e *entry) (record []byte, err error) {
	if !l.query.matchesEntry(e) {
		return nil, nil
	}
	record, l.buf, err = l.store.read(e, l.buf)
	if errors.Is(err, appendlog.ErrDropped) {
		return nil, nil // evicted meanwhile
	}
	if err != nil {
		return nil, unreadable(err)
	}
	matches, err := l.query.matchesRecord(record)
	if err != nil {
		return nil, unreadable(err)
	}
	if !matches {
		return nil, nil
	}
	return record, nil
}

// keepNewest leaves of the entries those that query.newest asks for. It looks
// from the end, so that a page of a long list costs as much as the page.
func (l *lister) keepNewest() error {
	if l.query.newest == 0 {
		return nil
	}
	var kept []*entry
	for _, e := range slices.Backward(l.entries) {
		if len(kept) == l.query.newest {
			break
		}
		matches := l.query.matchesEntry(e)
		if matches && l.query.text != "" {
			record, err := l.match(e)
			if err != nil {
				return err
			}
			matches = record != nil
		}
		if matches {
			kept = append(kept, e)
		}
	}
	slices.Reverse(kept)
	l.entries = kept
	return nil
}
