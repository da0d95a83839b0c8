package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestLimits(t *testing.T) {
	const doc = `{"a": "x", "m":"0123456789"} ` // 29 bytes, 16 in the rest
	tests := []struct {
		name    string
		doc     string
		path    []string
		maxRest int
		maxBody int64
		want    error
	}{
		{"both just fit", doc, []string{"m"}, 16, 29, nil},
		{"body one too large", doc, []string{"m"}, 16, 28, &TooLargeError{28, "body"}},
		{"body cut inside the diverted string", doc, []string{"m"}, 16, 20, &TooLargeError{20, "body"}},
		{"rest one too large", doc, []string{"m"}, 15, 29, &TooLargeError{15, "body apart from m"}},
		{"path of two keys", doc, []string{"mediaMessage", "media"}, 15, 29, &TooLargeError{15, "body apart from mediaMessage.media"}},
		{"rest without a path", doc, nil, 15, 29, &TooLargeError{15, "body"}},
		{"long key", `{"0123456789":1}`, nil, 10, 99, &TooLargeError{10, "body"}},
		{"long number", `{"a":1234567890}`, nil, 10, 99, &TooLargeError{10, "body"}},
		{"literal", `{"a":true}`, nil, 8, 99, &TooLargeError{8, "body"}},
		{"endless white space before", strings.Repeat(" ", 200) + `{}`, nil, 99, 99, &TooLargeError{99, "body"}},
		{"endless white space after", `{}` + strings.Repeat(" ", 200), nil, 99, 99, &TooLargeError{99, "body"}},
		{"endless white space within", `{` + strings.Repeat(" ", 200) + `}`, nil, 99, 99, &TooLargeError{99, "body"}},
		{"fault within the limit of a larger body", `{"a":x}` + strings.Repeat(" ", 200), nil, 99, 99, &SyntaxError{5, "expected a value"}},
		{"end exactly at the limit, too early", `{"a":`, nil, 99, 5, &SyntaxError{5, "the body ends early"}},
		{"empty body, nothing allowed", ``, nil, 0, 0, &SyntaxError{0, "the body is empty"}},
		{"nothing may be read", `{}`, nil, 99, 0, &TooLargeError{0, "body"}},
		{"negative limit for the body", `{}`, nil, 99, -1, &TooLargeError{-1, "body"}},
		{"nothing may be kept", `{}`, nil, 0, 99, &TooLargeError{0, "body"}},
		{"negative limit for the rest", `{}`, nil, -1, 99, &TooLargeError{-1, "body"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			everySplit(test.doc, func(how string, r io.Reader) {
				_, err := Object(r, Options{Path: test.path, Sink: io.Discard, MaxRest: test.maxRest, MaxBody: test.maxBody})
				if !reflect.DeepEqual(err, test.want) {
					t.Errorf("%s: got %v, want %v", how, err, test.want)
				}
			})
		})
	}
	err := &TooLargeError{65536, "body apart from mediaMessage.media"}
	if want := "the body apart from mediaMessage.media is larger than 65536 bytes"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// At most one byte beyond the limit may be taken from the connection.
func TestReadsNoMoreThanTheLimit(t *testing.T) {
	r := strings.NewReader(`{"m":"` + strings.Repeat("x", 1<<20) + `"}`)
	size := r.Size()
	_, err := Object(r, Options{Path: []string{"m"}, Sink: io.Discard, MaxRest: 100, MaxBody: 100_000})
	if taken := size - int64(r.Len()); err == nil || taken != 100_001 {
		t.Errorf("took %d bytes, error %v; want 100001 bytes and an error", taken, err)
	}
}

func TestReaderErrorsAreWrapped(t *testing.T) {
	for _, want := range []error{io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, fmt.Errorf("connection: %w", io.EOF)} {
		// Before, in and after the object, and in the white space after it.
		for _, before := range []string{``, `{"a":`, `{"a":"é`, `{"m":"Q`, `{"m":"\u00`, `{"a":1`, `{}`, `{} `} {
			broken := io.MultiReader(strings.NewReader(before), iotest.ErrReader(want))
			for _, r := range []io.Reader{broken, iotest.DataErrReader(io.MultiReader(strings.NewReader(before), iotest.ErrReader(want)))} {
				_, _, _, err := read(r, "m")
				var readErr *ReadError
				if !errors.Is(err, want) || !errors.As(err, &readErr) {
					t.Errorf("after %q: got %v, want a ReadError with %v", before, err, want)
				}
			}
		}
	}
}

func TestMaxBytesErrorCanBeFound(t *testing.T) {
	body := http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(`{"a":1234567890}`)), 10)
	_, _, _, err := read(body)
	var tooLarge *http.MaxBytesError
	if !errors.As(err, &tooLarge) || tooLarge.Limit != 10 {
		t.Errorf("got %v, want an http.MaxBytesError with limit 10", err)
	}
}

func TestReaderThatNeverDelivers(t *testing.T) {
	stuck := io.MultiReader(strings.NewReader(`{"a":`), nothing{})
	if _, _, _, err := read(stuck); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("got %v, want %v", err, io.ErrNoProgress)
	}
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// The end of the body must have been seen when Object returns: net/http begins
// to watch for the client's disconnect only then.
func TestReadsToTheEnd(t *testing.T) {
	for _, doc := range []string{`{}`, `{"m":"x"}` + strings.Repeat("\n", 2*bufferSize)} {
		r := &endSeen{r: strings.NewReader(doc)}
		if _, _, _, err := read(r, "m"); err != nil || !r.seen {
			t.Errorf("%d bytes: got error %v, end seen: %v", len(doc), err, r.seen)
		}
	}
}

type endSeen struct {
	r    io.Reader
	seen bool
}

func (e *endSeen) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	e.seen = e.seen || err == io.EOF
	return n, err
}

// endless repeats a piece for n bytes, so that a large body needs no memory here.
type endless struct {
	piece string
	n     int64
}

func (e *endless) Read(b []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(b) && e.n > 0 {
		c := copy(b[n:], e.piece[:min(e.n, int64(len(e.piece)))])
		n, e.n = n+c, e.n-int64(c)
	}
	return n, nil
}

func TestMemoryDoesNotGrowWithTheBody(t *testing.T) {
	const size = 64 << 20
	body := io.MultiReader(strings.NewReader(`{"m":"`), &endless{strings.Repeat("QUJD", 1024), size}, strings.NewReader(`"}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	res, err := Object(body, Options{Path: []string{"m"}, Sink: io.Discard, MaxRest: 100, MaxBody: size + 100})
	runtime.ReadMemStats(&after)
	if err != nil || string(res.Rest) != `{"m":""}` {
		t.Fatalf("got %s, %v", res.Rest, err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("a body of %d bytes allocated %d", size, got)
	}
}

// Comparing each key with all before it takes 40 s here, this way 0.1 s.
func TestManyKeysAreLinear(t *testing.T) {
	const n = 200_000
	doc := []byte(`{` + manyKeys(n) + `}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	res, err := Object(bytes.NewReader(doc), Options{MaxRest: len(doc), MaxBody: int64(len(doc))})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if err != nil || len(res.Rest) != len(doc) {
		t.Fatalf("got %d bytes, %v", len(res.Rest), err)
	}
	if took > 10*time.Second {
		t.Errorf("%d keys took %v", n, took)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 20*uint64(len(doc)) {
		t.Errorf("%d keys in %d bytes allocated %d bytes", n, len(doc), got)
	}
}
