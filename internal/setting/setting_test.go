package setting

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want Size // 0: refused
		back string
	}{
		{"1", 1, "1"}, {"1048576", 1 << 20, "1MiB"}, {"512KiB", 512 << 10, "512KiB"}, {"100MiB", 100 << 20, "100MiB"},
		{"2GiB", 2 << 30, "2GiB"}, {"1536MiB", 1536 << 20, "1536MiB"}, {"7B", 7, "7"}, {"1048576GiB", 1 << 50, "1048576GiB"},
		{"", 0, ""}, {"0", 0, ""}, {"-1", 0, ""}, {"1MB", 0, ""}, {"MiB", 0, ""}, {"1 MiB", 0, ""}, {"1.5GiB", 0, ""}, {"1048577GiB", 0, ""}, {"99999999999999999999", 0, ""},
	} {
		var got Size
		err := got.Set(c.text)
		if (err != nil) != (c.want == 0) || got != c.want {
			t.Errorf("%q: got %d, %v, want %d", c.text, got, err, c.want)
		}
		if c.want != 0 && got.String() != c.back {
			t.Errorf("%q: written back as %q, want %q", c.text, got.String(), c.back)
		}
	}
}

func FuzzSize(f *testing.F) {
	f.Add("100MiB")
	f.Add("-0KiB")
	f.Fuzz(func(t *testing.T, text string) {
		var s, again Size
		if s.Set(text) != nil {
			return
		}
		if s <= 0 || s > maxSize {
			t.Errorf("%q: got %d, want 1 to %d", text, s, int64(maxSize))
		}
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q: written as %q and read as %d, %v, want %d", text, s.String(), again, err, s)
		}
	})
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name  string
		args  []string
		env   string
		want  time.Duration
		wrong string // part of the error; empty: none
	}{
		{"the default", nil, "", time.Minute, ""},
		{"the environment", nil, "2s", 2 * time.Second, ""},
		{"an explicit flag wins", []string{"-max-delay", "3s"}, "2s", 3 * time.Second, ""},
		{"and wins over a wrong environment", []string{"-max-delay", "3s"}, "soon", 3 * time.Second, ""},
		{"a wrong environment is named", nil, "soon", 0, "MAX_DELAY"},
		{"a wrong flag", []string{"-max-delay", "soon"}, "", 0, "max-delay"},
		{"an unknown flag", []string{"-delay", "1s"}, "", 0, "delay"},
		{"a word", []string{"now"}, "", 0, `"now"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := flag.NewFlagSet("x", flag.ContinueOnError)
			got := f.Duration("max-delay", time.Minute, "")
			err := Parse(f, c.args, func(name string) string { return map[string]string{"MAX_DELAY": c.env}[name] })
			if c.wrong == "" && (err != nil || *got != c.want) {
				t.Errorf("got %v, %v, want %v", *got, err, c.want)
			}
			if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got error %v, want one line naming %s", err, c.wrong)
			}
		})
	}
	if err := Parse(flag.NewFlagSet("x", flag.ContinueOnError), []string{"-h"}, os.Getenv); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v, want flag.ErrHelp", err)
	}
}

func TestSecret(t *testing.T) {
	write := func(content string) string {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name        string
		value, file string
		want        string
		wrong       bool
	}{
		{"neither", "", "", "", false},
		{"the variable", "s3cret", "", "s3cret", false},
		{"a file", "", write("s3cret\n"), "s3cret", false},
		{"a file with another line end", "", write("s3cret\r\n"), "s3cret", false},
		{"inner spaces stay", "", write(" s3 cret "), " s3 cret ", false},
		{"both", "s3cret", write("s3cret"), "", true},
		{"an empty file", "", write("\n"), "", true},
		{"a file that is too long", "", write(strings.Repeat("s3cret", 1000)), "", true},
		{"no such file", "", "/nonexistent/file", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Secret(func(name string) string {
				return map[string]string{"KEY": c.value, "KEY_FILE": c.file}[name]
			}, "KEY")
			if got != c.want || (err != nil) != c.wrong {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error holds the secret: %v", err)
			}
		})
	}
}
