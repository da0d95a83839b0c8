package e2e

import (
	"bytes"
	"encoding/base64"
	byteorder "encoding/binary"
	"encoding/json"
	"flag"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var screenshots = flag.String("screenshots", "", "`directory` to write screenshots of the outbox page to")

// picture is a small landscape.
func picture(t *testing.T, width, height int) []byte {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			fx, fy := float64(x)/float64(width), float64(y)/float64(height)
			c := color.RGBA{uint8(250 - 60*fy), uint8(214 - 40*fy), uint8(170 + 40*fy), 255}
			if math.Hypot(fx-.7, (fy-.38)*float64(height)/float64(width)) < .07 {
				c = color.RGBA{255, 246, 220, 255}
			}
			for i, hill := range []color.RGBA{{138, 158, 158, 255}, {84, 120, 118, 255}, {38, 78, 76, 255}} {
				n := float64(i)
				if fy > .5+.13*n+.07*math.Sin(fx*(5+2*n)+2*n)+.02*math.Sin(fx*19+n) {
					c = hill
				}
			}
			img.SetRGBA(x, y, c)
		}
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, img); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// tone is a WAV file of so many seconds.
func tone(seconds float64) []byte {
	const rate = 8000
	n := int(seconds * rate)
	b := byteorder.LittleEndian.AppendUint32([]byte("RIFF"), uint32(36+n))
	b = append(b, "WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00"...)
	b = byteorder.LittleEndian.AppendUint32(b, rate)
	b = byteorder.LittleEndian.AppendUint32(b, rate)
	b = append(b, "\x01\x00\x08\x00data"...)
	b = byteorder.LittleEndian.AppendUint32(b, uint32(n))
	for i := range n {
		b = append(b, byte(128+40*math.Sin(float64(i)/3)))
	}
	return b
}

// film is a WebM file, which the browser itself makes.
func (b *browser) film() []byte {
	b.t.Helper()
	var encoded string
	b.run(`
		const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
		canvas.width = 320; canvas.height = 200;
		const recorder = new MediaRecorder(canvas.captureStream(25), {mimeType: "video/webm"}), pieces = [];
		recorder.ondataavailable = e => pieces.push(e.data);
		const ended = new Promise(resolve => { recorder.onstop = resolve; });
		recorder.start();
		for (let i = 0; i < 20; i++) {
			const sky = context.createLinearGradient(0, 0, 0, 200);
			sky.addColorStop(0, "#20405a"); sky.addColorStop(1, "#d98f6a");
			context.fillStyle = sky; context.fillRect(0, 0, 320, 200);
			context.fillStyle = "#ffe9c7"; context.beginPath(); context.arc(60 + 9 * i, 120 - 3 * i, 22, 0, 7); context.fill();
			context.fillStyle = "#1c3a3a"; context.fillRect(0, 150, 320, 50);
			await new Promise(resolve => setTimeout(resolve, 40));
		}
		recorder.stop();
		await ended;
		const bytes = new Uint8Array(await new Blob(pieces).arrayBuffer());
		let s = "";
		for (const byte of bytes) s += String.fromCharCode(byte);
		return btoa(s)`, &encoded)
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(content) == 0 {
		b.t.Fatalf("the browser made no film: %v", err)
	}
	return content
}

// post sends one message that must succeed.
func (s *service) post(operation string, body map[string]any) string {
	s.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := s.send(operation, bytes.NewReader(encoded))
	if err != nil || a.Status != 200 {
		s.t.Fatalf("%s: got %d %q (%v)", operation, a.Status, a.Message, err)
	}
	return a.Data.MessageID
}

type object = map[string]any

func (s *service) postText(to, text string, options object) string {
	s.t.Helper()
	return s.post("sendText", object{"number": to, "options": options, "textMessage": object{"text": text}})
}

func (s *service) postFile(to, kind, name, caption string, content []byte) string {
	s.t.Helper()
	m := object{"mediaType": kind, "media": base64.StdEncoding.EncodeToString(content)}
	if name != "" {
		m["fileName"] = name
	}
	if caption != "" {
		m["caption"] = caption
	}
	return s.post("sendMedia", object{"number": to, "mediaMessage": m})
}

func (s *service) postVoice(to string, content []byte, options object) string {
	s.t.Helper()
	return s.post("sendWhatsAppAudio", object{"number": to, "options": options,
		"audioMessage": object{"audio": base64.StdEncoding.EncodeToString(content)}})
}

