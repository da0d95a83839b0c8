package appendlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/appendlog"
	"messagesender/internal/appendlog/disktest"
)

func open(d *disktest.Disk, segmentSize int64) (l *appendlog.Log, payloads []string, err error) {
	l, _, err = appendlog.Open("log", appendlog.Options{Disk: d, SegmentSize: segmentSize}, func(_ appendlog.Position, p []byte) error {
		payloads = append(payloads, string(p))
		return nil
	})
	if err == nil {
		err = l.Settle()
	}
	return l, payloads, err
}

func mustOpen(t *testing.T, d *disktest.Disk, segmentSize int64) (*appendlog.Log, []string) {
	t.Helper()
	l, payloads, err := open(d, segmentSize)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l, payloads
}

func mustAppend(t *testing.T, l *appendlog.Log, payload string) appendlog.Position {
	t.Helper()
	at, err := l.Append([]byte(payload))
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return at[0]
}

// Whatever is left of what was not synced, what was is there, and the log is not
// taken for damaged.
func TestLossOfPowerKeepsWhatWasSynced(t *testing.T) {
	torn := 0
	for seed := range uint64(800) {
		rng := rand.New(rand.NewPCG(seed, 0))
		d := disktest.New(seed)
		var appended []string
		for range 4 {
			l, got, err := open(d, []int64{0, 1000, 4000}[rng.IntN(3)])
			if err != nil {
				t.Fatalf("seed %d: open: %v", seed, err)
			}
			if !slices.Equal(got, appended) {
				t.Fatalf("seed %d: got %d records, want %d", seed, len(got), len(appended))
			}
			synced := len(appended)
			for range rng.IntN(12) {
				p := fmt.Sprintf("%d %0*d", len(appended), rng.IntN(900), 0)
				at := mustAppend(t, l, p)
				appended = append(appended, p)
				if rng.IntN(3) == 0 {
					if err := l.Sync(at); err != nil {
						t.Fatalf("seed %d: sync: %v", seed, err)
					}
					synced = len(appended)
				}
			}
			if rng.IntN(4) == 0 {
				d.Kill()
				continue
			}
			d.LosePower()
			_, got, err = open(d, 0)
			if err != nil || len(got) < synced || !slices.Equal(got, appended[:len(got)]) {
				t.Fatalf("seed %d: got %d records, %v, want at least %d", seed, len(got), err, synced)
			}
			if len(got) < len(appended) {
				torn++
			}
			appended = appended[:len(got)]
			d.Kill()
		}
	}
	t.Logf("measured: %d torn tails cut", torn)
}

// Every set of sectors that a loss of power may leave of unsynced records, and
// every size of the file.
func TestEveryOrderOfSectorWritesIsATornTail(t *testing.T) {
	d := disktest.New(1)
	l, _ := mustOpen(t, d, 0)
	var appended []string
	add := func(n int) appendlog.Position {
		appended = append(appended, fmt.Sprintf("%0*d", n, len(appended)))
		return mustAppend(t, l, appended[len(appended)-1])
	}
	for _, n := range []int{300, 20, 400} {
		if err := l.Sync(add(n)); err != nil {
			t.Fatal(err)
		}
	}
	const name = "00000001.log"
	before, synced := d.Contents(name), len(appended)
	for _, n := range []int{90, 700, 10, 10, 1500, 100, 470, 40, 300} {
		add(n)
	}
	after := d.Contents(name)
	first := len(before) / disktest.SectorSize
	sectors := (len(after)+disktest.SectorSize-1)/disktest.SectorSize - first
	opened := 0
	for written := range 1 << sectors {
		for keep := range sectors + 1 {
			size := min(len(after), (first+keep+1)*disktest.SectorSize)
			if keep == 0 {
				size = len(before)
			}
			b := make([]byte, len(after))
			copy(b, before)
			for s := range sectors {
				if written>>s&1 == 1 {
					start := (first + s) * disktest.SectorSize
					copy(b[start:min(start+disktest.SectorSize, len(b))], after[start:])
				}
			}
			d.Kill()
			d.SetContents(name, b[:size])
			_, got, err := open(d, 0)
			if err != nil || len(got) < synced || !slices.Equal(got, appended[:len(got)]) {
				t.Fatalf("sectors %b written, %d bytes: got %d records, %v, want at least %d", written, size, len(got), err, synced)
			}
			if written == 1<<sectors-1 && size == len(after) && len(got) != len(appended) {
				t.Fatalf("all written: got %d records, want %d", len(got), len(appended))
			}
			opened++
		}
	}
	t.Logf("measured: %d states of %d sectors recovered", opened, sectors)
}

