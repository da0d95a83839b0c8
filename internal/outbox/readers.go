package outbox

import (
	"encoding/json"
	"sort"
	"time"

	"messagesender/internal/message"
)

const (
	maxStreams = 100 // event streams at once, of all accounts together (contract 4.6)
	maxWaits   = 100 // held lists at once, of all accounts together (contract 4.6)

	// maxQueued is how many events may wait for one reader. Messages do not count:
	// a reader finds them in the store, at its own pace.
	maxQueued = 256

	tryAgain = 2 * time.Second // what a reader is told that there is no place for
)

// reader is a request that is told when something happens to an account.
type reader struct {
	account *account
	wakeup  chan struct{} // holds one token: there may be something new
	count   *int          // Store.streams or Store.waits
	room    int           // for so many events; 0: it only wants to be woken
	queue   []event       // guarded by Store.mu
	lost    bool          // guarded by Store.mu: the queue overflowed
}

// event is what happened beside messages being stored.
type event struct {
	after uint64 // the newest message when it happened
	name  string
	data  []byte // JSON in one line
}

const (
	eventMessage  = "message"
	eventPresence = "presence"
	eventClear    = "clear"
)

// presence is the data of a presence event.
type presence struct {
	PresenceID   string            `json:"presenceId"` // the same when it is shown and when it ends
	Number       message.Number    `json:"number"`
	Presence     message.Presence  `json:"presence"`
	Operation    message.Operation `json:"operation"`
	Delay        float64           `json:"delay"` // milliseconds
	RequestedAt  time.Time         `json:"requestedAt"`
	PresenceFrom time.Time         `json:"presenceFrom"`
	Shown        bool              `json:"shown"` // set by event
}

func (p *presence) event(after uint64, shown bool) event {
	copied := *p
	copied.Shown = shown
	data, err := json.Marshal(copied)
	if err != nil {
		panic(err) // strings, times and a finite number: cannot fail
	}
	return event{after, eventPresence, data}
}

// wake tells the readers that there is a new message. Store.mu is held.
func (a *account) wake() {
	for r := range a.readers {
		r.wake()
	}
}

func (r *reader) wake() {
	select {
	case r.wakeup <- struct{}{}:
	default: // it will look anyway
	}
}

// publish queues an event for every reader that wants it, and never waits: one
// that is too slow loses its place. Store.mu is held for writing.
func (a *account) publish(e event) {
	for r := range a.readers {
		if r.room == 0 {
			continue
		}
		if len(r.queue) >= r.room {
			r.lost, r.queue = true, nil
		} else if !r.lost {
			r.queue = append(r.queue, e)
		}
		r.wake()
	}
}

func (s *Store) show(name string, p *presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(name)
	a.presences[p.PresenceID] = p
	a.publish(p.event(s.newest, true))
}

// hide ends a presence; one that has ended already stays ended.
func (s *Store) hide(name string, p *presence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hideLocked(s.account(name), p)
}

func (s *Store) hideLocked(a *account, p *presence) {
	if a.presences[p.PresenceID] == nil {
		return
	}
	delete(a.presences, p.PresenceID)
	a.publish(p.event(s.newest, false))
}

// listen registers a reader that is only woken, for a held list.
func (s *Store) listen(name string) (*reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.register(name, &s.waits, maxWaits)
}

// subscribe registers an event stream. Its queue begins with the presences that
// are shown right now. after is the place to read messages from: a sequence that
// this store has not come to yet counts as the newest.
func (s *Store) subscribe(name string, after uint64, live bool) (r *reader, from uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, err = s.register(name, &s.streams, maxStreams); err != nil {
		return nil, 0, err
	}
	r.room = maxQueued + len(r.account.presences)
	for _, p := range r.account.presences {
		r.queue = append(r.queue, p.event(s.newest, true))
	}
	if live {
		after = s.newest
	}
	return r, min(after, s.newest), nil
}

func (s *Store) register(name string, count *int, limit int) (*reader, error) {
	select {
	case <-s.stop:
		return nil, message.NewError(message.ShuttingDown, "the service is shutting down").After(tryAgain)
	default:
	}
	if *count >= limit {
		return nil, message.NewError(message.Unavailable, "too many requests are waiting at the outbox").After(tryAgain)
	}
	*count++
	r := &reader{account: s.account(name), wakeup: make(chan struct{}, 1), count: count}
	r.account.readers[r] = struct{}{}
	return r, nil
}

func (s *Store) unregister(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(r.account.readers, r)
	*r.count--
}

// news takes what a stream has not seen yet: the messages after a sequence, and
// the queued events. It reports false when events were lost.
func (s *Store) news(r *reader, after uint64) (entries []*entry, events []event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, r.queue = r.queue, nil
	return r.account.since(after), events, !r.lost
}

// since returns the messages after a sequence. Store.mu is held.
func (a *account) since(after uint64) []*entry {
	first := sort.Search(len(a.entries), func(i int) bool { return a.entries[i].sequence > after })
	return append([]*entry(nil), a.entries[first:]...)
}

// since returns an account's messages after a sequence, and how far it looked. A
// sequence that this store has not come to yet counts as the newest.
func (s *Store) since(name string, after uint64) (entries []*entry, newest uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a := s.accounts[name]; a != nil {
		entries = a.since(after)
	}
	return entries, s.newest
}

// find returns the message of that id, or nil.
func (s *Store) find(name, messageID string) *entry {
	i, ok := parseID(messageID)
	if !ok || i.sequence == 0 {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	a := s.accounts[name]
	if a == nil {
		return nil
	}
	n := sort.Search(len(a.entries), func(n int) bool { return a.entries[n].sequence >= i.sequence })
	if n == len(a.entries) || a.entries[n].id != i {
		return nil
	}
	return a.entries[n]
}

// StopStreams ends all event streams and held lists, and refuses new ones. It
// may be called more than once.
func (s *Store) StopStreams() {
	s.stopOnce.Do(func() {
		s.mu.Lock() // so that no reader registers past it
		defer s.mu.Unlock()
		close(s.stop)
	})
}
