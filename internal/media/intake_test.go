package media

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// takeIn feeds s in pieces of at most n bytes and closes what comes out.
func takeIn(t testing.TB, spool *Spool, s string, n int) (url string, content []byte, err error) {
	t.Helper()
	in := spool.NewIntake()
	defer in.Close()
	for rest := s; rest != ""; {
		piece := rest[:min(n, len(rest))]
		rest = rest[len(piece):]
		if _, err := io.WriteString(in, piece); err != nil {
			return "", nil, err
		}
	}
	source, err := in.Finish()
	if err != nil {
		if source != (Source{}) {
			t.Errorf("with the error %v there is a source", err)
		}
		return "", nil, err
	}
	defer source.Close()
	if source.Blob == nil {
		return source.URL, nil, nil
	}
	content, err = io.ReadAll(source.Blob.NewReader())
	if err != nil {
		t.Fatalf("reading the blob: %v", err)
	}
	if want := sha256.Sum256(content); source.Blob.SHA256() != want {
		t.Errorf("SHA-256 is %x, want %x", source.Blob.SHA256(), want)
	}
	return "", content, nil
}

var pieces = []int{1, 2, 3, 5, 7, 64, 1 << 20}

func TestIntakeTakes(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"Base64 with padding", "aGVsbG8=", "hello"},
		{"Base64 with two characters of padding", "aGVsbA==", "hell"},
		{"Base64 without padding", "aGVsbG8", "hello"},
		{"Base64 that needs no padding", "aGVsbG8h", "hello!"},
		{"the standard alphabet", "+/+/+/8=", "\xfb\xff\xbf\xfb\xff"},
		{"the URL-safe alphabet", "-_-_-_8=", "\xfb\xff\xbf\xfb\xff"},
		{"the alphabet shows late", "AAAAAAAA-AAA", "\x00\x00\x00\x00\x00\x00\xf8\x00\x00"},
		{"lines of MIME", "aGVs\r\nbG8h\r\n", "hello!"},
		{"lines that cut groups of four", "aG\nVsb\rG8\n\nh", "hello!"},
		{"line ends before, in and after the padding", "\naGVsbA\n=\r\n=\n", "hell"},
		{"bits left over in the last character", "aGVsbG9=", "hello"},
		{"a few characters that begin like a URL", "http", "\x86\xdb\x69"},
		{"Base64 that begins like a scheme", "httpsAAA", "\x86\xdb\x69\xb0\x00\x00"},
		{"Base64 that is the word data", "data", "\x75\xab\x5a"},
		{"a data: URI with Base64", "data:image/png;base64,aGVsbG8=", "hello"},
		{"a data: URI in capitals", "DATA:;BASE64,aGVsbG8", "hello"},
		{"a data: URI with a parameter", "data:text/plain;charset=utf-8;base64,aGVsbG8", "hello"},
		{"a data: URI without Base64", "data:,hello%20w%6Frld,+!", "hello world,+!"},
		{"a data: URI with base64 for a media type", "data:base64,abc", "abc"},
		{"a data: URI with characters beyond ASCII", "data:,é", "é"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			for _, n := range pieces {
				_, got, err := takeIn(t, spool, tt.in, n)
				if err != nil || string(got) != tt.want {
					t.Errorf("in pieces of %d: got %q, error %v; want %q", n, got, err, tt.want)
				}
			}
			wantEmpty(t, spool)
		})
	}
}

func TestIntakeKeepsURLs(t *testing.T) {
	long := "https://example.com/" + strings.Repeat("a", MaxURL-len("https://example.com/"))
	for _, in := range []string{
		"http://example.com", "https://example.com/a%20b?X-Amz-Signature=1%2F2&x=a+b#c", "HTTPS://EXAMPLE.COM/",
		"http://127.0.0.1:65535/", "http://[::1]:8080/x", "https://bücher.example/é", long,
	} {
		spool := newSpool(t, testLimits)
		for _, n := range pieces {
			if got, _, err := takeIn(t, spool, in, n); err != nil || got != in {
				t.Errorf("in pieces of %d: got %q, error %v; want %q", n, got, err, in)
			}
		}
	}
}

