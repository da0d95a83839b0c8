// Package appendlog keeps checksummed records in the segment files of a
// directory. Records are only ever added at the end, and segments only ever
// removed whole at the front.
//
// What Open finds is either exactly what was appended, less a tail whose write
// was interrupted, or it is refused: every truncation and every flipped bit is
// noticed, and damage in the middle is never skipped.
//
// Append survives the end of the process; Sync makes it survive a loss of power
// too. A segment that is complete is synced in any case, before the next one
// begins, so that nothing but the last segment can be torn. A torn tail never
// holds a record that was synced: where one is missing although later records
// prove that it was on the disk, the log is damaged. That the last synced
// records of all were blanked, or cut off, cannot be told from a torn tail; no
// loss of power does that.
package appendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// Position is where a record stands. Later records have greater positions.
type Position struct{ Segment, Offset int64 }

func (p Position) before(q Position) bool {
	return p.Segment < q.Segment || (p.Segment == q.Segment && p.Offset < q.Offset)
}

// Options of a log.
type Options struct {
	// SegmentSize is the size in bytes at which a segment is complete; 0: 32 MiB.
	// A single Append that is larger makes a larger segment.
	SegmentSize int64
	Disk        Disk // nil: the operating system's

	// Synced is told of each fsync that Sync makes; nil: nobody wants to know. It is
	// called by one goroutine at a time and must not use the log.
	Synced func(took time.Duration, err error)
}

const defaultSegmentSize = 32 << 20

// keepBuffer is how much of the write buffer is kept between two appends.
const keepBuffer = 1 << 20

// DamageError says that a log holds something it cannot have been left with by
// an interrupted write. It is for the operator; nothing was changed.
type DamageError struct {
	Segment string // path of the file
	Offset  int64  // of the first byte that is not as it was written
	What    string

	number int64 // of the segment
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s", e.Segment, e.Offset, e.What)
}

var (
	// ErrDropped is what reading a record finds whose segment is gone.
	ErrDropped = errors.New("the record was dropped")
	// ErrLocked means that another process has the log open.
	ErrLocked = errors.New("another process has the log open")
	// ErrTooLarge means a payload over MaxRecord.
	ErrTooLarge = errors.New("the record is too large")
)

// Log is an open log. Its methods may be called concurrently.
type Log struct {
	path        string
	dir         Dir // also holds the lock
	segmentSize int64
	synced      func(time.Duration, error) // nil: nobody wants to know

	// appending is full while somebody writes or removes, so that reading need not wait for
	// it. It is not a Mutex because it is held during an fsync, which a test with
	// simulated time must be able to wait for.
	appending chan struct{}
	buf       []byte // guarded by appending

	mu       sync.RWMutex
	segments []segment     // numbered without a gap; the last one is appended to
	total    int64         // bytes of all segments
	durable  Position      // everything before it is on the disk
	broken   error         // set: no append can be trusted any more
	syncing  chan struct{} // closed when the fsync that runs has ended; nil: none runs
	syncs    int64
}

type segment struct {
	number int64
	size   int64
	file   File
}

// begin makes a new last segment.
func (l *Log) begin(number, previous int64) error {
	f, err := l.dir.Create(name(number))
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(appendHeader(nil, number, previous), 0); err == nil {
		if err = l.dir.Sync(); err != nil {
			l.fail(lost(err))
		}
	}
	if err != nil {
		f.Close()
		return errors.Join(err, l.dir.Remove(name(number)))
	}
	l.add(segment{number, headerSize, f})
	return nil
}

func (l *Log) add(s segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, s)
	l.total += s.size
}

// resize sets the size of the last segment.
func (l *Log) resize(size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.segments[len(l.segments)-1]
	l.total += size - s.size
	s.size = size
}

// last returns the segment that is appended to.
func (l *Log) last() (segment, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) == 0 {
		return segment{}, os.ErrClosed
	}
	return l.segments[len(l.segments)-1], nil
}

// known is the place up to which everything is on the disk.
func (l *Log) known() Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.durable
}

