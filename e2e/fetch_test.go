package e2e

import (
	"bytes"
	"context"
	bin "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// storage serves files on loopback and counts what reaches it.
func storage(t *testing.T, handler http.HandlerFunc) (url, host string, hits *atomic.Int64) {
	t.Helper()
	hits = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, strings.TrimPrefix(server.URL, "http://"), hits
}

func mediaURL(kind, url string) io.Reader {
	return strings.NewReader(fmt.Sprintf(`{"number":%q,"options":{"delay":100,"presence":"composing"},"mediaMessage":{"mediaType":%q,"fileName":"a.bin","media":%q}}`, number, kind, url))
}

var pngHead = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89")

func TestMediaByURL(t *testing.T) {
	url, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dot.png":
			if r.URL.RawQuery != "X-Signature=a%2Fb&z=1&a=2" {
				http.Error(w, "the presigned query was touched", http.StatusForbidden)
				return
			}
			w.Header().Set("Content-Type", "text/plain") // wrong, and without effect
			_, _ = w.Write(pngHead)
		case "/page":
			_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>Not the picture you want</body></html>")
		default:
			http.NotFound(w, r)
		}
	})
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-allow-media-from", host)
	body := fmt.Sprintf(`{"number":%q,"mediaMessage":{"mediaType":"image","media":%q}}`, number, url+"/dot.png?X-Signature=a%2Fb&z=1&a=2")
	if a, err := s.send("sendMedia", strings.NewReader(body)); err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	_, content := s.get("/outbox/messages")
	for _, want := range []string{`"sourceUrl":"` + url + `/dot.png"`, `"fileName":"dot.png"`, `"contentType":"image/png"`, `"sha256":"`, fmt.Sprintf(`"size":%d`, len(pngHead))} {
		if !bytes.Contains(content, []byte(want)) {
			t.Errorf("the outbox has no %s: %s", want, content)
		}
	}
	for _, c := range []struct{ name, path, code, says string }{
		{"a page where an image was due", "/page", "media_type_mismatch", "text/html"},
		{"a page that says 404", "/none", "media_unavailable", "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := s.send("sendMedia", mediaURL("image", url+c.path))
			if err != nil || a.Status != 422 || a.Error.Code != c.code || !strings.Contains(a.Message, c.says) {
				t.Errorf("got %v %v, want 422 %s saying %s", a, err, c.code, c.says)
			}
		})
	}
	if got := len(s.outbox()); got != 1 {
		t.Errorf("the outbox has %d messages, want 1", got)
	}
}

// Nothing on this machine may be reached, however it is written.
func TestMediaURLsReachNothingInside(t *testing.T) {
	canary, _, hits := storage(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(pngHead) })
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(canary, "http://"))
	redirect, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.Header().Set("Location", canary)
		w.WriteHeader(status)
	})
	env := append(account(), "HTTP_PROXY="+canary, "http_proxy="+canary, "HTTPS_PROXY="+canary, "ALL_PROXY="+canary)
	s := start(t, filepath.Join(t.TempDir(), "data"), env, "-allow-media-from", host)
	urls := []string{"http://example.org/", "https://example.org/"} // through the proxy, if there were one
	for _, h := range []string{"127.0.0.1", "localhost", "①②⑦.0.0.1", "127。0。0。1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::]", "0.0.0.0", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"} {
		urls = append(urls, "http://"+h+":"+port+"/", "http://"+h+"/")
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		urls = append(urls, fmt.Sprintf("%s/%d", redirect, status))
	}
	for _, u := range urls {
		a, err := s.send("sendMedia", mediaURL("image", u))
		if err != nil || a.Status != 422 && a.Status != 400 {
			t.Errorf("%s: got %v %v, want 422 or 400", u, a, err)
		}
	}
	for _, u := range []string{"http://user@127.0.0.1:" + port, "http://example.org@127.0.0.1:" + port, "http:///x", "http://", "file:///etc/passwd", "gopher://127.0.0.1:" + port} {
		if a, err := s.send("sendMedia", mediaURL("image", u)); err != nil || a.Status != 400 {
			t.Errorf("%s: got %v %v, want 400", u, a, err)
		}
	}
	if got := hits.Load(); got != 0 {
		t.Errorf("the canary was reached %d times, want 0", got)
	}
	if got := len(s.outbox()); got != 0 {
		t.Errorf("the outbox has %d messages, want 0", got)
	}
}

func TestHundredMebibytesByURL(t *testing.T) {
	const size = 100 << 20
	url, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		block := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		for range size / len(block) {
			_, _ = w.Write(block)
		}
	})
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-allow-media-from", host)
	if a, err := s.send("sendMedia", mediaURL("document", url+"/large")); err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	t.Logf("measured: 100 MiB by URL: peak RSS %d MiB", s.peak())
}

