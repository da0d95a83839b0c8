package whatsapp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/platformtest"
)

func TestLimits(t *testing.T) {
	caption := func(n int) message.Message {
		return message.Message{Content: message.File{Kind: media.Image, Caption: strings.Repeat("ä", n), Source: media.Source{URL: "https://example.org/a.png"}}}
	}
	for _, c := range []struct {
		name string
		m    message.Message
		want string // the problem; empty: none
	}{
		{"the longest text", text(strings.Repeat("\U0001F44B", 4096)), ""},
		{"a text too long", text(strings.Repeat("\U0001F44B", 4097)), "textMessage.text has 4097 characters; the platform takes at most 4096"},
		{"the longest caption", caption(1024), ""},
		{"a caption too long", caption(1025), "mediaMessage.caption has 1025 characters; the platform takes at most 1024"},
		{"a PNG", file(t, media.Image, platformtest.PNG), ""},
		{"a JPEG", file(t, media.Image, platformtest.JPEG), ""},
		{"a GIF", file(t, media.Image, "GIF89a\x01\x00\x01\x00\x00\x00\x00;"), "mediaMessage.media is image/gif; as image the platform takes image/jpeg, image/png"},
		{"the largest image", file(t, media.Image, platformtest.PNG+string(make([]byte, 5<<20-len(platformtest.PNG)))), ""},
		{"an image too large", file(t, media.Image, platformtest.PNG+string(make([]byte, 5<<20+1-len(platformtest.PNG)))), "mediaMessage.media has 5242881 bytes; the platform takes at most 5242880"},
		{"a video", file(t, media.Video, platformtest.MP4), ""},
		{"an AMR file", file(t, media.Audio, platformtest.AMR), ""},
		{"Opus", file(t, media.Audio, platformtest.Opus), ""},
		{"a WAV file", file(t, media.Audio, "RIFF\x24\x00\x00\x00WAVEfmt "), "mediaMessage.media is audio/wav; as audio the platform takes audio/aac, audio/amr, audio/mpeg, audio/mp4, audio/ogg; codecs=opus"},
		{"a PDF", file(t, media.Document, platformtest.PDF), ""},
		{"a text file", file(t, media.Document, "Hello"), ""},
		{"an image as a document", file(t, media.Document, platformtest.PNG), ""},
		{"bytes without a form", file(t, media.Document, "\x00\x01\x02\x03\xff\xfe\xfd"), "mediaMessage.media is application/octet-stream"},
		{"a voice message as WAV", message.Message{Content: message.Voice{Source: media.Source{Blob: platformtest.Blob(t, "RIFF\x24\x00\x00\x00WAVEfmt ")}}}, "audioMessage.audio is audio/wav"},
		{"a link", caption(0), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := checkLimits(c.m)
			if c.want == "" {
				if e != nil {
					t.Errorf("refused: %s", e.Text)
				}
				return
			}
			if e == nil || e.Reason != message.PlatformLimit || !strings.HasPrefix(e.Text, c.want) {
				t.Fatalf("got %+v, want %s: %s", e, message.PlatformLimit, c.want)
			}
			field, problem, _ := strings.Cut(c.want, " ")
			if len(e.Details) != 1 || e.Details[0].Field != field || !strings.HasPrefix(e.Details[0].Message, problem) {
				t.Errorf("details %+v, want field %s: %s", e.Details, field, problem)
			}
		})
	}
	both := file(t, media.Image, "GIF89a")
	f := both.Content.(message.File)
	f.Caption = strings.Repeat("x", 2000)
	both.Content = f
	if e := checkLimits(both); e == nil || len(e.Details) != 2 {
		t.Errorf("two problems: got %+v, want both", e)
	}
}

func TestLimitsAreCheckedBeforeAnythingIsDone(t *testing.T) {
	meta := newMeta(t)
	meta.answer = func(kind string, _ http.ResponseWriter, _ *http.Request) bool {
		t.Errorf("a call to %s", kind)
		return false
	}
	r := newRig(t, Settings{BaseURL: meta.server.URL})
	for _, m := range []message.Message{text(strings.Repeat("x", 5000)), file(t, media.Image, "GIF89a")} {
		if _, err := r.Prepare(t.Context(), m); err == nil {
			t.Error("prepared what is beyond the limits")
		}
	}
}

