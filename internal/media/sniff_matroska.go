package media

import (
	"bytes"
	"math/bits"
)

// Element identifiers of EBML (RFC 8794) and Matroska (RFC 9559), with their
// length markers.
const (
	ebmlHeader      = 0x1A45DFA3
	ebmlDocType     = 0x4282
	matroskaSegment = 0x18538067
	matroskaCluster = 0x1F43B675
	matroskaTracks  = 0x1654AE6B
	matroskaEntry   = 0xAE
	matroskaTypeOf  = 0x83 // TrackType: 1 is video, 2 is audio
	ebmlMaxHeader   = 4 + 8
	unknownSize     = -1 // a size that is not known, as in live recordings
)

// sniffMatroska tells WebM from other Matroska by its DocType, and audio alone
// (what browsers record) by its tracks. Where they do not come before the
// media, it is called video.
func sniffMatroska(p *probe) (Type, bool) {
	id, size, body := element(p, 0)
	if id != ebmlHeader || size < 0 {
		return Type{}, false
	}
	video, audio := typeMatroska, typeMatroskaAudio
	switch string(docType(p, body, body+size)) {
	case "webm":
		video, audio = typeWebM, typeWebMAudio
	case "matroska":
	default:
		return Type{}, false
	}
	var t tracks
	if id, size, start := element(p, body+size); id == matroskaSegment {
		walkElements(p, start, endOf(p, start, size), matroskaTracks, new(int), &t)
	}
	if t.audio && !t.video {
		return audio, true
	}
	return video, true
}

func docType(p *probe, off, end int64) []byte {
	for range maxBoxes {
		id, size, body := element(p, off)
		if id == 0 || size < 0 || body+size > end {
			return nil
		}
		if id == ebmlDocType {
			return bytes.TrimRight(p.at(body, int(min(size, 16))), "\x00")
		}
		off = body + size
	}
	return nil
}

// walkElements visits the elements from off to end and goes into those wanted,
// down to TrackType.
func walkElements(p *probe, off, end int64, wanted int64, visited *int, t *tracks) {
	for off < end && *visited < maxBoxes {
		*visited++
		id, size, body := element(p, off)
		if id == 0 || id == matroskaCluster {
			return
		}
		next := endOf(p, body, size)
		if id == wanted {
			switch wanted {
			case matroskaTracks:
				walkElements(p, body, next, matroskaEntry, visited, t)
				return
			case matroskaEntry:
				walkElements(p, body, next, matroskaTypeOf, visited, t)
			case matroskaTypeOf:
				t.addType(p.full(body, int(min(size, 8))))
				return
			}
		} else if size == unknownSize {
			return
		}
		off = next
	}
}

func endOf(p *probe, body, size int64) int64 {
	if size == unknownSize || size > p.size-body {
		return p.size
	}
	return body + size
}

// addType takes a big-endian number of any width.
func (t *tracks) addType(number []byte) {
	number = bytes.TrimLeft(number, "\x00")
	if len(number) != 1 {
		return
	}
	switch number[0] {
	case 1, 3: // 3 is both in one, a complex track
		t.any, t.video = true, true
	case 2:
		t.any, t.audio = true, true
	}
}

// element reads an element's header. id is 0 where there is none.
func element(p *probe, off int64) (id, size, body int64) {
	header := p.at(off, ebmlMaxHeader)
	id, n, _ := vint(header, 4)
	if n == 0 {
		return 0, 0, 0
	}
	size, m, unknown := vint(header[n:], 8)
	if m == 0 {
		return 0, 0, 0
	}
	size &^= 1 << (7 * m) // a size comes without its length marker
	if unknown {
		size = unknownSize
	}
	return id, size, off + int64(n+m)
}

// vint reads a number of variable width with its marker; n is its width in
// bytes, 0 where there is none. ones: all bits but the marker are set.
func vint(b []byte, widest int) (v int64, n int, ones bool) {
	if len(b) == 0 {
		return 0, 0, false
	}
	n = bits.LeadingZeros8(b[0]) + 1
	if n > widest || n > len(b) {
		return 0, 0, false
	}
	for _, c := range b[:n] {
		v = v<<8 | int64(c)
	}
	return v, n, v == 1<<(7*n+1)-1
}
