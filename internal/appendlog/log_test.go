package appendlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// replayed opens the log in dir and returns copies of all its payloads.
func replayed(t testing.TB, dir string, size int64) (l *Log, payloads []string, cut int64, err error) {
	t.Helper()
	l, cut, err = Open(dir, Options{SegmentSize: size}, func(_ Position, p []byte) error {
		payloads = append(payloads, string(p))
		return nil
	})
	if err == nil {
		t.Cleanup(func() { l.Close() })
	}
	return l, payloads, cut, err
}

func mustOpen(t testing.TB, dir string, size int64) (*Log, []string) {
	t.Helper()
	l, payloads, cut, err := replayed(t, dir, size)
	if err != nil || cut != 0 {
		t.Fatalf("open: got cut %d, error %v, want 0, nil", cut, err)
	}
	return l, payloads
}

func mustAppend(t testing.TB, l *Log, payloads ...[]byte) []Position {
	t.Helper()
	positions, err := l.Append(payloads...)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return positions
}

func TestReopenReplaysEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "log")
	l, got := mustOpen(t, dir, 1000)
	if len(got) != 0 {
		t.Errorf("a new log replays %d records, want 0", len(got))
	}
	var want []string
	var at []Position
	for i := range 50 {
		batch := [][]byte{fmt.Appendf(nil, "record %d", i), bytes.Repeat([]byte{byte(i)}, i*13), nil}
		at = append(at, mustAppend(t, l, batch...)...)
		for _, p := range batch {
			want = append(want, string(p))
		}
	}
	if len(l.segments) < 10 {
		t.Errorf("got %d segments, want many", len(l.segments))
	}
	size := l.Size()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatalf("close: %v", err)
	}
	l, got = mustOpen(t, dir, 1000)
	if !slices.Equal(got, want) {
		t.Fatalf("got %d records %q, want %d", len(got), got, len(want))
	}
	if l.Size() != size {
		t.Errorf("size after reopening: got %d, want %d", l.Size(), size)
	}
	var buf []byte
	for i, pos := range at {
		var err error
		if buf, err = l.ReadAt(pos, buf); err != nil || string(buf) != want[i] {
			t.Errorf("read record %d: got %q, %v, want %q", i, buf, err, want[i])
		}
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	mustOpen(t, dir, 0)
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, "00000001.log"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: got mode %v, error %v, want %v", path, info.Mode(), err, want)
		}
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, 0)
	if _, _, err := Open(dir, Options{}, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("open while open: got %v, want %v", err, ErrLocked)
	}
	l.Close()
	mustOpen(t, dir, 0)
}

func TestTooLargeIsRefused(t *testing.T) {
	l, _ := mustOpen(t, t.TempDir(), 0)
	mustAppend(t, l, make([]byte, MaxRecord))
	if _, err := l.Append(make([]byte, MaxRecord+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want %v", err, ErrTooLarge)
	}
}

func TestClosedLogRefuses(t *testing.T) {
	l, _ := mustOpen(t, t.TempDir(), 0)
	at := mustAppend(t, l, []byte("x"))
	l.Close()
	if _, err := l.Append([]byte("y")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("append: got %v, want %v", err, os.ErrClosed)
	}
	if _, err := l.ReadAt(at[0], nil); !errors.Is(err, ErrDropped) {
		t.Errorf("read: got %v, want %v", err, ErrDropped)
	}
}

func TestReplayErrorStopsOpen(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, 0)
	mustAppend(t, l, []byte("x"))
	l.Close()
	want := errors.New("not understood")
	if _, _, err := Open(dir, Options{}, func(Position, []byte) error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestDropRemovesWholeSegmentsOnly(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, 200)
	var at []Position
	for i := range 20 {
		at = append(at, mustAppend(t, l, fmt.Appendf(nil, "%050d", i))...)
	}
	keep := at[10]
	if err := l.Drop(keep); err != nil {
		t.Fatalf("drop: %v", err)
	}
	for i, pos := range at {
		_, err := l.ReadAt(pos, nil)
		if dropped := errors.Is(err, ErrDropped); dropped != (pos.Segment < keep.Segment) || (!dropped && err != nil) {
			t.Errorf("record %d: got %v", i, err)
		}
	}
	size := l.Size()
	l.Close()
	l, got := mustOpen(t, dir, 200)
	first := slices.IndexFunc(at, func(p Position) bool { return p.Segment == keep.Segment })
	if len(got) != len(at)-first || got[0] != fmt.Sprintf("%050d", first) || l.Size() != size {
		t.Errorf("after reopening: got %d records and %d bytes, want %d and %d", len(got), l.Size(), len(at)-first, size)
	}
	if err := l.Drop(Position{Segment: 1 << 60}); err != nil {
		t.Fatalf("drop all: %v", err)
	}
	if _, err := l.ReadAt(at[len(at)-1], nil); err != nil {
		t.Errorf("the last segment was dropped: %v", err)
	}
	mustAppend(t, l, []byte("more"))
}

func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, 4000)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				want := fmt.Sprintf("%d/%d", w, i)
				at, err := l.Append([]byte(want))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				if got, err := l.ReadAt(at[0], nil); !errors.Is(err, ErrDropped) && string(got) != want {
					t.Errorf("got %q, %v, want %q", got, err, want)
				}
				if i == 150 {
					l.Drop(at[0])
				}
			}
		})
	}
	wg.Wait()
	l.Close()
	mustOpen(t, dir, 4000)
}