func TestUpload(t *testing.T) {
	large := platformtest.PDF + strings.Repeat("% \n", 1<<20)
	for _, c := range []struct {
		name, media string
		content     message.Content
		wantType    string
		wantName    string
		wantRaw     string // in the message
	}{
		{"image", platformtest.PNG, message.File{Kind: media.Image, Name: "../../etc/\"x\r\n.exe"}, "image/png", "media.png", `"type":"image","image":{"id":"%s"}`},
		{"document", large, message.File{Kind: media.Document, Name: "report.pdf", Caption: "c"}, "application/pdf", "media.pdf", `"document":{"id":"%s","caption":"c","filename":"report.pdf"}`},
		{"document of another name", platformtest.PNG, message.File{Kind: media.Document, Name: "scan.png"}, "image/png", "media.png", `"document":{"id":"%s","filename":"scan.png"}`},
		{"audio file", platformtest.Opus, message.File{Kind: media.Audio}, "audio/ogg; codecs=opus", "media.ogg", `"audio":{"id":"%s"}`},
		{"voice note", platformtest.Opus, message.Voice{}, "audio/ogg; codecs=opus", "media.ogg", `"audio":{"id":"%s","voice":true}`},
		{"voice message in stereo", platformtest.Stereo, message.Voice{}, "audio/ogg; codecs=opus", "media.ogg", `"audio":{"id":"%s"}`},
		{"voice message that is no note", platformtest.AMR, message.Voice{}, "audio/amr", "media.amr", `"audio":{"id":"%s"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			meta := newMeta(t)
			r := newRig(t, Settings{BaseURL: meta.server.URL})
			m := text("")
			source := media.Source{Blob: platformtest.Blob(t, c.media)}
			switch content := c.content.(type) {
			case message.File:
				content.Source = source
				m.Content = content
			case message.Voice:
				content.Source = source
				m.Content = content
			}
			d, err := r.Prepare(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := source.Blob.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after Prepare the media is still spooled: %v", err)
			}
			if len(meta.uploads) != 1 {
				t.Fatalf("%d uploads, want 1", len(meta.uploads))
			}
			for id, u := range meta.uploads {
				if want := []string{"messaging_product", "type", "file"}; !slices.Equal(u.fields, want) {
					t.Errorf("parts %v, want %v", u.fields, want)
				}
				if u.product != "whatsapp" || u.typ != c.wantType || u.partType != c.wantType || u.fileName != c.wantName {
					t.Errorf("got %+v; want type %s, name %s", u, c.wantType, c.wantName)
				}
				if u.size != int64(len(c.media)) || u.length <= u.size {
					t.Errorf("%d bytes with Content-Length %d, want %d and more", u.size, u.length, len(c.media))
				}
				if _, err := d.Deliver(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, want := meta.messages[0].Raw, fmt.Sprintf(c.wantRaw, id); !strings.Contains(got, want) {
					t.Errorf("sent %s, want in it %s", got, want)
				}
			}
		})
	}
}

func TestLinks(t *testing.T) {
	m := text("")
	m.Content = message.File{Kind: media.Image, Source: media.Source{URL: "https://example.org/a.png"}}
	meta := newMeta(t)
	r := newRig(t, Settings{BaseURL: meta.server.URL, Links: true})
	if _, err := r.send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if got, want := meta.messages[0].Raw, `"image":{"link":"https://example.org/a.png"}`; !strings.Contains(got, want) || len(meta.uploads) != 0 {
		t.Errorf("sent %s with %d uploads, want in it %s and none", got, len(meta.uploads), want)
	}
	r = newRig(t, Settings{BaseURL: meta.server.URL})
	var e *message.Error
	if _, err := r.Prepare(t.Context(), m); !errors.As(err, &e) || e.Reason != message.Internal {
		t.Errorf("a URL where links are not passed on: got %v, want %s", err, message.Internal)
	}
}

func TestUploadEndsWithItsClient(t *testing.T) {
	meta := newMeta(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	meta.answer = func(_ string, _ http.ResponseWriter, r *http.Request) bool {
		cancel(gone)
		<-r.Context().Done()
		return true
	}
	r := newRig(t, Settings{BaseURL: meta.server.URL})
	if _, err := r.Prepare(ctx, file(t, media.Image, platformtest.PNG)); !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
	if len(*r.pauses) != 0 {
		t.Errorf("%d repetitions for a client that is gone", len(*r.pauses))
	}
}

func TestPresence(t *testing.T) {
	for _, c := range []struct {
		presence message.Presence
		heard    bool
		shown    int
		lasts    time.Duration
		missed   uint64
	}{
		{message.Composing, true, 1, typingLife, 0},
		{message.Recording, true, 1, typingLife, 0},
		{message.Paused, true, 0, 0, 0},
		{message.None, true, 0, 0, 0},
		{message.Composing, false, 0, 0, 1},
		{message.Recording, false, 0, 0, 1},
		{message.Paused, false, 0, 0, 0},
		{message.None, false, 0, 0, 0},
	} {
		t.Run(fmt.Sprintf("%q/heard=%t", c.presence, c.heard), func(t *testing.T) {
			meta := newMeta(t)
			r := newRig(t, Settings{BaseURL: meta.server.URL})
			if c.heard {
				r.heard(t)
			}
			m := text("Hello")
			m.Presence = c.presence
			d, err := r.Prepare(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			lasts, err := d.ShowPresence(t.Context())
			if lasts != c.lasts || err != nil {
				t.Errorf("got %v, %v; want %v", lasts, err, c.lasts)
			}
			if len(meta.typings) != c.shown || c.shown > 0 && meta.typings[0] != testInbound {
				t.Errorf("shown in reply to %v, want %d times to %s", meta.typings, c.shown, testInbound)
			}
			if got := r.PresenceNotShown(); got != c.missed {
				t.Errorf("counted %d, want %d", got, c.missed)
			}
		})
	}
}

func TestMissingPresenceIsLoggedOncePerNumber(t *testing.T) {
	r := newRig(t, Settings{})
	show := func(n message.Number) {
		d := &delivery{platform: r.Platform, number: n, presence: message.Composing}
		if _, err := d.ShowPresence(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		show("491701234567")
		show("491701234568")
	}
	logs := r.logs.String()
	if got := strings.Count(logs, "presence cannot be shown"); got != 2 {
		t.Errorf("logged %d times, want once per number:\n%s", got, logs)
	}
	if strings.Contains(logs, "491701234567") || !strings.Contains(logs, "number=…4567") {
		t.Errorf("the number is not masked:\n%s", logs)
	}
	if got := r.PresenceNotShown(); got != 6 {
		t.Errorf("counted %d, want 6", got)
	}
	for i := range maxUnshown + 10 {
		show(message.Number(fmt.Sprint(4917012000000 + i)))
	}
	if got := len(r.logged); got > maxUnshown {
		t.Errorf("%d numbers are remembered, want at most %d", got, maxUnshown)
	}
}

func TestAnswerIDs(t *testing.T) {
	for _, c := range []struct {
		name, body, want string // empty: none that can be used
	}{
		{"as documented", `{"messaging_product":"whatsapp","contacts":[{"input":"1","wa_id":"1"}],"messages":[{"id":"wamid.x","message_status":"accepted"}]}`, "wamid.x"},
		{"held", `{"messages":[{"id":"wamid.x","message_status":"held_for_quality_assessment"}]}`, "wamid.x"},
		{"no messages", `{"messages":[]}`, ""},
		{"no id", `{"messages":[{}]}`, ""},
		{"an id of another type", `{"messages":[{"id":7}]}`, ""},
		{"an id that breaks lines", `{"messages":[{"id":"a\nb"}]}`, ""},
		{"an id too long", `{"messages":[{"id":"` + strings.Repeat("a", maxID+1) + `"}]}`, ""},
		{"cut", `{"messages":[{"id":"wamid.x"}]`, ""},
		{"followed by more", `{"messages":[{"id":"wamid.x"}]}{}`, ""},
		{"empty", ``, ""},
		{"HTML", `<html>`, ""},
	} {
		got, ok := sentID([]byte(c.body))
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: got %q, %t; want %q", c.name, got, ok, c.want)
		}
	}
}

func TestSettingsAndAccountsAreChecked(t *testing.T) {
	for name, s := range map[string]Settings{
		"no user agent":        {},
		"user agent":           {UserAgent: "messagesender"},
		"no host":              {UserAgent: "m/1.0.0", BaseURL: "https://"},
		"scheme":               {UserAgent: "m/1.0.0", BaseURL: "ftp://example.org"},
		"user in the URL":      {UserAgent: "m/1.0.0", BaseURL: "https://u:p@example.org"},
		"query in the URL":     {UserAgent: "m/1.0.0", BaseURL: "https://example.org/?a=b"},
		"URL without meaning":  {UserAgent: "m/1.0.0", BaseURL: "://\x00"},
		"version":              {UserAgent: "m/1.0.0", Version: "25"},
		"version with a slash": {UserAgent: "m/1.0.0", Version: "v25.0/x"},
	} {
		if _, err := NewClient(s); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	client, err := NewClient(Settings{UserAgent: "m/1.0.0", BaseURL: "https://example.org/prefix/"})
	if err != nil || client.base.String() != "https://example.org/prefix/"+DefaultVersion {
		t.Errorf("got %v, %v", client, err)
	}
	for name, a := range map[string]Account{
		"no phone number id":       {AccessToken: "t"},
		"phone number id":          {PhoneNumberID: "12/34", AccessToken: "t"},
		"no token":                 {PhoneNumberID: "1"},
		"token with a line break":  {PhoneNumberID: "1", AccessToken: "secret-part\r\nX: y"},
		"token with other letters": {PhoneNumberID: "1", AccessToken: "secret-part-ä"},
	} {
		_, err := NewPlatform(client, a, nil, slog.New(slog.DiscardHandler))
		if err == nil || strings.Contains(err.Error(), "secret-part") {
			t.Errorf("%s: got %v, want an error that does not name it", name, err)
		}
	}
}

// TestUploadIsStreamed: what an upload takes of memory does not depend on its size.
func TestUploadIsStreamed(t *testing.T) {
	const size, limit = 64 << 20, 4 << 20
	meta := newMeta(t)
	r := newRig(t, Settings{BaseURL: meta.server.URL})
	m := file(t, media.Document, platformtest.PDF+strings.Repeat("%", size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := r.Prepare(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > limit {
		t.Errorf("%d bytes were allocated for an upload of %d, want at most %d", got, size, limit)
	}
}
