package outbox

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"messagesender/internal/appendlog"
	"messagesender/internal/media"
	"messagesender/internal/message"
)

// record is a message as clients read it (contract 4.6). The first two fields
// hold the messageId at a known place, see setSequence.
type record struct {
	MessageID     string            `json:"messageId"`
	MediaURL      string            `json:"mediaUrl,omitempty"` // relative to /outbox/: a proxy may add a path prefix
	State         string            `json:"state"`
	Operation     message.Operation `json:"operation"`
	Number        message.Number    `json:"number"`
	Presence      message.Presence  `json:"presence,omitempty"`
	Delay         float64           `json:"delay"` // milliseconds
	Text          string            `json:"text,omitempty"`
	LinkPreview   *bool             `json:"linkPreview,omitempty"`
	MediaType     media.Kind        `json:"mediaType,omitempty"`
	FileName      string            `json:"fileName,omitempty"`
	Caption       string            `json:"caption,omitempty"`
	ContentType   string            `json:"contentType,omitempty"`
	Size          *int64            `json:"size,omitempty"` // bytes; absent for a URL
	SHA256        string            `json:"sha256,omitempty"`
	DurationMS    int64             `json:"durationMs,omitempty"` // of Ogg/Opus and WAV; 0: not known
	Voice         bool              `json:"voice,omitempty"`      // plays as a voice message: it is Ogg/Opus
	SourceURL     string            `json:"sourceUrl,omitempty"`  // without its query, which may be a credential
	Encoding      *bool             `json:"encoding,omitempty"`
	RequestedAt   timestamp         `json:"requestedAt"`
	PresenceFrom  timestamp         `json:"presenceFrom,omitempty"`
	PresenceUntil timestamp         `json:"presenceUntil,omitempty"`
	SentAt        timestamp         `json:"sentAt"`
}

// timestamp is a moment as it is written, RFC 3339 in UTC; empty: none. Encoding a
// time.Time costs more than all else in a record.
type timestamp string

func stamp(t time.Time) timestamp {
	if t.IsZero() {
		return ""
	}
	return timestamp(t.UTC().Format(time.RFC3339Nano))
}

const stateSent = "sent"

// newRecord describes m, whose id is not known yet but for its random part.
func newRecord(m message.Message, i id, presenceFrom, sentAt time.Time) record {
	r := record{
		MessageID:    i.String(),
		State:        stateSent,
		Operation:    m.Content.Operation(),
		Number:       m.Number,
		Presence:     m.Presence,
		Delay:        milliseconds(m.Delay),
		RequestedAt:  stamp(m.RequestedAt),
		PresenceFrom: stamp(presenceFrom),
		SentAt:       stamp(sentAt),
	}
	if !presenceFrom.IsZero() {
		r.PresenceUntil = r.SentAt
	}
	switch c := m.Content.(type) {
	case message.Text:
		r.Text, r.LinkPreview = c.Body, c.LinkPreview
	case message.File:
		r.MediaType, r.FileName, r.Caption = c.Kind, c.Name, c.Caption
		r.setSource(c.Source)
	case message.Voice:
		r.Encoding = &c.Encode
		r.setSource(c.Source)
		r.Voice = c.Source.Blob != nil && c.Source.Blob.Type().IsOpus()
	}
	return r
}

func (r *record) setSource(s media.Source) {
	r.SourceURL, _, _ = strings.Cut(s.URL, "#")
	r.SourceURL, _, _ = strings.Cut(r.SourceURL, "?")
	if s.Blob == nil {
		return
	}
	if s.Blob.Type().Is(media.Audio) {
		length, _ := media.Duration(s.Blob, s.Blob.Size())
		r.DurationMS = length.Milliseconds()
	}
	size, sum := s.Blob.Size(), s.Blob.SHA256()
	r.MediaURL = "messages/" + r.MessageID + "/media"
	r.ContentType = s.Blob.Type().MIME
	r.Size, r.SHA256 = &size, hex.EncodeToString(sum[:])
}

func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}

// In the log, integers big endian:
//
//	message = loggedMessage 1 | kind 1 | sequence 8 | evicted 8 | random 6 | media bytes 8 | account | number | JSON of the record
//	clear   = loggedClear 1   | 0 1    | sequence 8 | evicted 8 | account
//
// An account or number is preceded by its length as a uvarint. sequence is the
// last one given out, and every message up to the sequence evicted had made room
// for others when this was written. A clear ends all messages of its account
// that are before it.
const (
	loggedMessage = 1
	loggedClear   = 2

	sequenceAt = 2
	evictedAt  = sequenceAt + 8
	prefixSize = evictedAt + 8
)

