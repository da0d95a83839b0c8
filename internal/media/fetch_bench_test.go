package media

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// BenchmarkFetch is a download of 100 MiB over loopback, beside io.Copy of the
// same answer to a file, which neither hashes nor bounds nor watches anything.
func BenchmarkFetch(b *testing.B) {
	const size = 100 << 20
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(size))
		for range size / len(chunk) {
			w.Write(chunk)
		}
	})}
	go server.Serve(listener)
	defer server.Close()
	url := "http://" + listener.Addr().String()

	spool, err := OpenSpool(b.TempDir(), Limits{Blob: size, Total: size})
	if err != nil {
		b.Fatal(err)
	}
	allow, err := ParseAllow("127.0.0.1/32")
	if err != nil {
		b.Fatal(err)
	}
	f := NewFetcher(FetchOptions{Spool: spool, Allow: allow})
	path := filepath.Join(b.TempDir(), "copy")

	// By turns, so that a busy machine is busy for both.
	var copying, fetching time.Duration
	for b.Loop() {
		start := time.Now()
		answer, err := http.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		file, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(file, answer.Body); n != size {
			b.Fatal(n, err)
		}
		answer.Body.Close()
		file.Close()
		copying += time.Since(start)
		os.Remove(path)

		start = time.Now()
		blob, _, err := f.Fetch(b.Context(), url)
		if err != nil {
			b.Fatal(err)
		}
		fetching += time.Since(start)
		blob.Close()
	}
	megabytes := float64(b.N) * size / 1e6
	b.ReportMetric(megabytes/copying.Seconds(), "copy-MB/s")
	b.ReportMetric(megabytes/fetching.Seconds(), "fetch-MB/s")
	b.ReportMetric(copying.Seconds()/fetching.Seconds(), "fetch/copy")
}
