package media

import "bytes"

// sniffMPEGAudio knows MP3 (and its older layer II) and AAC in ADTS, with and
// without ID3v2 before them. Their frames begin with a few set bits only, which
// any file may have, so a second frame must follow where the first one ends.
func sniffMPEGAudio(p *probe) (Type, bool) {
	off, tagged := skipID3(p)
	if tagged && bytes.Equal(p.at(off, 4), []byte("fLaC")) {
		return typeFLAC, true
	}
	if followed(p, off, mpegFrame) {
		return typeMP3, true
	}
	if followed(p, off, adtsFrame) {
		return typeAAC, true
	}
	// A tag of a usual version is proof enough: it may be padded beyond its
	// stated size, and it stands before nothing else.
	return typeMP3, tagged
}

// skipID3 returns where the audio begins: after the ID3v2 tags, if there are any.
func skipID3(p *probe) (off int64, tagged bool) {
	const maxTags = 4
	for range maxTags {
		h := p.full(off, 10)
		if h == nil || string(h[:3]) != "ID3" || h[3] < 2 || h[3] > 4 || h[4] == 0xff || (h[6]|h[7]|h[8]|h[9])&0x80 != 0 {
			break
		}
		const hasFooter = 0x10
		size := int64(h[6])<<21 | int64(h[7])<<14 | int64(h[8])<<7 | int64(h[9])
		if h[5]&hasFooter != 0 {
			size += 10
		}
		off += 10 + size
		tagged = true
	}
	return off, tagged
}

// frame reads a frame's header: its length in bytes with the header, 0 where b
// begins no frame, and what is the same in all frames of a file.
type frame func(b []byte) (length int64, same uint32)

// followed reports whether a frame at off is followed by one of its kind or by
// the end of the input.
func followed(p *probe, off int64, f frame) bool {
	length, same := f(p.full(off, 6))
	if length == 0 {
		return false
	}
	next := off + length
	if next == p.size {
		return true
	}
	length, sameAgain := f(p.full(next, 6))
	return length > 0 && same == sameAgain
}

// Bit rates in kbit/s by their index (ISO/IEC 11172-3 and 13818-3); 0 is free
// format, whose frames tell no length and which nobody uses.
var (
	bitRates1Layer2  = [16]int64{0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384}
	bitRates1Layer3  = [16]int64{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320}
	bitRates2        = [16]int64{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}
	mpegSampleRates1 = [4]int64{44100, 48000, 32000} // halved in version 2, and again in 2.5
)

func mpegFrame(b []byte) (length int64, same uint32) {
	if b == nil || b[0] != 0xff || b[1]&0xe0 != 0xe0 {
		return 0, 0
	}
	version, layer := b[1]>>3&3, b[1]>>1&3
	bitRate, sampleRate := b[2]>>4, mpegSampleRates1[b[2]>>2&3]
	const (
		version25, version2, version1 = 0, 2, 3
		layer3, layer2                = 1, 2
	)
	if version == 1 || sampleRate == 0 {
		return 0, 0
	}
	rates, samples := &bitRates2, int64(1152)
	switch {
	case layer == layer2 && version == version1:
		rates = &bitRates1Layer2
	case layer == layer2:
	case layer == layer3 && version == version1:
		rates = &bitRates1Layer3
	case layer == layer3:
		samples = 576
	default:
		return 0, 0
	}
	switch version {
	case version2:
		sampleRate /= 2
	case version25:
		sampleRate /= 4
	}
	padding := int64(b[2] >> 1 & 1)
	if rates[bitRate] == 0 {
		return 0, 0
	}
	length = samples/8*rates[bitRate]*1000/sampleRate + padding
	return length, uint32(b[1]&0xfe)<<8 | uint32(b[2]&0x0c)
}

func adtsFrame(b []byte) (length int64, same uint32) {
	const layerBits = 0x06 // always 0, which tells ADTS from MPEG audio
	if b == nil || b[0] != 0xff || b[1]&0xf0 != 0xf0 || b[1]&layerBits != 0 || b[2]>>2&0xf > 12 {
		return 0, 0
	}
	length = int64(b[3]&3)<<11 | int64(b[4])<<3 | int64(b[5])>>5
	if length < 7 {
		return 0, 0
	}
	return length, uint32(b[1])<<16 | uint32(b[2]&0xfd)<<8 | uint32(b[3]&0xc0)
}
