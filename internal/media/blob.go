package media

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// Blob is bytes that have completely arrived. They never change; reading is
// safe for concurrent use, with Close and MoveTo too. Whoever holds it calls Close.
type Blob struct {
	spool *Spool
	size  int64
	sum   [sha256.Size]byte
	kind  Type

	mu     sync.RWMutex // held for writing by Close and MoveTo
	closed bool
	mem    []byte // the bytes, where path is empty
	path   string // of the file in the spool
}

// Size is in bytes.
func (b *Blob) Size() int64 { return b.size }

// SHA256 is the digest of all bytes.
func (b *Blob) SHA256() [sha256.Size]byte { return b.sum }

// Type is what the bytes really are.
func (b *Blob) Type() Type { return b.kind }

// ReadAt is that of io.ReaderAt. It returns os.ErrClosed after Close and
// MoveTo. The file of a large blob is opened for each call, which costs a few
// microseconds and in return never leaves a file descriptor open: read in
// pieces of 32 KiB or more.
func (b *Blob) ReadAt(p []byte, off int64) (int, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return 0, os.ErrClosed
	}
	if b.path == "" {
		return memory(b.mem).ReadAt(p, off)
	}
	file, err := os.Open(b.path)
	if err != nil {
		return 0, fmt.Errorf("reading spooled media: %w", err)
	}
	defer file.Close()
	return file.ReadAt(p, off)
}

// NewReader reads the blob from its beginning. Readers are independent of each
// other and need no closing; they fail with os.ErrClosed once the blob is closed.
func (b *Blob) NewReader() *io.SectionReader { return io.NewSectionReader(b, 0, b.size) }

// MoveTo makes the bytes the file at path, with mode 0600, and closes the blob:
// its budget is free and reading from it ends. The file appears complete or not
// at all, but is not synced. A file of the spool is renamed, never copied, so
// path must be on the same file system. Where something is at path already, the
// error is fs.ErrExist; that guards against a name used twice, not against a
// race for one. After an error the blob is as it was.
func (b *Blob) MoveTo(path string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return os.ErrClosed
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = &fs.PathError{Op: "rename", Path: path, Err: fs.ErrExist}
		}
		return fmt.Errorf("moving spooled media: %w", err)
	}
	from := b.path
	if from == "" {
		file, err := b.spool.createFile(b.mem)
		if err != nil {
			return err
		}
		from = file.Name()
		if err := file.Close(); err != nil {
			os.Remove(from)
			return fmt.Errorf("moving spooled media: %w", err)
		}
	}
	if err := os.Rename(from, path); err != nil {
		if b.path == "" {
			os.Remove(from)
		}
		return fmt.Errorf("moving spooled media: %w", err)
	}
	b.release()
	return nil
}

// Close removes the bytes and frees their budget. It may be called twice, and
// after MoveTo.
func (b *Blob) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	path := b.path
	b.release()
	if path == "" {
		return nil
	}
	return os.Remove(path)
}

func (b *Blob) release() {
	b.closed = true
	b.spool.memory.give(int64(cap(b.mem)))
	b.spool.total.give(b.size)
	b.mem, b.path = nil, ""
}

// memory is an io.ReaderAt over bytes. bytes.Reader is one too, but would have
// to be allocated for each reading.
type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	if off >= int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