// noMedia is the number of media bytes of a message that has none of its own.
const noMedia = -1

// kind is what a message consists of, as far as queries tell it apart.
type kind struct {
	operation message.Operation
	media     media.Kind
}

// kinds gives each its number in the log: only ever add at the end.
var kinds = [...]kind{
	{message.SendText, ""},
	{message.SendAudio, ""},
	{message.SendMedia, media.Image},
	{message.SendMedia, media.Video},
	{message.SendMedia, media.Audio},
	{message.SendMedia, media.Document},
}

// entry is what is kept in memory of a message.
type entry struct {
	id
	kind    byte // index into kinds
	account string
	number  message.Number
	media   int64 // bytes of its media file, or noMedia
	at      appendlog.Position
}

func (e *entry) hasMedia() bool { return e.media != noMedia }

// encode returns a message for the log, still without sequence and evicted.
func encode(e *entry, r record) ([]byte, error) {
	var buf bytes.Buffer
	b := append(buf.AvailableBuffer(), loggedMessage, e.kind)
	b = append(b, make([]byte, 16)...)
	b = append(b, e.random[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.media))
	b = appendString(b, e.account)
	b = appendString(b, string(e.number))
	buf.Write(b)
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // it is never part of an HTML page, and texts stay readable
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// setSequence completes an encoded message. It exists because the sequence is
// only given out in the order of writing, while encoding is done concurrently.
func (e *entry) setSequence(b []byte, sequence, evicted uint64) {
	e.sequence = sequence
	binary.BigEndian.PutUint64(b[sequenceAt:], sequence)
	binary.BigEndian.PutUint64(b[evictedAt:], evicted)
	const first, second = `{"messageId":"` + idPrefix, `","mediaUrl":"messages/` + idPrefix
	at := prefixSize + len(e.random) + 8 + stringSize(e.account) + stringSize(string(e.number)) + len(first)
	putSequence(b[at:], sequence)
	if e.hasMedia() {
		putSequence(b[at+idLength-len(idPrefix)+len(second):], sequence)
	}
}

func encodeClear(account string, sequence, evicted uint64) []byte {
	b := []byte{loggedClear, 0}
	b = binary.BigEndian.AppendUint64(b, sequence)
	b = binary.BigEndian.AppendUint64(b, evicted)
	return appendString(b, account)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func stringSize(s string) int {
	return len(binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64), uint64(len(s)))) + len(s)
}

// logged is a record of the log. In a clear, only account and sequence of the
// entry are set, and there is no JSON.
type logged struct {
	what    byte // loggedMessage or loggedClear
	entry   entry
	evicted uint64
	json    []byte
}

var errUnknownRecord = errors.New("a record is not understood: it was written by another version")

func decode(b []byte) (l logged, err error) {
	if len(b) < prefixSize {
		return logged{}, errUnknownRecord
	}
	l.what, l.entry.kind = b[0], b[1]
	l.entry.sequence = binary.BigEndian.Uint64(b[sequenceAt:])
	l.evicted = binary.BigEndian.Uint64(b[evictedAt:])
	b = b[prefixSize:]
	ok := l.what == loggedClear
	if l.what == loggedMessage && len(b) > len(l.entry.random)+8 && int(l.entry.kind) < len(kinds) {
		b = b[copy(l.entry.random[:], b):]
		l.entry.media = int64(binary.BigEndian.Uint64(b))
		b = b[8:]
		ok = l.entry.media >= noMedia
	}
	var more bool
	if l.entry.account, b, more = cutString(b); !more || !ok {
		return logged{}, errUnknownRecord
	}
	if l.what == loggedMessage {
		var number string
		if number, b, ok = cutString(b); !ok || len(b) == 0 {
			return logged{}, errUnknownRecord
		}
		l.entry.number, l.json = message.Number(number), b
	}
	return l, nil
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	n, width := binary.Uvarint(b)
	if width <= 0 || n > uint64(len(b)-width) {
		return "", nil, false
	}
	return string(b[width:][:n]), b[width:][n:], true
}
