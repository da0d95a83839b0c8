package metrics

import (
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"messagesender/internal/message"
	"messagesender/internal/openapi/openapitest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func text(t *testing.T, r *Registry) string {
	t.Helper()
	var b strings.Builder
	n, err := r.WriteTo(&b)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo: got %d, %v, want %d and no error", n, err, b.Len())
	}
	return b.String()
}

func scraped(t *testing.T, r *Registry) *scrape {
	t.Helper()
	s, err := parse(text(t, r))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The golden file is everything of the service but what differs from machine to
// machine.
func TestGolden(t *testing.T) {
	m := New("1.2.3")
	m.Request("text", 200, "")
	m.Request("text", 200, "")
	m.Request("media", 422, message.MediaUnavailable)
	m.Request("made up", 418, "teapot")
	m.Held.Inc()
	m.Held.Inc()
	m.Held.Dec()
	m.Hold.Observe(1500 * time.Millisecond)
	m.Hold.Observe(5 * time.Minute)
	m.LaneWait.Observe(0)
	m.Prepare.Observe(time.Hour)
	m.Platform.Observe(25 * time.Millisecond)
	m.JournalSync.Observe(300 * time.Microsecond)
	m.PresenceNotShown.Inc()
	m.PlatformError(131026)
	m.PlatformError(231)
	m.PlatformError(4711)
	m.PlatformError(-1)
	m.Retries.Inc()
	m.AuthFailures.Inc()
	m.Spool(func() int64 { return 1 << 20 })
	m.Outbox(func() int64 { return 3 }, func() int64 { return 4096 })

	var kept []string
	for line := range strings.Lines(text(t, &m.Registry)) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if strings.HasPrefix(name, "messagesender_") && !strings.HasPrefix(line, "messagesender_build_info{") {
			kept = append(kept, line)
		}
	}
	got := strings.Join(kept, "")
	const golden = "testdata/service.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestRuntimeAndBuild(t *testing.T) {
	s := scraped(t, &New("1.2.3").Registry)
	for _, name := range []string{"go_goroutines", "go_memstats_heap_alloc_bytes", "go_memstats_sys_bytes", "process_start_time_seconds"} {
		if s.samples[name] <= 0 {
			t.Errorf("%s: got %v, want more than 0", name, s.samples[name])
		}
	}
	for _, name := range []string{"go_gc_cycles_total", "go_gc_cpu_seconds_total"} {
		if _, ok := s.samples[name]; !ok {
			t.Errorf("%s: got nothing, want a sample", name)
		}
	}
	for id, labels := range s.labels {
		if strings.HasPrefix(id, "messagesender_build_info") && (labels["version"] != "1.2.3" || labels["goversion"] == "") {
			t.Errorf("build info: got %v, want the version given and a Go version", labels)
		}
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	m := New("1.2.3")
	m.Spool(func() int64 { return 0 })
	m.Outbox(func() int64 { return 0 }, func() int64 { return 0 })
	for name, kind := range scraped(t, &m.Registry).kinds {
		if counts := strings.HasSuffix(name, "_total"); counts != (kind == "counter") {
			t.Errorf("%s is a %s: want _total on counters and only there", name, kind)
		}
		if kind == "histogram" && !strings.HasSuffix(name, "_seconds") {
			t.Errorf("%s is a histogram of durations: want _seconds", name)
		}
	}
}

func TestEscaping(t *testing.T) {
	odd := "a\\b\"c\nd\\n,}{= é\U0001F600"
	var r Registry
	r.info("x", odd, "v", odd, "w", "")
	s := scraped(t, &r)
	if got := s.labels[s.order[0]]; got["v"] != odd || got["w"] != "" {
		t.Errorf("got labels %q, want %q", got, odd)
	}
	if got := s.helps["x"]; got != odd {
		t.Errorf("got help %q, want %q", got, odd)
	}
}

func TestHistogramBuckets(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      time.Duration
		bucket int
	}{
		{"nothing", 0, 0},
		{"a clock that went back", -time.Hour, 0},
		{"a bound belongs to its bucket", time.Millisecond, 0},
		{"just above a bound", time.Millisecond + 1, 1},
		{"the last bound", time.Second, 2},
		{"longer than all", time.Second + 1, 3},
		{"as long as can be", 1<<63 - 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHistogram(seconds(0.001, 0.1, 1))
			h.Observe(c.d)
			for i := range h.buckets {
				want := uint64(0)
				if i == c.bucket {
					want = 1
				}
				if got := h.buckets[i].Load(); got != want {
					t.Errorf("bucket %d: got %d, want %d", i, got, want)
				}
			}
		})
	}
}

