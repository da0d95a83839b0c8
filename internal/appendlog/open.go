package appendlog

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Open opens the log in dir, which is made if it is not there, and calls replay
// for every record in the order of their positions; the payload is only valid
// during the call. cut is the number of bytes of a torn tail that were removed,
// usually 0. Damage is a *DamageError.
func Open(dir string, o Options, replay func(Position, []byte) error) (l *Log, cut int64, err error) {
	return open(dir, o, replay, func(name string, flag int, perm os.FileMode) (file, error) {
		return os.OpenFile(name, flag, perm)
	})
}

func open(dir string, o Options, replay func(Position, []byte) error,
	openFile func(string, int, os.FileMode) (file, error)) (_ *Log, cut int64, err error) {

	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, 0, err
	}
	l := &Log{dir: d, segmentSize: o.SegmentSize, open: openFile}
	if l.segmentSize <= 0 {
		l.segmentSize = defaultSegmentSize
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, 0, fmt.Errorf("%s: %w", dir, ErrLocked)
		}
		return nil, 0, fmt.Errorf("lock %s: %w", dir, err)
	}
	numbers, err := l.list()
	if err != nil {
		return nil, 0, err
	}
	for i, number := range numbers {
		if cut, err = l.load(number, i == len(numbers)-1, replay); err != nil {
			return nil, 0, err
		}
	}
	if len(numbers) == 0 {
		if err := l.begin(1, 0); err != nil {
			return nil, 0, err
		}
	}
	return l, cut, nil
}

// list returns the numbers of the segments in order, and refuses a gap.
func (l *Log) list() ([]int64, error) {
	names, err := l.dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ".log")
		n, err := strconv.ParseInt(digits, 10, 64)
		if ok && err == nil && n > 0 && n < math.MaxInt64 && l.path(n) == filepath.Join(l.dir.Name(), name) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if want := numbers[0] + int64(i); n != want {
			return nil, &DamageError{l.path(want), 0, "the segment is missing"}
		}
	}
	return numbers, nil
}

// load replays one segment. A torn tail is cut off if the segment is the last.
func (l *Log) load(number int64, last bool, replay func(Position, []byte) error) (cut int64, err error) {
	f, err := l.open(l.path(number), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return 0, err
	}
	s := segment{number, info.Size(), f}
	l.add(s)
	previous, bad, err := scan(f, s.size, number, replay)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.path(number), err)
	}
	if bad != nil && !(bad.torn && last) {
		return 0, &DamageError{l.path(number), bad.offset, bad.what}
	}
	var before int64
	if n := len(l.segments); n > 1 {
		before = l.segments[n-2].size
	}
	headerTorn := bad != nil && bad.offset == 0
	if before != 0 && previous != before && !headerTorn {
		return 0, &DamageError{l.path(number - 1), before, "the segment is not as long as the next one says"}
	}
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

func (l *Log) path(number int64) string {
	return filepath.Join(l.dir.Name(), fmt.Sprintf("%08d.log", number))
}
