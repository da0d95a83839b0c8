// Package media takes in what is to be sent: it tells a URL from bytes, decodes
// and spools the bytes, and finds out what they really are.
package media

// Kind is the declared kind of a media message (contract 4.2, mediaType).
type Kind string

const (
	Image    Kind = "image"
	Video    Kind = "video"
	Audio    Kind = "audio"
	Document Kind = "document"
)

// Source is where the bytes of a message come from: at least one of URL and Blob
// is set; both: the bytes were downloaded from the URL.
type Source struct {
	URL  string // http or https, checked for form, otherwise as it was given
	Blob *Blob  // bytes already here
}

// Close frees the spooled bytes, if any are still owned here. It may be called twice.
func (s Source) Close() error {
	if s.Blob == nil {
		return nil
	}
	return s.Blob.Close()
}
