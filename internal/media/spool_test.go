package media

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var testLimits = Limits{Blob: 8 << 20, Total: 64 << 20, Memory: 16 << 20}

func newSpool(t testing.TB, l Limits) *Spool {
	t.Helper()
	spool, err := OpenSpool(filepath.Join(t.TempDir(), "spool"), l)
	if err != nil {
		t.Fatal(err)
	}
	return spool
}

func wantUsed(t testing.TB, spool *Spool, want int64) {
	t.Helper()
	if got := spool.Used(); got != want {
		t.Errorf("%d bytes are used, want %d", got, want)
	}
}

// wantEmpty checks that nothing at all is left: no budget and no file.
func wantEmpty(t testing.TB, spool *Spool) {
	t.Helper()
	wantUsed(t, spool, 0)
	if got := spool.memory.used.Load(); got != 0 {
		t.Errorf("%d bytes of memory are used, want 0", got)
	}
	if files := filesIn(t, spool); files != 0 {
		t.Errorf("%d files are in the spool, want 0", files)
	}
}

func filesIn(t testing.TB, spool *Spool) int {
	t.Helper()
	entries, err := os.ReadDir(spool.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func newBlob(t testing.TB, spool *Spool, content []byte) *Blob {
	t.Helper()
	w := spool.NewWriter()
	for rest := content; len(rest) > 0; {
		n := min(len(rest), 10_000)
		if _, err := w.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	blob, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return blob
}

// sizes are of a blob in memory, the largest such, and one in a file.
var sizes = map[string]int{"empty": 0, "small": 1000, "largest in memory": maxInMemory, "in a file": maxInMemory + 1, "large": 3 << 20}

func TestBlob(t *testing.T) {
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			content := randomBytes(size)
			blob := newBlob(t, spool, content)
			wantUsed(t, spool, int64(size))
			if got, want := filesIn(t, spool), min(1, size/(maxInMemory+1)); got != want {
				t.Errorf("%d files are in the spool, want %d", got, want)
			}
			if blob.Size() != int64(size) || blob.SHA256() != sha256.Sum256(content) {
				t.Errorf("got %d bytes with the digest %x", blob.Size(), blob.SHA256())
			}
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() {
					got, err := io.ReadAll(blob.NewReader())
					if err != nil || !bytes.Equal(got, content) {
						t.Errorf("read %d bytes, error %v; want the %d written", len(got), err, size)
					}
				})
			}
			readers.Wait()
			if n, err := blob.ReadAt(make([]byte, 10), int64(size)); n != 0 || err != io.EOF {
				t.Errorf("ReadAt the end returned %d, %v; want 0, EOF", n, err)
			}
			for range 2 {
				if err := blob.Close(); err != nil {
					t.Errorf("Close returned %v", err)
				}
			}
			wantEmpty(t, spool)
			if _, err := blob.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
				t.Errorf("ReadAt after Close returned %v, want os.ErrClosed", err)
			}
		})
	}
}

func TestBlobMoveTo(t *testing.T) {
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			content := randomBytes(size)
			blob := newBlob(t, spool, content)
			path := filepath.Join(t.TempDir(), "moved")
			if err := blob.MoveTo(path); err != nil {
				t.Fatal(err)
			}
			wantEmpty(t, spool)
			got, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(got, content) {
				t.Errorf("the file has %d bytes, error %v; want the %d written", len(got), err, size)
			}
			if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("the file's mode is %v, error %v; want 0600", info.Mode(), err)
			}
			if err := blob.MoveTo(path + "2"); !errors.Is(err, os.ErrClosed) {
				t.Errorf("a second MoveTo returned %v, want os.ErrClosed", err)
			}
			if err := blob.Close(); err != nil {
				t.Errorf("Close returned %v", err)
			}
		})
	}
}

func TestBlobIsAsItWasAfterMoveToFails(t *testing.T) {
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			content := randomBytes(size)
			blob := newBlob(t, spool, content)
			files := filesIn(t, spool)
			taken := filepath.Join(t.TempDir(), "taken")
			if err := os.WriteFile(taken, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := blob.MoveTo(taken); !errors.Is(err, fs.ErrExist) {
				t.Errorf("MoveTo a taken path returned %v, want fs.ErrExist", err)
			}
			if err := blob.MoveTo(filepath.Join(t.TempDir(), "no", "such")); err == nil {
				t.Error("MoveTo a missing directory returned no error")
			}
			if got := filesIn(t, spool); got != files {
				t.Errorf("%d files are in the spool, want %d", got, files)
			}
			if got, err := io.ReadAll(blob.NewReader()); err != nil || !bytes.Equal(got, content) {
				t.Errorf("read %d bytes, error %v; want the %d written", len(got), err, size)
			}
			blob.Close()
			wantEmpty(t, spool)
		})
	}
}

