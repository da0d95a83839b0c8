package whatsapp

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

// Limits of the Cloud API, as Meta documents them.
const (
	maxText    = 4096 // Unicode code points
	maxCaption = 1024 // Unicode code points

	maxImage    = 5 << 20
	maxVideo    = 16 << 20
	maxAudio    = 16 << 20
	maxDocument = 100 << 20
)

const (
	textField    = "textMessage.text"
	captionField = "mediaMessage.caption"
	mediaField   = "mediaMessage.media"
	audioField   = "audioMessage.audio"
)

// rule is what the platform takes as one kind of media.
type rule struct {
	maxSize int64 // bytes
	types   []string
}

// The types of documents are those that the upload takes; it refuses others,
// whatever the message calls them. So an image may go as a document.
var rules = func() map[media.Kind]rule {
	images := []string{"image/jpeg", "image/png"}
	videos := []string{"video/mp4", "video/3gpp"}
	audios := []string{"audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg; codecs=opus"}
	documents := []string{
		"text/plain", "application/pdf", "application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint",
		"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
		"application/vnd.openxmlformats-officedocument.presentationml.presentation",
	}
	return map[media.Kind]rule{
		media.Image:    {maxImage, images},
		media.Video:    {maxVideo, videos},
		media.Audio:    {maxAudio, audios},
		media.Document: {maxDocument, slices.Concat(documents, images, videos, audios)},
	}
}()

// checkLimits holds m against the platform's limits. What a link leads to is not
// known here. All problems are reported together.
func checkLimits(m message.Message) *message.Error {
	var problems []message.Detail
	problem := func(field, format string, args ...any) {
		problems = append(problems, message.Detail{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	length := func(field, text string, limit int) {
		if n := utf8.RuneCountInString(text); n > limit {
			problem(field, "has %d characters; the platform takes at most %d", n, limit)
		}
	}
	file := func(field string, kind media.Kind, blob *media.Blob) {
		if blob == nil {
			return
		}
		r := rules[kind]
		if size := blob.Size(); size > r.maxSize {
			problem(field, "has %d bytes; the platform takes at most %d", size, r.maxSize)
		}
		if t := blob.Type().MIME; !slices.Contains(r.types, t) {
			problem(field, "is %s; as %s the platform takes %s", t, kind, strings.Join(r.types, ", "))
		}
	}
	switch c := m.Content.(type) {
	case message.Text:
		length(textField, c.Body, maxText)
	case message.File:
		length(captionField, c.Caption, maxCaption)
		file(mediaField, c.Kind, c.Source.Blob)
	case message.Voice:
		file(audioField, media.Audio, c.Source.Blob)
	}
	if len(problems) == 0 {
		return nil
	}
	sentences := make([]string, len(problems))
	for i, p := range problems {
		sentences[i] = p.Field + " " + p.Message
	}
	e := message.NewError(message.PlatformLimit, strings.Join(sentences, "; "))
	e.Details = problems
	return e
}

// mono tells whether a blob of Ogg/Opus has one channel, as the platform demands
// of a voice note (RFC 7845, section 5.1: the channel count follows the version
// in OpusHead, which is alone in the first page).
func mono(blob *media.Blob) bool {
	const channels = 28 + 9
	var b [1]byte
	n, _ := blob.ReadAt(b[:], channels)
	return n == 1 && b[0] == 1
}
