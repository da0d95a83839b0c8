package media

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// maxInMemory is how large a blob may be, in bytes, and stay in memory: voice
// notes and small pictures never touch the disk.
const maxInMemory = 256 << 10

// ErrSpoolFull is the error of a Write for which Limits.Total has no room. It
// says nothing about the blob: there is room again when others are closed.
var ErrSpoolFull = errors.New("there is no room for more media at the moment")

// TooLargeError is the error of a Write beyond Limits.Blob. Its text may be
// shown to a client.
type TooLargeError struct {
	Limit int64 // bytes
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the media is larger than %d bytes", e.Limit)
}

// Limits bounds a Spool, in bytes. There is no way to have no bound: 0 allows
// nothing, except for Memory, where it sends every byte to a file.
type Limits struct {
	Blob   int64 // one blob
	Total  int64 // all blobs of the process together, unfinished ones included
	Memory int64 // of Total, how much may be held in memory; buffers count in full
}

// Spool is where media rests between its arrival and its delivery: small blobs
// in memory, large ones in files. It is safe for concurrent use.
type Spool struct {
	dir    string
	blob   int64
	total  budget
	memory budget
	pool   sync.Pool // of *[pieceSize]byte
}

// OpenSpool takes over dir, which is created if need be, made accessible to
// this user alone, and emptied: what lies there was left by a process that was
// killed. No other process may use the same dir.
func OpenSpool(dir string, l Limits) (*Spool, error) {
	s := &Spool{dir: dir, blob: l.Blob, total: budget{limit: l.Total}, memory: budget{limit: l.Memory}}
	s.pool.New = func() any { return new([pieceSize]byte) }
	if err := s.clear(); err != nil {
		return nil, fmt.Errorf("opening the media spool: %w", err)
	}
	return s, nil
}

func (s *Spool) clear() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(s.dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Used is how many bytes of Limits.Total are taken.
func (s *Spool) Used() int64 { return s.total.used.Load() }

// NewWriter begins a blob. It costs nothing before the first byte arrives.
func (s *Spool) NewWriter() *Writer {
	return &Writer{spool: s, hash: sha256.New()}
}

// Writer takes in one blob. Either Finish or Close must be called; an error of
// Write is final, what follows returns the same. It is not safe for concurrent use.
type Writer struct {
	spool *Spool
	hash  hash.Hash
	size  int64    // so many bytes are taken from spool.total
	mem   []byte   // its capacity is what is taken from spool.memory
	file  *os.File // nil: all bytes are in mem
	err   error    // os.ErrClosed after Finish and Close
}

// Write returns a *TooLargeError, ErrSpoolFull or an error of the disk. Then
// nothing more is taken in; Close frees what was.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err == nil {
		w.err = w.write(p)
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *Writer) write(p []byte) error {
	n := int64(len(p))
	if n > w.spool.blob-w.size {
		return &TooLargeError{Limit: w.spool.blob}
	}
	if !w.spool.total.take(n) {
		return ErrSpoolFull
	}
	w.size += n
	w.hash.Write(p)
	if w.file == nil {
		if w.grow(len(p)) {
			w.mem = append(w.mem, p...)
			return nil
		}
		if err := w.moveToFile(); err != nil {
			return err
		}
	}
	if _, err := w.file.Write(p); err != nil {
		return fmt.Errorf("spooling media: %w", err)
	}
	return nil
}

// grow makes room in mem for n more bytes, or reports that they belong in a file.
func (w *Writer) grow(n int) bool {
	need := len(w.mem) + n
	if need > maxInMemory {
		return false
	}
	if need <= cap(w.mem) {
		return true
	}
	size := min(maxInMemory, max(need, 2*cap(w.mem)))
	if !w.spool.memory.take(int64(size - cap(w.mem))) {
		return false
	}
	w.mem = append(make([]byte, 0, size), w.mem...)
	return true
}

func (w *Writer) moveToFile() error {
	file, err := w.spool.createFile(w.mem)
	if err != nil {
		return err
	}
	w.file = file
	w.dropMemory()
	return nil
}

func (w *Writer) dropMemory() {
	w.spool.memory.give(int64(cap(w.mem)))
	w.mem = nil
}

// Finish ends the blob, also an empty one, and hands it over with all that was
// taken for it. After an error nothing is kept.
func (w *Writer) Finish() (*Blob, error) {
	if w.err != nil {
		err := w.err
		w.Close()
		return nil, err
	}
	b := &Blob{spool: w.spool, size: w.size, mem: w.mem}
	w.hash.Sum(b.sum[:0])
	if w.file == nil {
		b.kind = Sniff(memory(w.mem), w.size)
	} else {
		b.kind = Sniff(w.file, w.size)
		b.path = w.file.Name()
		// A waiting blob holds no file descriptor: thousands may wait.
		if err := w.file.Close(); err != nil {
			w.Close()
			return nil, fmt.Errorf("spooling media: %w", err)
		}
	}
	w.err = os.ErrClosed
	w.size, w.mem, w.file = 0, nil, nil
	return b, nil
}

// Close discards what arrived and frees its budget. It does nothing after
// Finish, and may be called twice.
func (w *Writer) Close() error {
	w.err = os.ErrClosed
	var err error
	if w.file != nil {
		w.file.Close() // its error is of no interest: the bytes are not wanted
		err = os.Remove(w.file.Name())
		w.file = nil
	}
	w.dropMemory()
	w.spool.total.give(w.size)
	w.size = 0
	return err
}

// createFile makes a file of the spool, open for reading and writing, with
// content already in it. On an error there is none.
func (s *Spool) createFile(content []byte) (*os.File, error) {
	file, err := os.CreateTemp(s.dir, "blob-") // with mode 0600
	if err != nil {
		return nil, fmt.Errorf("spooling media: %w", err)
	}
	if _, err := file.Write(content); err != nil {
		file.Close()
		os.Remove(file.Name())
		return nil, fmt.Errorf("spooling media: %w", err)
	}
	return file, nil
}

// budget is an amount that many take from at once and never overdraw.
type budget struct {
	limit int64
	used  atomic.Int64
}

func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *budget) give(n int64) { b.used.Add(-n) }
