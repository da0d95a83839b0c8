package media

import (
	"bytes"
	"io"
)

// Type is what bytes really are. Types are comparable; the zero Type is none.
type Type struct {
	MIME string // as a platform wants it, with parameters where they matter
	kind Kind   // Document: nothing more special
	ext  string
}

// Is reports whether bytes of type t may be sent as kind. A document may be anything.
func (t Type) Is(kind Kind) bool { return kind == Document || t.kind == kind }

// Ext is the usual extension of a file name, with its dot; ".bin" where none is usual.
func (t Type) Ext() string { return t.ext }

// String is the MIME type.
func (t Type) String() string { return t.MIME }

// IsOpus reports whether t is Opus alone in an Ogg container: what messengers
// play as a voice note, if it has one channel.
func (t Type) IsOpus() bool { return t == typeOpus }

var (
	typeUnknown = Type{"application/octet-stream", Document, ".bin"}

	typeJPEG = Type{"image/jpeg", Image, ".jpg"}
	typePNG  = Type{"image/png", Image, ".png"}
	typeWebP = Type{"image/webp", Image, ".webp"}
	typeGIF  = Type{"image/gif", Image, ".gif"}
	typeHEIC = Type{"image/heic", Image, ".heic"}
	typeAVIF = Type{"image/avif", Image, ".avif"}
	typeBMP  = Type{"image/bmp", Image, ".bmp"}
	typeTIFF = Type{"image/tiff", Image, ".tif"}

	typeMP4        = Type{"video/mp4", Video, ".mp4"}
	type3GP        = Type{"video/3gpp", Video, ".3gp"}
	type3G2        = Type{"video/3gpp2", Video, ".3g2"}
	typeQuickTime  = Type{"video/quicktime", Video, ".mov"}
	typeWebM       = Type{"video/webm", Video, ".webm"}
	typeMatroska   = Type{"video/matroska", Video, ".mkv"} // RFC 9559; video/x-matroska before it
	typeOggVideo   = Type{"video/ogg", Video, ".ogv"}
	typeOggUnknown = Type{"application/ogg", Document, ".ogx"}
	typeAVI        = Type{"video/x-msvideo", Video, ".avi"}
	typeFLV        = Type{"video/x-flv", Video, ".flv"}
	typeMPEG       = Type{"video/mpeg", Video, ".mpg"}

	typeMP3           = Type{"audio/mpeg", Audio, ".mp3"}
	typeAAC           = Type{"audio/aac", Audio, ".aac"}
	typeM4A           = Type{"audio/mp4", Audio, ".m4a"}
	type3GPAudio      = Type{"audio/3gpp", Audio, ".3gp"}
	typeAMR           = Type{"audio/amr", Audio, ".amr"}
	typeAMRWB         = Type{"audio/amr-wb", Audio, ".awb"}
	typeOpus          = Type{"audio/ogg; codecs=opus", Audio, ".ogg"}
	typeVorbis        = Type{"audio/ogg; codecs=vorbis", Audio, ".ogg"}
	typeOggAudio      = Type{"audio/ogg", Audio, ".ogg"}
	typeWAV           = Type{"audio/wav", Audio, ".wav"}
	typeFLAC          = Type{"audio/flac", Audio, ".flac"}
	typeAIFF          = Type{"audio/aiff", Audio, ".aif"}
	typeWebMAudio     = Type{"audio/webm", Audio, ".weba"}
	typeMatroskaAudio = Type{"audio/matroska", Audio, ".mka"}

	typePDF  = Type{"application/pdf", Document, ".pdf"}
	typeRTF  = Type{"application/rtf", Document, ".rtf"}
	typeZIP  = Type{"application/zip", Document, ".zip"}
	typeText = Type{"text/plain", Document, ".txt"}
	typeHTML = Type{"text/html", Document, ".html"}
	typeXML  = Type{"text/xml", Document, ".xml"}
	// SVG is a picture, but a program too: it may hold scripts, and no
	// messenger takes it as an image. So it is a document only.
	typeSVG = Type{"image/svg+xml", Document, ".svg"}

	typeDoc  = Type{"application/msword", Document, ".doc"}
	typeXls  = Type{"application/vnd.ms-excel", Document, ".xls"}
	typePpt  = Type{"application/vnd.ms-powerpoint", Document, ".ppt"}
	typeDocx = Type{"application/vnd.openxmlformats-officedocument.wordprocessingml.document", Document, ".docx"}
	typeXlsx = Type{"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Document, ".xlsx"}
	typePptx = Type{"application/vnd.openxmlformats-officedocument.presentationml.presentation", Document, ".pptx"}
	typeOdt  = Type{"application/vnd.oasis.opendocument.text", Document, ".odt"}
	typeOds  = Type{"application/vnd.oasis.opendocument.spreadsheet", Document, ".ods"}
	typeOdp  = Type{"application/vnd.oasis.opendocument.presentation", Document, ".odp"}
	typeEPUB = Type{"application/epub+zip", Document, ".epub"}
)

// Sniff finds out what r, of size bytes, really holds, from the content alone:
// names and declared types lie. It never fails; what it does not know, and what
// cannot be read, is application/octet-stream. It reads at most maxSniff bytes,
// wherever they are, and allocates nothing that depends on the input. It tells
// types apart; it does not prove that a file is whole or can be played.
func Sniff(r io.ReaderAt, size int64) Type {
	p := newProbe(r, size)
	for _, sniff := range []func(*probe) (Type, bool){
		sniffMagic, sniffRIFF, sniffOgg, sniffMP4, sniffMatroska,
		sniffZIP, sniffOLE, sniffMPEGAudio, sniffPDF, sniffText,
	} {
		if t, ok := sniff(p); ok {
			return t
		}
	}
	return typeUnknown
}

// magics are the types that their first bytes tell.
var magics = []struct {
	prefix string
	is     Type
}{
	{"\xff\xd8\xff", typeJPEG},
	{"\x89PNG\r\n\x1a\n", typePNG},
	{"GIF87a", typeGIF},
	{"GIF89a", typeGIF},
	{"II*\x00", typeTIFF},
	{"MM\x00*", typeTIFF},
	{"#!AMR\n", typeAMR},      // RFC 4867 section 5.1
	{"#!AMR-WB\n", typeAMRWB}, // RFC 4867 section 5.2
	{"fLaC", typeFLAC},        // RFC 9639 section 6
	{"FLV\x01", typeFLV},
	{"\x00\x00\x01\xba", typeMPEG}, // pack header of a program stream
	{`{\rtf`, typeRTF},
}

func sniffMagic(p *probe) (Type, bool) {
	for _, m := range magics {
		if bytes.HasPrefix(p.head, []byte(m.prefix)) {
			return m.is, true
		}
	}
	// "BM" alone begins many a text, so the header after it has to fit: two
	// reserved fields of zero and one of the sizes that headers have.
	if h := p.head; len(h) >= 18 && string(h[:2]) == "BM" && string(h[6:10]) == "\x00\x00\x00\x00" {
		switch le32(h[14:]) {
		case 12, 40, 52, 56, 64, 108, 124:
			return typeBMP, true
		}
	}
	return Type{}, false
}

func sniffRIFF(p *probe) (Type, bool) {
	if len(p.head) < 12 {
		return Type{}, false
	}
	switch form := string(p.head[8:12]); string(p.head[:4]) {
	case "RIFF", "RF64", "BW64":
		switch form {
		case "WEBP":
			return typeWebP, true
		case "WAVE":
			return typeWAV, true
		case "AVI ":
			return typeAVI, true
		}
	case "FORM":
		if form == "AIFF" || form == "AIFC" {
			return typeAIFF, true
		}
	}
	return Type{}, false
}

// sniffPDF allows white space and a byte order mark before the signature, as
// readers do.
func sniffPDF(p *probe) (Type, bool) {
	head := bytes.TrimPrefix(p.head, []byte(utf8BOM))
	return typePDF, bytes.HasPrefix(bytes.TrimLeft(head, "\t\n\f\r "), []byte("%PDF-"))
}
