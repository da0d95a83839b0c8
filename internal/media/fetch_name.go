package media

import (
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// contentType is the type an answer claims, without parameters.
func contentType(h http.Header) string {
	const longest = 127 // RFC 6838 section 4.2 allows each half that much; none in use comes near
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if len(kind) > longest || !strings.Contains(kind, "/") {
		return ""
	}
	return kind
}

// offeredName is the file name an answer offers: the one in its
// Content-Disposition (RFC 6266), otherwise the last segment of the path it was
// finally fetched from. A name that breaks the fileName rule is none.
func offeredName(answer *http.Response) string {
	_, params, err := mime.ParseMediaType(answer.Header.Get("Content-Disposition"))
	if err == nil { // filename* is decoded and comes first, as it should
		if name := lastSegment(params["filename"]); CheckFileName(name) == nil {
			return name
		}
	}
	name, err := url.PathUnescape(lastSegment(answer.Request.URL.EscapedPath()))
	if err != nil || CheckFileName(name) != nil {
		return ""
	}
	return name
}

// lastSegment is what follows the last separator of either kind: a name must
// not carry a path, and some servers send the one from their own disk.
func lastSegment(path string) string {
	return path[strings.LastIndexAny(path, `/\`)+1:]
}