// Append adds records with one write and returns their positions. Either all of
// them are in the log or, after an error, none. Payloads are not kept.
//
// After an error for want of room the log goes on when there is room again.
func (l *Log) Append(payloads ...[]byte) ([]Position, error) {
	l.appending <- struct{}{}
	defer func() { <-l.appending }()
	if err := l.Err(); err != nil {
		return nil, err
	}
	var size int64
	for _, p := range payloads {
		if len(p) > MaxRecord {
			return nil, ErrTooLarge
		}
		size += recordSize + int64(len(p))
	}
	s, err := l.last()
	if err != nil {
		return nil, err
	}
	if s.size > headerSize && s.size+size > l.segmentSize {
		if s, err = l.rotate(s); err != nil {
			return nil, err
		}
	}
	var durable int64
	if known := l.known(); known.Segment == s.number {
		durable = known.Offset
	}
	positions := make([]Position, len(payloads))
	b := slices.Grow(l.buf[:0], int(size))
	for i, p := range payloads {
		positions[i] = Position{s.number, s.size + int64(len(b))}
		b = appendRecord(b, positions[i], durable, p)
	}
	if cap(b) <= keepBuffer {
		l.buf = b
	}
	if _, err := s.file.WriteAt(b, s.size); err != nil {
		// Synced, or what was half written could come back after a loss of power.
		undo := s.file.Truncate(s.size)
		if undo == nil {
			undo = s.file.Sync()
		}
		if undo != nil {
			l.fail(fmt.Errorf("the log ends in an unfinished write: %w", undo))
		}
		return nil, err
	}
	l.resize(s.size + int64(len(b)))
	return positions, nil
}

// rotate completes segment s and begins the next.
func (l *Log) rotate(s segment) (segment, error) {
	if err := s.file.Sync(); err != nil {
		l.fail(lost(err))
		return segment{}, err
	}
	l.mu.Lock()
	l.durable = Position{s.number, s.size}
	l.mu.Unlock()
	if err := l.begin(s.number+1, s.size); err != nil {
		return segment{}, err
	}
	return l.last()
}

// ReadAt returns the payload of the record at pos, in buf if it is large enough.
// The error is ErrDropped when its segment is gone.
func (l *Log) ReadAt(pos Position, buf []byte) ([]byte, error) {
	l.mu.RLock()
	var s segment
	if n := len(l.segments); n > 0 {
		if i := pos.Segment - l.segments[0].number; i >= 0 && i < int64(n) {
			s = l.segments[i]
		}
	}
	l.mu.RUnlock()
	if s.file == nil {
		return nil, ErrDropped
	}
	damaged := &DamageError{l.file(pos.Segment), pos.Offset, "a record does not verify", pos.Segment}
	var head [recordSize]byte
	if pos.Offset < headerSize || pos.Offset+recordSize > s.size {
		return nil, damaged
	}
	if err := readFull(s.file, head[:], pos.Offset); err != nil {
		return nil, err
	}
	h, ok := parseRecord(head[:], pos)
	if !ok || pos.Offset+recordSize+int64(h.length) > s.size {
		return nil, damaged
	}
	payload := slices.Grow(buf[:0], h.length)[:h.length]
	if err := readFull(s.file, payload, pos.Offset+recordSize); err != nil {
		return nil, err
	}
	if !h.verifies(payload) {
		return nil, damaged
	}
	return payload, nil
}

// readFull reads all of b; a file closed meanwhile was dropped.
func readFull(f File, b []byte, offset int64) error {
	n, err := f.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, os.ErrClosed):
		return ErrDropped
	}
	return err
}

// Drop removes the segments that lie entirely before pos. The segment that is
// appended to always stays.
func (l *Log) Drop(before Position) error {
	l.appending <- struct{}{} // also keeps Close away
	defer func() { <-l.appending }()
	// Oldest first, and each removal durable before the next: whatever interrupts
	// it, no gap is left.
	for {
		l.mu.RLock()
		if len(l.segments) < 2 || l.segments[0].number >= before.Segment {
			l.mu.RUnlock()
			return nil
		}
		s := l.segments[0]
		l.mu.RUnlock()
		if err := l.dir.Remove(name(s.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := l.dir.Sync(); err != nil {
			l.fail(lost(err))
			return err
		}
		l.mu.Lock()
		l.segments = slices.Delete(l.segments, 0, 1)
		l.total -= s.size
		l.mu.Unlock()
		s.file.Close() // synced when it was completed: nothing is left that could fail to be written
	}
}

// End is where the next record will stand, unless it begins a segment.
func (l *Log) End() Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) == 0 {
		return Position{}
	}
	s := l.segments[len(l.segments)-1]
	return Position{s.number, s.size}
}

// Size is the number of bytes of all segments.
func (l *Log) Size() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.total
}

// Close gives the log free for another process. It may be called twice.
func (l *Log) Close() error {
	l.appending <- struct{}{}
	defer func() { <-l.appending }()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, s := range l.segments {
		errs = append(errs, s.file.Close())
	}
	l.segments, l.total = nil, 0
	if err := l.dir.Close(); !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