// postAllKinds sends one message of each kind to number.
func (s *service) postAllKinds(b *browser) {
	s.t.Helper()
	s.postText(number, "Good morning! Your order #48213 has left our bakery.", object{"presence": "composing", "delay": 600})
	s.postFile(number, "image", "", "Fresh from the oven, on its way over the hills", picture(s.t, 640, 420))
	s.postText(number, "Follow the courier here:\nhttps://example.com/track/48213\n\nHe rings twice.", object{"linkPreview": true})
	s.postFile(number, "document", "invoice-48213.pdf", "Your invoice", []byte("%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer <</Root 1 0 R>>\n%%EOF\n"))
	s.postFile(number, "video", "", "The courier", b.film())
	s.postFile(number, "audio", "jingle.wav", "", tone(4))
	s.postVoice(number, tone(7), object{"presence": "recording", "delay": 900})
}

// TestScreenshots writes screenshots, when asked to.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		return
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	b := openBrowser(t)
	shoot := func(name string) {
		t.Helper()
		time.Sleep(400 * time.Millisecond) // animations end
		b.screenshot(filepath.Join(*screenshots, name+".png"))
	}
	b.resize(1280, 860)
	b.visit(s, "#key="+key+"&token="+token)
	b.until(`!document.getElementById("welcome").hidden`)
	shoot("empty")

	for i, text := range []string{
		"Your code is 482 913. It is valid for ten minutes.",
		"Dr. Imani’s practice: your appointment on Thursday at 09:40 is confirmed.",
		"Danke für deine Nachricht! Wir melden uns bis morgen Mittag.",
		"שלום! ההזמנה שלך מוכנה לאיסוף",
		"Table for four, Saturday 20:00. Reply C to cancel.",
	} {
		s.postText([]string{"4917012345678", "256772123456", "4366012345678", "972521234567", "33612345678"}[i], text, object{"presence": "composing", "delay": 120 * i})
	}
	s.postVoice("81312345678", tone(2), nil)

	const customer = "15550009876"
	s.postText(customer, "Good morning! Your order #48213 has left our bakery.\nFollow it here: https://example.com/track/48213", object{"presence": "composing", "delay": 1200})
	s.postFile(customer, "image", "", "Fresh from the oven, on its way over the hills", picture(t, 640, 250))
	s.postFile(customer, "document", "invoice-48213.pdf", "", []byte("%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer <</Root 1 0 R>>\n%%EOF\n"))
	s.postVoice(customer, tone(7), object{"presence": "recording", "delay": 900})
	b.click(`[data-number="` + customer + `"] button`)
	b.until(`document.querySelectorAll(".message").length === 4 && [...document.images].every(i => i.complete)`)
	going := make(chan struct{})
	go func() {
		defer close(going)
		_, _ = s.send("sendText", strings.NewReader(`{"number":"`+customer+`","options":{"delay":4000,"presence":"composing"},"textMessage":{"text":"He is at your door."}}`))
	}()
	b.until(`document.querySelector(".typing-bubble")`)
	time.Sleep(time.Second)
	shoot("outbox")
	<-going

	s.postAllKinds(b)
	b.click(`[data-number="` + number + `"] button`)
	b.until(`document.querySelectorAll(".message").length === 7 && [...document.images].every(i => i.complete)`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.send("sendText", text(9000, "There he is."))
	}()
	b.until(`document.querySelector(".typing-bubble")`)
	shoot("light")
	b.scheme("dark")
	shoot("dark")
	b.resize(390, 844)
	shoot("phone-dark")
	b.scheme("light")
	shoot("phone")
	b.resize(1920, 1080)
	shoot("wide")
	b.resize(1280, 860)
	b.run(`document.getElementById("thread").scrollTop = 0; return true`, nil)
	shoot("kinds")
	b.click(`.message:nth-child(2) .about`)
	shoot("details")
	b.scheme("dark")
	shoot("details-dark")
	b.scheme("light")
	b.click(`#details form button`)
	<-done
	b.fill("#search", "order")
	b.until(`document.querySelectorAll("#found-messages li").length > 0`)
	b.click("#options-toggle")
	shoot("search-options")
	b.run(`document.getElementById("search").value = ""; document.getElementById("search").dispatchEvent(new Event("input")); return true`, nil)
	b.click(`input[value=media]`)
	shoot("composer-file")
	b.resize(390, 844)
	b.click("#back")
	shoot("phone-list")
}
