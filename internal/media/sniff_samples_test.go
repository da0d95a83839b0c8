package media

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"unicode/utf16"
)

func zeros(n int) string { return strings.Repeat("\x00", n) }

// box is one of ISO/IEC 14496-12.
func box(name, body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))) + name + body
}

func ftyp(brand string) string { return box("ftyp", brand+"\x00\x00\x02\x00"+brand) }

// moov describes tracks of the given handlers.
func moov(handlers ...string) string {
	all := box("mvhd", zeros(100))
	for _, h := range handlers {
		hdlr := box("hdlr", zeros(8)+h+zeros(13))
		all += box("trak", box("tkhd", zeros(84))+box("mdia", box("mdhd", zeros(24))+hdlr+box("minf", zeros(20))))
	}
	return box("moov", all)
}

func ebml(id, body string) string {
	return id + string([]byte{0x40 | byte(len(body)>>8), byte(len(body))}) + body
}

// webm is a live recording, of unknown length, with tracks of the given types.
func webm(docType string, types ...string) string {
	entries := ""
	for _, typeOf := range types {
		entries += ebml("\xae", ebml("\xd7", "\x01")+ebml("\x83", typeOf)+ebml("\x86", "A_OPUS"))
	}
	return ebml("\x1a\x45\xdf\xa3", ebml("\x42\x86", "\x01")+ebml("\x42\x82", docType)) +
		"\x18\x53\x80\x67\x01\xff\xff\xff\xff\xff\xff\xff" +
		ebml("\x15\x49\xa9\x66", zeros(40)) + ebml("\x16\x54\xae\x6b", entries) +
		"\x1f\x43\xb6\x75\xff" + zeros(40)
}

// ogg is the page that begins a stream with packet.
func ogg(packet string) string {
	return "OggS\x00\x02" + zeros(20) + "\x01" + string([]byte{byte(len(packet))}) + packet
}

// zipOf is an archive with entries of the given names. As a stream, the sizes
// stand behind the entries.
func zipOf(t testing.TB, stream bool, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		var err error
		if stream {
			var entry io.Writer
			entry, err = w.Create(name)
			if err == nil {
				_, err = io.WriteString(entry, "some text")
			}
		} else {
			_, err = w.CreateRaw(&zip.FileHeader{Name: name})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// ole is a compound file whose root holds streams of the given names, and a
// storage with a document embedded in it. Its directory takes two sectors that
// do not follow each other.
func ole(names ...string) string {
	const (
		none = 0xFFFFFFFF
		end  = 0xFFFFFFFE
	)
	u32 := func(values ...uint32) string {
		var b []byte
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, v)
		}
		return string(b)
	}
	entry := func(name string, left, right, child uint32) string {
		units := append(utf16.Encode([]rune(name)), 0)
		var b []byte
		for _, u := range units {
			b = binary.LittleEndian.AppendUint16(b, u)
		}
		b = append(b, make([]byte, 64-len(b))...)
		b = binary.LittleEndian.AppendUint16(b, uint16(2*len(units)))
		return string(b) + "\x02\x01" + u32(left, right, child) + zeros(48)
	}
	entries := []string{
		entry("Root Entry", none, none, 1),
		entry("ObjectPool", none, 3, 2),
		entry("Book", none, none, none), // embedded, so it does not count
	}
	for i, name := range names {
		next := uint32(none)
		if i+1 < len(names) {
			next = uint32(4 + i)
		}
		entries = append(entries, entry(name, next, none, none))
	}
	for len(entries) < 8 {
		entries = append(entries, zeros(128))
	}
	directory := strings.Join(entries, "")
	header := "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + zeros(16) + "\x3e\x00\x03\x00\xfe\xff\x09\x00\x06\x00" + zeros(10) +
		u32(1, 1, 0, 4096, end, 0, end, 0) + u32(0) + strings.Repeat(u32(none), 108)
	// Sector 0 is the allocation table, 1 and 3 are the directory.
	table := u32(0xFFFFFFFD, 3, none, end) + strings.Repeat(u32(none), 124)
	return header + table + directory[:512] + zeros(512) + directory[512:]
}
