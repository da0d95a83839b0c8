package outbox

import (
	"encoding/hex"
	"strconv"
)

// id is a messageId: "OB", the message's sequence number and something random,
// both in hexadecimal of fixed width. It sorts by sequence, and is opaque to
// clients.
type id struct {
	sequence uint64  // 48 bits; greater than that of every message stored before
	random   [6]byte // so that an id cannot be guessed, nor come back for another message
}

const (
	idPrefix = "OB"
	idDigits = 12 // of the sequence
	idLength = len(idPrefix) + idDigits + 2*len(id{}.random)
)

func (i id) String() string {
	b := append(make([]byte, 0, idLength), idPrefix...)
	b = b[:len(idPrefix)+idDigits]
	putSequence(b[len(idPrefix):], i.sequence)
	return string(hex.AppendEncode(b, i.random[:]))
}

// putSequence writes the digits of a sequence number.
func putSequence(digits []byte, sequence uint64) {
	const hexDigits = "0123456789abcdef"
	for n := idDigits - 1; n >= 0; n-- {
		digits[n] = hexDigits[sequence&15]
		sequence >>= 4
	}
}

// parseID accepts only what String writes.
func parseID(s string) (i id, ok bool) {
	if len(s) != idLength || s[:len(idPrefix)] != idPrefix {
		return id{}, false
	}
	sequence, err := strconv.ParseUint(s[len(idPrefix):][:idDigits], 16, 64)
	if err != nil {
		return id{}, false
	}
	i.sequence = sequence
	if _, err := hex.Decode(i.random[:], []byte(s[len(idPrefix)+idDigits:])); err != nil {
		return id{}, false
	}
	return i, i.String() == s
}
