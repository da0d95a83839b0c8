package journal

import (
	"encoding/binary"
	"errors"
	"slices"

	"messagesender/internal/message"
)

// A record of the log, integers little endian, strings and lists led by their
// length as a varint:
//
//	begin    = 1 | key 16 | request 32 | time 8 | request id
//	end      = 2 | the same | message id | reason | text | details
//	not sent = 3 | the same
//
// Every record stands alone, so that an end is understood when the segment that
// held its begin is gone. The time is in milliseconds since 1970. An end without
// a reason is of a message that was sent.
type kind byte

const (
	begin   kind = 1
	end     kind = 2
	notSent kind = 3
)

const fixedSize = 1 + 16 + 32 + 8

type record struct {
	kind      kind
	key       Key
	request   [32]byte
	at        int64
	requestID string
	messageID string
	failure   *message.Error // nil: sent
}

var errNotUnderstood = errors.New("a record of the journal is not understood; was it written by another version?")

func (r record) encode() []byte {
	b := make([]byte, 0, 256)
	b = append(b, byte(r.kind))
	b = append(b, r.key[:]...)
	b = append(b, r.request[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.at))
	b = appendString(b, r.requestID)
	if r.kind != end {
		return b
	}
	b = appendString(b, r.messageID)
	f := r.failure
	if f == nil {
		f = &message.Error{}
	}
	b = appendString(b, string(f.Reason))
	b = appendString(b, f.Text)
	b = binary.AppendUvarint(b, uint64(len(f.Details)))
	for _, d := range f.Details {
		b = appendString(b, d.Field)
		b = appendString(b, d.Message)
		b = binary.AppendVarint(b, int64(d.PlatformCode))
	}
	return b
}

// answer is what a record says to a request with its key.
func (r record) answer() Answer {
	a := Answer{RequestID: r.requestID, MessageID: r.messageID}
	switch {
	case r.kind == begin:
		a.Err = unknown(errors.New("the service ended while the message was being delivered"))
	case r.failure != nil:
		a.Err = r.failure
	}
	return a
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeFixed reads what recovery needs, without allocating.
func decodeFixed(b []byte) (r record, rest []byte, err error) {
	if len(b) < fixedSize || kind(b[0]) < begin || kind(b[0]) > notSent {
		return record{}, nil, errNotUnderstood
	}
	r.kind = kind(b[0])
	copy(r.key[:], b[1:])
	copy(r.request[:], b[17:])
	r.at = int64(binary.LittleEndian.Uint64(b[49:]))
	return r, b[fixedSize:], nil
}

func decode(b []byte) (record, error) {
	r, rest, err := decodeFixed(b)
	if err != nil {
		return record{}, err
	}
	d := decoder{b: rest}
	r.requestID = d.string()
	if r.kind == end {
		r.messageID = d.string()
		f := &message.Error{Reason: message.Reason(d.string()), Text: d.string()}
		n := d.count()
		f.Details = slices.Grow(f.Details, n)
		for range n {
			f.Details = append(f.Details, message.Detail{Field: d.string(), Message: d.string(), PlatformCode: d.int()})
		}
		if f.Reason != "" {
			r.failure = f
		}
	}
	if d.bad || len(d.b) > 0 {
		return record{}, errNotUnderstood
	}
	return r, nil
}

// decoder takes values off the front of b; once bad, all of them are zero.
type decoder struct {
	b   []byte
	bad bool
}

// count is a length of something of which every element takes a byte or more.
func (d *decoder) count() int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64(len(d.b)-n) {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *decoder) string() string {
	n := d.count()
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *decoder) int() int {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}