func TestIntakeRefuses(t *testing.T) {
	const form = "must be an http or https URL, Base64 or a data: URI"
	tests := []struct{ name, in, want string }{
		{"nothing", "", "must not be empty"},
		{"only line ends", "\r\n", "must not be empty"},
		{"a data: URI with no bytes", "data:,", "must not be empty"},
		{"a space", "aGVs bG8=", form + " (character 5 is not Base64)"},
		{"a tab in the last group", "aGVsbG\t", form + " (character 7 is not Base64)"},
		{"a bad character after line ends", "aGVs\r\nbG8h\r\n!", form + " (character 13 is not Base64)"},
		{"a bad character far on", strings.Repeat("A", 1000) + "!", form + " (character 1001 is not Base64)"},
		{"another scheme", "ftp://example.com/", form + " (character 4 is not Base64)"},
		{"one slash", "http:/example.com/", form + " (character 5 is not Base64)"},
		{"both alphabets", "AAA+AAA_", form + " (character 8 belongs to the other Base64 alphabet: + and / must not be mixed with - and _)"},
		{"both alphabets, far apart", "-" + strings.Repeat("A", 99) + "/", form + " (character 101 belongs to the other Base64 alphabet: + and / must not be mixed with - and _)"},
		{"one character too many", "aGVsb", form + " (the Base64 is cut off: one character is left over)"},
		{"half of the padding", "aGVsbA=", form + " (the padding of the Base64 is incomplete)"},
		{"too much padding", "aGVsbG8==", form + " (character 9 is padding where the Base64 needs none)"},
		{"padding where none is needed", "aGVsbG8h=", form + " (character 9 is padding where the Base64 needs none)"},
		{"padding after one character", "aGVsb===", form + " (character 6 is padding where the Base64 needs none)"},
		{"nothing but padding", "====", form + " (character 1 is padding where the Base64 needs none)"},
		{"something after the padding", "aGVsbG8=\r\nA", form + " (character 11 stands after the padding of the Base64)"},
		{"a data: URI with bad Base64", "data:;base64,aG*s", form + " (character 16 is not Base64)"},
		{"a data: URI without a comma", "data:image/png", form + " (the data: URI has no comma)"},
		{"a data: URI with a long header", "data:" + strings.Repeat("a", 252) + ",a", form + " (the data: URI has no comma within its first 256 bytes)"},
		{"a data: URI with half an escape", "data:,ab%4", form + " (character 9 begins no percent-encoded byte)"},
		{"a data: URI with a bad escape", "data:,ab%4xcd", form + " (character 9 begins no percent-encoded byte)"},
		{"a data: URI with a fragment", "data:,ab#c", form + " (character 9 must be percent-encoded in a data: URI)"},
		{"a URL without a host", "https:///a", "is not a usable URL: it has no host"},
		{"a URL of a port alone", "https://:80/a", "is not a usable URL: it has no host"},
		{"a URL with a password", "https://a:b@example.com/", "is not a usable URL: it contains a user name or password"},
		{"a URL with an empty user name", "https://@example.com/", "is not a usable URL: it contains a user name or password"},
		{"a URL with a space", "https://example.com/a b", "is not a usable URL: it contains spaces or control characters"},
		{"a URL with a line end", "https://example.com/\n", "is not a usable URL: it contains spaces or control characters"},
		{"a URL with a C1 control character", "https://example.com/\u0085", "is not a usable URL: it contains spaces or control characters"},
		{"a URL with port 0", "http://example.com:0/", "is not a usable URL: the port is not a number from 1 to 65535"},
		{"a URL with a large port", "http://example.com:65536/", "is not a usable URL: the port is not a number from 1 to 65535"},
		{"a URL with a bad escape", "http://example.com/%zz", "is not a usable URL: it does not parse"},
		{"a URL that is too long", "http://example.com/" + strings.Repeat("a", MaxURL), "must not be a URL of more than 8192 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spool := newSpool(t, testLimits)
			for _, n := range pieces {
				_, got, err := takeIn(t, spool, tt.in, n)
				if form, ok := errors.AsType[*FormError](err); !ok || form.Msg != tt.want {
					t.Errorf("in pieces of %d: got %q, error %v; want %q", n, got, err, tt.want)
				}
			}
			wantEmpty(t, spool)
		})
	}
}

