package platformtest

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

// Smallest files that are what they seem to be; nothing plays them.
const (
	PNG  = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
	JPEG = "\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
	MP4  = "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp42"
	PDF  = "%PDF-1.4\n%%EOF\n"
	AMR  = "#!AMR\n\x3c\x00\x00\x00"

	// Opus is one channel of Opus in Ogg: what a voice note has to be.
	Opus   = opusPage + "\x01" + opusRest
	Stereo = opusPage + "\x02" + opusRest

	opusPage = "OggS\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x13OpusHead\x01"
	opusRest = "\x38\x01\x80\xbb\x00\x00\x00\x00\x00"
)

// content is one kind of message.
type content struct {
	name string
	text string
	make func(s media.Source) message.Content
	file string // its media; empty: none
}

// contents has every kind of message; the first is plain text.
var contents = []content{
	{name: "a text", text: private, make: func(media.Source) message.Content {
		return message.Text{Body: private}
	}},
	{name: "a text with a preview", text: private + " https://example.org/", make: func(media.Source) message.Content {
		yes := true
		return message.Text{Body: private + " https://example.org/", LinkPreview: &yes}
	}},
	{name: "an image", text: private, file: PNG, make: func(s media.Source) message.Content {
		return message.File{Kind: media.Image, Caption: private, Source: s}
	}},
	{name: "a video", text: private, file: MP4, make: func(s media.Source) message.Content {
		return message.File{Kind: media.Video, Caption: private, Source: s}
	}},
	{name: "a document", text: private, file: PDF, make: func(s media.Source) message.Content {
		return message.File{Kind: media.Document, Name: "report.pdf", Caption: private, Source: s}
	}},
	{name: "an audio file", file: AMR, make: func(s media.Source) message.Content {
		return message.File{Kind: media.Audio, Source: s}
	}},
	{name: "a voice message", file: Opus, make: func(s media.Source) message.Content {
		return message.Voice{Source: s}
	}},
	{name: "a large document", text: private, file: PDF + strings.Repeat("% \n", 1<<18), make: func(s media.Source) message.Content {
		return message.File{Kind: media.Document, Name: "large.pdf", Caption: private, Source: s}
	}},
}

func (c content) message(t *testing.T, s Subject) (m message.Message, size int64) {
	t.Helper()
	var source media.Source
	if c.file != "" {
		source.Blob = Blob(t, c.file)
		size = source.Blob.Size()
	}
	m = message.Message{
		Account: s.Account, RequestID: "test", Number: s.Number, Presence: message.Composing,
		Content: c.make(source), RequestedAt: time.Now(),
	}
	t.Cleanup(func() { _ = m.Close() })
	return m, size
}

// Blob spools content, for as long as t runs. The spool lies where os.TempDir
// is, as those of t.TempDir do, so that files can be renamed between them.
func Blob(t testing.TB, content string) *media.Blob {
	t.Helper()
	dir, err := os.MkdirTemp("", "spool-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	spool, err := media.OpenSpool(dir, media.Limits{Blob: math.MaxInt64, Total: math.MaxInt64, Memory: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	w := spool.NewWriter()
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	blob, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return blob
}
