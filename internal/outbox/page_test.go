package outbox

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"messagesender/internal/message"
)

func getPage(t *testing.T, method, path string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	p, err := NewPage("Threema")
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, path, nil)
	r.Header = header
	w := httptest.NewRecorder()
	if err := p.Serve(w, r, "a"); err != nil {
		t.Fatalf("%s: got %v", path, err)
	}
	return w
}

func TestPageFiles(t *testing.T) {
	for path, contentType := range map[string]string{
		"/outbox/":         "text/html; charset=utf-8",
		"/outbox/page.css": "text/css; charset=utf-8",
		"/outbox/page.js":  "text/javascript; charset=utf-8",
	} {
		w := getPage(t, "GET", path, http.Header{})
		h := w.Header()
		for name, want := range map[string]string{
			"Content-Type": contentType, "Content-Security-Policy": pagePolicy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "private, no-cache", "Content-Encoding": "",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s: got %s %q, want %q", path, name, got, want)
			}
		}
		if w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("%s: got %d with %d bytes", path, w.Code, w.Body.Len())
		}
		if again := getPage(t, "GET", path, http.Header{"If-None-Match": {h.Get("ETag")}}); again.Code != 304 || again.Body.Len() != 0 {
			t.Errorf("%s again: got %d with %d bytes, want 304 with none", path, again.Code, again.Body.Len())
		}
		packed := getPage(t, "GET", path, http.Header{"Accept-Encoding": {"br, gzip"}})
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s packed: %v", path, err)
		}
		if plain, err := io.ReadAll(z); err != nil || !bytes.Equal(plain, w.Body.Bytes()) {
			t.Errorf("%s packed: got %d bytes (%v), want what is sent unpacked", path, len(plain), err)
		}
		if packed.Header().Get("ETag") == h.Get("ETag") {
			t.Errorf("%s: packed and unpacked have one ETag", path)
		}
		if head := getPage(t, "HEAD", path, http.Header{}); head.Code != 200 || head.Body.Len() != 0 {
			t.Errorf("HEAD %s: got %d with %d bytes", path, head.Code, head.Body.Len())
		}
	}
}

func TestPageKnowsTheAudioPath(t *testing.T) {
	if got := getPage(t, "GET", "/outbox/", http.Header{}).Body.String(); !strings.Contains(got, `data-audio-word="Threema"`) {
		t.Error("the page does not name the audio operation")
	}
}

func TestPageHasNoOtherFiles(t *testing.T) {
	p, err := NewPage("X")
	if err != nil {
		t.Fatal(err)
	}
	err = p.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/outbox/other.js", nil), "a")
	if e, ok := err.(*message.Error); !ok || e.Reason != message.NotFound {
		t.Errorf("got %v, want not_found", err)
	}
}

// The policy forbids what these would be, so that the page would be broken.
func TestPageHasNothingInline(t *testing.T) {
	for _, name := range []string{"index.html", "page.js"} {
		content, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for what, form := range map[string]*regexp.Regexp{
			"a style attribute":        regexp.MustCompile(`<[^>]*\sstyle=`),
			"a listener attribute":     regexp.MustCompile(`<[^>]*\son[a-z]+=`),
			"an inline script":         regexp.MustCompile(`<script[^>]*>[^<]`),
			"markup made from text":    regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(`),
			"an address that is whole": regexp.MustCompile(`(src|href)="(/|https?:)`),
		} {
			if found := form.Find(content); found != nil {
				t.Errorf("%s has %s: %.60q", name, what, found)
			}
		}
	}
}

func TestAcceptsGzip(t *testing.T) {
	for value, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "br, gzip": true, "gzip;q=0.5": true, "gzip; q=1": true, "gzip;q=0": false,
		"gzip;q=0.000": false, "br": false, "x-gzipped": false, "identity, gzip ; q=0.2": true,
	} {
		if got := acceptsGzip(http.Header{"Accept-Encoding": {value}}); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}
