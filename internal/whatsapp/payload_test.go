package whatsapp

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

var update = flag.Bool("update", false, "write the golden files anew")

// payloads is every form of request body; the key is the name of its golden file.
func payloads() map[string][]byte {
	yes, no := true, false
	with := func(c message.Content) message.Message { return message.Message{Number: testNumber, Content: c} }
	file := func(kind media.Kind, name, caption string) message.Message {
		return with(message.File{Kind: kind, Name: name, Caption: caption})
	}
	id, link := reference{ID: "4490709327384033"}, reference{Link: "https://example.org/a?b=c&d=<e>"}
	return map[string][]byte{
		"text":                   payload(with(message.Text{Body: "Hello & <welcome>\n\"you\" 👋"}), reference{}, false),
		"text-preview":           payload(with(message.Text{Body: "See https://example.org/?a=1&b=2", LinkPreview: &yes}), reference{}, false),
		"text-no-preview":        payload(with(message.Text{Body: "See https://example.org/", LinkPreview: &no}), reference{}, false),
		"image-id":               payload(file(media.Image, "", "A caption"), id, false),
		"image-id-plain":         payload(file(media.Image, "ignored.png", ""), id, false),
		"image-link":             payload(file(media.Image, "", "A caption"), link, false),
		"video-id":               payload(file(media.Video, "", "A caption"), id, false),
		"video-link":             payload(file(media.Video, "", ""), link, false),
		"document-id":            payload(file(media.Document, "Bericht \"März\".pdf", "A caption"), id, false),
		"document-link":          payload(file(media.Document, "report.pdf", ""), link, false),
		"audio-id":               payload(file(media.Audio, "ignored.mp3", ""), id, false),
		"audio-link":             payload(file(media.Audio, "", ""), link, false),
		"voice-note-id":          payload(with(message.Voice{}), id, true),
		"voice-not-a-note-id":    payload(with(message.Voice{}), id, false),
		"voice-link":             payload(with(message.Voice{}), link, false),
		"typing-indicator":       typingPayload("wamid.HBgLMTY0NjcwNDM1OTUVAgASGBQ="),
		"image-caption-with-nul": payload(file(media.Image, "", "a\x00b\u2028c"), id, false),
	}
}

func TestPayloads(t *testing.T) {
	all := payloads()
	for name, got := range all {
		t.Run(name, func(t *testing.T) {
			if !json.Valid(got) {
				t.Fatalf("not JSON: %s", got)
			}
			path := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got)+"\n" != string(want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if _, ok := all[strings.TrimSuffix(filepath.Base(path), ".json")]; !ok {
			t.Errorf("%s belongs to no payload", path)
		}
	}
}

// FuzzPayload holds that any text arrives as it was: payloads are JSON and
// nothing in them changes.
func FuzzPayload(f *testing.F) {
	f.Add("plain", true)
	f.Add("<&>\u2028\"\\\x00", false)
	f.Fuzz(func(t *testing.T, body string, preview bool) {
		body = strings.ToValidUTF8(body, "")
		var got struct {
			Text struct {
				Body       string
				PreviewURL bool `json:"preview_url"`
			}
		}
		b := payload(message.Message{Number: testNumber, Content: message.Text{Body: body, LinkPreview: &preview}}, reference{}, false)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if got.Text.Body != body || got.Text.PreviewURL != preview {
			t.Errorf("got %q, %t; want %q, %t", got.Text.Body, got.Text.PreviewURL, body, preview)
		}
	})
}
