package media

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func sniffString(s string) Type { return Sniff(strings.NewReader(s), int64(len(s))) }

func TestSniff(t *testing.T) {
	const (
		docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
		xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
		pptx = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	)
	mp3 := strings.Repeat("\xff\xfb\x90\x64"+zeros(413), 3)            // 128 kbit/s, 44.1 kHz
	aac := strings.Repeat("\xff\xf1\x50\x80\x04\x1f\xfc"+zeros(25), 3) // frames of 32 bytes
	tests := []struct {
		name, in, want string
		kind           Kind
	}{
		{"JPEG", "\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg", Image},
		{"PNG", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png", Image},
		{"GIF", "GIF89a\x01\x00", "image/gif", Image},
		{"WebP", "RIFF\x04\x00\x00\x00WEBPVP8 ", "image/webp", Image},
		{"HEIC", box("ftyp", "heic\x00\x00\x00\x00mif1heic"), "image/heic", Image},
		{"AVIF", box("ftyp", "avif\x00\x00\x00\x00mif1"), "image/avif", Image},
		{"AVIF under the common brand", box("ftyp", "mif1\x00\x00\x00\x00mif1avif"), "image/avif", Image},
		{"BMP", "BM\x00\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00", "image/bmp", Image},
		{"a text that begins like BMP", "BMW is a maker of cars", "text/plain", Document},
		{"TIFF", "II*\x00\x08\x00\x00\x00", "image/tiff", Image},

		{"MP4", ftyp("isom") + moov("vide", "soun"), "video/mp4", Video},
		{"MP4 with its tracks at the end", ftyp("isom") + box("mdat", zeros(300_000)) + moov("soun", "vide"), "video/mp4", Video},
		{"MP4 with a box of 64-bit size", ftyp("mp42") + "\x00\x00\x00\x01mdat\x00\x00\x00\x00\x00\x00\x03\xf8" + zeros(1000) + moov("soun"), "audio/mp4", Audio},
		{"MP4 with a box to the end", ftyp("mp42") + "\x00\x00\x00\x00mdat" + zeros(1000), "video/mp4", Video},
		{"MP4 of which only the beginning is there", ftyp("mp42"), "video/mp4", Video},
		{"MP4 with sound alone", ftyp("isom") + box("mdat", zeros(9999)) + moov("soun"), "audio/mp4", Audio},
		{"MP4 with an unknown brand and tracks", ftyp("xyz1") + moov("vide"), "video/mp4", Video},
		{"an unknown brand", box("ftyp", "xyz1\x00\x00\x00\x00"), "application/octet-stream", Document},
		{"M4A", ftyp("M4A "), "audio/mp4", Audio},
		{"3GPP", ftyp("3gp4") + moov("vide"), "video/3gpp", Video},
		{"3GPP with sound alone", ftyp("3gp4") + moov("soun"), "audio/3gpp", Audio},
		{"QuickTime", ftyp("qt  ") + moov("vide"), "video/quicktime", Video},
		{"QuickTime without a brand", box("wide", "") + box("mdat", zeros(9999)) + moov("vide"), "video/quicktime", Video},
		{"WebM", webm("webm", "\x01", "\x02"), "video/webm", Video},
		{"WebM with sound alone", webm("webm", "\x02"), "audio/webm", Audio},
		{"WebM of which only the beginning is there", webm("webm")[:30], "video/webm", Video},
		{"Matroska", webm("matroska", "\x01"), "video/matroska", Video},
		{"AVI", "RIFF\x04\x00\x00\x00AVI LIST", "video/x-msvideo", Video},

		{"MP3", mp3, "audio/mpeg", Audio},
		{"MP3 of one frame", mp3[:417], "audio/mpeg", Audio},
		{"MP3 after a tag", "ID3\x03\x00\x00\x00\x00\x40\x00" + zeros(8192) + mp3, "audio/mpeg", Audio},
		{"MP3 after a tag that holds a picture", "ID3\x03\x00\x00\x00\x06\x00\x00\xff\xd8\xff" + zeros(98301) + mp3, "audio/mpeg", Audio},
		{"MP3 after a padded tag", "ID3\x04\x00\x00\x00\x00\x00\x00" + zeros(100) + mp3, "audio/mpeg", Audio},
		{"a frame of MP3 without a second", mp3[:417] + "no frame", "application/octet-stream", Document},
		{"a text about ID3", "ID3 is a kind of tag", "text/plain", Document},
		{"AAC", aac, "audio/aac", Audio},
		{"AAC after a tag", "ID3\x04\x00\x00\x00\x00\x00\x05" + zeros(5) + aac, "audio/aac", Audio},
		{"AMR", "#!AMR\n\x3c", "audio/amr", Audio},
		{"AMR wideband", "#!AMR-WB\n\x3c", "audio/amr-wb", Audio},
		{"Ogg with Opus", ogg("OpusHead\x01\x01"), "audio/ogg; codecs=opus", Audio},
		{"Ogg with Vorbis", ogg("\x01vorbis\x00"), "audio/ogg; codecs=vorbis", Audio},
		{"Ogg with Opus and Vorbis", ogg("OpusHead\x01\x01") + ogg("\x01vorbis\x00"), "audio/ogg", Audio},
		{"Ogg with Speex", ogg("Speex   1.2"), "audio/ogg", Audio},
		{"Ogg with Vorbis and Theora", ogg("fishead\x00") + ogg("\x01vorbis\x00") + ogg("\x80theora\x03"), "video/ogg", Video},
		{"Ogg with something else", ogg("whatever"), "application/ogg", Document},
		{"WAV", "RIFF\x24\x00\x00\x00WAVEfmt ", "audio/wav", Audio},
		{"FLAC", "fLaC\x00\x00\x00\x22", "audio/flac", Audio},
		{"FLAC after a tag", "ID3\x04\x00\x00\x00\x00\x00\x05" + zeros(5) + "fLaC\x00", "audio/flac", Audio},

		{"PDF", "%PDF-1.7\n%\xe2\xe3", "application/pdf", Document},
		{"PDF after a line end", "\r\n%PDF-1.7\n%\xe2\xe3", "application/pdf", Document},
		{"Word", zipOf(t, false, "[Content_Types].xml", "_rels/.rels", "word/document.xml"), docx, Document},
		{"Excel, written as a stream", zipOf(t, true, "[Content_Types].xml", "xl/workbook.xml"), xlsx, Document},
		{"PowerPoint, with its types last", zipOf(t, true, "ppt/presentation.xml", "[Content_Types].xml"), pptx, Document},
		{"an archive with a folder named word", zipOf(t, false, "word/list.txt"), "application/zip", Document},
		{"an archive of nothing", zipOf(t, false), "application/zip", Document},
		{"OpenDocument text", "PK\x03\x04" + zeros(22) + "\x08\x00\x00\x00mimetypeapplication/vnd.oasis.opendocument.textPK\x03\x04", "application/vnd.oasis.opendocument.text", Document},
		{"OpenDocument template", "PK\x03\x04" + zeros(22) + "\x08\x00\x00\x00mimetypeapplication/vnd.oasis.opendocument.text-templatePK\x03\x04", "application/zip", Document},
		{"Word before 2007", ole("1Table", "WordDocument"), "application/msword", Document},
		{"Excel before 2007", ole("Workbook"), "application/vnd.ms-excel", Document},
		{"PowerPoint before 2007", ole("Pictures", "Current User", "PowerPoint Document"), "application/vnd.ms-powerpoint", Document},
		{"another compound file", ole("Data"), "application/octet-stream", Document},
		{"the beginning of a compound file", ole("Workbook")[:600], "application/octet-stream", Document},

		{"a text", "hello\r\n\tworld\n", "text/plain", Document},
		{"a text with a byte order mark", "\xef\xbb\xbfhéllo", "text/plain", Document},
		{"a long text whose characters cross every boundary", strings.Repeat("é", 50_000), "text/plain", Document},
		{"a text in UTF-16", "\xff\xfeh\x00i\x00\x3d\xd8\x00\xde", "text/plain", Document},
		{"a text in UTF-16, high byte first", "\xfe\xff\x00h\x00i", "text/plain", Document},
		{"half a pair in UTF-16", "\xfe\xff\xd8\x3d\x00i", "application/octet-stream", Document},
		{"JSON", `{"a":1}`, "text/plain", Document},
		{"HTML", "\n<!DOCTYPE html><title>404</title>", "text/html", Document},
		{"SVG", `<svg xmlns="http://www.w3.org/2000/svg"/>`, "image/svg+xml", Document},
		{"SVG with all that may come first", "\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a --><!DOCTYPE svg [<!ENTITY a '>'>]><svg:svg/>", "image/svg+xml", Document},
		{"SVG after a comment", "<!-- a --><svg/>", "image/svg+xml", Document},
		{"XML", "<?xml version='1.0'?><feed/>", "text/xml", Document},
		{"a text with a control character", "hello\x01", "application/octet-stream", Document},
		{"a text that turns binary", strings.Repeat("hello ", 2000) + "\x00", "application/octet-stream", Document},
		{"a program", "\x7fELF\x02\x01\x01" + zeros(9), "application/octet-stream", Document},
		{"a program for Windows", "MZ\x90\x00\x03", "application/octet-stream", Document},
		{"nothing", "", "application/octet-stream", Document},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := sniffString(tt.in)
			if got.String() != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			for _, kind := range []Kind{Image, Video, Audio, Document} {
				if want := kind == tt.kind || kind == Document; got.Is(kind) != want {
					t.Errorf("Is(%s) is %t, want %t", kind, !want, want)
				}
			}
			if !strings.HasPrefix(got.Ext(), ".") {
				t.Errorf("the extension is %q", got.Ext())
			}
			if want := tt.want == "audio/ogg; codecs=opus"; got.IsOpus() != want {
				t.Errorf("IsOpus is %t, want %t", !want, want)
			}
		})
	}
}

