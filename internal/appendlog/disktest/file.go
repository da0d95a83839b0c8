package disktest

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// file is what processes see, and everything that a loss of power may leave of it.
type file struct {
	data []byte
	// sectors holds the states of each sector that is not as it is on the disk,
	// oldest first; the oldest is on the disk. One state alone: the disk lost the
	// later ones in a failed sync.
	sectors map[int64][][]byte
	sizes   []int64 // likewise, never empty
}

// sector returns a copy of a whole sector; beyond the end there are zeros.
func (f *file) sector(i int64) []byte {
	b := make([]byte, SectorSize)
	if start := i * SectorSize; start < int64(len(f.data)) {
		copy(b, f.data[start:])
	}
	return b
}

// change runs do, which changes bytes from start to end, and keeps both states.
func (f *file) change(start, end int64, do func()) {
	for i := start / SectorSize; i*SectorSize < end; i++ {
		if f.sectors[i] == nil {
			f.sectors[i] = [][]byte{f.sector(i)}
		}
	}
	do()
	for i := start / SectorSize; i*SectorSize < end; i++ {
		f.sectors[i] = append(f.sectors[i], f.sector(i))
	}
	f.sizes = append(f.sizes, int64(len(f.data)))
}

func (f *file) write(b []byte, offset int64) {
	end := offset + int64(len(b))
	f.change(offset, end, func() {
		if grow := end - int64(len(f.data)); grow > 0 {
			f.data = append(f.data, make([]byte, grow)...)
		}
		copy(f.data[offset:], b)
	})
}

func (f *file) truncate(size int64) {
	f.change(min(size, int64(len(f.data))), max(size, int64(len(f.data))), func() {
		f.data = append(f.data[:min(size, int64(len(f.data)))], make([]byte, max(0, size-int64(len(f.data))))...)
	})
}

// mark is how many states of everything there were when a sync began.
type mark struct {
	sectors map[int64]int
	sizes   int
}

func (f *file) mark() mark {
	m := mark{map[int64]int{}, len(f.sizes)}
	for i, states := range f.sectors {
		m.sectors[i] = len(states)
	}
	return m
}

// synced forgets the states before m; if the sync failed, one of them is what
// the disk has.
func (f *file) synced(m mark, ok bool, rng *rand.Rand) {
	for _, i := range slices.Sorted(maps.Keys(m.sectors)) {
		states, n := f.sectors[i], m.sectors[i]
		switch {
		case len(states) < n: // another sync has been here meanwhile
		case !ok:
			states[n-1] = states[rng.IntN(n)]
			f.sectors[i] = states[n-1:]
		case len(states) == n && n > 1:
			delete(f.sectors, i)
		default:
			f.sectors[i] = states[n-1:]
		}
	}
	if len(f.sizes) >= m.sizes {
		if !ok {
			f.sizes[m.sizes-1] = f.sizes[rng.IntN(m.sizes)]
		}
		f.sizes = f.sizes[m.sizes-1:]
	}
}

func (f *file) losePower(rng *rand.Rand) {
	size := f.sizes[rng.IntN(len(f.sizes))]
	data := make([]byte, (size+SectorSize-1)/SectorSize*SectorSize)
	copy(data, f.data)
	for _, i := range slices.Sorted(maps.Keys(f.sectors)) {
		if states := f.sectors[i]; i*SectorSize < size {
			copy(data[i*SectorSize:], states[rng.IntN(len(states))])
		}
	}
	*f = file{data[:size], map[int64][][]byte{}, []int64{size}}
}
