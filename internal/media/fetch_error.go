package media

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// openError says why there is no answer.
func (f *Fetcher) openError(ctx context.Context, err error) error {
	var known *FetchError
	if errors.As(err, &known) {
		return known
	}
	if cut := f.cutError(ctx, "without an answer"); cut != nil {
		return cut
	}
	failed := &FetchError{Retryable: true, Cause: withoutContent(err)}
	var (
		name        *net.DNSError
		dial        *net.OpError
		timeout     net.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch timedOut := errors.As(err, &timeout) && timeout.Timeout(); {
	case errors.Is(err, errAddressDenied):
		failed.Text, failed.Retryable = errAddressDenied.Error(), false
	case errors.Is(err, errPortDenied):
		failed.Text, failed.Retryable = errPortDenied.Error(), false
	case errors.As(err, &name) && name.IsNotFound:
		failed.Text, failed.Retryable = "the host name does not exist", false
	case errors.As(err, &dial) && dial.Op == "dial" && timedOut:
		failed.Text = fmt.Sprintf("no connection within %s", f.limits.Connect)
	case errors.As(err, &name), errors.As(err, &dial) && dial.Op == "dial":
		failed.Text = "no connection to the server"
	case errors.As(err, &certificate):
		failed.Text, failed.Retryable = "the server's certificate is not valid", false
	case errors.As(err, &record):
		failed.Text, failed.Retryable = "the server does not speak TLS", false
	case timedOut:
		failed.Text = fmt.Sprintf("no answer within %s", f.limits.FirstByte)
	default:
		failed.Text = "the server gave no usable answer"
	}
	return failed
}

// bodyError says how far the body came.
func (f *Fetcher) bodyError(ctx context.Context, body *watchedBody) error {
	received := fmt.Sprintf("after %d bytes", body.n)
	if body.announced >= 0 {
		received = fmt.Sprintf("after %d of %d bytes", body.n, body.announced)
	}
	if cut := f.cutError(ctx, received); cut != nil {
		return cut
	}
	text := "the server stopped " + received
	if body.announced >= 0 && errors.Is(body.err, io.ErrUnexpectedEOF) {
		text = fmt.Sprintf("the server sent %d of %d bytes", body.n, body.announced)
	}
	return &FetchError{Text: text, Retryable: true, Cause: withoutContent(body.err)}
}

// cutError is for a download that was cut by a limit or by its caller; nil: it was not.
func (f *Fetcher) cutError(ctx context.Context, received string) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return nil
	}
	cut := &FetchError{Retryable: true, Cause: cause}
	switch cause {
	case errWhole:
		cut.Text = fmt.Sprintf("the download was cut after %s, %s", f.limits.Whole, received)
	case errStalled:
		cut.Text = fmt.Sprintf("the server sent nothing for %s, %s", f.limits.Stall, received)
	case errSlow:
		cut.Text = fmt.Sprintf("the server sent less than %d bytes in %s, %s", f.limits.MinBytes, f.limits.Stall, received)
	default: // the caller's
		cut.Text = "the download was cancelled " + received
	}
	return cut
}

// storeError gives the client's text to what is too large and leaves the rest,
// which is about the spool, as it is.
func storeError(err error) error {
	var tooLarge *TooLargeError
	if errors.As(err, &tooLarge) {
		return &FetchError{Text: fmt.Sprintf("the content is larger than the limit of %d bytes", tooLarge.Limit), Cause: err}
	}
	return err
}

// withoutContent keeps what a server sent out of the operator's log: net/http
// quotes it in the errors it makes of it.
func withoutContent(err error) error {
	if kept, _, quotes := strings.Cut(err.Error(), `"`); quotes {
		return errors.New(strings.TrimSpace(kept))
	}
	return err
}
