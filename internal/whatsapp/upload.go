package whatsapp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/textproto"
	"strings"
	"time"

	"messagesender/internal/media"
)

// slowestUpload is the pace, in bytes per second, below which an upload is given
// up: callTimeout is for the answer, and the rest for the bytes.
const slowestUpload = 128 << 10

// readSize is in bytes. Each read of a large blob opens its file.
const readSize = 64 << 10

// upload moves blob to the platform, which keeps it for 30 days, and returns its
// id there. The bytes are streamed from where they are spooled. It reaches nobody, so
// it is repeated where it failed for a while, known or not.
func (p *Platform) upload(ctx context.Context, blob *media.Blob) (id string, err error) {
	head, tail, contentType := multipartFrame(blob.Type())
	return p.do(ctx, call{
		url:         p.mediaURL,
		token:       p.account.AccessToken,
		contentType: contentType,
		body: func() io.Reader {
			return io.MultiReader(bytes.NewReader(head), bufio.NewReaderSize(blob.NewReader(), readSize), bytes.NewReader(tail))
		},
		size:     int64(len(head)) + blob.Size() + int64(len(tail)),
		effect:   repeatable,
		attempts: maxAttempts,
		timeout:  callTimeout + time.Duration(blob.Size()/slowestUpload)*time.Second,
	}, uploadedID)
}

// multipartFrame is everything of a multipart/form-data body (RFC 7578) but the
// file's bytes, which stand between head and tail. The file comes last, because
// the platform reads the fields first. Its name says what it is, because the
// platform goes by the name's ending, whatever type is declared; the caller's own
// name stands in the message and never in a header.
func multipartFrame(t media.Type) (head, tail []byte, contentType string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	// A bytes.Buffer takes every write.
	_ = w.WriteField("messaging_product", "whatsapp")
	_ = w.WriteField("type", t.MIME)
	_, _ = w.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="file"; filename="media` + t.Ext() + `"`},
		"Content-Type":        {t.MIME},
	})
	n := b.Len()
	_ = w.Close()
	return b.Bytes()[:n:n], b.Bytes()[n:], w.FormDataContentType()
}

// uploadedID reads the answer to an upload.
func uploadedID(body []byte) (string, bool) {
	var reply struct {
		ID string `json:"id"`
	}
	return reply.ID, decode(body, &reply) && usableID(reply.ID)
}

// maxID bounds an identifier that the platform gives, in bytes.
const maxID = 512

func usableID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
