package outbox

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

func TestRecords(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("", 3600))
	no := false
	picture := png(10)
	for _, test := range []struct {
		name     string
		delay    time.Duration
		presence message.Presence
		content  message.Content
		want     string // without id and times but requestedAt
	}{
		{"text", 0, message.None, message.Text{Body: "a <b> \"ü\" \u2028"},
			`{"state":"sent","operation":"text","number":"4917012345678","delay":0,"text":"a <b> \"ü\" \u2028"}`},
		{"text with everything", 1500500 * time.Microsecond, message.Composing, message.Text{Body: "x", LinkPreview: &no},
			`{"state":"sent","operation":"text","number":"4917012345678","presence":"composing","delay":1500.5,"text":"x","linkPreview":false}`},
		{"media from a URL, without its query", 2 * time.Second, message.None, message.File{Kind: media.Video, Source: media.Source{URL: "https://example.com/v?a=1&b=2"}},
			`{"state":"sent","operation":"media","number":"4917012345678","delay":2000,"mediaType":"video","sourceUrl":"https://example.com/v"}`},
		{"media from bytes", 0, message.Recording, message.File{Kind: media.Document, Name: "ü.png", Caption: "c", Source: blob(t, picture)},
			`{"mediaUrl":"messages/ID/media","state":"sent","operation":"media","number":"4917012345678","presence":"recording","delay":0,"mediaType":"document","fileName":"ü.png","caption":"c","contentType":"image/png","size":26,"sha256":"` + fmt.Sprintf("%x", sha256.Sum256(picture)) + `"}`},
		{"audio from a URL", 0, message.None, message.Voice{Encode: true, Source: media.Source{URL: "http://example.com/"}},
			`{"state":"sent","operation":"audio","number":"4917012345678","delay":0,"sourceUrl":"http://example.com/","encoding":true}`},
		{"audio not to be encoded", 0, message.None, message.Voice{Source: media.Source{URL: "http://example.com/"}},
			`{"state":"sent","operation":"audio","number":"4917012345678","delay":0,"sourceUrl":"http://example.com/","encoding":false}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			id := send(t, s, message.Message{Account: "a", Number: "4917012345678", Presence: test.presence, Delay: test.delay, Content: test.content, RequestedAt: at})
			w := do(s, "GET", "messages/"+id)
			var got, want map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			if err := json.Unmarshal([]byte(strings.ReplaceAll(test.want, "ID", id)), &want); err != nil {
				t.Fatal(err)
			}
			want["messageId"], want["requestedAt"] = id, "2026-01-02T02:04:05.6789Z"
			sent, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["sentAt"]))
			if err != nil || time.Since(sent) > time.Minute {
				t.Errorf("sentAt: got %v", got["sentAt"])
			}
			want["sentAt"] = got["sentAt"]
			if test.presence != message.None {
				want["presenceFrom"], want["presenceUntil"] = got["presenceFrom"], got["sentAt"]
				if from, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got["presenceFrom"])); err != nil || from.After(sent) {
					t.Errorf("presenceFrom: got %v, sentAt %v", got["presenceFrom"], got["sentAt"])
				}
			}
			if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
				t.Errorf("got  %s\nwant %s", g, w)
			}
			if _, ok := parseID(id); !ok {
				t.Errorf("messageId %q is not one", id)
			}
			if listed := list(t, s, ""); len(listed) != 1 || fmt.Sprint(listed[0]) != fmt.Sprint(got) {
				t.Errorf("listed: got %v, want %v", listed, got)
			}
		})
	}
}

func TestIDsRiseOverAWipedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := send(t, open(t, Options{Dir: t.TempDir()}), text("x"))
		time.Sleep(2 * time.Millisecond)
		second := send(t, open(t, Options{Dir: t.TempDir()}), text("x"))
		if second[:idLength-12] <= first[:idLength-12] {
			t.Errorf("got %s after %s", second, first)
		}
	})
}

func FuzzDecode(f *testing.F) {
	e := &entry{id: id{sequence: 5}, account: "a", number: "4917012345678", media: noMedia}
	b, err := encode(e, newRecord(text("x"), e.id, time.Time{}, time.Now()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(encodeClear("a", 5, 3))
	f.Add(b[:30])
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decode(b)
		if err != nil {
			return
		}
		if len(l.entry.account)+len(l.json) > len(b) || int(l.entry.kind) >= len(kinds) && l.what == loggedMessage {
			t.Errorf("got %+v", l)
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("OB0123456789ab0123456789ab")
	f.Add("OB0123456789AB0123456789ab")
	f.Add("OB+123456789ab0123456789ab")
	f.Fuzz(func(t *testing.T, s string) {
		if i, ok := parseID(s); ok && i.String() != s {
			t.Errorf("%q: got %s", s, i)
		}
	})
}
