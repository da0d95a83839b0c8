package media

import (
	"encoding/binary"
	"io"
)

const (
	// maxSniff is how many bytes Sniff reads in all.
	maxSniff = 64 << 10
	// window is the largest piece that is looked at at once.
	window = 4 << 10
	// minCost is what a read takes from the budget at least, in bytes: it
	// bounds the number of reads, each of which may open a file.
	minCost = 128
)

// probe reads pieces of an input within a budget.
type probe struct {
	r     io.ReaderAt
	size  int64
	left  int    // bytes that may still be read
	head  []byte // the first window bytes, or all there are; never changes
	piece [window]byte
}

func newProbe(r io.ReaderAt, size int64) *probe {
	p := &probe{r: r, size: max(size, 0), left: maxSniff}
	p.head = append([]byte(nil), p.at(0, window)...)
	return p
}

// at returns the n bytes at off, or as many as there are, or none once the
// budget is spent. n is at most window. The bytes are good until the next call.
func (p *probe) at(off int64, n int) []byte {
	if off < 0 || off >= p.size {
		return nil
	}
	n = int(min(int64(n), p.size-off))
	if off+int64(n) <= int64(len(p.head)) {
		return p.head[off : off+int64(n)]
	}
	if p.left < max(n, minCost) {
		p.left = 0
		return nil
	}
	p.left -= max(n, minCost)
	n, _ = p.r.ReadAt(p.piece[:n], off) // what could not be read is not there
	return p.piece[:max(n, 0)]
}

// full is at, for all of n bytes or none.
func (p *probe) full(off int64, n int) []byte {
	b := p.at(off, n)
	if len(b) < n {
		return nil
	}
	return b
}

func le16(b []byte) int64 { return int64(binary.LittleEndian.Uint16(b)) }
func le32(b []byte) int64 { return int64(binary.LittleEndian.Uint32(b)) }
func be32(b []byte) int64 { return int64(binary.BigEndian.Uint32(b)) }
