package strictjson

import (
	"fmt"
	"strconv"
)

// SyntaxError says that a body is not one strict JSON object. Its text may go
// to the client: it names keys, cut short, but never a value.
type SyntaxError struct {
	Offset int64  // number of bytes before the offending one
	Msg    string // what is wrong, in a few words
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.Msg)
}

// TooLargeError says that a body goes beyond MaxBody or MaxRest.
type TooLargeError struct {
	Limit int64  // in bytes
	What  string // what is limited: "body", or "body apart from" and the diverted path
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the %s is larger than %d bytes", e.What, e.Limit)
}

// ReadError is a failure of the reader, as opposed to one of the sink or of
// what was read. It wraps the reader's error, such as an *http.MaxBytesError,
// os.ErrDeadlineExceeded or io.ErrUnexpectedEOF.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return "reading the body: " + e.Err.Error() }

func (e *ReadError) Unwrap() error { return e.Err }

// maxKeyInError bounds, in characters, how much of a client's key an error repeats.
const maxKeyInError = 64

// quoteKey makes a key fit for an error: short, and without control or
// bidi-override characters.
func quoteKey(key []byte) string {
	n := 0
	for i := range string(key) {
		if n == maxKeyInError {
			return strconv.Quote(string(key[:i]) + "…")
		}
		n++
	}
	return strconv.Quote(string(key))
}
