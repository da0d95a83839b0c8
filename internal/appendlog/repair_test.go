package appendlog

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
)

func TestRepairCutsAtTheDamageAndKeepsACopy(t *testing.T) {
	flip := func(at int64) func(string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[at] ^= 4
			return os.WriteFile(path, b, 0o600)
		}
	}
	const record = recordSize + 70
	for _, test := range []struct {
		name    string
		segment int // 1-based
		harm    func(path string) error
		records int
		damaged bool
	}{
		{"nothing", 1, func(string) error { return nil }, 12, false},
		{"torn tail", 4, func(p string) error { return os.Truncate(p, headerSize+record+3) }, 10, false},
		{"in a record of the first segment", 1, flip(headerSize + record + 30), 1, true},
		{"in the last record of all", 4, flip(headerSize + 2*record + 30), 11, true},
		{"in the header of a middle segment", 3, flip(5), 6, true},
		{"in the header of the first segment", 1, flip(5), 0, true},
		{"a segment is missing", 2, os.Remove, 3, true},
		{"a segment lacks its last record", 2, func(p string) error { return os.Truncate(p, headerSize+2*record) }, 5, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, paths, payloads := files(t)
			if err := test.harm(paths[test.segment-1]); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			r, err := Repair(dir)
			if err != nil || r.Records != test.records || (r.Damage != nil) != test.damaged {
				t.Fatalf("got %v, %v, want %d records", r, err, test.records)
			}
			if test.damaged {
				if !bytes.Equal(before, contents(t, r.Copy)) {
					t.Errorf("the copy %s is not what was there", r.Copy)
				}
				if info, err := os.Stat(r.Copy); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("the copy has mode %v, want 0700", info.Mode())
				}
				if kept := len(contents(t, dir)); int(r.Lost) != len(before)-kept {
					t.Errorf("got %d bytes lost, want %d", r.Lost, len(before)-kept)
				}
			}
			l, got := mustOpen(t, dir, 300)
			if !slices.Equal(got, payloads[:test.records]) {
				t.Errorf("reopened: got %d records, want %d", len(got), test.records)
			}
			mustAppend(t, l, []byte("more"))
			if _, err := Repair(dir); !errors.Is(err, ErrLocked) {
				t.Errorf("repair of an open log: got %v, want %v", err, ErrLocked)
			}
		})
	}
}

func TestRepairOfNothingMakesNothing(t *testing.T) {
	dir := t.TempDir() + "/none"
	if _, err := Repair(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory was made")
	}
}
