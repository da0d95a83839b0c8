package journal

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"messagesender/internal/appendlog"
)

const wamid = "wamid.HBgNNDkxNzY1NTUwMTIzNBUCABEYEjQ2QkE5RTQ4RkQ3QTFCQzQyRQA="

// fill writes begins and ends without waiting for the disk each time.
func fill(t testing.TB, dir string, keys int) {
	t.Helper()
	log, _, err := appendlog.Open(dir, appendlog.Options{SegmentSize: defaultSegmentSize}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	now := time.Now().UnixMilli()
	var batch [][]byte
	for i := range keys {
		r := record{kind: begin, key: KeyOf("account", fmt.Sprint(i)), at: now, requestID: "01JD2M6Z8V4Q0R7T5W9XYBCDEF"}
		batch = append(batch, r.encode())
		r.kind, r.messageID = end, wamid
		batch = append(batch, r.encode())
		if len(batch) >= 1000 || i == keys-1 {
			if _, err := log.Append(batch...); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
}

func TestRecoveryAndMemory(t *testing.T) {
	for _, keys := range []int{50_000, 1_000_000} {
		if keys > 50_000 && !*full {
			continue
		}
		dir := t.TempDir()
		fill(t, dir, keys)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		j, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		runtime.GC()
		runtime.ReadMemStats(&after)
		perKey := float64(after.HeapAlloc-before.HeapAlloc) / float64(keys)
		if j.Len() != keys || perKey > 150 {
			t.Errorf("got %d keys of %.0f bytes each, want %d of at most 150", j.Len(), perKey, keys)
		}
		t.Logf("measured: %d records recovered in %v, %.0f bytes of memory for each key, %.0f on the disk",
			2*keys, took.Round(time.Millisecond), perKey, float64(j.log.Size())/float64(keys))
		j.Close()
	}
}

func BenchmarkDo(b *testing.B) {
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			dir, err := os.MkdirTemp(".", "bench")
			if err != nil {
				b.Fatal(err)
			}
			defer os.RemoveAll(dir)
			j, err := Open(dir, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer j.Close()
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for c := range clients {
				wg.Go(func() {
					for i := c; i < b.N; i += clients {
						r := Request{Key: KeyOf("a", fmt.Sprint(i)), ID: "01JD2M6Z8V4Q0R7T5W9XYBCDEF"}
						a := j.Do(context.Background(), r, func(begin func() error) (string, error) { return wamid, begin() })
						if a.Err != nil {
							b.Error(a.Err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
			b.ReportMetric(float64(j.Syncs())/float64(b.N), "fsyncs/send")
		})
	}
}