func TestIntakeFreesBytesAtFormErrorAndSwallowsTheRest(t *testing.T) {
	spool := newSpool(t, testLimits)
	in := spool.NewIntake()
	defer in.Close()
	io.WriteString(in, strings.Repeat("A", 1<<20))
	if spool.Used() == 0 {
		t.Fatal("nothing was spooled")
	}
	for range 3 {
		if n, err := io.WriteString(in, "* * *"); n != 5 || err != nil {
			t.Fatalf("Write returned %d, %v; want 5, nil", n, err)
		}
		wantEmpty(t, spool)
	}
	if _, err := in.Finish(); err == nil {
		t.Error("Finish returned no error")
	}
}

func TestIntakeReturnsLimitsAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		limits Limits
		want   func(error) bool
	}{
		"a blob too large": {Limits{Blob: 100 << 10, Total: 1 << 30, Memory: 1 << 30}, func(err error) bool {
			tooLarge, ok := errors.AsType[*TooLargeError](err)
			return ok && tooLarge.Limit == 100<<10
		}},
		"a full spool": {Limits{Blob: 1 << 30, Total: 100 << 10}, func(err error) bool { return errors.Is(err, ErrSpoolFull) }},
	} {
		t.Run(name, func(t *testing.T) {
			spool := newSpool(t, tt.limits)
			in := spool.NewIntake()
			_, err := io.WriteString(in, strings.Repeat("A", 1<<20))
			if !tt.want(err) {
				t.Errorf("Write returned %v", err)
			}
			if _, err := in.Finish(); !tt.want(err) {
				t.Errorf("Finish returned %v", err)
			}
			in.Close()
			wantEmpty(t, spool)
		})
	}
}

func TestIntakeCloseDiscards(t *testing.T) {
	spool := newSpool(t, testLimits)
	in := spool.NewIntake()
	io.WriteString(in, strings.Repeat("A", 1<<20))
	in.Close()
	in.Close()
	wantEmpty(t, spool)
	if _, err := in.Write([]byte("A")); err == nil {
		t.Error("Write after Close returned no error")
	}
	if _, err := in.Finish(); err == nil {
		t.Error("Finish after Close returned no error")
	}
}

// referenceBase64 is the rule of contract 4.2 for a whole string.
func referenceBase64(s string) ([]byte, bool) {
	s = strings.NewReplacer("\r", "", "\n", "").Replace(s)
	enc := base64.StdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.URLEncoding
	}
	if !strings.Contains(s, "=") {
		enc = enc.WithPadding(base64.NoPadding)
	}
	b, err := enc.DecodeString(s)
	return b, err == nil && len(b) > 0
}

