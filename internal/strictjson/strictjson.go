// Package strictjson reads one JSON object in a single pass through a fixed
// buffer and enforces strict JSON while it arrives. The string at one named
// path can be diverted into a writer, so that a body of any size costs no
// memory beyond what surrounds that string.
//
// It exists because encoding/json holds the whole body, lets the last of two
// equal keys win, turns broken UTF-8 and lone surrogates into U+FFFD and leaves
// what follows the value unread. What passes here can go to encoding/json, which
// then still matches keys to struct fields regardless of case: keys whose case
// must be exact have to be decoded into a map first.
package strictjson

import (
	"io"
	"sync"
)

// MaxDepth is how many objects and arrays may be nested; the outer object is
// level 1 (contract 4.2).
const MaxDepth = 32

// Options says what is diverted and what is bounded. There is no way to have no
// bound: a limit of 0 allows nothing.
type Options struct {
	// Path names the member whose string is diverted, by its decoded keys from
	// the outer object inwards, in exact case. Empty: nothing is diverted.
	Path []string
	// Sink gets the content of that string in pieces while they arrive:
	// unescaped, valid UTF-8, no piece ending inside a character. Sink must not
	// keep the pieces, and sees them before the rest of the body is known to be
	// well formed. An error from Write ends the reading; to have the rest
	// checked nevertheless, Sink remembers its problem and returns nil. Required
	// when Path is set. An empty string makes no call; see Result.Diverted.
	Sink io.Writer
	// MaxRest bounds Result.Rest, in bytes. Short-lived memory for finding
	// duplicate keys comes on top of it, at most some ten times as much.
	MaxRest int
	// MaxBody bounds what is read from the body in all, in bytes, the white
	// space after the object included.
	MaxBody int64
}

// Result is what a well-formed body leaves behind.
type Result struct {
	// Rest is the object without the white space between its tokens, and with
	// "" in place of the diverted string. Everything else is as it was sent.
	Rest []byte
	// Diverted reports that there was a string at Options.Path. A value of any
	// other type is not diverted; it is in Rest.
	Diverted bool
}

// Object reads one JSON object (RFC 8259) from r, to io.EOF: net/http notices a
// client's disconnect only after that. Beyond the grammar it demands valid
// UTF-8 without a byte order mark, escaped surrogates in pairs, no two equal
// keys in one object (compared unescaped), at most MaxDepth levels, and nothing
// but white space after the object. The size of numbers is not judged: 1e999 is
// well formed.
//
// The error is a *SyntaxError, a *TooLargeError, a *ReadError, or what
// Sink.Write returned, unchanged (io.ErrShortWrite if it wrote short). With an
// error the Result is empty, but Sink may have got a part of the string, and r
// is not read to its end.
func Object(r io.Reader, o Options) (Result, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	p := parser{
		input:   input{r: r, buf: s.buf[:], limit: o.MaxBody},
		keys:    keyStack{text: s.keyText[:0], ends: s.keyEnds[:0]},
		path:    o.Path,
		sink:    o.Sink,
		rest:    make([]byte, 0, firstRest),
		maxRest: o.MaxRest,
	}
	err := p.body()
	if err == errEnd {
		err = p.syntax(p.end, "the body ends early")
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Rest: p.rest, Diverted: p.diverted}, nil
}

const (
	// bufferSize is how much is read at once: large enough that neither the
	// system calls nor the calls of Sink count.
	bufferSize = 64 << 10
	// firstRest holds a usual body without its media in one allocation.
	firstRest = 512
)

// scratch is what one reading needs for as long as it lasts. Its arrays are
// fixed, so that one huge body does not make the pool keep huge buffers.
type scratch struct {
	buf     [bufferSize]byte
	keyText [512]byte
	keyEnds [64]int
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}
