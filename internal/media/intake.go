package media

import (
	"bytes"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxURL is the longest URL in bytes. Presigned ones reach 2 to 3 KB; what
	// servers take ends at about 8 KB.
	MaxURL = 8192
	// maxDataHeader bounds a data: URI up to and with its comma, in bytes.
	maxDataHeader = 256
	// pieceSize is how many decoded bytes go to the spool at once.
	pieceSize = 64 << 10
)

// The beginnings that tell the forms apart. None is Base64: that has no colon.
const (
	schemeHTTP  = "http://"
	schemeHTTPS = "https://"
	schemeData  = "data:"
)

// FormError says that a string is none of the forms of contract 4.2. Msg is a
// client's text that follows the field's name; it holds nothing of the string.
type FormError struct {
	Msg string
}

func (e *FormError) Error() string { return e.Msg }

// Intake takes in the string of mediaMessage.media or audioMessage.audio
// (contract 4.2) while it arrives, unescaped, in pieces of any size: an http or
// https URL, a data: URI, or else Base64. Bytes go to the spool as they are
// decoded. Either Finish or Close must be called. It is not safe for
// concurrent use.
type Intake struct {
	out     output
	err     error                // final; os.ErrClosed after Finish and Close
	next    func(p []byte) error // takes in the next piece in the form that is known so far
	head    []byte               // the beginning, or all of a URL
	at      int64                // of a data: URI: characters taken in; 0 before its comma
	decoder *base64Decoder       // set once it is Base64
	escape  []byte               // of a data: URI without Base64: an unfinished "%4"
}

// NewIntake begins an Intake. It costs nothing before the first byte arrives.
func (s *Spool) NewIntake() *Intake {
	in := &Intake{out: output{spool: s}}
	in.next = in.begin
	return in
}

// Write returns an error only where going on is of no use: *TooLargeError,
// ErrSpoolFull, or one of the disk. What breaks a rule of form is remembered
// for Finish, and the rest is then swallowed, so that the caller can report all
// problems of a request together.
func (in *Intake) Write(p []byte) (int, error) {
	if in.err == nil {
		if in.err = in.next(p); in.err != nil {
			in.release()
		}
	}
	if _, form := in.err.(*FormError); in.err == nil || form {
		return len(p), nil
	}
	return 0, in.err
}

// Finish ends the string. Its error is a *FormError, what Write returned, or
// one of the disk; then nothing is kept. Otherwise the Source belongs to the caller.
func (in *Intake) Finish() (Source, error) {
	if in.err != nil {
		return Source{}, in.err
	}
	source, err := in.finish()
	in.release()
	in.err = os.ErrClosed
	return source, err
}

// Close discards what arrived and frees its budget. It does nothing after
// Finish, and may be called twice.
func (in *Intake) Close() error {
	in.err = os.ErrClosed
	return in.release()
}

func (in *Intake) release() error {
	in.head, in.escape, in.decoder = nil, nil, nil
	return in.out.release()
}

func (in *Intake) finish() (Source, error) {
	if isScheme(in.head, schemeHTTP) || isScheme(in.head, schemeHTTPS) {
		return urlSource(string(in.head))
	}
	if isScheme(in.head, schemeData) {
		return Source{}, formErrorf("the data: URI has no comma")
	}
	if len(in.head) > 0 { // a few characters that could have become a scheme
		if err := in.toBase64(); err != nil {
			return Source{}, err
		}
	}
	if len(in.escape) > 0 {
		return Source{}, badEscape(in.at - int64(len(in.escape)) + 1)
	}
	if in.decoder != nil {
		if err := in.decoder.finish(); err != nil {
			return Source{}, err
		}
	}
	return in.out.finish()
}

// begin holds the first characters back until they tell the form.
func (in *Intake) begin(p []byte) error {
	// So many characters as the longest scheme has decide in any case.
	n := min(len(p), len(schemeHTTPS)-len(in.head))
	in.head = append(in.head, p[:n]...)
	p = p[n:]
	switch {
	case isScheme(in.head, schemeHTTP), isScheme(in.head, schemeHTTPS):
		in.next = in.url
	case isScheme(in.head, schemeData):
		head := in.head
		in.head, in.next = nil, in.dataHeader
		if err := in.dataHeader(head); err != nil {
			return err
		}
	case couldBeScheme(in.head):
		return nil
	default:
		if err := in.toBase64(); err != nil {
			return err
		}
	}
	if len(p) == 0 {
		return nil
	}
	return in.next(p)
}

func isScheme(head []byte, scheme string) bool {
	return len(head) >= len(scheme) && bytes.EqualFold(head[:len(scheme)], []byte(scheme))
}

func couldBeScheme(head []byte) bool {
	for _, scheme := range []string{schemeHTTP, schemeHTTPS, schemeData} {
		if len(head) < len(scheme) && strings.EqualFold(string(head), scheme[:len(head)]) {
			return true
		}
	}
	return false
}

