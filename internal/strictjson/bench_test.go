package strictjson

import (
	"bytes"
	"encoding/base64"
	"io"
	"strings"
	"testing"
)

var mediaPath = []string{"mediaMessage", "media"}

func mediaBody(media string) []byte {
	return []byte(`{"number":"4915112345678","mediaMessage":{"mediaType":"image","media":"` + media + `"}}`)
}

func benchmark(b *testing.B, body []byte) {
	o := Options{Path: mediaPath, Sink: io.Discard, MaxRest: 64 << 10, MaxBody: 1 << 30}
	r := bytes.NewReader(body)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(body)
		if _, err := Object(r, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSendText(b *testing.B) {
	benchmark(b, []byte(`{"number":"4915112345678","options":{"delay":1200,"presence":"composing"},"textMessage":{"text":"Hello there, world"}}`))
}

func BenchmarkDivert(b *testing.B) {
	raw := make([]byte, 12<<20)
	for i := range raw {
		raw[i] = byte(i * i >> 7)
	}
	media := base64.StdEncoding.EncodeToString(raw)
	b.Run("Base64", func(b *testing.B) { benchmark(b, mediaBody(media)) })
	b.Run("Base64 with escaped slashes", func(b *testing.B) {
		benchmark(b, mediaBody(strings.ReplaceAll(media, "/", `\/`)))
	})
	b.Run("nothing but short escapes", func(b *testing.B) {
		benchmark(b, mediaBody(strings.Repeat(`\/`, 8<<20)))
	})
	b.Run("nothing but escaped quotes", func(b *testing.B) {
		benchmark(b, mediaBody(strings.Repeat(`\"`, 8<<20)))
	})
	b.Run("text of three-byte characters", func(b *testing.B) {
		benchmark(b, mediaBody(strings.Repeat("世", 5<<20)))
	})
}
