// Package outbox is the platform that the service carries in itself: a place
// that messages are sent to, to be looked at, queried and waited for, without an
// account at a real platform and without messaging a real person (contract 4.6).
//
// A message is stored when Deliver returns, and survives the end of the process;
// it is not synced to disk, so a loss of power may lose the last ones. The
// oldest messages make room for new ones.
package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"messagesender/internal/appendlog"
)

// Options of a store.
type Options struct {
	Dir         string       // is made if it is not there; one process at a time can use it
	MaxMessages int          // of all accounts together; 0: 10,000
	MaxBytes    int64        // of records and media on disk, of all accounts together; 0: 2 GiB
	Log         *slog.Logger // nil: nothing is logged
	Faults      *Faults      // nil: only reserved numbers fail
}

const (
	defaultMaxMessages = 10_000
	defaultMaxBytes    = 2 << 30
	maxSegmentSize     = 32 << 20
)

// Store keeps messages. Its methods may be called concurrently.
type Store struct {
	maxMessages int
	maxBytes    int64
	mediaDir    string // holds a file per message with media of its own, named by its messageId
	logger      *slog.Logger
	log         *appendlog.Log
	crossOrigin *http.CrossOriginProtection
	faults      *Faults

	queueing sync.Mutex
	queue    []*pending // messages that wait to be written

	writing sync.Mutex // held while log and media change, and then before mu
	last    uint64     // guarded by writing: the last sequence given out

	mu         sync.RWMutex // held briefly, never while a record is written or read
	all        []*entry     // the messages of all accounts, by sequence
	accounts   map[string]*account
	newest     uint64 // the last sequence that can be seen
	evicted    uint64 // every message up to this sequence is gone
	mediaBytes int64
	streams    int // event streams that are open
	waits      int // requests that are held until something matches

	stopOnce sync.Once
	stop     chan struct{} // closed by StopStreams
}

// account is what belongs to one account. An account stays for as long as the
// store is open; their number is that of the configured ones.
type account struct {
	entries   []*entry // by sequence
	presences map[string]*presence
	readers   map[*reader]struct{}
}

// Open opens the store in o.Dir and removes what an interrupted process left
// there unfinished. A damaged store is refused with an *appendlog.DamageError.
func Open(o Options) (*Store, error) {
	if o.MaxMessages < 0 || o.MaxBytes < 0 {
		return nil, errors.New("outbox: a limit is negative")
	}
	s := &Store{
		maxMessages: o.MaxMessages,
		maxBytes:    o.MaxBytes,
		mediaDir:    filepath.Join(o.Dir, "media"),
		logger:      o.Log,
		crossOrigin: http.NewCrossOriginProtection(),
		faults:      o.Faults,
		accounts:    map[string]*account{},
		stop:        make(chan struct{}),
	}
	if s.faults == nil {
		s.faults = new(Faults)
	}
	if s.maxMessages == 0 {
		s.maxMessages = defaultMaxMessages
	}
	if s.maxBytes == 0 {
		s.maxBytes = defaultMaxBytes
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	segments := appendlog.Options{SegmentSize: min(maxSegmentSize, max(1, s.maxBytes/8))}
	log, cut, err := appendlog.Open(filepath.Join(o.Dir, "log"), segments, s.replay)
	if err != nil {
		return nil, fmt.Errorf("open the outbox: %w", err)
	}
	s.log = log
	if cut > 0 {
		s.logger.Warn("the outbox ended in an unfinished write, which was removed", "bytes", cut)
	}
	// The clock keeps sequences growing over a directory that was wiped, or that
	// lost its last records, so that a client's "after" stays meaningful. It runs
	// ahead of any store that took less than 1,000 messages a second all its life.
	s.last = max(s.last, uint64(max(0, time.Now().UnixMilli())))
	s.newest = s.last
	s.removeFiles(s.makeRoom())
	if err := s.sweep(); err != nil {
		log.Close()
		return nil, fmt.Errorf("open the outbox: %w", err)
	}
	return s, nil
}

// replay takes in one record of the log.
func (s *Store) replay(at appendlog.Position, payload []byte) error {
	l, err := decode(payload)
	if err != nil {
		return err
	}
	for len(s.all) > 0 && s.all[0].sequence <= l.evicted {
		s.evictOldest()
	}
	s.evicted = max(s.evicted, l.evicted)
	s.last = max(s.last, l.entry.sequence)
	if l.what == loggedClear {
		s.removeAll(l.entry.account)
		return nil
	}
	e := l.entry // of its own: l still refers to the whole payload
	e.at = at
	s.insert(&e)
	return nil
}

// sweep removes the files of messages that are no longer there, or never came
// to be: a media file is written before its record and removed after it.
func (s *Store) sweep() error {
	if err := os.MkdirAll(s.mediaDir, 0o700); err != nil {
		return err
	}
	d, err := os.Open(s.mediaDir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, e := range s.all {
		if e.hasMedia() {
			known[e.String()] = true
		}
	}
	for _, name := range names {
		if known[name] {
			delete(known, name)
		} else if err := os.RemoveAll(filepath.Join(s.mediaDir, name)); err != nil {
			return err
		}
	}
	if len(known) > 0 { // only a loss of power leads here
		s.logger.Warn("media of messages in the outbox is missing", "files", len(known))
	}
	return nil
}

// Close ends all streams and closes the store. Sends fail from then on.
func (s *Store) Close() error {
	s.StopStreams()
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.log.Close()
}

// Count is the number of messages.
func (s *Store) Count() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.all)
}

