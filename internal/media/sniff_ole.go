package media

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
)

const (
	// maxDirectorySectors and maxStreams bound the look into a compound file.
	maxDirectorySectors = 32
	maxStreams          = 64
	oleEntrySize        = 128
)

// sniffOLE tells Word, Excel and PowerPoint from before 2007 apart: compound
// files (MS-CFB) whose root holds a stream of a known name. Only the root
// counts, because documents may be embedded in each other.
func sniffOLE(p *probe) (Type, bool) {
	h := p.full(0, 512)
	if !bytes.HasPrefix(h, []byte("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")) {
		return Type{}, false
	}
	d, ok := openDirectory(p, h)
	if !ok {
		return Type{}, false
	}
	root := d.entry(0)
	if root == nil {
		return Type{}, false
	}
	// The entries of a storage are a tree; its shape is of no interest here.
	waiting := []int64{le32(root[76:])}
	for range maxStreams {
		if len(waiting) == 0 {
			break
		}
		id := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		e := d.entry(id)
		if e == nil {
			continue
		}
		switch streamName(e) {
		case "WordDocument":
			return typeDoc, true
		case "Workbook", "Book":
			return typeXls, true
		case "PowerPoint Document":
			return typePpt, true
		}
		waiting = append(waiting, le32(e[68:]), le32(e[72:]))
	}
	return Type{}, false
}

// directory is the directory of a compound file.
type directory struct {
	p          *probe
	sectorSize int64
	sectors    []int64 // offsets, in order
}

// openDirectory follows the chain of the directory's sectors through the
// allocation table, as far as the table's sectors stand in the header.
func openDirectory(p *probe, h []byte) (directory, bool) {
	shift := le16(h[30:])
	if shift != 9 && shift != 12 {
		return directory{}, false
	}
	d := directory{p: p, sectorSize: 1 << shift}
	var table [109]int64
	for i := range table {
		table[i] = le32(h[76+4*i:])
	}
	sector := le32(h[48:])
	for range maxDirectorySectors {
		d.sectors = append(d.sectors, d.offset(sector))
		perSector := d.sectorSize / 4
		if sector/perSector >= int64(len(table)) {
			break
		}
		next := p.full(d.offset(table[sector/perSector])+sector%perSector*4, 4)
		if next == nil {
			break
		}
		sector = le32(next)
		const largestSector = 0xFFFFFFFA // beyond it are marks, the end of a chain among them
		if sector > largestSector {
			break
		}
	}
	return d, true
}

// offset is where a sector begins: after the header, which takes a whole one.
func (d directory) offset(sector int64) int64 { return (sector + 1) * d.sectorSize }

// entry is nil where there is none.
func (d directory) entry(id int64) []byte {
	perSector := d.sectorSize / oleEntrySize
	if id/perSector >= int64(len(d.sectors)) {
		return nil
	}
	return d.p.full(d.sectors[id/perSector]+id%perSector*oleEntrySize, oleEntrySize)
}

func streamName(e []byte) string {
	n := min(le16(e[64:]), 64)/2 - 1 // with its final zero
	var units []uint16
	for i := range max(n, 0) {
		units = append(units, binary.LittleEndian.Uint16(e[2*i:]))
	}
	return string(utf16.Decode(units))
}
