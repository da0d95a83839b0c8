package outbox

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"messagesender/internal/message"
)

// Media answers GET /outbox/messages/{messageId}/media: the bytes that were
// sent, also in ranges. Nothing in them can act in the name of this server:
// only images, audio and video are shown, everything else is a download.
func (s *Store) Media(w http.ResponseWriter, r *http.Request, account string) error {
	e, b, err := s.lookUp(r, account)
	if err != nil {
		return err
	}
	if !e.hasMedia() {
		return message.NewError(message.NotFound, "the message has no media here")
	}
	var record record
	if err := json.Unmarshal(b, &record); err != nil {
		return unreadable(err)
	}
	f, err := os.Open(s.mediaPath(e))
	if errors.Is(err, os.ErrNotExist) {
		return notFound() // evicted meanwhile
	}
	if err != nil {
		return unreadable(err)
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", record.ContentType)
	h.Set("Content-Disposition", disposition(record))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("ETag", `"`+record.SHA256+`"`)
	noStore(h)
	out := newWriter(w)
	defer out.finish()
	http.ServeContent(out, r, "", time.Time{}, f)
	return nil
}

func disposition(r record) string {
	how := "attachment"
	kind, subtype, _ := strings.Cut(r.ContentType, "/")
	if kind == "audio" || kind == "video" || kind == "image" && !strings.HasPrefix(subtype, "svg") {
		how = "inline"
	}
	name := r.FileName
	if name == "" {
		name = r.MessageID
	}
	if s := mime.FormatMediaType(how, map[string]string{"filename": name}); s != "" {
		return s
	}
	return how
}
