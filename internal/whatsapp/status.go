package whatsapp

import (
	"encoding/binary"
	"errors"
	"iter"
	"sync"
	"time"
)

// State is how far a message has come.
type State string

const (
	Sent      State = "sent" // taken by the platform
	Delivered State = "delivered"
	Read      State = "read" // or, for a voice message, played
	Failed    State = "failed"
)

// ranks orders the states: notices come in any order and more than once, and a
// later one never takes a message back. A message that did arrive has not failed.
var ranks = map[State]uint8{Sent: 1, Failed: 2, Delivered: 3, Read: 4}

var states = [...]State{1: Sent, 2: Failed, 3: Delivered, 4: Read}

// Status is what is known of a message that the platform took.
type Status struct {
	State     State
	UpdatedAt time.Time    // when it came to be so, by the platform's clock where that told us
	Error     *StatusError // only with Failed
}

// StatusError is the platform's reason for a failed message.
type StatusError struct {
	Code int
	Text string
}

// maxStatuses is how many messages' states are kept, those of all accounts together.
const maxStatuses = 100_000

// statuses is the bounded table of message states, newest ids. Merging is
// commutative and idempotent, so order and repetition do not matter, nor whether
// a notice comes before our own answer.
type statuses struct {
	mu       sync.RWMutex
	entries  map[digest]statusEntry
	failures map[digest]StatusError
	ring     []digest // the keys of entries in the order of their coming; full: the oldest is at next
	next     int
	max      int
	store    *store
}

// statusEntry holds no pointer, so that 100,000 of them cost the garbage
// collector nothing.
type statusEntry struct {
	at   int64 // milliseconds since 1970
	rank uint8
}

func openStatuses(dir string, limit int) (*statuses, error) {
	t := &statuses{entries: map[digest]statusEntry{}, failures: map[digest]StatusError{}, max: limit}
	var err error
	t.store, err = openStore(dir, func(record []byte) error {
		key, e, failed, err := parseStatus(record)
		if err == nil {
			t.merge(key, e, failed)
		}
		return err
	})
	return t, err
}

// put records that a message has come to a state. An error means only that a
// restart will not know it.
func (t *statuses) put(account, id string, s Status) error {
	key := digestOf(account, id)
	e := statusEntry{at: s.UpdatedAt.UnixMilli(), rank: ranks[s.State]}
	var failed StatusError
	if s.Error != nil {
		failed = *s.Error
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.merge(key, e, failed) {
		return nil
	}
	return t.store.add(appendStatus(nil, key, e, failed), t.live())
}

func (t *statuses) get(account, id string) (Status, bool) {
	key := digestOf(account, id)
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.entries[key]
	if !ok {
		return Status{}, false
	}
	s := Status{State: states[e.rank], UpdatedAt: time.UnixMilli(e.at).UTC()}
	if failed, ok := t.failures[key]; ok && s.State == Failed {
		s.Error = &failed
	}
	return s, true
}

// merge keeps the furthest state and, of equal ones, the earliest. It reports
// whether that changed anything.
func (t *statuses) merge(key digest, e statusEntry, failed StatusError) bool {
	old, known := t.entries[key]
	if known && (e.rank < old.rank || e.rank == old.rank && e.at >= old.at) {
		return false
	}
	if !known {
		t.admit(key)
	}
	t.entries[key] = e
	if states[e.rank] == Failed {
		t.failures[key] = failed
	} else {
		delete(t.failures, key)
	}
	return true
}

// admit makes room for a new key: the oldest goes when the table is full.
func (t *statuses) admit(key digest) {
	if len(t.ring) < t.max {
		t.ring = append(t.ring, key)
		return
	}
	oldest := t.ring[t.next]
	delete(t.entries, oldest)
	delete(t.failures, oldest)
	t.ring[t.next] = key
	t.next = (t.next + 1) % t.max
}

// live yields a record of every entry, oldest first.
func (t *statuses) live() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := range t.ring {
			key := t.ring[(t.next+i)%len(t.ring)]
			if !yield(appendStatus(nil, key, t.entries[key], t.failures[key])) {
				return
			}
		}
	}
}

func (t *statuses) close() error { return t.store.close() }

// A record is: digest 16 | time 8 | rank 1 | code 4 | text, little endian.
const statusRecordSize = 16 + 8 + 1 + 4

var errRecord = errors.New("a record has a form that is not known here")

func appendStatus(b []byte, key digest, e statusEntry, failed StatusError) []byte {
	b = append(b, key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.at))
	b = append(b, e.rank)
	b = binary.LittleEndian.AppendUint32(b, uint32(failed.Code))
	return append(b, failed.Text...)
}

func parseStatus(b []byte) (key digest, e statusEntry, failed StatusError, err error) {
	if len(b) < statusRecordSize || b[24] == 0 || int(b[24]) >= len(states) {
		return key, e, failed, errRecord
	}
	e = statusEntry{at: int64(binary.LittleEndian.Uint64(b[16:])), rank: b[24]}
	failed = StatusError{Code: int(int32(binary.LittleEndian.Uint32(b[25:]))), Text: string(b[statusRecordSize:])}
	return digest(b[:16]), e, failed, nil
}
