package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"

	"messagesender/internal/appendlog"
	"messagesender/internal/appendlog/disktest"
	"messagesender/internal/message"
)

const sampleKeys = 12

// outcomes are what a journal says of all keys of the sample.
func outcomes(t *testing.T, j *Journal) map[string]string {
	t.Helper()
	found := map[string]string{}
	for i := range sampleKeys {
		state, id, ok, err := j.Outcome(KeyOf("a", fmt.Sprint(i)))
		if err != nil {
			t.Fatalf("outcome: %v", err)
		}
		if ok {
			found[fmt.Sprint(i)] = fmt.Sprint(state, " ", id)
		}
	}
	return found
}

// sample is a journal of several segments with all kinds of records, and what it
// said after each of them.
func sample(t *testing.T) (d *disktest.Disk, said map[appendlog.Position]map[string]string) {
	d = disktest.New(1)
	j := mustOpen(t, d, Options{SegmentSize: 700})
	said = map[appendlog.Position]map[string]string{j.log.End(): {}}
	var count atomic.Int64
	errs := []error{
		nil, message.NewError(message.PlatformRejected, "no"), nil,
		message.NewError(message.RateLimited, "later"), message.NewError(message.DeliveryUnknown, "?"),
	}
	for i := range sampleKeys {
		err := errs[i%len(errs)]
		key, id := fmt.Sprint(i), ""
		if err == nil {
			id = "wamid." + key
		}
		j.Do(t.Context(), request(key, "r"+key), func(begin func() error) (string, error) {
			if err := begin(); err != nil {
				return "", err
			}
			now := maps.Clone(outcomes(t, j))
			now[key] = "unknown "
			said[j.log.End()] = now
			return sends(&count, id, err)(begin)
		})
		said[j.log.End()] = outcomes(t, j)
	}
	j.Close()
	if n := len(d.Names()); n < 3 {
		t.Fatalf("got %d segments, want several", n)
	}
	return d, said
}

func reopened(t *testing.T, d *disktest.Disk) (*Journal, error) {
	t.Helper()
	j, err := Open("journal", Options{Disk: d, SegmentSize: 700})
	if err != nil && !damaged(err) {
		t.Fatalf("got %v, want damage or none", err)
	}
	return j, err
}

func damaged(err error) bool {
	_, ok := errors.AsType[*appendlog.DamageError](err)
	return ok
}

func TestTruncationIsExactOrRefused(t *testing.T) {
	d, said := sample(t)
	names := d.Names()
	exact, refused := 0, 0
	for s, name := range names {
		whole := d.Contents(name)
		number := int64(s + 1)
		last := s == len(names)-1
		var want map[string]string
		if s > 0 { // what the segments before say
			want = said[appendlog.Position{Segment: number - 1, Offset: int64(len(d.Contents(names[s-1])))}]
		}
		for n := range len(whole) {
			if now, ok := said[appendlog.Position{Segment: number, Offset: int64(n)}]; ok {
				want = now
			}
			d.SetContents(name, whole[:n])
			j, err := reopened(t, d)
			switch {
			case !last && err == nil:
				t.Fatalf("%s cut to %d bytes: got no error, want damage", name, n)
			case err != nil && last:
				t.Fatalf("%s cut to %d bytes: got %v, want recovery", name, n, err)
			case err != nil:
				refused++
				continue
			}
			if got := outcomes(t, j); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s cut to %d bytes: got %v, want %v", name, n, got, want)
			}
			exact++
			j.Close()
		}
		d.SetContents(name, whole)
	}
	t.Logf("measured: %d truncations recovered exactly, %d refused", exact, refused)
}

func TestEveryFlippedBitIsRefused(t *testing.T) {
	d, _ := sample(t)
	refused := 0
	for _, name := range d.Names() {
		b := d.Contents(name)
		for n := range b {
			for bit := range 8 {
				b[n] ^= 1 << bit
				d.SetContents(name, b)
				if _, err := reopened(t, d); err == nil {
					t.Fatalf("%s: bit %d of byte %d flipped: got no error, want damage", name, bit, n)
				}
				refused++
				b[n] ^= 1 << bit
			}
		}
		d.SetContents(name, b)
	}
	if _, err := reopened(t, d); err != nil {
		t.Fatalf("unharmed: %v", err)
	}
	t.Logf("measured: %d flipped bits refused", refused)
}

func TestRepairedJournalOpens(t *testing.T) {
	dir := t.TempDir() + "/journal"
	var count atomic.Int64
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j.Do(t.Context(), request("0", "r"), sends(&count, "1", nil))
	at := j.log.End()
	j.Do(t.Context(), request("1", "r"), sends(&count, "2", nil))
	j.Close()
	path := filepath.Join(dir, "00000001.log")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at.Offset+20] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !damaged(err) {
		t.Fatalf("got %v, want damage", err)
	}
	if r, err := appendlog.Repair(dir); err != nil || r.Records != 2 {
		t.Fatalf("repair: got %v, %v, want 2 records", r, err)
	}
	if j, err = Open(dir, Options{}); err != nil {
		t.Fatalf("after the repair: %v", err)
	}
	defer j.Close()
	if got := outcomes(t, j); !reflect.DeepEqual(got, map[string]string{"0": "sent 1"}) {
		t.Errorf("after the repair: got %v, want the first key", got)
	}
}

func TestRecordOfAnotherVersionIsRefused(t *testing.T) {
	d := disktest.New(1)
	l, _, err := appendlog.Open("journal", appendlog.Options{Disk: d}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(append([]byte{9}, make([]byte, 80)...)); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := Open("journal", Options{Disk: d}); !errors.Is(err, errNotUnderstood) {
		t.Errorf("got %v, want %v", err, errNotUnderstood)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(record{kind: begin, at: 1, requestID: "r"}.encode())
	f.Add(record{kind: notSent, at: 1}.encode())
	f.Add(record{kind: end, at: -1, messageID: "wamid.1"}.encode())
	f.Add(record{kind: end, failure: &message.Error{
		Reason: message.PlatformRejected, Text: "no", Details: []message.Detail{{Field: "f", Message: "m", PlatformCode: -1}},
	}}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			return
		}
		if r.kind == end && r.failure == nil {
			return // without a reason, text and details say nothing
		}
		again, err := decode(r.encode())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("got %+v, %v, want %+v", again, err, r)
		}
	})
}
