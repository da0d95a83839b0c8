package appendlog

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// On disk, all integers little endian:
//
//	segment = header record*
//	header  = magic "alog" | version 4 | segment number 8 | size of the segment before 8 | CRC 4
//	record  = kind 1 | payload length 3 | payload CRC 4 | durable 4 | header CRC 4 | mark 1 | payload
//
// All CRCs are CRC-32C. The CRC of a record's header also covers the segment
// number and the record's offset, so a record that was moved does not verify.
// The size of the segment before makes a shortened segment visible.
//
// A disk that loses power may leave sectors of an unfinished write blank: all
// zero. To tell such a sector from bytes that were damaged later, no sector that
// was written may be blank by itself, or become so by one flipped bit. Hence a
// record's header begins and ends with a byte of several ones, whichever sectors
// it straddles, and a payload that leaves a sector blank is marked with a kind of
// its own.
//
// Sectors are written in any order, so a blank one may be followed by whole
// records of the same unsynced write. It was torn unless one of them says that
// the place was synced before: durable is the offset in the segment up to which
// everything was known to be on the disk when the record was written.
const (
	magic      = "alog"
	version    = 2
	headerSize = 4 + 4 + 8 + 8 + 4
	recordSize = 1 + 3 + 4 + 4 + 4 + 1 // without the payload
	sectorSize = 512                   // the smallest unit a disk writes; also divides 4096

	kindPlain = 0x33 // no sector that the record overlaps is blank
	kindBlank = 0xCC // the payload leaves a sector blank: blankness proves nothing
	mark      = 0xFF // ends a record's header
)

// MaxRecord is the largest payload in bytes. It bounds what a reader buffers.
const MaxRecord = 4 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendHeader(b []byte, number, previous int64) []byte {
	start := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint64(b, uint64(number))
	b = binary.LittleEndian.AppendUint64(b, uint64(previous))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// parseHeader returns the recorded size of the segment before, or what is wrong.
func parseHeader(b []byte, number int64) (previous int64, wrong string) {
	sum := binary.LittleEndian.Uint32(b[headerSize-4:])
	switch {
	case string(b[:4]) != magic || crc32.Checksum(b[:headerSize-4], castagnoli) != sum:
		return 0, "the segment's header does not verify"
	case binary.LittleEndian.Uint32(b[4:]) != version:
		return 0, "the segment has a format version that is not known here"
	case int64(binary.LittleEndian.Uint64(b[8:])) != number:
		return 0, "the segment has the name of another one"
	}
	return int64(binary.LittleEndian.Uint64(b[16:])), ""
}

// appendRecord appends the record that stands at a place; durable is an offset in
// the same segment, 0: nothing of it is known to be on the disk.
func appendRecord(b []byte, at Position, durable int64, payload []byte) []byte {
	n := len(payload)
	kind := byte(kindPlain)
	if leavesBlank(payload, at.Offset+recordSize) {
		kind = kindBlank
	}
	start := len(b)
	b = append(b, kind, byte(n), byte(n>>8), byte(n>>16))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(durable, math.MaxUint32)))
	b = binary.LittleEndian.AppendUint32(b, headerSum(b[start:], at))
	b = append(b, mark)
	return append(b, payload...)
}

// recordHeader is the verified header of a record.
type recordHeader struct {
	kind    byte
	length  int
	sum     uint32 // of the payload
	durable int64
}

func parseRecord(b []byte, at Position) (h recordHeader, ok bool) {
	h = recordHeader{
		kind:    b[0],
		length:  int(b[1]) | int(b[2])<<8 | int(b[3])<<16,
		sum:     binary.LittleEndian.Uint32(b[4:]),
		durable: int64(binary.LittleEndian.Uint32(b[8:])),
	}
	// The cheap comparisons first: scan tries every place behind a fault.
	ok = (h.kind == kindPlain || h.kind == kindBlank) && b[recordSize-1] == mark && h.length <= MaxRecord &&
		binary.LittleEndian.Uint32(b[12:]) == headerSum(b[:12], at)
	return h, ok
}

func (h recordHeader) verifies(payload []byte) bool {
	return crc32.Checksum(payload, castagnoli) == h.sum
}

// headerSum is the CRC of a record's first 12 bytes, begun with the place they
// stand at. Places give different sums while offset and segment number need no
// more than 32 bits together, and beyond that nearly always.
func headerSum(first12 []byte, at Position) uint32 {
	place := uint32(at.Offset) ^ bits.Reverse32(uint32(at.Segment))
	return crc32.Update(place, castagnoli, first12)
}

// leavesBlank reports whether a payload that starts at offset leaves its part of
// a sector all zero, or one flipped bit away from it. The sector that it shares
// with its header never is.
func leavesBlank(payload []byte, offset int64) bool {
	for skip := (sectorSize - offset%sectorSize) % sectorSize; skip < int64(len(payload)); skip += sectorSize {
		ones := 0
		for _, c := range payload[skip:min(skip+sectorSize, int64(len(payload)))] {
			if ones += bits.OnesCount8(c); ones > 1 {
				break
			}
		}
		if ones <= 1 {
			return true
		}
	}
	return false
}

func blank(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