func TestWriterLimits(t *testing.T) {
	t.Run("a blob of the largest size", func(t *testing.T) {
		spool := newSpool(t, Limits{Blob: 1000, Total: 1000, Memory: 1000})
		blob := newBlob(t, spool, make([]byte, 1000))
		blob.Close()
	})
	t.Run("one byte more", func(t *testing.T) {
		spool := newSpool(t, Limits{Blob: 1000, Total: 2000, Memory: 1000})
		w := spool.NewWriter()
		w.Write(make([]byte, 1000))
		for range 2 {
			n, err := w.Write(make([]byte, 1))
			if tooLarge, ok := errors.AsType[*TooLargeError](err); n != 0 || !ok || tooLarge.Limit != 1000 {
				t.Errorf("Write returned %d, %v", n, err)
			}
		}
		if _, err := w.Finish(); err == nil {
			t.Error("Finish returned no error")
		}
		wantEmpty(t, spool)
	})
	t.Run("a full spool has room again", func(t *testing.T) {
		spool := newSpool(t, Limits{Blob: 1000, Total: 1500, Memory: 1000})
		first := newBlob(t, spool, make([]byte, 1000))
		w := spool.NewWriter()
		if _, err := w.Write(make([]byte, 501)); !errors.Is(err, ErrSpoolFull) {
			t.Errorf("Write returned %v, want ErrSpoolFull", err)
		}
		w.Close()
		first.Close()
		newBlob(t, spool, make([]byte, 501)).Close()
		wantEmpty(t, spool)
	})
	t.Run("no memory left", func(t *testing.T) {
		spool := newSpool(t, Limits{Blob: 1000, Total: 10_000, Memory: 1000})
		newBlob(t, spool, make([]byte, 1000))
		inFile := newBlob(t, spool, make([]byte, 10))
		if got := filesIn(t, spool); got != 1 {
			t.Errorf("%d files are in the spool, want 1", got)
		}
		if got, err := io.ReadAll(inFile.NewReader()); err != nil || len(got) != 10 {
			t.Errorf("read %d bytes, error %v; want 10", len(got), err)
		}
	})
	t.Run("limits of zero allow nothing", func(t *testing.T) {
		w := newSpool(t, Limits{}).NewWriter()
		if _, err := w.Write([]byte("a")); err == nil {
			t.Error("Write returned no error")
		}
	})
}

func TestWriterCloseDiscards(t *testing.T) {
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			w := spool.NewWriter()
			w.Write(make([]byte, size))
			for range 2 {
				if err := w.Close(); err != nil {
					t.Errorf("Close returned %v", err)
				}
			}
			wantEmpty(t, spool)
			if _, err := w.Write([]byte("a")); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Write after Close returned %v, want os.ErrClosed", err)
			}
			if _, err := w.Finish(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Finish after Close returned %v, want os.ErrClosed", err)
			}
		})
	}
}

func TestWriterCloseAfterFinishKeepsTheBlob(t *testing.T) {
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			w := spool.NewWriter()
			w.Write(make([]byte, size))
			blob, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			if got, err := io.ReadAll(blob.NewReader()); err != nil || len(got) != size {
				t.Errorf("read %d bytes, error %v; want %d", len(got), err, size)
			}
			wantUsed(t, spool, int64(size))
		})
	}
}

func TestWriterReportsDiskErrors(t *testing.T) {
	spool := newSpool(t, testLimits)
	if err := os.RemoveAll(spool.dir); err != nil {
		t.Fatal(err)
	}
	w := spool.NewWriter()
	if _, err := w.Write(make([]byte, maxInMemory+1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Write returned %v, want fs.ErrNotExist", err)
	}
	w.Close()
	wantUsed(t, spool, 0)
}

func TestBudgetIsNeverOverdrawn(t *testing.T) {
	spool := newSpool(t, Limits{Blob: 1 << 20, Total: 1 << 20, Memory: 100 << 10})
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 50 {
				w := spool.NewWriter()
				for range 10 {
					w.Write(make([]byte, 30_000))
					if used := spool.Used(); used > 1<<20 {
						t.Errorf("%d bytes are used, the limit is %d", used, 1<<20)
					}
				}
				if blob, err := w.Finish(); err == nil {
					blob.Close()
				} else if !errors.Is(err, ErrSpoolFull) {
					t.Errorf("Finish returned %v", err)
				}
			}
		})
	}
	writers.Wait()
	wantEmpty(t, spool)
}

func TestOpenSpoolEmptiesAndClosesOffItsDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "spool")
	if err := os.MkdirAll(filepath.Join(dir, "left"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "left", "over"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spool, err := OpenSpool(dir, testLimits)
	if err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, spool)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, error %v; want 0700", info.Mode(), err)
	}
	if _, err := OpenSpool(filepath.Join(dir, "x\x00y"), testLimits); err == nil {
		t.Error("a bad directory is no error")
	}
}