func FuzzIntake(f *testing.F) {
	for _, s := range []string{
		"", "aGVsbG8=", "aGVsbG8", "-_-_", "+/+/", "+_", "aGVs\r\nbG8=\n", "aGVsbA=\n=", "a===", "====", "ab=c", "AAAAA", "AAAA=",
		"http", "data:,a%20b", "data:;base64,AAAA", "https://example.com/", "AAAA\x00", "é", strings.Repeat("AAAA", 200),
	} {
		f.Add(s, uint64(1))
	}
	spool := newSpool(f, testLimits)
	f.Fuzz(func(t *testing.T, s string, seed uint64) {
		random := rand.New(rand.NewPCG(seed, seed))
		in := spool.NewIntake()
		defer in.Close()
		for rest := s; rest != ""; {
			n := 1 + random.IntN(min(len(rest), 100))
			if m, err := io.WriteString(in, rest[:n]); m != n || err != nil {
				t.Fatalf("Write returned %d, %v; want %d, nil", m, err, n)
			}
			rest = rest[n:]
		}
		source, err := in.Finish()
		if err == nil {
			defer source.Close()
		} else {
			if _, ok := err.(*FormError); !ok {
				t.Fatalf("error is %v, want a *FormError", err)
			}
			wantUsed(t, spool, 0)
		}
		lower := strings.ToLower(s)
		switch {
		case strings.HasPrefix(lower, "http://"), strings.HasPrefix(lower, "https://"):
			if err == nil && source.URL != s {
				t.Fatalf("URL is %q, want %q", source.URL, s)
			}
			return
		case strings.HasPrefix(lower, "data:"):
			header, data, found := strings.Cut(s, ",")
			if !found || len(header) >= maxDataHeader {
				if err == nil {
					t.Fatal("accepted without a header")
				}
				return
			}
			if !strings.HasSuffix(strings.ToLower(header), ";base64") {
				return
			}
			s = data
		}
		want, ok := referenceBase64(s)
		if ok != (err == nil) {
			t.Fatalf("%q: error %v; accepted by the reference: %t", s, err, ok)
		}
		if ok {
			got, err := io.ReadAll(source.Blob.NewReader())
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%q: got %q, %v; want %q", s, got, err, want)
			}
		}
	})
}

func randomBytes(n int) []byte {
	var seed [32]byte
	b := make([]byte, n)
	rand.NewChaCha8(seed).Read(b)
	return b
}

func benchmarkIntake(b *testing.B, text string, write int) {
	spool := newSpool(b, Limits{Blob: 1 << 30, Total: 1 << 30, Memory: 1 << 30})
	data := []byte(text)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		in := spool.NewIntake()
		for rest := data; len(rest) > 0; {
			n := min(write, len(rest))
			if _, err := in.Write(rest[:n]); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
		source, err := in.Finish()
		if err != nil {
			b.Fatal(err)
		}
		source.Close()
	}
}

// BenchmarkIntakeSpool is decoding, hashing and writing to a file; MB/s are of Base64.
func BenchmarkIntakeSpool(b *testing.B) {
	text := base64.StdEncoding.EncodeToString(randomBytes(12 << 20))
	b.Run("plain", func(b *testing.B) { benchmarkIntake(b, text, 64<<10) })
	b.Run("MIME", func(b *testing.B) { benchmarkIntake(b, mimeLines(text), 64<<10) })
	b.Run("small", func(b *testing.B) { benchmarkIntake(b, text[:16<<10], 64<<10) })
}

// BenchmarkBase64 is decoding alone.
func BenchmarkBase64(b *testing.B) {
	text := base64.StdEncoding.EncodeToString(randomBytes(12 << 20))
	for name, text := range map[string]string{
		"plain": text, "MIME": mimeLines(text), "no alphabet": strings.Repeat("AbC0", 4<<20), "CR only": strings.ReplaceAll(mimeLines(text[:1<<20]), "\r\n", "\r"),
	} {
		for _, write := range []int{78, 64 << 10} {
			b.Run(fmt.Sprintf("%s in %d", name, write), func(b *testing.B) {
				data := []byte(text)
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					out := output{buf: new([pieceSize]byte)}
					d := newBase64Decoder(&out, 0)
					for rest := data; len(rest) > 0; {
						n := min(write, len(rest))
						out.n = 0
						if err := d.decode(rest[:n]); err != nil {
							b.Fatal(err)
						}
						rest = rest[n:]
					}
				}
			})
		}
	}
}

func mimeLines(text string) string {
	var lines strings.Builder
	for ; len(text) > 76; text = text[76:] {
		lines.WriteString(text[:76])
		lines.WriteString("\r\n")
	}
	lines.WriteString(text)
	return lines.String()
}
