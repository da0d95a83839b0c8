package media

import "encoding/binary"

// tracks is what kinds of track a container holds.
type tracks struct {
	any, video, audio bool
}

// maxBoxes bounds how many boxes or elements of a container are visited.
const maxBoxes = 256

// sniffMP4 knows the ISO base media file format (ISO/IEC 14496-12) and its
// relatives: MP4, 3GPP, QuickTime, HEIF. The brand says which one, the tracks
// whether it is audio alone; where they cannot be found, the brand decides.
func sniffMP4(p *probe) (Type, bool) {
	if len(p.head) < 12 {
		return Type{}, false
	}
	switch string(p.head[4:8]) {
	case "ftyp":
		return typeOfBrand(p)
	case "moov", "mdat", "wide", "free", "skip":
		// QuickTime from before there were brands.
		var t tracks
		walkBoxes(p, 0, p.size, "moov", new(int), &t)
		return typeQuickTime, t.any
	}
	return Type{}, false
}

func typeOfBrand(p *probe) (Type, bool) {
	major := string(p.head[8:12])
	switch major {
	case "avif", "avis":
		return typeAVIF, true
	case "heic", "heix", "heim", "heis", "hevc", "hevx", "hevm", "hevs":
		return typeHEIC, true
	case "mif1", "msf1": // HEIF of any codec; the compatible brands name it
		if hasBrand(p, "avif") || hasBrand(p, "avis") {
			return typeAVIF, true
		}
		return typeHEIC, true
	case "M4A ", "M4B ", "M4P ": // also with a video track: chapter pictures
		return typeM4A, true
	}
	var t tracks
	walkBoxes(p, 0, p.size, "moov", new(int), &t)
	audioOnly := t.audio && !t.video
	switch {
	case major == "qt  ":
		return typeQuickTime, true
	case major[:3] == "3g2":
		return type3G2, true
	case major[:2] == "3g" && audioOnly:
		return type3GPAudio, true
	case major[:2] == "3g":
		return type3GP, true
	case audioOnly:
		return typeM4A, true
	case t.video || isMP4Brand(major) || hasBrand(p, "isom") || hasBrand(p, "mp41") || hasBrand(p, "mp42"):
		return typeMP4, true
	}
	return Type{}, false
}

func isMP4Brand(brand string) bool {
	switch brand {
	case "isom", "iso2", "iso3", "iso4", "iso5", "iso6", "iso7", "iso8", "iso9",
		"mp41", "mp42", "mp71", "avc1", "av01", "hvc1", "dash", "cmfc", "MSNV", "NDSC", "M4V ", "M4VH", "M4VP", "F4V ", "f4v ", "XAVC":
		return true
	}
	return false
}

// hasBrand looks through the compatible brands.
func hasBrand(p *probe, brand string) bool {
	end := min(be32(p.head), int64(len(p.head)))
	for off := int64(16); off+4 <= end; off += 4 {
		if string(p.head[off:off+4]) == brand {
			return true
		}
	}
	return false
}

// inside names the box to look into for each box on the way to a track's kind.
var inside = map[string]string{"moov": "trak", "trak": "mdia", "mdia": "hdlr"}

// walkBoxes visits the boxes from off to end and goes into those of the name
// wanted, down to hdlr, which tells the kind of a track.
func walkBoxes(p *probe, off, end int64, wanted string, visited *int, t *tracks) {
	for off < end && *visited < maxBoxes {
		*visited++
		header := p.at(off, 16)
		if len(header) < 8 {
			return
		}
		size, body, name := be32(header), off+8, string(header[4:8])
		switch {
		case size == 1 && len(header) == 16:
			size, body = int64(binary.BigEndian.Uint64(header[8:])), off+16
		case size == 0: // to the end
			size = end - off
		}
		if size < body-off || size > end-off {
			return
		}
		if name == wanted {
			if wanted == "hdlr" {
				t.add(p.full(body+8, 4))
				return
			}
			walkBoxes(p, body, off+size, inside[wanted], visited, t)
			if wanted == "moov" {
				return
			}
		}
		off += size
	}
}

func (t *tracks) add(handler []byte) {
	switch string(handler) {
	case "vide":
		t.any, t.video = true, true
	case "soun":
		t.any, t.audio = true, true
	}
}
