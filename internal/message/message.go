// Package message holds what is sent and what can go wrong with it: the one
// vocabulary that the API, the platforms and everything between them share.
package message

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"log/slog"
	"strconv"
	"time"

	"messagesender/internal/media"
)

// Message is one send that has passed every rule of the API.
type Message struct {
	Account     string        // name of the account that sends; no secret
	RequestID   string        // of the HTTP request, for logs
	Number      Number        // the recipient
	Presence    Presence      // None: nothing is shown
	Delay       time.Duration // how long to hold before delivery; 0: deliver at once
	Content     Content       // Text, File or Voice
	RequestedAt time.Time     // when the request was completely read

	// Begin records that delivery begins. It is called right before the message is
	// handed to the platform, which must not happen if it fails. Nil: nobody
	// wants to know.
	Begin func() error
}

// Digest identifies what was asked for, however it was written: two requests
// with the same one ask for the same message. Media counts by its content, a
// URL as text.
func (m Message) Digest() [sha256.Size]byte {
	h := sha256.New()
	// Each part is preceded by its length, so that no two lists of parts are alike.
	part := func(p string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		io.WriteString(h, p)
	}
	source := func(s media.Source) {
		part(s.URL)
		if s.Blob != nil {
			sum := s.Blob.SHA256()
			part(string(sum[:]))
		}
	}
	part(string(m.Content.Operation()))
	part(string(m.Number))
	part(string(m.Presence))
	part(m.Delay.String())
	switch c := m.Content.(type) {
	case Text:
		part(c.Body)
		if c.LinkPreview != nil {
			part(strconv.FormatBool(*c.LinkPreview))
		}
	case File:
		part(string(c.Kind))
		part(c.Name)
		part(c.Caption)
		source(c.Source)
	case Voice:
		part(strconv.FormatBool(c.Encode))
		source(c.Source)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Close frees the media that m still owns. It may be called at any time after
// the last use of m, also when a platform has already taken the media over.
func (m Message) Close() error {
	switch c := m.Content.(type) {
	case File:
		return c.Source.Close()
	case Voice:
		return c.Source.Close()
	}
	return nil
}

// Number is a recipient: E.164 without "+", 7 to 15 digits (contract 4.2).
// It logs as its last four digits only.
type Number string

// Masked is n with all but the last four digits hidden.
func (n Number) Masked() string {
	if len(n) <= 4 {
		return "…"
	}
	return "…" + string(n[len(n)-4:])
}

// LogValue keeps whole numbers out of every log.
func (n Number) LogValue() slog.Value { return slog.StringValue(n.Masked()) }

// Presence is what the recipient is shown before the message.
type Presence string

const (
	None      Presence = ""
	Composing Presence = "composing"
	Recording Presence = "recording"
	Paused    Presence = "paused"
)

// Operation names one of the three things the API does.
type Operation string

const (
	SendText  Operation = "text"
	SendMedia Operation = "media"
	SendAudio Operation = "audio"
)

// Content is what a message consists of. Its kinds are sealed: Text, File, Voice.
type Content interface {
	Operation() Operation
	sealed()
}

// Text is a text message.
type Text struct {
	Body        string
	LinkPreview *bool // nil: the platform's default
}

// File is an image, a video, a document or an audio file.
type File struct {
	Kind    media.Kind
	Name    string // empty: none was given; always there for a document
	Caption string // empty: none
	Source  media.Source
}

// Voice is a voice message.
type Voice struct {
	Encode bool // the caller asks for conversion to a playable voice note
	Source media.Source
}

// Takes tells whether t can become this voice message: sound, or with Encode also
// the sound of a video.
func (v Voice) Takes(t media.Type) bool {
	return t.Is(media.Audio) || v.Encode && t.Is(media.Video)
}

func (Text) Operation() Operation  { return SendText }
func (File) Operation() Operation  { return SendMedia }
func (Voice) Operation() Operation { return SendAudio }

func (Text) sealed()  {}
func (File) sealed()  {}
func (Voice) sealed() {}

// Delivery is a message that a platform has made ready. Nothing has reached the
// recipient before the first call to ShowPresence or Deliver.
type Delivery interface {
	// ShowPresence shows the message's presence and reports how long it stays
	// shown; 0: until it is cleared, so it need not be repeated.
	ShowPresence(ctx context.Context) (lasts time.Duration, err error)
	// Deliver hands the message over, once, and returns the platform's identifier.
	Deliver(ctx context.Context) (id string, err error)
	// Close is always called, whatever happened before: it clears a presence
	// that is still shown and frees what was taken to make the message ready.
	Close(ctx context.Context) error
}