// disk fails on demand, after having written half.
type disk struct{ write, truncate, sync error }

type failingDir struct {
	Dir
	disk *disk
}

type failingFile struct {
	File
	disk *disk
}

func (d *disk) OpenDir(path string) (Dir, error) {
	dir, err := osDisk{}.OpenDir(path)
	return failingDir{dir, d}, err
}

func (d failingDir) Create(name string) (File, error) {
	f, err := d.Dir.Create(name)
	return failingFile{f, d.disk}, err
}

func (d failingDir) Open(name string) (File, error) {
	f, err := d.Dir.Open(name)
	return failingFile{f, d.disk}, err
}

func (f failingFile) WriteAt(b []byte, off int64) (int, error) {
	if f.disk.write != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, f.disk.write
	}
	return f.File.WriteAt(b, off)
}

func (f failingFile) Truncate(n int64) error {
	if f.disk.truncate != nil {
		return f.disk.truncate
	}
	return f.File.Truncate(n)
}

func (f failingFile) Sync() error {
	if f.disk.sync != nil {
		return f.disk.sync
	}
	return f.File.Sync()
}

func TestFailingDisk(t *testing.T) {
	full := errors.New("disk full")
	for _, test := range []struct {
		name                  string
		segmentSize           int64
		write, truncate, sync error
		recovers              bool
	}{
		{name: "write fails, its traces are removed", write: full, recovers: true},
		{name: "a new segment cannot be made", segmentSize: 100, write: full, recovers: true},
		{name: "write fails and so does its removal", write: full, truncate: full},
		{name: "a full segment cannot be synced", segmentSize: 100, sync: full},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			var d disk
			l, _, err := Open(dir, Options{SegmentSize: test.segmentSize, Disk: &d}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{string(bytes.Repeat([]byte("a"), 60))}
			mustAppend(t, l, []byte(want[0]))
			d = disk{test.write, test.truncate, test.sync}
			size := l.Size()
			for range 2 {
				if _, err := l.Append(bytes.Repeat([]byte("b"), 60)); !errors.Is(err, full) {
					t.Errorf("append: got %v, want %v", err, full)
				}
			}
			if l.Size() != size {
				t.Errorf("size after a failed append: got %d, want %d", l.Size(), size)
			}
			d = disk{}
			_, err = l.Append([]byte("c"))
			if recovered := err == nil; recovered != test.recovers {
				t.Errorf("append after the disk is well again: got %v, want success %v", err, test.recovers)
			}
			if test.recovers {
				want = append(want, "c")
			}
			l.Close()
			_, got, _, err := replayed(t, dir, 0)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("reopened: got %q, %v, want %q", got, err, want)
			}
		})
	}
}
