package media

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"
)

// oggPage is one page with one packet, without a checksum.
func oggPage(flags byte, granule int64, serial uint32, packet []byte) []byte {
	page := append([]byte("OggS\x00"), flags)
	page = binary.LittleEndian.AppendUint64(page, uint64(granule))
	page = binary.LittleEndian.AppendUint32(page, serial)
	page = append(page, make([]byte, 8)...) // number and checksum
	page = append(page, byte(len(packet)/255+1))
	page = append(page, bytes.Repeat([]byte{255}, len(packet)/255)...)
	page = append(page, byte(len(packet)%255))
	return append(page, packet...)
}

// opusFile is Ogg/Opus with a pre-skip of 312 samples and one page of sound
// for each granule.
func opusFile(granules ...int64) []byte {
	head := append([]byte("OpusHead\x01\x01"), 0x38, 0x01) // 312
	head = append(head, 0x80, 0xbb, 0, 0, 0, 0, 0)
	file := append(oggPage(2, 0, 7, head), oggPage(0, 0, 7, []byte("OpusTags"))...)
	for _, g := range granules {
		file = append(file, oggPage(0, g, 7, make([]byte, 4000))...)
	}
	return file
}

func wavFile(chunks ...string) []byte {
	return []byte("RIFF\x00\x00\x00\x00WAVE" + strings.Join(chunks, ""))
}

func TestDuration(t *testing.T) {
	const second = 48000
	// Format 1, one channel, 8000 samples and 16000 bytes a second.
	const format = "fmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00"
	sound := strings.Repeat("s", 24000)
	tests := []struct {
		name string
		file []byte
		want time.Duration
		ok   bool
	}{
		{"Opus, three pages", opusFile(second, 2*second, 3*second+312), 3 * time.Second, true},
		{"Opus, rounded down", opusFile(312 + 23), 0, true},
		{"Opus, rounded up", opusFile(312 + 24), time.Millisecond, true},
		{"Opus, longer than the tail", opusFile(append(make([]int64, 100), 312+second)...), time.Second, true},
		{"Opus, last page ends no packet", opusFile(312+second, -1), time.Second, true},
		{"Opus, last page cut off", func() []byte { f := opusFile(312+second, 312+2*second); return f[:len(f)-1] }(), time.Second, true},
		{"Opus, a page of another stream after it", append(opusFile(312+second), oggPage(0, 9*second, 8, nil)...), time.Second, true},
		{"Opus, less than the pre-skip", opusFile(100), 0, false},
		{"Opus, no page but those of the header", opusFile(), 0, false},
		{"Opus, longer than a month", opusFile(1 << 62), 0, false},
		{"Opus, header alone", opusFile(second)[:47], 0, false},
		{"Ogg, not Opus", bytes.Replace(opusFile(second), []byte("OpusHead"), []byte("OpusXxxx"), 1), 0, false},
		{"WAV", wavFile(format, "data\xc0\x5d\x00\x00", sound), 1500 * time.Millisecond, true},
		{"WAV, data longer than the file", wavFile(format, "data\xff\xff\xff\xff", sound), 1500 * time.Millisecond, true},
		{"WAV, another chunk of odd length first", wavFile("LIST\x03\x00\x00\x00abc\x00", format, "data\xc0\x5d\x00\x00", sound, "LIST"), 1500 * time.Millisecond, true},
		{"WAV, no format", wavFile("data\xc0\x5d\x00\x00", sound), 0, false},
		{"WAV, no data", wavFile(format), 0, false},
		{"WAV, nothing a second", wavFile("fmt \x10\x00\x00\x00"+strings.Repeat("\x00", 16), "data\xc0\x5d\x00\x00", sound), 0, false},
		{"WAV, chunks without end", wavFile(strings.Repeat("junk\x00\x00\x00\x00", 1000), format, "data\xc0\x5d\x00\x00", sound), 0, false},
		{"something else", png, 0, false},
		{"nothing", nil, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := Duration(bytes.NewReader(tt.file), int64(len(tt.file)))
			if got != tt.want || ok != tt.ok {
				t.Errorf("Duration() = %v, %v; want %v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzDuration(f *testing.F) {
	f.Add(opusFile(48000, 96000))
	f.Add(wavFile("fmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00", "data\x04\x00\x00\x00abcd"))
	f.Fuzz(func(t *testing.T, file []byte) {
		got, ok := Duration(bytes.NewReader(file), int64(len(file)))
		if got < 0 || got > maxDuration+time.Millisecond || got%time.Millisecond != 0 || !ok && got != 0 {
			t.Errorf("Duration() = %v, %v", got, ok)
		}
	})
}