// Bytes is what records and media occupy on disk, also records that are
// deleted but whose file is still needed for others.
func (s *Store) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes()
}

func (s *Store) bytes() int64 { return s.log.Size() + s.mediaBytes }

// account returns the account of that name. mu is held for writing.
func (s *Store) account(name string) *account {
	a := s.accounts[name]
	if a == nil {
		a = &account{presences: map[string]*presence{}, readers: map[*reader]struct{}{}}
		s.accounts[name] = a
	}
	return a
}

// insert adds the newest message. mu is held for writing.
func (s *Store) insert(e *entry) {
	a := s.account(e.account)
	a.entries = append(a.entries, e)
	s.all = append(s.all, e)
	s.newest = e.sequence
	if e.hasMedia() {
		s.mediaBytes += e.media
	}
}

// evictOldest removes the oldest message from the index. mu is held for writing.
func (s *Store) evictOldest() *entry {
	e := s.all[0]
	a := s.accounts[e.account]
	s.all[0], a.entries[0] = nil, nil // the arrays live on until they are full
	s.all, a.entries = s.all[1:], a.entries[1:]
	s.evicted = e.sequence
	if e.hasMedia() {
		s.mediaBytes -= e.media
	}
	return e
}

// removeAll removes an account's messages from the index. mu is held for writing.
func (s *Store) removeAll(name string) (removed []*entry) {
	a := s.account(name)
	removed, a.entries = a.entries, nil
	if len(removed) == 0 {
		return nil
	}
	s.all = slices.DeleteFunc(s.all, func(e *entry) bool { return e.account == name })
	for _, e := range removed {
		if e.hasMedia() {
			s.mediaBytes -= e.media
		}
	}
	return removed
}

// makeRoom evicts the oldest messages until the limits hold, but never the
// newest one, and returns what it evicted. writing and mu are held.
func (s *Store) makeRoom() (evicted []*entry) {
	s.dropSegments()
	for len(s.all) > 1 && (len(s.all) > s.maxMessages || s.bytes() > s.maxBytes) {
		evicted = append(evicted, s.evictOldest())
		s.dropSegments()
	}
	return evicted
}

// dropSegments removes the segments of the log that no message is in any more.
// A clear record in them has nothing left to clear: it comes after all it clears.
func (s *Store) dropSegments() {
	keep := s.log.End()
	if len(s.all) > 0 {
		keep = s.all[0].at
	}
	if err := s.log.Drop(keep); err != nil {
		s.logger.Warn("a file of the outbox cannot be removed", "error", err)
	}
}

// removeFiles removes the media of messages that are gone from the index. A
// file that cannot be removed now is removed by the next Open.
func (s *Store) removeFiles(gone []*entry) {
	for _, e := range gone {
		if !e.hasMedia() {
			continue
		}
		if err := os.Remove(s.mediaPath(e)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.logger.Warn("a media file of the outbox cannot be removed", "error", err)
		}
	}
}

func (s *Store) mediaPath(e *entry) string {
	return filepath.Join(s.mediaDir, e.String())
}

// SentAt tells when a message of an account was sent; false: the account has no
// message of that id, or no longer.
func (s *Store) SentAt(account, messageID string) (time.Time, bool) {
	e := s.find(account, messageID)
	if e == nil {
		return time.Time{}, false
	}
	b, _, err := s.read(e, nil)
	var r record
	if err != nil || json.Unmarshal(b, &r) != nil {
		return time.Time{}, false
	}
	sentAt, err := time.Parse(time.RFC3339Nano, string(r.SentAt))
	return sentAt, err == nil
}
