package appendlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Repaired is what Repair has done.
type Repaired struct {
	Damage  *DamageError // nil: none was found, and nothing was changed but a torn tail
	Copy    string       // the directory as it was
	Records int          // that were kept: all before the damage
	Lost    int64        // bytes that were cut off, intact records after the damage included
}

// String is for the operator.
func (r Repaired) String() string {
	if r.Damage == nil {
		return fmt.Sprintf("no damage was found; all %d records are there", r.Records)
	}
	return fmt.Sprintf("%v. The %d records before it were kept, the %d bytes from there on were cut off. The directory as it was is in %s",
		r.Damage, r.Records, r.Lost, r.Copy)
}

// Repair makes a damaged log usable: it keeps a copy of the directory beside it
// and cuts the log off at the first damage. What was recorded after it is
// forgotten, which whoever decides to repair has to weigh. A log that another
// process has open is refused with ErrLocked. Interrupted anywhere, it can be
// called again.
func Repair(dir string) (r Repaired, err error) {
	if _, err := os.Stat(dir); err != nil {
		return Repaired{}, err
	}
	d, err := osDisk{}.OpenDir(dir)
	if err != nil {
		return Repaired{}, err
	}
	l := &Log{path: dir, dir: d, appending: make(chan struct{}, 1)}
	defer func() { err = errors.Join(err, l.Close()) }()
	count := func(Position, []byte) error { r.Records++; return nil }
	_, err = l.loadAll(count)
	damage, ok := errors.AsType[*DamageError](err)
	if !ok {
		return r, err
	}
	r.Damage = damage
	if r.Copy, err = copyBeside(dir, time.Now()); err != nil {
		return Repaired{}, fmt.Errorf("nothing was repaired, because no copy could be made: %w", err)
	}
	if r.Lost, err = l.cutAt(damage); err != nil {
		return r, err
	}
	// The segments were read up to the damage only if none was missing.
	r.Records = 0
	check := &Log{path: dir, dir: d}
	_, err = check.loadAll(count)
	for _, s := range check.segments {
		s.file.Close()
	}
	return r, err
}

// cutAt removes everything from the damage on, the newest first, so that a
// repair that is interrupted finds the same damage again.
func (l *Log) cutAt(damage *DamageError) (lost int64, err error) {
	names, err := l.dir.Names()
	if err != nil {
		return 0, err
	}
	slices.Sort(names)
	slices.Reverse(names)
	for _, found := range names {
		number, ok := segmentNumber(found)
		if !ok || number < damage.number {
			continue
		}
		f, err := l.dir.Open(found)
		if err != nil {
			return lost, err
		}
		size, err := f.Size()
		if err == nil && number == damage.number && damage.Offset >= headerSize {
			lost += size - damage.Offset
			err = errors.Join(f.Truncate(damage.Offset), f.Sync())
		} else if err == nil {
			lost += size
			err = errors.Join(l.dir.Remove(found), l.dir.Sync())
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// copyBeside copies a directory durably to a new one next to it.
func copyBeside(dir string, now time.Time) (string, error) {
	dir = filepath.Clean(dir)
	target := dir + ".damaged-" + now.UTC().Format("20060102T150405.000")
	partial := target + ".partial"
	if err := os.Mkdir(partial, 0o700); err != nil {
		return "", err
	}
	if err := os.CopyFS(partial, os.DirFS(dir)); err != nil {
		return "", err
	}
	paths, err := filepath.Glob(filepath.Join(partial, "*"))
	if err != nil {
		return "", err
	}
	for _, path := range append(paths, partial) {
		if err := syncPath(path); err != nil {
			return "", err
		}
	}
	if err := os.Rename(partial, target); err != nil {
		return "", err
	}
	return target, syncPath(filepath.Dir(target))
}
