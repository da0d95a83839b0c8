package appendlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// sample is one segment with records of every kind of content that matters:
// zeros at either end and whole blank sectors, headers in every alignment.
func sample() (segment []byte, payloads []string, ends []int64) {
	rng := rand.New(rand.NewPCG(1, 2))
	segment = appendHeader(nil, 1, 0)
	ends = append(ends, headerSize)
	for i := range 60 {
		var p []byte
		switch i % 6 {
		case 0:
			p = fmt.Appendf(nil, "text %d", i)
		case 1:
			p = make([]byte, rng.IntN(40))
		case 2:
			p = append(make([]byte, rng.IntN(60)), 'x')
		case 3:
			p = append([]byte("x"), make([]byte, rng.IntN(60))...)
		case 4:
			p = nil
		case 5:
			p = bytes.Repeat([]byte("y"), rng.IntN(90))
		}
		if i == 30 {
			p = make([]byte, 1100)
		}
		segment = appendRecord(segment, Position{1, int64(len(segment))}, 0, p)
		payloads = append(payloads, string(p))
		ends = append(ends, int64(len(segment)))
	}
	return segment, payloads, ends
}

func scanAll(segment []byte, number int64) (got []string, f *fault, err error) {
	_, f, err = scan(bytes.NewReader(segment), int64(len(segment)), number, func(_ Position, p []byte) error {
		got = append(got, string(p))
		return nil
	})
	return got, f, err
}

func ignore(Position, []byte) error { return nil }

func TestTruncationAtEveryByte(t *testing.T) {
	segment, payloads, ends := sample()
	for n := range len(segment) + 1 {
		got, f, err := scanAll(segment[:n], 1)
		whole, exact := slices.BinarySearch(ends, int64(n))
		if !exact {
			whole--
		}
		if err != nil || !slices.Equal(got, payloads[:max(whole, 0)]) {
			t.Fatalf("cut to %d bytes: got %d records, %v, want %d", n, len(got), err, max(whole, 0))
		}
		if exact != (f == nil) || (f != nil && !f.torn) {
			t.Fatalf("cut to %d bytes: got fault %+v", n, f)
		}
	}
}

func TestEveryFlippedBitIsDamage(t *testing.T) {
	segment, _, ends := sample()
	for n := range segment {
		for bit := range 8 {
			segment[n] ^= 1 << bit
			_, f, err := scan(bytes.NewReader(segment), int64(len(segment)), 1, ignore)
			segment[n] ^= 1 << bit
			record, exact := slices.BinarySearch(ends, int64(n))
			if !exact {
				record--
			}
			want := int64(0)
			if n >= headerSize {
				want = ends[record]
			}
			if err != nil || f == nil || f.torn || f.offset != want {
				t.Fatalf("bit %d of byte %d flipped: got %+v, %v, want damage at %d", bit, n, f, err, want)
			}
		}
	}
}

// A sector that one bit keeps from being blank must not be taken for one that
// was never written.
func TestFlippedBitThatBlanksASectorIsDamage(t *testing.T) {
	for _, test := range []struct {
		name string
		fill int // payload of the record before
		last []byte
	}{
		{"the kind alone at the end of a sector", sectorSize - headerSize - recordSize - 1, []byte("x")},
		{"one bit of payload alone in a sector", 0, append(make([]byte, sectorSize-headerSize-2*recordSize), 1)},
		{"one bit of payload in the middle", 0, append(make([]byte, sectorSize), append([]byte{0x80}, make([]byte, 2*sectorSize)...)...)},
	} {
		b := appendHeader(nil, 1, 0)
		b = appendRecord(b, Position{1, int64(len(b))}, 0, make([]byte, test.fill))
		start := len(b)
		b = appendRecord(b, Position{1, int64(len(b))}, 0, test.last)
		for n := start; n < len(b); n++ {
			for bit := range 8 {
				b[n] ^= 1 << bit
				if _, f, err := scanAll(b, 1); err != nil || f == nil || f.torn {
					t.Errorf("%s: bit %d of byte %d flipped: got %+v, %v, want damage", test.name, bit, n, f, err)
				}
				b[n] ^= 1 << bit
			}
		}
	}
}

