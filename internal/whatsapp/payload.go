package whatsapp

import (
	"bytes"
	"encoding/json"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

// reference is media as a message names it: exactly one of both is set.
type reference struct {
	ID   string `json:"id,omitempty"`   // of an upload
	Link string `json:"link,omitempty"` // fetched by the platform
}

type envelope struct {
	Product       string        `json:"messaging_product"`
	RecipientType string        `json:"recipient_type"`
	To            string        `json:"to"`
	Type          string        `json:"type"`
	Text          *textObject   `json:"text,omitempty"`
	Image         *visualObject `json:"image,omitempty"`
	Video         *visualObject `json:"video,omitempty"`
	Document      *fileObject   `json:"document,omitempty"`
	Audio         *audioObject  `json:"audio,omitempty"`
}

type textObject struct {
	Body       string `json:"body"`
	PreviewURL *bool  `json:"preview_url,omitempty"`
}

type visualObject struct {
	reference
	Caption string `json:"caption,omitempty"`
}

type fileObject struct {
	reference
	Caption  string `json:"caption,omitempty"`
	FileName string `json:"filename,omitempty"`
}

type audioObject struct {
	reference
	Voice bool `json:"voice,omitempty"` // a voice note; false: an audio file
}

// payload is the body that sends m. Its media, if it has any, is r; voice marks
// audio as a voice note. The platform knows no name for images and videos, nor
// name and caption for audio, so those are left out.
func payload(m message.Message, r reference, voice bool) []byte {
	e := envelope{Product: "whatsapp", RecipientType: "individual", To: string(m.Number)}
	switch c := m.Content.(type) {
	case message.Text:
		e.Type, e.Text = "text", &textObject{c.Body, c.LinkPreview}
	case message.Voice:
		e.Type, e.Audio = "audio", &audioObject{r, voice}
	case message.File:
		e.Type = string(c.Kind)
		switch c.Kind {
		case media.Image:
			e.Image = &visualObject{r, c.Caption}
		case media.Video:
			e.Video = &visualObject{r, c.Caption}
		case media.Audio:
			e.Audio = &audioObject{r, false}
		case media.Document:
			e.Document = &fileObject{r, c.Caption, c.Name}
		}
	}
	return encode(e)
}

type typing struct {
	Product   string     `json:"messaging_product"`
	Status    string     `json:"status"`
	MessageID string     `json:"message_id"`
	Indicator typingKind `json:"typing_indicator"`
}

type typingKind struct {
	Type string `json:"type"`
}

// typingPayload shows the typing indicator in reply to an inbound message, and
// marks that as read: the platform does not do one without the other. It has no
// indicator for recording.
func typingPayload(inboundID string) []byte {
	return encode(typing{"whatsapp", "read", inboundID, typingKind{"text"}})
}

// encode leaves <, > and & as they are, which also keeps links short.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and booleans only
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