func TestBlankedSyncedSectorIsDamage(t *testing.T) {
	dir := t.TempDir()
	l, _, err := appendlog.Open(dir, appendlog.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := l.Sync(mustAppend(t, l, fmt.Sprintf("%0100d", i))); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	path := filepath.Join(dir, "00000001.log")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for start := 0; start+disktest.SectorSize < len(whole)-117; start += disktest.SectorSize {
		b := slices.Clone(whole)
		clear(b[start : start+disktest.SectorSize])
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, _, err := appendlog.Open(dir, appendlog.Options{}, func(appendlog.Position, []byte) error { return nil })
		if _, ok := errors.AsType[*appendlog.DamageError](err); !ok {
			t.Errorf("sector at %d blank: got %v, want damage", start, err)
		}
		if err == nil {
			l.Close()
		}
	}
}

func TestOneSyncServesAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		l, _ := mustOpen(t, d, 0)
		d.Pause = func() { time.Sleep(time.Millisecond) }
		before := d.Syncs()
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				at, err := l.Append(fmt.Append(nil, i))
				if err == nil {
					err = l.Sync(at[0])
				}
				if err != nil {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if n := d.Syncs() - before; n > 2 || time.Since(start) > 2*time.Millisecond {
			t.Errorf("64 records took %d syncs and %v, want at most 2 and 2ms", n, time.Since(start))
		}
	})
}

func TestFailedSyncIsFinal(t *testing.T) {
	d := disktest.New(1)
	l, _ := mustOpen(t, d, 0)
	first := mustAppend(t, l, "first")
	if err := l.Sync(first); err != nil {
		t.Fatal(err)
	}
	second := mustAppend(t, l, "second")
	d.FailSync(1)
	before := d.Syncs()
	for range 3 {
		if err := l.Sync(second); !errors.Is(err, disktest.ErrSync) {
			t.Errorf("sync: got %v, want %v", err, disktest.ErrSync)
		}
	}
	if _, err := l.Append([]byte("third")); !errors.Is(err, disktest.ErrSync) {
		t.Errorf("append: got %v, want %v", err, disktest.ErrSync)
	}
	if err := l.Sync(first); err != nil {
		t.Errorf("sync of what is on the disk: got %v", err)
	}
	if n := d.Syncs() - before; n != 1 {
		t.Errorf("got %d syncs, want 1", n)
	}
}

// After a sync has failed, memory shows what the disk does not have, and another
// fsync does not write it.
func TestSettleWritesWhatAFailedSyncLost(t *testing.T) {
	for seed := range uint64(50) {
		d := disktest.New(seed)
		l, _ := mustOpen(t, d, 0)
		at := mustAppend(t, l, fmt.Sprintf("%0700d", 1))
		d.FailSync(1)
		if err := l.Sync(at); err == nil {
			t.Fatal("the sync did not fail")
		}
		d.Kill()
		l, got := mustOpen(t, d, 0)
		if err := l.Sync(mustAppend(t, l, "next")); err != nil {
			t.Fatal(err)
		}
		want := append(got, "next")
		d.LosePower()
		if _, got := mustOpen(t, d, 0); !slices.Equal(got, want) {
			t.Fatalf("seed %d: got %d records, want %d", seed, len(got), len(want))
		}
	}
}

func TestFullDiskGoesOnWhenThereIsRoom(t *testing.T) {
	d := disktest.New(1)
	l, _ := mustOpen(t, d, 300)
	mustAppend(t, l, "first")
	d.SetRoom(20)
	for range 2 {
		if _, err := l.Append(make([]byte, 400)); err == nil {
			t.Fatal("append to a full disk: got no error")
		}
	}
	d.SetRoom(-1)
	if err := l.Sync(mustAppend(t, l, "second")); err != nil {
		t.Fatal(err)
	}
	d.LosePower()
	if _, got := mustOpen(t, d, 300); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("got %q", got)
	}
}

func BenchmarkAppendSync(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			l, _, err := appendlog.Open(b.TempDir(), appendlog.Options{}, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			record := make([]byte, 100)
			var wg sync.WaitGroup
			before := l.Syncs()
			for w := range writers {
				wg.Go(func() {
					for i := w; i < b.N; i += writers {
						at, err := l.Append(record)
						if err == nil {
							err = l.Sync(at[0])
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(l.Syncs()-before)/float64(b.N), "fsyncs/record")
		})
	}
}