// wav is a second of silence for each of seconds, 8 kHz, 16 bit, mono.
func wav(seconds int) []byte {
	const rate, width = 8000, 2
	var b bytes.Buffer
	size := seconds * rate * width
	b.WriteString("RIFF")
	_ = bin.Write(&b, bin.LittleEndian, uint32(36+size))
	b.WriteString("WAVEfmt ")
	for _, v := range []any{uint32(16), uint16(1), uint16(1), uint32(rate), uint32(rate * width), uint16(width), uint16(8 * width), [4]byte{'d', 'a', 't', 'a'}, uint32(size)} {
		_ = bin.Write(&b, bin.LittleEndian, v)
	}
	b.Write(make([]byte, size))
	return b.Bytes()
}

func audioURL(url string, encoding bool) io.Reader {
	return strings.NewReader(fmt.Sprintf(`{"number":%q,"options":{"encoding":%v},"audioMessage":{"audio":%q}}`, number, encoding, url))
}

func TestVoiceMessageIsConverted(t *testing.T) {
	need(t, "ffmpeg")
	need(t, "ffprobe")
	url, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(wav(2)) })
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-allow-media-from", host)
	if a, err := s.send("sendWhatsAppAudio", audioURL(url, true)); err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	_, content := s.get("/outbox/messages")
	var list struct {
		Messages []struct {
			MessageID, ContentType string
			DurationMS             int64
			Voice, Encoding        bool
		}
	}
	if err := json.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	m := list.Messages[0]
	if !m.Voice || !m.Encoding || m.ContentType != "audio/ogg; codecs=opus" || m.DurationMS < 1990 || m.DurationMS > 2030 {
		t.Errorf("got %+v, want a voice message of about 2,000 ms in Ogg/Opus", m)
	}
	_, ogg := s.get("/outbox/messages/" + m.MessageID + "/media")
	file := filepath.Join(t.TempDir(), "voice.ogg")
	if err := os.WriteFile(file, ogg, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("ffprobe", "-v", "error", "-show_entries", "stream=codec_name,channels,sample_rate", "-of", "csv=p=0", file).CombinedOutput()
	if got := strings.TrimSpace(string(output)); err != nil || got != "opus,48000,1" {
		t.Errorf("ffprobe says %q (%v), want opus,48000,1", got, err)
	}
}

func TestVoiceMessageWithoutFfmpeg(t *testing.T) {
	url, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(wav(2)) })
	s := start(t, filepath.Join(t.TempDir(), "data"), append(account(), "PATH=/nonexistent"), "-allow-media-from", host)
	a, err := s.send("sendWhatsAppAudio", audioURL(url, true))
	if err != nil || a.Status != 501 || a.Error.Code != "encoding_unavailable" {
		t.Errorf("encoding a WAV: got %v %v, want 501 encoding_unavailable", a, err)
	}
	if a, err := s.send("sendWhatsAppAudio", audioURL(url, false)); err != nil || a.Status != 200 {
		t.Errorf("a WAV as it is: got %v %v, want 200", a, err)
	}
	if status, body := s.get("/readyz"); status != 200 || !bytes.Contains(body, []byte("no ffmpeg")) {
		t.Errorf("readyz: got %d %s, want 200 saying that there is no ffmpeg", status, body)
	}
	if got := s.stderr.String(); !strings.Contains(got, "no ffmpeg") {
		t.Errorf("the log does not say that there is no ffmpeg: %s", got)
	}
}

// A client that leaves takes its conversion with it.
func TestConversionEndsWithItsClient(t *testing.T) {
	need(t, "ffmpeg")
	need(t, "pgrep")
	url, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(wav(3600)) })
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-allow-media-from", host)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/message/sendWhatsAppAudio/"+token, audioURL(url, true))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Apikey": {key}, "Content-Type": {"application/json"}}
	left := make(chan error, 1)
	go func() {
		_, err := http.DefaultTransport.RoundTrip(r)
		left <- err
	}()
	children := func() bool {
		return exec.Command("pgrep", "-x", "-P", fmt.Sprint(s.cmd.Process.Pid), "ffmpeg").Run() == nil
	}
	eventually(t, "the conversion runs", children)
	begin := time.Now()
	leave()
	if err := <-left; err == nil {
		t.Fatal("the conversion was over before its client left")
	}
	eventually(t, "the conversion is gone", func() bool { return !children() })
	t.Logf("measured: the conversion was gone %v after its client", time.Since(begin))
	eventually(t, "the spool is empty", func() bool {
		files, _ := os.ReadDir(filepath.Join(s.data, "spool"))
		return len(files) == 0
	})
	if got := s.outbox(); len(got) != 0 {
		t.Errorf("the outbox has %d messages, want 0", len(got))
	}
}