func TestBlankSectors(t *testing.T) {
	segment, payloads, ends := sample()
	for start := 0; start < len(segment); start += sectorSize {
		torn := bytes.Clone(segment)
		clear(torn[start:min(start+sectorSize, len(torn))])
		if bytes.Equal(torn, segment) {
			continue // a blank sector of the sample's own
		}
		harmed := int64(start)
		for torn[harmed] == segment[harmed] {
			harmed++
		}
		record, exact := slices.BinarySearch(ends, harmed)
		if !exact {
			record--
		}
		record = max(record, 0)
		// When the payload left a sector blank by itself, it is refused when in doubt.
		wantTorn := harmed < ends[record]+recordSize || segment[ends[record]] == kindPlain
		got, f, err := scanAll(torn, 1)
		if err != nil || f == nil || f.torn != wantTorn {
			t.Errorf("sector at %d blank: got fault %+v, %v, want torn %v", start, f, err, wantTorn)
		}
		if start > 0 && !slices.Equal(got, payloads[:record]) {
			t.Errorf("sector at %d blank: got %d records, want %d", start, len(got), record)
		}
	}
}

func TestZerosAfterTheEndAreTorn(t *testing.T) {
	segment, payloads, _ := sample()
	for _, n := range []int{1, recordSize - 1, recordSize, 511, 5000} {
		got, f, err := scanAll(append(bytes.Clone(segment), make([]byte, n)...), 1)
		if err != nil || f == nil || !f.torn || f.offset != int64(len(segment)) || len(got) != len(payloads) {
			t.Errorf("%d zeros: got %d records, fault %+v, %v, want %d, torn", n, len(got), f, err, len(payloads))
		}
	}
}

func TestOneRecordInPlaceOfAnotherIsDamage(t *testing.T) {
	b := appendHeader(nil, 1, 0)
	for range 2 {
		b = appendRecord(b, Position{1, int64(len(b))}, 0, []byte("same"))
	}
	copy(b[headerSize:], b[headerSize+recordSize+4:])
	if _, f, err := scanAll(b, 1); err != nil || f == nil || f.torn {
		t.Errorf("got fault %+v, %v, want damage", f, err)
	}
}

// files are the segments of a log of several.
func files(t *testing.T) (dir string, paths []string, payloads []string) {
	dir = t.TempDir()
	l, _ := mustOpen(t, dir, 300)
	for i := range 12 {
		payloads = append(payloads, fmt.Sprintf("%070d", i))
		mustAppend(t, l, []byte(payloads[i]))
	}
	l.Close()
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("got segments %v, %v, want 4", paths, err)
	}
	return dir, paths, payloads
}

func TestDirectories(t *testing.T) {
	truncate := func(n int64) func(string) error {
		return func(path string) error { return os.Truncate(path, n) }
	}
	const record = recordSize + 70
	for _, test := range []struct {
		name    string
		segment int // 1-based
		harm    func(path string) error
		records int // -1: damage
		cut     int64
	}{
		{"last segment torn in a record", 4, truncate(headerSize + record + 20), 10, 20},
		{"last segment torn in its header", 4, truncate(10), 9, 10},
		{"last segment empty", 4, truncate(0), 9, 0},
		{"last segment blank", 4, func(p string) error { return os.WriteFile(p, make([]byte, 700), 0o600) }, 9, 700},
		{"last segment missing", 4, os.Remove, 9, 0},
		{"first segment missing", 1, os.Remove, 9, 0}, // as after Drop
		{"middle segment missing", 2, os.Remove, -1, 0},
		{"middle segment torn in a record", 2, truncate(headerSize + record + 20), -1, 0},
		{"middle segment without its last record", 2, truncate(headerSize + 2*record), -1, 0},
		{"middle segment without records", 2, truncate(headerSize), -1, 0},
		{"middle segment empty", 2, truncate(0), -1, 0},
		{"middle segment longer", 2, func(p string) error { return os.Truncate(p, headerSize+3*record+1) }, -1, 0},
		{"one segment in place of another", 2, func(p string) error {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(p), "00000003.log"))
			return errors.Join(err, os.WriteFile(p, b, 0o600))
		}, -1, 0},
		{"unrelated files", 2, func(p string) error {
			d := filepath.Dir(p)
			return errors.Join(os.WriteFile(d+"/5.log", nil, 0o600), os.WriteFile(d+"/00000000.log", nil, 0o600),
				os.WriteFile(d+"/-0000007.log", nil, 0o600), os.Mkdir(d+"/other", 0o700))
		}, 12, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, paths, payloads := files(t)
			if err := test.harm(paths[test.segment-1]); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			l, got, cut, err := replayed(t, dir, 300)
			if test.records < 0 {
				var damage *DamageError
				if !errors.As(err, &damage) {
					t.Errorf("got %d records, %v, want damage", len(got), err)
				}
				if after := contents(t, dir); !bytes.Equal(before, after) {
					t.Errorf("refusing changed the files")
				}
				return
			}
			want := payloads[:test.records]
			if test.segment == 1 {
				want = payloads[12-test.records:]
			}
			if err != nil || cut != test.cut || !slices.Equal(got, want) {
				t.Fatalf("got %d records, cut %d, %v, want %d, %d", len(got), cut, err, len(want), test.cut)
			}
			mustAppend(t, l, []byte("more"))
			l.Close()
			if _, got := mustOpen(t, dir, 300); !slices.Equal(got, append(slices.Clone(want), "more")) {
				t.Errorf("after appending: got %d records, want %d", len(got), len(want)+1)
			}
		})
	}
}