// meter counts what is read.
type meter struct {
	r            io.ReaderAt
	bytes, calls int
}

func (m *meter) ReadAt(p []byte, off int64) (int, error) {
	m.bytes += len(p)
	m.calls++
	return m.r.ReadAt(p, off)
}

func checkBounds(t *testing.T, content []byte, size int64) {
	t.Helper()
	m := &meter{r: bytes.NewReader(content)}
	if got := Sniff(m, size); got.MIME == "" || got.Ext() == "" || !got.Is(Document) {
		t.Errorf("got the type %+v", got)
	}
	if m.bytes > maxSniff || m.calls > maxSniff/minCost {
		t.Errorf("%d bytes in %d reads, want at most %d in %d", m.bytes, m.calls, maxSniff, maxSniff/minCost)
	}
}

func TestSniffReadsLittle(t *testing.T) {
	many := make([]string, 5000)
	for i := range many {
		many[i] = "word/x"
	}
	for name, content := range map[string]string{
		"a long text":      strings.Repeat("hello ", 1<<20),
		"many boxes":       ftyp("isom") + strings.Repeat(box("free", ""), 100_000),
		"many tracks":      ftyp("isom") + box("moov", strings.Repeat(box("trak", ""), 100_000)),
		"many elements":    webm("webm") + strings.Repeat("\xec\x80", 100_000),
		"many entries":     zipOf(t, false, many...),
		"many Ogg streams": strings.Repeat(ogg("fishead\x00"), 10_000),
		"a circle in OLE":  strings.Replace(ole("Data"), "\xfe\xff\xff\xff", zeros(4), 1),
		"many tags":        strings.Repeat("ID3\x03\x00\x00\x00\x00\x00\x00", 10_000),
		"zeros":            zeros(1 << 20),
		"set bits":         strings.Repeat("\xff", 1<<20),
		"deep boxes":       ftyp("isom") + strings.Repeat("\x00\x00\x00\x00moov", 10_000),
	} {
		t.Run(name, func(t *testing.T) { checkBounds(t, []byte(content), int64(len(content))) })
	}
}

func FuzzSniff(f *testing.F) {
	for _, s := range []string{
		ftyp("isom") + moov("vide"), webm("webm", "\x02"), ogg("OpusHead\x01\x01"), ole("WordDocument"),
		zipOf(f, true, "[Content_Types].xml", "xl/workbook.xml"), "ID3\x03\x00\x00\x00\x00\x00\x00\xff\xfb\x90\x64", "<?xml?><!DOCTYPE a [<svg", "\xff\xfea\x00",
	} {
		f.Add([]byte(s), int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, content []byte, size int64) {
		checkBounds(t, content, size)
		checkBounds(t, content, int64(len(content)))
	})
}

func BenchmarkSniff(b *testing.B) {
	content := ftyp("isom") + box("mdat", zeros(300_000)) + moov("soun", "vide")
	b.ReportAllocs()
	for b.Loop() {
		sniffString(content)
	}
}