// toBase64 decodes head, and what follows, as Base64.
func (in *Intake) toBase64() error {
	head := in.head
	in.head = nil
	in.decoder = newBase64Decoder(&in.out, in.at)
	in.next = in.decoder.decode
	return in.decoder.decode(head)
}

func (in *Intake) url(p []byte) error {
	if len(in.head)+len(p) > MaxURL {
		return &FormError{Msg: "must not be a URL of more than " + strconv.Itoa(MaxURL) + " bytes"}
	}
	in.head = append(in.head, p...)
	return nil
}

// urlSource checks a URL for form and keeps it as it is: a presigned one breaks
// when a single character changes.
func urlSource(s string) (Source, error) {
	refuse := func(why string) (Source, error) {
		return Source{}, &FormError{Msg: "is not a usable URL: " + why}
	}
	unfit := func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unfit) {
		return refuse("it contains spaces or control characters")
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return refuse("it does not parse")
	case u.User != nil:
		return refuse("it contains a user name or password")
	case u.Hostname() == "":
		return refuse("it has no host")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return refuse("the port is not a number from 1 to 65535")
		}
	}
	return Source{URL: s}, nil
}

// dataHeader takes in a data: URI up to its comma (RFC 2397). The media type in
// it is not looked at: the content decides.
func (in *Intake) dataHeader(p []byte) error {
	comma := bytes.IndexByte(p, ',')
	n := comma + 1
	if comma < 0 {
		n = len(p)
	}
	if len(in.head)+n > maxDataHeader {
		return formErrorf("the data: URI has no comma within its first %d bytes", maxDataHeader)
	}
	in.head = append(in.head, p[:n]...)
	if comma < 0 {
		return nil
	}
	header := in.head[:len(in.head)-1]
	in.at, in.head = int64(len(in.head)), nil
	if i := bytes.LastIndexByte(header, ';'); i >= 0 && bytes.EqualFold(header[i:], []byte(";base64")) {
		if err := in.toBase64(); err != nil {
			return err
		}
	} else {
		in.next = in.percent
	}
	if n == len(p) {
		return nil
	}
	return in.next(p[n:])
}

// percent takes in the content of a data: URI without Base64: %XX is a byte,
// every other character is itself. Refused is what parsers of URIs would cut
// off or leave out: a fragment, and control characters.
func (in *Intake) percent(p []byte) error {
	for _, c := range p {
		in.at++
		switch {
		case len(in.escape) > 0:
			in.escape = append(in.escape, c)
			if len(in.escape) < len("%XX") {
				continue
			}
			value, err := strconv.ParseUint(string(in.escape[1:]), 16, 8)
			if err != nil {
				return badEscape(in.at - 2)
			}
			in.escape = in.escape[:0]
			c = byte(value)
		case c == '%':
			in.escape = append(in.escape, c)
			continue
		case c == '#' || c < ' ' || c == 0x7f:
			return formErrorf("character %d must be percent-encoded in a data: URI", in.at)
		}
		room, err := in.out.room()
		if err != nil {
			return err
		}
		room[0] = c
		in.out.n++
	}
	return nil
}

// badEscape is for the "%" at the character of that number.
func badEscape(at int64) error {
	return formErrorf("character %d begins no percent-encoded byte", at)
}

// output gathers decoded bytes and spools them in large pieces.
type output struct {
	spool  *Spool
	writer *Writer          // nil before the first bytes are spooled
	buf    *[pieceSize]byte // nil before the first bytes are decoded
	n      int              // bytes in buf
}

// room is where the next bytes go: at least 8. The caller adds to n.
func (o *output) room() ([]byte, error) {
	if o.buf == nil {
		o.buf = o.spool.pool.Get().(*[pieceSize]byte)
	}
	if o.n > len(o.buf)-8 {
		if err := o.flush(); err != nil {
			return nil, err
		}
	}
	return o.buf[o.n:], nil
}

func (o *output) flush() error {
	if o.writer == nil {
		o.writer = o.spool.NewWriter()
	}
	_, err := o.writer.Write(o.buf[:o.n])
	o.n = 0
	return err
}

func (o *output) finish() (Source, error) {
	if o.n > 0 {
		if err := o.flush(); err != nil {
			return Source{}, err
		}
	}
	if o.writer == nil {
		return Source{}, &FormError{Msg: "must not be empty"}
	}
	blob, err := o.writer.Finish()
	if err != nil {
		return Source{}, err
	}
	return Source{Blob: blob}, nil
}

func (o *output) release() error {
	if o.buf != nil {
		o.spool.pool.Put(o.buf)
		o.buf, o.n = nil, 0
	}
	if o.writer == nil {
		return nil
	}
	return o.writer.Close()
}
