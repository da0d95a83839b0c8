package media

import "strings"

// maxOggStreams bounds how many streams of an Ogg file are looked at.
const maxOggStreams = 16

// sniffOgg looks at the first packet of each stream: the pages that begin
// streams come before all others (RFC 3533 section 4).
func sniffOgg(p *probe) (Type, bool) {
	var streams, opus, vorbis, audio, video int
	for off := int64(0); streams < maxOggStreams; {
		header := p.full(off, 27)
		if header == nil || string(header[:5]) != "OggS\x00" {
			break
		}
		const beginsStream = 2
		if header[5]&beginsStream == 0 {
			break
		}
		segments := int(header[26])
		length := int64(0)
		for _, n := range p.at(off+27, segments) {
			length += int64(n)
		}
		body := off + 27 + int64(segments)
		off = body + length
		streams++
		switch packet := string(p.at(body, 8)); {
		case packet == "OpusHead": // RFC 7845 section 5.1
			opus++
		case strings.HasPrefix(packet, "\x01vorbis"):
			vorbis++
		case strings.HasPrefix(packet, "\x7fFLAC"), packet == "Speex   ":
			audio++
		case strings.HasPrefix(packet, "\x80theora"), strings.HasPrefix(packet, "\x01video"), strings.HasPrefix(packet, "BBCD"):
			video++
		case strings.HasPrefix(packet, "fishead"): // a table of contents
			streams--
		}
		if length == 0 {
			break
		}
	}
	switch {
	case video > 0:
		return typeOggVideo, true
	case opus > 0 && opus == streams:
		return typeOpus, true
	case vorbis > 0 && vorbis == streams:
		return typeVorbis, true
	case opus+vorbis+audio > 0:
		return typeOggAudio, true
	}
	return typeOggUnknown, streams > 0
}
