package whatsapp

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// inboundLife is how long a received message can be answered with a typing
	// indicator: the platform's customer service window.
	inboundLife = 24 * time.Hour
	// maxInbound is how many correspondents are remembered, of all accounts together.
	maxInbound = 100_000
)

// inbound remembers the newest message received from each number, because the
// platform shows typing only in reply to one.
type inbound struct {
	mu      sync.Mutex
	entries map[digest]inboundEntry // by account and number
	max     int
	store   *store
}

type inboundEntry struct {
	at int64 // milliseconds since 1970
	id string
}

func (e inboundEntry) newer(than inboundEntry) bool {
	return e.at > than.at || e.at == than.at && e.id > than.id
}

func openInbound(dir string, limit int) (*inbound, error) {
	t := &inbound{entries: map[digest]inboundEntry{}, max: limit}
	var err error
	t.store, err = openStore(dir, func(record []byte) error {
		key, e, err := parseInbound(record)
		if err == nil {
			t.merge(key, e)
		}
		return err
	})
	return t, err
}

// put records a received message. Older ones and repetitions change nothing. An
// error means only that a restart will not know it.
func (t *inbound) put(account, number, id string, at time.Time) error {
	key, e := digestOf(account, number), inboundEntry{at.UnixMilli(), id}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.merge(key, e) {
		return nil
	}
	return t.store.add(appendInbound(nil, key, e), t.live())
}

// get returns the newest message from number that can still be answered.
func (t *inbound) get(account, number string, now time.Time) (id string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[digestOf(account, number)]
	if !ok || now.Sub(time.UnixMilli(e.at)) >= inboundLife {
		return "", false
	}
	return e.id, true
}

func (t *inbound) merge(key digest, e inboundEntry) bool {
	old, known := t.entries[key]
	if known && !e.newer(old) {
		return false
	}
	if !known && len(t.entries) >= t.max {
		t.trim()
	}
	t.entries[key] = e
	return true
}

// trim forgets the oldest tenth, so that sorting is paid for once in many.
func (t *inbound) trim() {
	byAge := slices.SortedFunc(maps.Keys(t.entries), func(a, b digest) int {
		return cmp.Compare(t.entries[a].at, t.entries[b].at)
	})
	for _, key := range byAge[:len(byAge)/10+1] {
		delete(t.entries, key)
	}
}

// live yields a record of every entry that is not yet too old.
func (t *inbound) live() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		limit := time.Now().Add(-inboundLife).UnixMilli()
		for key, e := range t.entries {
			if e.at > limit && !yield(appendInbound(nil, key, e)) {
				return
			}
		}
	}
}

func (t *inbound) close() error { return t.store.close() }

// A record is: digest 16 | time 8 | id, little endian.
const inboundRecordSize = 16 + 8

func appendInbound(b []byte, key digest, e inboundEntry) []byte {
	b = append(b, key[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.at))
	return append(b, e.id...)
}

func parseInbound(b []byte) (digest, inboundEntry, error) {
	if len(b) <= inboundRecordSize {
		return digest{}, inboundEntry{}, errRecord
	}
	return digest(b[:16]), inboundEntry{int64(binary.LittleEndian.Uint64(b[16:])), string(b[inboundRecordSize:])}, nil
}
