package appendlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is what a log needs of a file system. Tests put failing disks in its place.
type Disk interface {
	// OpenDir makes the directory if it is not there, durably, and locks it until
	// it is closed. The error is ErrLocked if somebody else has it open.
	OpenDir(dir string) (Dir, error)
}

// Dir is an open and locked directory.
type Dir interface {
	Names() ([]string, error)
	Create(name string) (File, error) // an error if it is there already
	Open(name string) (File, error)
	Remove(name string) error
	Sync() error // makes what was created and removed durable
	Close() error
}

// File is an open segment.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Sync() error
	Size() (int64, error)
}

type osDisk struct{}

func (osDisk) OpenDir(dir string) (Dir, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", dir, ErrLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return osDir{f}, nil
}

// makeDir is os.MkdirAll that survives a loss of power.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		if err := makeDir(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return err
	}
	return syncPath(filepath.Dir(dir))
}

// syncPath makes a directory, or a file, durable.
func syncPath(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// osDir holds the lock for as long as its file is open.
type osDir struct{ *os.File }

func (d osDir) Names() ([]string, error) {
	if _, err := d.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return d.Readdirnames(-1)
}

func (d osDir) Create(name string) (File, error) {
	return openFile(filepath.Join(d.Name(), name), os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (d osDir) Open(name string) (File, error) {
	return openFile(filepath.Join(d.Name(), name), os.O_RDWR)
}

func (d osDir) Remove(name string) error { return os.Remove(filepath.Join(d.Name(), name)) }

type osFile struct{ *os.File }

func openFile(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
