// Package journal is the crash-safe record of sends that carry an idempotency
// key. Repeating a send with its key gives the first answer again and never a
// second message, whatever happened in between.
//
// Before a message is handed to a platform, "begin" is on the disk, and before
// its answer is given, "end" is. A key that has a begin and no end after a crash
// is unknown: it is never sent again.
package journal

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"messagesender/internal/appendlog"
	"messagesender/internal/message"
)

const (
	defaultWindow      = 24 * time.Hour
	defaultMaxKeys     = 1_000_000
	defaultSegmentSize = 8 << 20
)

// Options of a journal.
type Options struct {
	// Window is how long a key is kept after its answer, by the wall clock and
	// also across restarts; 0: 24 h. It is never kept shorter, except that a clock
	// which is set forward ends it early.
	Window time.Duration
	// MaxKeys is how many keys are kept at a time, those of sends that run
	// included; 0: 1,000,000. A key takes 80 to 150 bytes of memory. Beyond it,
	// new keys are refused.
	MaxKeys     int
	SegmentSize int64          // in bytes, less than 4 GiB; 0: 8 MiB
	Log         *slog.Logger   // nil: nothing is logged
	Disk        appendlog.Disk // nil: the operating system's

	Synced func(took time.Duration, err error) // is told of each fsync; nil: nobody
}

// Key stands for an account and an idempotency key of it: the first 16 bytes of a
// SHA-256. Among a million keys two meet by chance with a probability of 10⁻²⁷.
// Who computes 2⁶⁴ digests can make two keys of the own account meet, never one
// of another account's, and gains one refusal of the own request.
type Key [16]byte

// KeyOf returns the Key of an account's name, which holds no NUL, and its
// idempotency key.
func KeyOf(account, key string) Key {
	sum := sha256.Sum256([]byte(account + "\x00" + key))
	return Key(sum[:16])
}

// Request is a send with a key.
type Request struct {
	Key    Key
	Digest [32]byte // of all that makes the request this one
	ID     string   // of the HTTP request
}

// Answer is what a send, or a repetition of it, is answered with.
type Answer struct {
	RequestID string // of the request that was really carried out, or of this one if none was
	MessageID string // of the message that was sent; empty: see Err
	Err       error  // nil: sent. Otherwise as send returned it, or the journal's own *message.Error
	Replayed  bool   // another request's answer
}

// Journal is an open journal. Its methods may be called concurrently.
type Journal struct {
	log     *appendlog.Log
	logger  *slog.Logger
	maxKeys int
	stopped chan struct{} // closed: nobody waits any more
	stop    func()

	mu      sync.Mutex // never held while the disk is waited for
	keys    keys
	running map[Key]*flight
	// unwritten holds the ends that could not be written. After a restart their
	// keys are unknown.
	unwritten map[Key]record
}

// Open opens the journal in dir, which is made if it is not there. A damaged one
// is refused with an *appendlog.DamageError, which appendlog.Repair mends; one
// that another process has open with appendlog.ErrLocked.
func Open(dir string, o Options) (*Journal, error) {
	if o.Window <= 0 {
		o.Window = defaultWindow
	}
	if o.MaxKeys <= 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.SegmentSize <= 0 {
		o.SegmentSize = defaultSegmentSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	stopped := make(chan struct{})
	j := &Journal{
		logger:    o.Log,
		maxKeys:   o.MaxKeys,
		stopped:   stopped,
		stop:      sync.OnceFunc(func() { close(stopped) }),
		keys:      keys{window: o.Window.Milliseconds(), entries: map[Key]entry{}},
		running:   map[Key]*flight{},
		unwritten: map[Key]record{},
	}
	log, cut, err := appendlog.Open(dir, appendlog.Options{SegmentSize: o.SegmentSize, Disk: o.Disk, Synced: o.Synced}, j.replay)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j.log = log
	if cut > 0 {
		j.logger.Warn("the journal ended in an unfinished write, which was removed", "bytes", cut)
	}
	if err := log.Settle(); err != nil {
		log.Close()
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	j.keys.clean()
	j.keys.forget(time.Now().UnixMilli(), func(Key) {})
	j.drop()
	return j, nil
}

func (j *Journal) replay(at appendlog.Position, payload []byte) error {
	r, _, err := decodeFixed(payload)
	if err != nil {
		return err
	}
	j.keys.written(r, at)
	if r.kind == notSent {
		delete(j.keys.entries, r.key)
		return nil
	}
	j.keys.put(r, at)
	return nil
}

// Close ends all waiting and gives the directory free. No Do may run any more, or
// its answer may not be recorded.
func (j *Journal) Close() error {
	j.stop()
	return j.log.Close()
}

// StopWaiting ends all waiting for the first request of a key, now and in
// future: Do answers in_progress instead. It may be called twice.
func (j *Journal) StopWaiting() { j.stop() }

// Err is why no new key is taken any more until the journal is opened anew; nil:
// new keys are taken.
func (j *Journal) Err() error { return j.log.Err() }

// Len is the number of keys that are kept, those of sends that run included.
func (j *Journal) Len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.keys.entries) + len(j.running)
}

// Syncs is the number of fsyncs made for begins and ends.
func (j *Journal) Syncs() int64 { return j.log.Syncs() }

// State is what became of a key.
type State string

const (
	Sent    State = "sent"
	NotSent State = "not_sent" // finally refused
	Running State = "running"
	Unknown State = "unknown" // handed to the platform; it will never be known
)

// Outcome tells what became of a key; ok is false for one that was never seen,
// has expired, or is free again. An error means that the disk cannot be read.
func (j *Journal) Outcome(key Key) (state State, messageID string, ok bool, err error) {
	j.mu.Lock()
	e, stored := j.keys.get(key, time.Now().UnixMilli())
	_, running := j.running[key]
	j.mu.Unlock()
	switch {
	case running:
		return Running, "", true, nil
	case !stored:
		return "", "", false, nil
	}
	r, err := j.read(key, e)
	if errors.Is(err, appendlog.ErrDropped) {
		return "", "", false, nil // expired meanwhile
	}
	if err != nil {
		return "", "", false, err
	}
	return r.answer().state(), r.messageID, true, nil
}

func (a Answer) state() State {
	if a.Err == nil {
		return Sent
	}
	// A service that failed half way does not know either.
	e, ok := errors.AsType[*message.Error](a.Err)
	if !ok || e.Reason == message.DeliveryUnknown || e.Reason == message.Internal {
		return Unknown
	}
	return NotSent
}

// read returns the record of an entry.
func (j *Journal) read(key Key, e entry) (record, error) {
	j.mu.Lock()
	r, ok := j.unwritten[key]
	j.mu.Unlock()
	if ok {
		return r, nil
	}
	payload, err := j.log.ReadAt(e.position(), nil)
	if err != nil {
		return record{}, err
	}
	return decode(payload)
}

// write makes a record durable.
func (j *Journal) write(r record) (appendlog.Position, error) {
	at, err := j.log.Append(r.encode())
	if err != nil {
		return appendlog.Position{}, err
	}
	j.mu.Lock()
	j.keys.written(r, at[0])
	j.mu.Unlock()
	return at[0], j.log.Sync(at[0])
}

// drop removes the segments in which every record has expired.
func (j *Journal) drop() {
	j.mu.Lock()
	needed, ok := j.keys.droppable(time.Now().UnixMilli())
	j.mu.Unlock()
	if !ok {
		return
	}
	if err := j.log.Drop(appendlog.Position{Segment: needed}); err != nil {
		j.logger.Warn("expired records of the journal were not removed", "error", err)
	}
}
