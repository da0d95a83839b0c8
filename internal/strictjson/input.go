package strictjson

import (
	"errors"
	"io"
)

// errEnd is the end of the body. It is not io.EOF, which a sink may return too.
var errEnd = errors.New("end of body")

// maxEmptyReads is how often in a row a reader may return neither bytes nor an
// error before it counts as broken (as in bufio).
const maxEmptyReads = 100

// input is the body, seen through a buffer: buf[pos:end] is read but not yet used.
type input struct {
	r        io.Reader
	buf      []byte
	pos, end int
	base     int64 // offset of buf[0] in the body
	limit    int64 // bytes that may be read in all
	err      error // came together with the last bytes; due when they are used up
}

// at returns the i-th unused byte, reading on as needed; errEnd if there is none.
// i must be small: what is unused before a read has to fit the buffer.
func (in *input) at(i int) (byte, error) {
	for in.pos+i >= in.end {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	return in.buf[in.pos+i], nil
}

func (in *input) unused() []byte { return in.buf[in.pos:in.end] }

// offset is where the next unused byte stands in the body.
func (in *input) offset() int64 { return in.base + int64(in.pos) }

// fill moves the unused bytes to the front and reads at least one more.
func (in *input) fill() error {
	if in.err != nil {
		return in.err
	}
	in.base += int64(in.pos)
	in.end = copy(in.buf, in.unused())
	in.pos = 0

	// At the limit one more byte is asked for, to tell a body of exactly that
	// size from a larger one. Never more, so that a fault within the limit is
	// reported as such however the bytes happen to arrive.
	room := in.buf[in.end:]
	left := in.limit - in.base - int64(in.end)
	if left < int64(len(room)) {
		room = room[:max(left, 1)]
	}
	for range maxEmptyReads {
		n, err := in.r.Read(room)
		if err == io.EOF { // itself: one that wraps it is a failure, not the end
			in.err = errEnd
		} else if err != nil {
			in.err = &ReadError{err}
		}
		if n > 0 && int64(n) > left {
			return &TooLargeError{Limit: in.limit, What: "body"}
		}
		if n > 0 {
			in.end += n
			return nil
		}
		if in.err != nil {
			return in.err
		}
	}
	return &ReadError{io.ErrNoProgress}
}

// syntax makes the error for the byte at index i of the buffer.
func (in *input) syntax(i int, msg string) error {
	return &SyntaxError{Offset: in.base + int64(i), Msg: msg}
}
