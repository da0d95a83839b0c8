package outbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

// maxStrings is the most that a message's text, caption, file name and URL may
// be together, in bytes: six times that, for JSON, still fits a record.
const maxStrings = 640 << 10

// maxBatch is how many bytes of waiting messages are written at once. More
// messages wait for the next write.
const maxBatch = 1 << 20

// delivery is one message on its way into the store. Its methods are called one
// after the other.
type delivery struct {
	store   *Store
	message message.Message
	source  media.Source // of the message's content, if it has one
	entry   *entry
	shown   *presence // nil: not shown yet
	fault   fault
}

// Prepare refuses with platform_limit what the store could not keep.
func (s *Store) Prepare(_ context.Context, m message.Message) (message.Delivery, error) {
	d := &delivery{store: s, message: m}
	e := &entry{account: m.Account, number: m.Number, media: noMedia}
	want := kind{operation: m.Content.Operation()}
	var strings int
	switch c := m.Content.(type) {
	case message.Text:
		strings = len(c.Body)
	case message.File:
		want.media = c.Kind
		strings = len(c.Name) + len(c.Caption) + len(c.Source.URL)
		d.source = c.Source
	case message.Voice:
		strings = len(c.Source.URL)
		d.source = c.Source
	}
	n := slices.Index(kinds[:], want)
	if n < 0 {
		return nil, message.NewError(message.Internal, "the message could not be stored").
			Because(fmt.Errorf("no kind for operation %q, media %q", want.operation, want.media))
	}
	e.kind = byte(n)
	if strings > maxStrings {
		return nil, message.NewError(message.PlatformLimit, fmt.Sprintf(
			"the outbox takes at most %d bytes of text, the message has %d", maxStrings, strings))
	}
	if d.source.Blob != nil {
		e.media = d.source.Blob.Size()
		if e.media > s.maxBytes/2 {
			return nil, message.NewError(message.PlatformLimit, fmt.Sprintf(
				"the outbox takes media of at most %d bytes, this has %d", s.maxBytes/2, e.media))
		}
	}
	d.fault = s.faults.of(m.Number)
	if d.fault.early {
		return nil, d.fault.err()
	}
	rand.Read(e.random[:])
	d.entry = e
	return d, nil
}

// ShowPresence shows the presence to the account's event streams. It stays until
// it is cleared.
func (d *delivery) ShowPresence(context.Context) (time.Duration, error) {
	if d.shown != nil || d.message.Presence == message.None {
		return 0, nil
	}
	d.shown = &presence{
		PresenceID:   hex.EncodeToString(d.entry.random[:]),
		Number:       d.message.Number,
		Presence:     d.message.Presence,
		Operation:    d.message.Content.Operation(),
		Delay:        milliseconds(d.message.Delay),
		RequestedAt:  d.message.RequestedAt.UTC(),
		PresenceFrom: time.Now().UTC(),
	}
	d.store.show(d.message.Account, d.shown)
	return 0, nil
}

// Deliver stores the message and returns its messageId, or fails as it was asked
// to. Any other error means that nothing was stored.
func (d *delivery) Deliver(ctx context.Context) (string, error) {
	d.fault.wait(ctx, d.store.faults.Latency)
	asked := d.fault.err()
	if asked != nil && !d.fault.arrives {
		return "", asked
	}
	id, err := d.keep()
	if err == nil && asked != nil {
		return "", asked
	}
	return id, err
}

// keep stores the message. It does not look at a context: storing takes no time
// worth giving up for, and is not left half done.
func (d *delivery) keep() (string, error) {
	p := &pending{entry: d.entry, shown: d.shown}
	var presenceFrom time.Time
	if d.shown != nil {
		presenceFrom = d.shown.PresenceFrom
	}
	b, err := encode(d.entry, newRecord(d.message, d.entry.id, presenceFrom, time.Now().UTC()))
	if err != nil {
		return "", message.NewError(message.Internal, "the message could not be stored").Because(err)
	}
	p.payload = b
	if d.source.Blob != nil {
		p.media = filepath.Join(d.store.mediaDir, "new-"+hex.EncodeToString(d.entry.random[:]))
		err = d.source.Blob.MoveTo(p.media)
	}
	if err == nil {
		err = d.store.append(p)
	}
	if err != nil {
		if p.media != "" {
			err = errors.Join(err, removeIfThere(p.media))
		}
		return "", message.NewError(message.Unavailable, "the outbox cannot store the message").Because(err)
	}
	return d.entry.String(), nil
}

// Close clears a presence that is still shown.
func (d *delivery) Close(context.Context) error {
	if d.shown != nil {
		d.store.hide(d.message.Account, d.shown)
	}
	return nil
}

// pending is a message that waits to be written.
type pending struct {
	entry   *entry
	payload []byte
	media   string    // where the media file is for now; empty: none
	shown   *presence // ends with the message

	done bool // guarded by Store.writing, and so is err
	err  error
}

// append stores a message. Of those that wait for the one before to be written,
// the first to come on writes for all of them: alone, a message never waits for
// others, and together they share one write.
func (s *Store) append(p *pending) error {
	s.queueing.Lock()
	s.queue = append(s.queue, p)
	s.queueing.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	for !p.done {
		s.write(s.takeBatch())
	}
	return p.err
}

func (s *Store) takeBatch() []*pending {
	s.queueing.Lock()
	defer s.queueing.Unlock()
	size, n := 0, 0
	for n < len(s.queue) && (n == 0 || size+len(s.queue[n].payload) <= maxBatch) {
		size += len(s.queue[n].payload)
		n++
	}
	batch := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return batch
}

// write stores a batch: media first, records second, so that a record never
// misses its media. writing is held.
func (s *Store) write(batch []*pending) {
	payloads := make([][]byte, 0, len(batch))
	ready := make([]*pending, 0, len(batch))
	for _, p := range batch {
		p.done = true
		s.last++
		p.entry.setSequence(p.payload, s.last, s.evicted)
		if p.media != "" {
			path := s.mediaPath(p.entry)
			if p.err = os.Rename(p.media, path); p.err != nil {
				continue
			}
			p.media = path
		}
		ready = append(ready, p)
		payloads = append(payloads, p.payload)
	}
	positions, err := s.log.Append(payloads...)
	if err != nil {
		for _, p := range ready {
			p.err = err
		}
		return
	}
	s.mu.Lock()
	for i, p := range ready {
		p.entry.at = positions[i]
		s.insert(p.entry)
		if p.shown != nil {
			s.hideLocked(s.account(p.entry.account), p.shown)
		}
	}
	evicted := s.makeRoom()
	for _, p := range ready {
		s.account(p.entry.account).wake()
	}
	s.mu.Unlock()
	s.removeFiles(evicted)
}

// clear removes all messages of an account and returns how many there were.
func (s *Store) clear(name string) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.RLock()
	a := s.accounts[name]
	empty := a == nil || len(a.entries) == 0
	s.mu.RUnlock()
	if !empty {
		if _, err := s.log.Append(encodeClear(name, s.last, s.evicted)); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	removed := s.removeAll(name)
	evicted := s.makeRoom()
	s.account(name).publish(event{after: s.newest, name: eventClear, data: []byte("{}")})
	s.mu.Unlock()
	s.removeFiles(removed)
	s.removeFiles(evicted)
	return len(removed), nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
