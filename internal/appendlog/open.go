package appendlog

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Open opens the log in dir, which is made if it is not there, and calls replay
// for every record in the order of their positions; the payload is only valid
// during the call. cut is the number of bytes of a torn tail that were removed,
// usually 0. Damage is a *DamageError.
func Open(dir string, o Options, replay func(Position, []byte) error) (_ *Log, cut int64, err error) {
	disk := o.Disk
	if disk == nil {
		disk = osDisk{}
	}
	d, err := disk.OpenDir(dir)
	if err != nil {
		return nil, 0, err
	}
	l := &Log{path: dir, dir: d, segmentSize: o.SegmentSize, synced: o.Synced, appending: make(chan struct{}, 1)}
	if l.segmentSize <= 0 {
		l.segmentSize = defaultSegmentSize
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if cut, err = l.loadAll(replay); err != nil {
		return nil, 0, err
	}
	if len(l.segments) == 0 {
		if err := l.begin(1, 0); err != nil {
			return nil, 0, err
		}
	}
	return l, cut, nil
}

func (l *Log) loadAll(replay func(Position, []byte) error) (cut int64, err error) {
	numbers, err := l.list()
	if err != nil {
		return 0, err
	}
	for i, number := range numbers {
		if cut, err = l.load(number, i == len(numbers)-1, replay); err != nil {
			return 0, err
		}
	}
	return cut, nil
}

// list returns the numbers of the segments in order, and refuses a gap.
func (l *Log) list() ([]int64, error) {
	names, err := l.dir.Names()
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, found := range names {
		if n, ok := segmentNumber(found); ok {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if want := numbers[0] + int64(i); n != want {
			return nil, &DamageError{l.file(want), 0, "the segment is missing", want}
		}
	}
	return numbers, nil
}

// load replays one segment. A torn tail is cut off if the segment is the last.
func (l *Log) load(number int64, last bool, replay func(Position, []byte) error) (cut int64, err error) {
	f, err := l.dir.Open(name(number))
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return 0, err
	}
	s := segment{number, size, f}
	l.add(s)
	found, bad, err := scan(f, s.size, number, replay)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.file(number), err)
	}
	if bad != nil && !(bad.torn && last) {
		return 0, &DamageError{l.file(number), bad.offset, bad.what, number}
	}
	var before int64
	if n := len(l.segments); n > 1 {
		before = l.segments[n-2].size
	}
	headerTorn := bad != nil && bad.offset == 0
	if before != 0 && found.previous != before && !headerTorn {
		return 0, &DamageError{l.file(number - 1), before, "the segment is not as long as the next one says", number - 1}
	}
	l.durable = Position{number, found.durable}
	if bad == nil {
		return 0, nil
	}
	// Synced, or after a loss of power what was cut off could stand behind
	// records that are appended now, in its old place and verifying.
	if err := f.Truncate(bad.offset); err != nil {
		return 0, err
	}
	if headerTorn {
		if _, err := f.WriteAt(appendHeader(nil, number, before), 0); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	l.resize(max(bad.offset, headerSize))
	return s.size - bad.offset, nil
}

// segmentNumber is the number in a segment's name; false: another file.
func segmentNumber(found string) (int64, bool) {
	digits, ok := strings.CutSuffix(found, ".log")
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n > 0 && n < math.MaxInt64 && found == name(n)
}

func name(number int64) string { return fmt.Sprintf("%08d.log", number) }

func (l *Log) file(number int64) string { return filepath.Join(l.path, name(number)) }
