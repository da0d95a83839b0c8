package media

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
)

// base64Decoder decodes Base64 that arrives in pieces of any size, by the rule
// of contract 4.2: the standard or the URL-safe alphabet (RFC 4648 sections 4
// and 5) but not both, padding complete or absent, CR and LF anywhere, nothing
// else. Bits that are left over in the last character may be set, as
// encoding/base64 has it outside its strict mode: many encoders get them wrong.
type base64Decoder struct {
	out *output
	at  int64 // characters of the whole string before the current piece

	enc      *base64.Encoding // without padding; the standard one until alphabet is known
	alphabet bool             // one of + / - _ has been seen
	carry    [4]byte          // characters of a group of four that is not complete
	carried  int
	paddedBy int // how many = have been seen
}

func newBase64Decoder(out *output, at int64) *base64Decoder {
	return &base64Decoder{out: out, at: at, enc: base64.RawStdEncoding}
}

// decode takes in the next piece. Its errors are *FormError and those of the Writer.
func (d *base64Decoder) decode(p []byte) error {
	body, tail := p, []byte(nil)
	if d.paddedBy > 0 {
		body, tail = nil, p
	} else if i := bytes.IndexByte(p, '='); i >= 0 {
		body, tail = p[:i], p[i:]
	}
	// Cutting first at one and then at the other character looks at each byte
	// a fixed number of times, however many of them there are.
	at := d.at
	for line := range bytes.SplitSeq(body, []byte{'\n'}) {
		for run := range bytes.SplitSeq(line, []byte{'\r'}) {
			if err := d.run(run, at); err != nil {
				return err
			}
			at += int64(len(run)) + 1
		}
	}
	if err := d.padding(tail, d.at+int64(len(body))); err != nil {
		return err
	}
	d.at += int64(len(p))
	return nil
}

// run decodes characters without CR, LF and = among them; before them there
// were at characters.
func (d *base64Decoder) run(p []byte, at int64) error {
	if !d.alphabet {
		if i := bytes.IndexAny(p, "+/-_"); i >= 0 {
			d.alphabet = true
			if p[i] == '-' || p[i] == '_' {
				d.enc = base64.RawURLEncoding
			}
		}
	}
	for d.carried > 0 && len(p) > 0 {
		if err := d.hold(p[0], at); err != nil {
			return err
		}
		p, at = p[1:], at+1
		if d.carried == len(d.carry) {
			if err := d.flushCarry(); err != nil {
				return err
			}
		}
	}
	whole := len(p) &^ 3
	for done := 0; done < whole; {
		room, err := d.out.room()
		if err != nil {
			return err
		}
		n := min(whole-done, len(room)/3*4)
		written, err := d.enc.Decode(room, p[done:done+n])
		if err != nil {
			return d.refuse(p[done:], at+int64(done), err)
		}
		d.out.n += written
		done += n
	}
	for i, c := range p[whole:] {
		if err := d.hold(c, at+int64(whole+i)); err != nil {
			return err
		}
	}
	return nil
}

// refuse makes a client's error of what encoding/base64 said about p.
func (d *base64Decoder) refuse(p []byte, at int64, err error) error {
	corrupt, ok := errors.AsType[base64.CorruptInputError](err)
	if !ok || int(corrupt) >= len(p) {
		return formErrorf("it is not Base64")
	}
	return d.badCharacter(p[corrupt], at+int64(corrupt))
}

func (d *base64Decoder) badCharacter(c byte, at int64) error {
	if isBase64(c) {
		return formErrorf("character %d belongs to the other Base64 alphabet: + and / must not be mixed with - and _", at+1)
	}
	return formErrorf("character %d is not Base64", at+1)
}

func isBase64(c byte) bool {
	return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || '0' <= c && c <= '9' ||
		c == '+' || c == '/' || c == '-' || c == '_'
}

// hold keeps one character for later, once it is known to be of the alphabet.
func (d *base64Decoder) hold(c byte, at int64) error {
	urlSafe := d.enc == base64.RawURLEncoding
	if !isBase64(c) || urlSafe && (c == '+' || c == '/') || !urlSafe && (c == '-' || c == '_') {
		return d.badCharacter(c, at)
	}
	d.carry[d.carried] = c
	d.carried++
	return nil
}

// flushCarry decodes the held characters, 2 to 4 of them.
func (d *base64Decoder) flushCarry() error {
	room, err := d.out.room()
	if err != nil {
		return err
	}
	n, err := d.enc.Decode(room, d.carry[:d.carried])
	if err != nil {
		return formErrorf("it is not Base64") // not possible: hold has looked
	}
	d.out.n += n
	d.carried = 0
	return nil
}

// padding takes in what comes from the first = on.
func (d *base64Decoder) padding(p []byte, at int64) error {
	for i, c := range p {
		switch {
		case c == '\r' || c == '\n':
		case c != '=':
			return formErrorf("character %d stands after the padding of the Base64", at+int64(i)+1)
		case d.carried < 2 || d.carried+d.paddedBy == len(d.carry):
			return formErrorf("character %d is padding where the Base64 needs none", at+int64(i)+1)
		default:
			d.paddedBy++
		}
	}
	return nil
}

// finish decodes the characters that make no whole group of four.
func (d *base64Decoder) finish() error {
	switch {
	case d.carried == 1:
		return formErrorf("the Base64 is cut off: one character is left over")
	case d.paddedBy > 0 && d.carried+d.paddedBy != len(d.carry):
		return formErrorf("the padding of the Base64 is incomplete")
	case d.carried == 0:
		return nil
	}
	return d.flushCarry()
}

func formErrorf(format string, args ...any) *FormError {
	return &FormError{Msg: "must be an http or https URL, Base64 or a data: URI (" + fmt.Sprintf(format, args...) + ")"}
}