func contents(t *testing.T, dir string) (all []byte) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

func FuzzReplay(f *testing.F) {
	segment, _, ends := sample()
	f.Add(segment[:ends[4]])
	f.Add(segment[:ends[4]-3])
	f.Add(append(bytes.Clone(segment[:ends[3]]), make([]byte, 600)...))
	f.Add([]byte(nil))
	f.Add(append(bytes.Clone(segment[:ends[2]]), kindPlain, 0xFF, 0xFF, 0xFF))
	f.Fuzz(func(t *testing.T, b []byte) {
		var rebuilt = appendHeader(nil, 1, 0)
		found, bad, err := scan(bytes.NewReader(b), int64(len(b)), 1, func(at Position, p []byte) error {
			if at.Offset != int64(len(rebuilt)) {
				t.Fatalf("record at %d follows %d bytes", at.Offset, len(rebuilt))
			}
			rebuilt = appendRecord(rebuilt, at, 0, p)
			return nil
		})
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		good := len(b)
		if bad != nil {
			good = int(bad.offset)
		}
		if good == 0 {
			return
		}
		copy(rebuilt, appendHeader(nil, 1, found.previous))
		// The kind may differ: it depends on the payload only when we write it.
		if len(rebuilt) != good {
			t.Fatalf("got %d bytes of records, want the %d before the fault", len(rebuilt), good)
		}
	})
}

func TestScanReportsReadErrors(t *testing.T) {
	segment, _, _ := sample()
	want := errors.New("bad sector")
	r := failingReader{bytes.NewReader(segment), want}
	if _, _, err := scan(r, int64(len(segment)), 1, ignore); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

type failingReader struct {
	io.ReaderAt
	err error
}

func (r failingReader) ReadAt([]byte, int64) (int, error) { return 0, r.err }

func TestOpenIsFast(t *testing.T) {
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, 0)
	batch := make([][]byte, 1000)
	for i := range batch {
		batch[i] = bytes.Repeat([]byte("r"), 100)
	}
	for range 100 {
		mustAppend(t, l, batch...)
	}
	l.Close()
	n := 0
	start := time.Now()
	allocs := testing.AllocsPerRun(1, func() {
		l, _, err := Open(dir, Options{}, func(Position, []byte) error { n++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	})
	if n != 200_000 || allocs > 100 {
		t.Errorf("got %d records with %v allocations, want 100000 twice with few", n, allocs)
	}
	t.Logf("opened 100,000 records in %v", time.Since(start)/2)
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	l, _ := mustOpen(b, dir, 0)
	batch := slices.Repeat([][]byte{bytes.Repeat([]byte("r"), 100)}, 1000)
	for range 100 {
		mustAppend(b, l, batch...)
	}
	l.Close()
	for b.Loop() {
		l, _, err := Open(dir, Options{}, ignore)
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}
