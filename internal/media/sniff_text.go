package media

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	utf8BOM = "\xef\xbb\xbf"
	// maxText is how much of a text is read to see that it is one, in bytes.
	maxText = 32 << 10
)

// sniffText knows UTF-8, and UTF-16 with a byte order mark, without control
// characters but white space, as far as it looks; in it HTML, SVG and XML.
func sniffText(p *probe) (Type, bool) {
	switch {
	case p.size == 0:
		return Type{}, false
	case bytes.HasPrefix(p.head, []byte("\xff\xfe")):
		return typeText, isUTF16(p, binary.LittleEndian)
	case bytes.HasPrefix(p.head, []byte("\xfe\xff")):
		return typeText, isUTF16(p, binary.BigEndian)
	case !isUTF8(p):
		return Type{}, false
	}
	return typeOfMarkup(bytes.TrimPrefix(p.head, []byte(utf8BOM))), true
}

func isTextRune(r rune) bool { return !unicode.IsControl(r) || unicode.IsSpace(r) }

func isUTF8(p *probe) bool {
	for off := int64(0); off < min(p.size, maxText); {
		b := p.at(off, window)
		if len(b) == 0 {
			return false
		}
		last := off+int64(len(b)) == p.size
		for len(b) > 0 && (last || utf8.FullRune(b)) {
			r, n := utf8.DecodeRune(b)
			if r == utf8.RuneError && n == 1 || !isTextRune(r) {
				return false
			}
			b, off = b[n:], off+int64(n)
		}
	}
	return true
}

func isUTF16(p *probe, order binary.ByteOrder) bool {
	if p.size%2 != 0 {
		return false
	}
	var high rune // the first half of a pair
	for off := int64(2); off < min(p.size, maxText); {
		b := p.at(off, window)
		if len(b) < 2 {
			return false
		}
		for ; len(b) >= 2; b, off = b[2:], off+2 {
			r := rune(order.Uint16(b))
			switch {
			case high != 0:
				if utf16.DecodeRune(high, r) == utf8.RuneError {
					return false
				}
				high = 0
			case utf16.IsSurrogate(r):
				high = r
			case !isTextRune(r):
				return false
			}
		}
	}
	return true
}

// typeOfMarkup looks at the beginning of a text.
func typeOfMarkup(text []byte) Type {
	// The rule of the WHATWG MIME Sniffing Standard, which browsers follow.
	switch mime := http.DetectContentType(text); {
	case strings.HasPrefix(mime, "text/html"):
		if root(text) == "svg" {
			return typeSVG // after a comment, which alone counts as HTML
		}
		return typeHTML
	case root(text) == "svg":
		return typeSVG
	case strings.HasPrefix(mime, "text/xml"):
		return typeXML
	}
	return typeText
}

// root is the name of the first element of an XML text, without its prefix, or
// empty where the text does not begin like one.
func root(text []byte) string {
	for {
		text = bytes.TrimLeft(text, " \t\r\n")
		end := ""
		switch {
		case bytes.HasPrefix(text, []byte("<?")):
			end = "?>"
		case bytes.HasPrefix(text, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(text, []byte("<!")):
			end = ">"
			if bracket := bytes.IndexByte(text, '['); bracket >= 0 && bracket < bytes.IndexByte(text, '>') {
				end = "]>" // entities of the document's own
			}
		case bytes.HasPrefix(text, []byte("<")):
			name := text[1:]
			if i := bytes.IndexAny(name, " \t\r\n/>"); i >= 0 {
				name = name[:i]
			}
			return string(name[bytes.LastIndexByte(name, ':')+1:])
		default:
			return ""
		}
		i := bytes.Index(text, []byte(end))
		if i < 0 {
			return ""
		}
		text = text[i+len(end):]
	}
}
