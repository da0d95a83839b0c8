package outbox

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed page/index.html page/page.css page/page.js
var pageFiles embed.FS

// pagePolicy lets the page run its own script and talk to its own server, and
// nothing else. Media that is fetched with a key is shown from a blob: URL.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self' blob:; media-src 'self' blob:; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// Page is the outbox as a web page. It holds no message and no secret: what it
// shows it reads from the JSON API and the event stream.
type Page struct {
	files map[string]pageFile // by the last element of their path
}

type pageFile struct {
	contentType string
	plain, gzip []byte
	digest      string // of plain
}

// NewPage returns the page of a service whose audio operation is
// /message/send<audioWord>Audio. audioWord consists of letters and digits.
func NewPage(audioWord string) (*Page, error) {
	p := &Page{files: map[string]pageFile{}}
	for _, f := range []struct{ path, name, contentType string }{
		{"", "index.html", "text/html; charset=utf-8"},
		{"page.css", "page.css", "text/css; charset=utf-8"},
		{"page.js", "page.js", "text/javascript; charset=utf-8"},
	} {
		plain, err := pageFiles.ReadFile("page/" + f.name)
		if err != nil {
			return nil, err
		}
		if f.path == "" {
			plain = bytes.ReplaceAll(plain, []byte("{{audioWord}}"), []byte(audioWord))
		}
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := z.Write(plain); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(plain)
		p.files[f.path] = pageFile{f.contentType, plain, packed.Bytes(), hex.EncodeToString(sum[:8])}
	}
	return p, nil
}

// Serve answers GET /outbox/, /outbox/page.css and /outbox/page.js.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, _ string) error {
	_, name := path.Split(r.URL.Path)
	f, ok := p.files[name]
	if !ok {
		return notFound()
	}
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "private, no-cache") // asks each time, and mostly gets a 304
	h.Set("Vary", "Accept-Encoding")
	content, digest := f.plain, f.digest
	if acceptsGzip(r.Header) {
		content, digest = f.gzip, f.digest+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", fmt.Sprintf("%q", digest))
	out := newWriter(w)
	defer out.finish()
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}

// acceptsGzip follows RFC 9110 section 12.5.3 as far as browsers use it: a coding
// is accepted when it is named, unless its weight is zero.
func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return weight == "" || strings.Trim(weight, " qQ=0.") != ""
		}
	}
	return false
}
