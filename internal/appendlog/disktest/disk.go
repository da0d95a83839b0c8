// Package disktest is a disk in memory that loses power, fails to sync and fills
// up when a test says so. What an unsynced write leaves behind is chosen sector
// by sector, as real disks do it.
package disktest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"

	"messagesender/internal/appendlog"
)

// SectorSize is the number of bytes that are written whole or not at all.
const SectorSize = 512

var (
	// ErrCrashed is what a process finds that uses the disk after its own end.
	ErrCrashed = errors.New("the process is dead")
	// ErrSync is a failed fsync.
	ErrSync = errors.New("input/output error")
)

// Disk holds one directory. It implements appendlog.Disk.
type Disk struct {
	// Pause is called while a sync runs; nil: syncs take no time. Other calls go on
	// meanwhile, and so may a crash.
	Pause func()

	mu       sync.Mutex
	rng      *rand.Rand
	life     int // handles that were opened in an earlier one are dead
	locked   bool
	names    map[string]*file
	durable  map[string]*file
	pending  []change
	failSync int   // the sync that fails, counted down; 0: none
	room     int64 // in bytes; negative: without limit
	syncs    int
}

// change is what the directory does not durably say yet; file nil: removed.
type change struct {
	name string
	file *file
}

// New returns an empty disk whose choices follow from seed.
func New(seed uint64) *Disk {
	return &Disk{
		rng:   rand.New(rand.NewPCG(seed, 0xd15c)),
		names: map[string]*file{}, durable: map[string]*file{}, room: -1,
	}
}

// FailSync makes the nth sync from now fail: what it should have written is kept
// or lost by chance, and as on Linux no later sync writes it. 0: none fails.
func (d *Disk) FailSync(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failSync = n
}

// SetRoom says how many bytes fit on the disk from now on; negative: any number.
func (d *Disk) SetRoom(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = bytes
}

// Syncs is the number of syncs of files and of the directory so far.
func (d *Disk) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// Kill ends the process that uses the disk: its handles are dead and its lock is
// free. All that it wrote is there.
func (d *Disk) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.life++
	d.locked = false
}

// LosePower is Kill, and of every sector, size and name that was not synced any
// state may be found that it had since the last sync.
func (d *Disk) LosePower() {
	d.Kill()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.pending {
		if d.rng.IntN(2) == 0 {
			c.apply(d.durable)
		}
	}
	d.pending, d.names = nil, maps.Clone(d.durable)
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		d.names[name].losePower(d.rng)
	}
}

func (c change) apply(names map[string]*file) {
	if c.file == nil {
		delete(names, c.name)
	} else {
		names[c.name] = c.file
	}
}

// Contents returns a copy of what processes see in a file.
func (d *Disk) Contents(name string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.names[name].data)
}

// SetContents replaces a file that is there by bytes that are durable.
func (d *Disk) SetContents(name string, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*d.names[name] = file{slices.Clone(b), map[int64][][]byte{}, []int64{int64(len(b))}}
}

// Names returns the names of all files that processes see, sorted.
func (d *Disk) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.names))
}

// sync runs one sync: begin and end are called under the lock, with time passing
// between them.
func (d *Disk) sync(life int, begin func(), end func(ok bool)) error {
	d.mu.Lock()
	if life != d.life {
		d.mu.Unlock()
		return ErrCrashed
	}
	begin()
	d.syncs++
	fails := d.failSync == 1
	d.failSync = max(0, d.failSync-1)
	d.mu.Unlock()
	if d.Pause != nil {
		d.Pause()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if life != d.life {
		return ErrCrashed
	}
	end(!fails)
	if fails {
		return ErrSync
	}
	return nil
}

// OpenDir opens the one directory, whatever its path.
func (d *Disk) OpenDir(string) (appendlog.Dir, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locked {
		return nil, appendlog.ErrLocked
	}
	d.locked = true
	return &dir{d, d.life}, nil
}

type dir struct {
	disk *Disk
	life int
}

// enter locks the disk for a process that lives.
func (d *dir) enter() (leave func(), err error) {
	d.disk.mu.Lock()
	if d.life != d.disk.life {
		d.disk.mu.Unlock()
		return nil, ErrCrashed
	}
	return d.disk.mu.Unlock, nil
}

func (d *dir) Names() ([]string, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	return slices.Collect(maps.Keys(d.disk.names)), nil
}

func (d *dir) Create(name string) (appendlog.File, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if d.disk.names[name] != nil {
		return nil, fs.ErrExist
	}
	c := change{name, &file{sizes: []int64{0}, sectors: map[int64][][]byte{}}}
	c.apply(d.disk.names)
	d.disk.pending = append(d.disk.pending, c)
	return &handle{d, c.file}, nil
}

func (d *dir) Open(name string) (appendlog.File, error) {
	leave, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	f := d.disk.names[name]
	if f == nil {
		return nil, fs.ErrNotExist
	}
	return &handle{d, f}, nil
}

func (d *dir) Remove(name string) error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	if d.disk.names[name] == nil {
		return fs.ErrNotExist
	}
	c := change{name, nil}
	c.apply(d.disk.names)
	d.disk.pending = append(d.disk.pending, c)
	return nil
}

func (d *dir) Sync() error {
	var n int
	return d.disk.sync(d.life, func() { n = len(d.disk.pending) }, func(ok bool) {
		n = min(n, len(d.disk.pending))
		for _, c := range d.disk.pending[:n] {
			if ok || d.disk.rng.IntN(2) == 0 {
				c.apply(d.disk.durable)
			}
		}
		d.disk.pending = d.disk.pending[n:]
	})
}

func (d *dir) Close() error {
	leave, err := d.enter()
	if err != nil {
		return err
	}
	defer leave()
	d.disk.locked = false
	return nil
}

type handle struct {
	dir  *dir
	file *file
}

func (h *handle) ReadAt(b []byte, offset int64) (int, error) {
	leave, err := h.dir.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if offset >= int64(len(h.file.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.file.data[offset:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, offset int64) (int, error) {
	leave, err := h.dir.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	if d := h.dir.disk; d.room >= 0 {
		fits := min(int64(len(b)), max(0, int64(len(h.file.data))+d.room-offset))
		d.room -= max(0, offset+fits-int64(len(h.file.data)))
		if fits < int64(len(b)) {
			h.file.write(b[:fits], offset)
			return int(fits), syscall.ENOSPC
		}
	}
	h.file.write(b, offset)
	return len(b), nil
}

func (h *handle) Truncate(size int64) error {
	leave, err := h.dir.enter()
	if err != nil {
		return err
	}
	defer leave()
	if d := h.dir.disk; d.room >= 0 {
		d.room += int64(len(h.file.data)) - size
	}
	h.file.truncate(size)
	return nil
}

func (h *handle) Size() (int64, error) {
	leave, err := h.dir.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	return int64(len(h.file.data)), nil
}

func (h *handle) Sync() error {
	var upTo mark
	return h.dir.disk.sync(h.dir.life,
		func() { upTo = h.file.mark() },
		func(ok bool) { h.file.synced(upTo, ok, h.dir.disk.rng) })
}

func (h *handle) Close() error { return nil }