// Whatever is observed, a reader sees as many observations, and their sum.
func TestHistogramAddsUp(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r Registry
	h := r.Histogram("h_seconds", "h", holdBounds...)
	const n = 10_000
	var sum time.Duration
	for range n {
		d := time.Duration(random.ExpFloat64() * float64(10*time.Second))
		h.Observe(d)
		sum += d
	}
	s := scraped(t, &r)
	if got := s.samples["h_seconds_count"]; got != n {
		t.Errorf("got a count of %v, want %d", got, n)
	}
	if got, want := s.samples["h_seconds_sum"], sum.Seconds(); got < want-0.01 || got > want+0.01 {
		t.Errorf("got a sum of %v, want %v", got, want)
	}
}

// Every combination of values has a counter of its own, and what is in no set is
// counted under other.
func TestLabelSets(t *testing.T) {
	c := newCounters(label{"a", []string{"1", "2"}}, label{"b", []string{"x", "y", "z"}})
	seen := map[*Counter]bool{}
	for _, a := range []string{"1", "2", "3"} {
		for _, b := range []string{"x", "y", "z", ""} {
			counter := c.with(a, b)
			if seen[counter] {
				t.Errorf("%q %q shares a counter", a, b)
			}
			seen[counter] = true
		}
	}
	if got, want := len(c.each), len(seen); got != want {
		t.Errorf("got %d counters, want %d", got, want)
	}
	if c.with("made up", "by a client") != c.with("3", "") {
		t.Error("two values outside of the sets have two counters, want one")
	}
	for i := range c.each {
		if values := c.values(i); c.with(values...) != &c.each[i] {
			t.Errorf("counter %d is called %q, which is another's name", i, values)
		}
	}
}

// What clients send cannot make the output grow.
func TestOutputIsBounded(t *testing.T) {
	m := New("1.2.3")
	for i := range 2000 {
		s := strconv.Itoa(i)
		m.Request("op"+s, i, message.Reason("code"+s))
		m.PlatformError(i * 1000)
	}
	if got := len(text(t, &m.Registry)); got > 20_000 {
		t.Errorf("got %d bytes, want at most 20,000", got)
	}
}

func TestTwoFamiliesOfOneName(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("got no panic, want one")
		}
	}()
	var r Registry
	r.Counter("a_total", "a")
	r.Gauge("a_total", "a")
}

type brokenWriter struct{ error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.error }

func TestAWriterThatFails(t *testing.T) {
	gone := errors.New("gone")
	if _, err := New("1.2.3").WriteTo(brokenWriter{gone}); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}

