package strictjson

import (
	"encoding/binary"
	"io"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// target is where the content of a string goes.
type target int

const (
	toRest target = iota // as it was sent
	toKey                // as it was sent to the rest, and unescaped to the pending key
	toSink               // unescaped to the sink; the rest gets an empty string
)

func (p *parser) str(to target) error {
	if err := p.take(); err != nil {
		return err
	}
	for {
		if n := plain(p.unused()); n > 0 {
			if err := p.raw(to, n); err != nil {
				return err
			}
			if err := p.unescaped(to, n); err != nil {
				return err
			}
			p.pos += n
		}
		// True of no bytes at all as well as of the first bytes of a character.
		if !utf8.FullRune(p.unused()) {
			if err := p.fill(); err != nil {
				return err
			}
			continue
		}
		switch c := p.buf[p.pos]; {
		case c == '"':
			return p.take()
		case c == '\\':
			char, size, err := p.escape()
			if err != nil {
				return err
			}
			if err := p.raw(to, size); err != nil {
				return err
			}
			// No character is longer than its escape, so it fits in place of it.
			n := len(utf8.AppendRune(p.buf[p.pos:p.pos], char))
			if err := p.unescaped(to, n); err != nil {
				return err
			}
			p.pos += size
		case c < ' ':
			return p.syntax(p.pos, "control character in a string; it must be escaped")
		default:
			return p.syntax(p.pos, "invalid UTF-8")
		}
	}
}

// raw passes on the next n bytes of a string as they were sent.
func (p *parser) raw(to target, n int) error {
	if to == toSink {
		return nil
	}
	return p.keep(n)
}

// unescaped passes on the next n bytes of a string, which hold its content.
func (p *parser) unescaped(to target, n int) error {
	piece := p.buf[p.pos : p.pos+n]
	switch to {
	case toKey:
		p.keys.text = append(p.keys.text, piece...)
	case toSink:
		written, err := p.sink.Write(piece)
		if err != nil {
			return err
		}
		if written < n {
			return io.ErrShortWrite
		}
	}
	return nil
}

// escape looks at the escape sequence that comes next and returns the character
// it stands for and its size in bytes, all of which are then in the buffer.
func (p *parser) escape() (char rune, size int, err error) {
	c, err := p.at(1)
	if err != nil {
		return 0, 0, err
	}
	switch c {
	case '"', '\\', '/':
		return rune(c), 2, nil
	case 'b':
		return '\b', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'u':
		char, err := p.hex(2)
		if err != nil || !utf16.IsSurrogate(char) {
			return char, 6, err
		}
		low, err := p.lowSurrogate()
		if err != nil {
			return 0, 0, err
		}
		if char = utf16.DecodeRune(char, low); char != utf8.RuneError {
			return char, 12, nil
		}
		return 0, 0, p.syntax(p.pos, "lone surrogate in a \\u escape")
	}
	return 0, 0, p.syntax(p.pos, "invalid escape in a string")
}

// lowSurrogate returns the \u escape after the one that comes next; 0 if there is none.
func (p *parser) lowSurrogate() (rune, error) {
	for i, want := range []byte(`\u`) {
		if c, err := p.at(6 + i); err != nil || c != want {
			return 0, err
		}
	}
	return p.hex(8)
}

// hex returns the number that the four bytes from the i-th on spell.
func (p *parser) hex(i int) (rune, error) {
	var n rune
	for j := range 4 {
		c, err := p.at(i + j)
		switch {
		case err != nil:
			return 0, err
		case '0' <= c && c <= '9':
			n = n<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			n = n<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, p.syntax(p.pos, "\\u needs four hexadecimal digits")
		}
	}
	return n, nil
}

// plain returns how many bytes at the start of b stand for themselves in a
// string and are valid UTF-8. The byte after them is a quote, a backslash, a
// control character, the start of a broken or incomplete character, or none.
func plain(b []byte) int {
	n := 0
	for {
		n += plainASCII(b[n:])
		if n == len(b) || b[n] < utf8.RuneSelf {
			return n
		}
		for n < len(b) && b[n] >= utf8.RuneSelf {
			char, size := utf8.DecodeRune(b[n:])
			if char == utf8.RuneError && size == 1 {
				return n
			}
			n += size
		}
	}
}

// plainASCII is plain for a run of ASCII. One look at each word instead of one
// bytes.IndexByte per kind of byte: that would search the whole buffer for a
// distant quote again after each of many escapes.
func plainASCII(b []byte) int {
	const (
		ones   = 0x0101010101010101
		high   = 0x80 * ones
		spaces = ' ' * ones
		quotes = '"' * ones
		slants = '\\' * ones
	)
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		// A subtraction sets the high bit of a byte that is below what is taken
		// away. It can borrow from the byte above, so only the lowest bit found
		// is sure, and it is the one that is wanted.
		found := (w | (w - spaces) | ((w ^ quotes) - ones) | ((w ^ slants) - ones)) & high
		if found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(b) && b[n] >= ' ' && b[n] < utf8.RuneSelf && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}
