package media

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCheckFileName(t *testing.T) {
	const (
		length  = "must be 1 to 255 bytes long"
		path    = "must not contain a path"
		control = "must not contain control characters"
		bidi    = "must not contain characters that change the direction of writing"
	)
	tests := []struct{ name, in, want string }{
		{"a usual name", "report 2026.pdf", ""},
		{"letters of any script", "счёт–請求書.pdf", ""},
		{"right-to-left letters", "חשבונית.pdf", ""},
		{"a hidden file", ".profile", ""},
		{"three dots", "...", ""},
		{"the longest", strings.Repeat("a", 255), ""},
		{"empty", "", length},
		{"too long", strings.Repeat("a", 256), length},
		{"too long in bytes, not in characters", strings.Repeat("é", 128), length},
		{"broken UTF-8", "a\xff", "must be valid UTF-8"},
		{"this directory", ".", path},
		{"the directory above", "..", path},
		{"a slash", "a/b", path},
		{"a backslash", `..\b`, path},
		{"NUL", "a\x00b", control},
		{"a line end", "a\nb", control},
		{"DEL", "a\x7f", control},
		{"C1", "a\u0085", control},
		{"an override", "invoice_\u202efdp.exe", bidi},
		{"an isolate", "a\u2066b", bidi},
		{"a right-to-left mark", "a\u200fb", bidi},
		{"an Arabic letter mark", "a\u061cb", bidi},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := CheckFileName(tt.in); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzFileName(f *testing.F) {
	for _, s := range []string{"a.pdf", "", "..", "a/b", "a\u202eb", "\xff", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckFileName(name)
		ok := len(name) >= 1 && len(name) <= 255 && utf8.ValidString(name) && name != "." && name != ".."
		for _, r := range name {
			switch {
			case r == '/', r == '\\', unicode.IsControl(r),
				0x202a <= r && r <= 0x202e, 0x2066 <= r && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x61c:
				ok = false
			}
		}
		if ok != (err == nil) {
			t.Errorf("%q: error %v, want acceptable: %t", name, err, ok)
		}
	})
}