// Counting and writing at once loses nothing, and every text that is written in
// the middle of it is whole.
func TestCountingWhileWriting(t *testing.T) {
	m := New("1.2.3")
	const workers, each = 8, 2000
	var counting, writing sync.WaitGroup
	done := make(chan struct{})
	writing.Go(func() {
		for {
			s := scraped(t, &m.Registry)
			if held := s.samples["messagesender_held_requests"]; held < 0 || held > workers {
				t.Errorf("got %v held, want 0 to %d", held, workers)
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for w := range workers {
		counting.Go(func() {
			for i := range each {
				m.Held.Inc()
				m.Request("text", 200, "")
				m.Hold.Observe(time.Duration(i*w) * time.Millisecond)
				m.PlatformError(131026)
				m.Held.Dec()
			}
		})
	}
	counting.Wait()
	close(done)
	writing.Wait()
	s := scraped(t, &m.Registry)
	for id, want := range map[string]float64{
		`messagesender_requests_total{operation="text",status="200",code="none"}`: workers * each,
		`messagesender_platform_errors_total{code="131026"}`:                      workers * each,
		`messagesender_hold_duration_seconds_count`:                               workers * each,
		`messagesender_held_requests`:                                             0,
	} {
		if got := s.samples[id]; got != want {
			t.Errorf("%s: got %v, want %v", id, got, want)
		}
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m := New("1.2.3")
	for name, count := range map[string]func(){
		"Request":             func() { m.Request(OperationOf("POST /message/sendText/{apiToken}"), 200, "") },
		"Request, all other":  func() { m.Request("x", 299, "x") },
		"PlatformError":       func() { m.PlatformError(131026) },
		"PlatformError, none": func() { m.PlatformError(-1) },
		"Observe":             func() { m.Hold.Observe(time.Minute) },
		"Inc":                 func() { m.Held.Inc() },
	} {
		if got := testing.AllocsPerRun(100, count); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, got)
		}
	}
}

// Each route that is described counts under an operation of its own kind, and
// what is no route under other.
func TestOperationOf(t *testing.T) {
	d, err := openapitest.Read("Telegram", 0)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, route := range d.Routes() {
		operation := OperationOf(route)
		used[operation] = true
		if !slices.Contains(operations, operation) {
			t.Errorf("%s: got %s, want an operation", route, operation)
		}
	}
	for _, operation := range operations {
		if !used[operation] {
			t.Errorf("%s is the operation of no route", operation)
		}
	}
	for pattern, want := range map[string]string{
		"":                                   "other",
		"GET /":                              "other",
		"GET /x":                             "other",
		"POST /message/sendText/{apiToken}":  "text",
		"POST /message/sendMedia/{apiToken}": "media",
		"POST /message/sendTelegramAudio/{apiToken}": "audio",
		"GET /outbox/{$}": "outbox",
	} {
		if got := OperationOf(pattern); got != want {
			t.Errorf("%q: got %s, want %s", pattern, got, want)
		}
	}
}

// The label sets here and the codes of the service, which its description lists,
// are the same.
func TestCodesAreThoseOfTheService(t *testing.T) {
	d, err := openapitest.Read("WhatsApp", 0)
	if err != nil {
		t.Fatal(err)
	}
	var described []message.Reason
	for _, c := range d.Codes() {
		described = append(described, c.Reason)
		if !slices.Contains(reasons, c.Reason) {
			t.Errorf("%s is a code of the service and not of the metrics", c.Reason)
		}
	}
	for _, r := range reasons {
		if !slices.Contains(described, r) {
			t.Errorf("%s is a code of the metrics and not of the service", r)
		}
		if !slices.Contains(statuses, r.Status()) {
			t.Errorf("%d is a status of the service and not of the metrics", r.Status())
		}
	}
	for _, route := range d.Routes() {
		answers, err := d.Statuses(route)
		if err != nil {
			t.Fatal(err)
		}
		for status := range answers {
			if !slices.Contains(statuses, status) {
				t.Errorf("%s answers %d, which is not a status of the metrics", route, status)
			}
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	h := newHistogram(platformBounds)
	for b.Loop() {
		h.Observe(time.Second)
	}
}

func BenchmarkObserveLongest(b *testing.B) {
	h := newHistogram(platformBounds)
	for b.Loop() {
		h.Observe(time.Hour)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := New("1.2.3")
	for b.Loop() {
		m.Request(OperationOf("POST /message/sendText/{apiToken}"), 200, "")
	}
}

func BenchmarkWriteTo(b *testing.B) {
	m := New("1.2.3")
	for b.Loop() {
		_, _ = m.WriteTo(io.Discard)
	}
}
