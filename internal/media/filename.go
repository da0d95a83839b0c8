package media

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxFileName is the longest name in bytes: what Linux and macOS take
// (NAME_MAX) and contract 4.2 allows.
const MaxFileName = 255

// CheckFileName applies the rule for fileName (contract 4.2): 1 to MaxFileName
// bytes of UTF-8, no path, no control characters, none that change the
// direction of writing, with which "invoice_fdp.exe" can be shown as
// "invoice_exe.pdf". The error is a text for the client, without the name.
func CheckFileName(name string) error {
	switch {
	case name == "" || len(name) > MaxFileName:
		return errors.New("must be 1 to 255 bytes long")
	case !utf8.ValidString(name):
		return errors.New("must be valid UTF-8")
	case name == "." || name == ".." || strings.ContainsAny(name, `/\`):
		return errors.New("must not contain a path")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("must not contain control characters")
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }):
		return errors.New("must not contain characters that change the direction of writing")
	}
	return nil
}
