package strictjson

import (
	"io"
	"strconv"
	"strings"
)

// parser follows the grammar of RFC 8259. In its methods level is how many
// objects and arrays are open, and path what remains of Options.Path from here
// on; empty: nothing below is diverted. Each method expects the first byte of
// its subject to be in the buffer and uses the subject up.
type parser struct {
	input
	keys     keyStack
	path     []string // the whole of Options.Path
	sink     io.Writer
	diverted bool
	rest     []byte
	maxRest  int
}

func (p *parser) body() error {
	c, err := p.next()
	if err == errEnd {
		return p.syntax(p.end, "the body is empty")
	}
	if err != nil {
		return err
	}
	if c != '{' {
		offset := p.offset() // looking at a word moves on
		return &SyntaxError{offset, "the body must be a JSON object" + p.insteadOfObject(c)}
	}
	if err := p.object(0, p.path); err != nil {
		return err
	}
	switch _, err := p.next(); err {
	case errEnd:
		return nil
	case nil:
		return p.syntax(p.pos, "nothing may follow the object")
	default:
		return err
	}
}

// insteadOfObject names what is there and begins with c; "" if that is not JSON
// at all, as with a form.
func (p *parser) insteadOfObject(c byte) string {
	switch c {
	case '[':
		return ", not an array"
	case '"':
		return ", not a string"
	case 't', 'f':
		if p.literal("true") == nil || p.literal("false") == nil {
			return ", not a boolean"
		}
	case 'n':
		if p.literal("null") == nil {
			return ", not null"
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return ", not a number"
	case 0xEF, 0xFE, 0xFF:
		return " in UTF-8 without a byte order mark"
	}
	return ""
}

func (p *parser) object(level int, path []string) error {
	if err := p.open(level); err != nil {
		return err
	}
	keys := p.keys.enter()
	defer p.keys.leave(keys)
	c, err := p.next()
	if err != nil {
		return err
	}
	if c == '}' {
		return p.take()
	}
	for {
		if c != '"' {
			return p.syntax(p.pos, "expected a key in double quotes"+hint(c))
		}
		below, err := p.key(&keys, path)
		if err != nil {
			return err
		}
		if c, err = p.next(); err != nil {
			return err
		}
		if c != ':' {
			return p.syntax(p.pos, "expected a colon after a key"+hint(c))
		}
		if err := p.take(); err != nil {
			return err
		}
		if c, err = p.next(); err != nil {
			return err
		}
		if c == '"' && below != nil && len(below) == 0 {
			p.diverted = true
			err = p.str(toSink)
		} else {
			err = p.value(c, level+1, below)
		}
		if err != nil {
			return err
		}
		if c, err = p.comma('}'); err != nil || c == '}' {
			return err
		}
	}
}

// key reads the key of a member. It returns the path below that member: nil when
// path does not lead through it, empty when it leads to it.
func (p *parser) key(keys *keySet, path []string) (below []string, err error) {
	offset := p.offset()
	if err := p.str(toKey); err != nil {
		return nil, err
	}
	key := p.keys.pending()
	if len(path) > 0 && string(key) == path[0] {
		below = path[1:]
	}
	if !p.keys.add(keys) {
		return nil, &SyntaxError{offset, "duplicate key " + quoteKey(key)}
	}
	return below, nil
}

func (p *parser) array(level int) error {
	if err := p.open(level); err != nil {
		return err
	}
	c, err := p.next()
	if err != nil {
		return err
	}
	if c == ']' {
		return p.take()
	}
	for {
		if err := p.value(c, level+1, nil); err != nil {
			return err
		}
		if c, err = p.comma(']'); err != nil || c == ']' {
			return err
		}
	}
}

// open takes the bracket that begins an object or array inside level others.
func (p *parser) open(level int) error {
	if level == MaxDepth {
		return p.syntax(p.pos, "nested more than "+strconv.Itoa(MaxDepth)+" levels deep")
	}
	return p.take()
}

// comma takes the comma after a member or element and returns the byte that
// begins the next one, or takes the bracket end and returns that: it begins nothing.
func (p *parser) comma(end byte) (byte, error) {
	c, err := p.next()
	if err != nil {
		return 0, err
	}
	if c != ',' && c != end {
		return 0, p.syntax(p.pos, "expected a comma or "+string(end)+hint(c))
	}
	if err := p.take(); err != nil || c == end {
		return c, err
	}
	if c, err = p.next(); err == nil && c == end {
		err = p.syntax(p.pos, "unexpected "+string(end)+" after a comma")
	}
	return c, err
}

// value reads a value that begins with c.
func (p *parser) value(c byte, level int, path []string) error {
	switch c {
	case '{':
		return p.object(level, path)
	case '[':
		return p.array(level)
	case '"':
		return p.str(toRest)
	case 't':
		return p.literal("true")
	case 'f':
		return p.literal("false")
	case 'n':
		return p.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.number()
	case '+', '.':
		return p.syntax(p.pos, "a number must begin with a digit or -")
	}
	return p.syntax(p.pos, "expected a value"+hint(c))
}

// hint explains an unexpected byte that is usually one of a few known mistakes.
func hint(c byte) string {
	switch c {
	case '\'':
		return "; strings need double quotes"
	case '/', '#':
		return "; comments are not allowed"
	}
	return ""
}

func (p *parser) literal(word string) error {
	for i := range len(word) {
		c, err := p.at(i)
		if err != nil {
			return err
		}
		if c != word[i] {
			return p.syntax(p.pos, "expected "+word)
		}
	}
	err := p.keep(len(word))
	p.pos += len(word)
	return err
}

func (p *parser) number() error {
	c, err := p.at(0)
	if err != nil {
		return err
	}
	if c == '-' {
		if err := p.take(); err != nil {
			return err
		}
		if c, err = p.at(0); err != nil {
			return err
		}
	}
	if c == '0' {
		if err := p.take(); err != nil {
			return err
		}
		if c, err = p.at(0); err != nil {
			return err
		}
		if '0' <= c && c <= '9' {
			return p.syntax(p.pos, "a number must not begin with 0")
		}
	} else if c, err = p.digits(); err != nil {
		return err
	}
	if c == '.' {
		if err := p.take(); err != nil {
			return err
		}
		if c, err = p.digits(); err != nil {
			return err
		}
	}
	if c != 'e' && c != 'E' {
		return nil
	}
	if err := p.take(); err != nil {
		return err
	}
	if c, err = p.at(0); err != nil {
		return err
	}
	if c == '+' || c == '-' {
		if err := p.take(); err != nil {
			return err
		}
	}
	_, err = p.digits()
	return err
}

// digits takes one digit or more and returns the byte after them.
func (p *parser) digits() (byte, error) {
	for first := true; ; first = false {
		c, err := p.at(0)
		if err != nil {
			return 0, err
		}
		if c < '0' || c > '9' {
			if first {
				return 0, p.syntax(p.pos, "expected a digit")
			}
			return c, nil
		}
		if err := p.take(); err != nil {
			return 0, err
		}
	}
}

// next skips white space and returns the byte after it without using it.
func (p *parser) next() (byte, error) {
	for {
		c, err := p.at(0)
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return c, nil
		}
	}
}

// take moves the next byte, which must be in the buffer, to the rest.
func (p *parser) take() error {
	err := p.keep(1)
	p.pos++
	return err
}

// keep copies the next n bytes, which must be in the buffer, to the rest.
func (p *parser) keep(n int) error {
	if n > p.maxRest-len(p.rest) {
		what := "body"
		if len(p.path) > 0 {
			what += " apart from " + strings.Join(p.path, ".")
		}
		return &TooLargeError{Limit: int64(p.maxRest), What: what}
	}
	p.rest = append(p.rest, p.buf[p.pos:p.pos+n]...)
	return nil
}
