package media

import (
	"bytes"
	"encoding/binary"
	"io"
	"time"
)

const (
	oggPageHeader = 27      // bytes before the segment table, RFC 3533 section 6
	oggTail       = 1 << 16 // a page has at most 65307 bytes, so the last one begins in here
	opusRate      = 48      // samples in a millisecond, whatever the sound was recorded at, RFC 7845 section 4

	maxWAVChunks = 64                  // chunks looked at before the sound; files have a handful
	maxDuration  = 30 * 24 * time.Hour // what claims to be longer is damaged
)

// Duration is how long sound plays, to the nearest millisecond: of Ogg/Opus by
// its last granule position, of WAV by the length of its data. It reads no
// more than the first bytes and the last 64 KiB. It reports false for any
// other content, for damage, and for Ogg that holds several streams in a row.
// An Ogg stream cut out of a longer one counts from the start of that one.
func Duration(r io.ReaderAt, size int64) (time.Duration, bool) {
	if head, ok := readOpusHead(r); ok {
		return opusDuration(r, size, head)
	}
	return wavDuration(r, size)
}

type opusHead struct {
	serial  uint32 // of the stream in its file
	preSkip int64  // samples to drop at the start
}

// readOpusHead reads a first page that begins a stream with OpusHead (RFC 7845
// section 5.1).
func readOpusHead(r io.ReaderAt) (opusHead, bool) {
	const (
		idHeader     = 19 // bytes of the smallest OpusHead packet
		beginsStream = 2
	)
	var page [oggPageHeader + 1 + idHeader]byte // RFC 7845: alone on its page, in one segment
	if n, _ := r.ReadAt(page[:], 0); n < len(page) {
		return opusHead{}, false
	}
	packet := page[oggPageHeader+1:]
	if string(page[:5]) != "OggS\x00" || page[5]&beginsStream == 0 || page[26] != 1 ||
		page[27] < idHeader || string(packet[:8]) != "OpusHead" || packet[8]>>4 != 0 || packet[9] == 0 {
		return opusHead{}, false
	}
	return opusHead{
		serial:  binary.LittleEndian.Uint32(page[14:]),
		preSkip: int64(binary.LittleEndian.Uint16(packet[10:])),
	}, true
}

func opusDuration(r io.ReaderAt, size int64, head opusHead) (time.Duration, bool) {
	tail := make([]byte, min(size, oggTail))
	if n, _ := r.ReadAt(tail, size-int64(len(tail))); n < len(tail) {
		return 0, false
	}
	for end := len(tail); ; {
		at := bytes.LastIndex(tail[:end], []byte("OggS"))
		if at < 0 {
			return 0, false
		}
		if granule, ok := pageGranule(tail[at:], head.serial); ok {
			return milliseconds(granule-head.preSkip, opusRate)
		}
		end = at
	}
}

// pageGranule is the position at the end of a page of the stream; false if the
// page is of another stream, is not complete, or ends no packet.
func pageGranule(page []byte, serial uint32) (int64, bool) {
	if len(page) < oggPageHeader || page[4] != 0 || binary.LittleEndian.Uint32(page[14:]) != serial {
		return 0, false
	}
	length := oggPageHeader + int(page[26])
	if len(page) < length {
		return 0, false
	}
	for _, lacing := range page[oggPageHeader:length] {
		length += int(lacing)
	}
	granule := int64(binary.LittleEndian.Uint64(page[6:]))
	return granule, len(page) >= length && granule >= 0 // -1: no packet ends here
}

// wavDuration walks the chunks of a RIFF file to its data. A data chunk longer
// than the file is what programs write that do not know the length beforehand.
func wavDuration(r io.ReaderAt, size int64) (time.Duration, bool) {
	var head [12]byte
	if n, _ := r.ReadAt(head[:], 0); n < len(head) || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return 0, false
	}
	var bytesPerSecond int64
	at := int64(len(head))
	for range maxWAVChunks {
		var chunk [8]byte
		if n, _ := r.ReadAt(chunk[:], at); n < len(chunk) {
			return 0, false
		}
		at += int64(len(chunk))
		length := int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch string(chunk[:4]) {
		case "fmt ":
			var format [12]byte
			if n, _ := r.ReadAt(format[:], at); n < len(format) || length < int64(len(format)) {
				return 0, false
			}
			bytesPerSecond = int64(binary.LittleEndian.Uint32(format[8:]))
		case "data":
			if bytesPerSecond == 0 {
				return 0, false
			}
			return milliseconds(min(length, max(size-at, 0))*1000, bytesPerSecond)
		}
		at += length + length%2 // chunks begin at even offsets
	}
	return 0, false
}

// milliseconds is n/perMillisecond, rounded; false for less than nothing and
// for more than maxDuration.
func milliseconds(n, perMillisecond int64) (time.Duration, bool) {
	ms := n / perMillisecond
	if n < 0 || ms > maxDuration.Milliseconds() {
		return 0, false
	}
	if n%perMillisecond*2 >= perMillisecond {
		ms++
	}
	return time.Duration(ms) * time.Millisecond, true
}
