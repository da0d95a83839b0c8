package media

import (
	"bytes"
	"strings"
)

// maxEntries bounds how many entries of an archive are looked at, from its
// beginning and again from its directory.
const maxEntries = 128

// openXML are the folders that Office keeps the parts of a document in. Macros
// and Excel's binary parts are not told apart.
var openXML = []struct {
	folder string
	is     Type
}{
	{"word/", typeDocx}, {"xl/", typeXlsx}, {"ppt/", typePptx},
}

// mimetypes are what the first entry of an OpenDocument or EPUB file says.
var mimetypes = []Type{typeOdt, typeOds, typeOdp, typeEPUB}

// archive is what the names of entries have told so far.
type archive struct {
	contentTypes bool // [Content_Types].xml: an Open Packaging file
	office       Type
}

func (a *archive) add(name string) (done bool) {
	if name == "[Content_Types].xml" {
		a.contentTypes = true
	}
	for _, o := range openXML {
		if a.office == (Type{}) && strings.HasPrefix(name, o.folder) {
			a.office = o.is
		}
	}
	return a.contentTypes && a.office != Type{}
}

// sniffZIP tells Office, OpenDocument and EPUB files from other archives by the
// names of their entries: those at the beginning and those in the directory at
// the end (APPNOTE.TXT sections 4.3.7, 4.3.12, 4.3.16).
func sniffZIP(p *probe) (Type, bool) {
	if bytes.HasPrefix(p.head, []byte("PK\x05\x06")) { // an archive of nothing
		return typeZIP, true
	}
	if !bytes.HasPrefix(p.head, []byte("PK\x03\x04")) {
		return Type{}, false
	}
	if t, ok := typeOfMimetype(p); ok {
		return t, true
	}
	var a archive
	if localEntries(p, &a) || directoryEntries(p, &a) {
		return a.office, true
	}
	return typeZIP, true
}

// typeOfMimetype reads the entry "mimetype", which comes first and is stored as
// it is (OpenDocument 1.2 part 3 section 3.3, EPUB OCF section 4.3).
func typeOfMimetype(p *probe) (Type, bool) {
	h := p.full(0, 30+len("mimetype"))
	if h == nil || string(h[30:]) != "mimetype" || le16(h[26:]) != int64(len("mimetype")) {
		return Type{}, false
	}
	content := string(p.at(30+le16(h[26:])+le16(h[28:]), 128))
	for _, t := range mimetypes {
		// What follows the text is the next entry, so that
		// ".text-template" is not taken for ".text".
		if rest, ok := strings.CutPrefix(content, t.MIME); ok && (rest == "" || strings.HasPrefix(rest, "PK")) {
			return t, true
		}
	}
	return Type{}, false
}

// localEntries goes from entry to entry as far as their sizes are stated, which
// writers that stream leave out.
func localEntries(p *probe, a *archive) (done bool) {
	off := int64(0)
	for range maxEntries {
		h := p.full(off, 30)
		if h == nil || string(h[:4]) != "PK\x03\x04" {
			return false
		}
		const sizesFollow = 8
		flags, size, nameLen, extraLen := le16(h[6:]), le32(h[18:]), le16(h[26:]), le16(h[28:])
		if a.add(string(p.at(off+30, int(min(nameLen, 64))))) {
			return true
		}
		if flags&sizesFollow != 0 && size == 0 {
			return false
		}
		off += 30 + nameLen + extraLen + size
	}
	return false
}

// directoryEntries finds the directory from the end of the file, where an
// archive's comment is at most one window long.
func directoryEntries(p *probe, a *archive) (done bool) {
	tail := p.at(max(0, p.size-window), window)
	end := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if end < 0 || len(tail)-end < 22 {
		return false
	}
	off := le32(tail[end+16:])
	for range maxEntries {
		h := p.full(off, 46)
		if h == nil || string(h[:4]) != "PK\x01\x02" {
			return false
		}
		nameLen, extraLen, commentLen := le16(h[28:]), le16(h[30:]), le16(h[32:])
		if a.add(string(p.at(off+46, int(min(nameLen, 64))))) {
			return true
		}
		off += 46 + nameLen + extraLen + commentLen
	}
	return false
}
