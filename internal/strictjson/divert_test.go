package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestDivert(t *testing.T) {
	tests := []struct {
		name, doc  string
		path       []string
		rest, sunk string
		diverted   bool
	}{
		{"a plain string", `{"a":{"b":"QUJD"},"c":1}`, []string{"a", "b"}, `{"a":{"b":""},"c":1}`, "QUJD", true},
		{"an empty string", `{"a":{"b":""}}`, []string{"a", "b"}, `{"a":{"b":""}}`, "", true},
		{"in the outer object", `{"x":{"b":"no"},"b":"yes"}`, []string{"b"}, `{"x":{"b":"no"},"b":""}`, "yes", true},
		{"three levels deep", `{"a":{"b":{"c":"yes"}}}`, []string{"a", "b", "c"}, `{"a":{"b":{"c":""}}}`, "yes", true},
		{"escapes", `{"m":"\"\\\/\b\f\n\r\t\u002b\u0000\u00e9\u20AC\uD83D\uDE00"}`, []string{"m"}, `{"m":""}`,
			"\"\\/\b\f\n\r\t+\x00é€😀", true},
		{"text beyond ASCII", `{"m":"é€😀` + "\u007f\u0080\u07ff\u0800\uffff\U0010ffff" + `"}`, []string{"m"}, `{"m":""}`,
			"é€😀\u007f\u0080\u07ff\u0800\uffff\U0010ffff", true},
		{"escaped keys on the way", `{"\u0061":{"\u0062":"yes"}}`, []string{"a", "b"}, `{"\u0061":{"\u0062":""}}`, "yes", true},
		{"a key that needs escaping", `{"a\"\n":"yes"}`, []string{"a\"\n"}, `{"a\"\n":""}`, "yes", true},
		{"the empty key", `{"":"yes"}`, []string{""}, `{"":""}`, "yes", true},
		{"after many keys", `{` + manyKeys(40) + `,"m":"yes"}`, []string{"m"}, `{` + manyKeys(40) + `,"m":""}`, "yes", true},

		{"absent", `{"a":{"c":"x"}}`, []string{"a", "b"}, `{"a":{"c":"x"}}`, "", false},
		{"no path", `{"a":"x","":"y"}`, nil, `{"a":"x","":"y"}`, "", false},
		{"null", `{"a":{"b":null}}`, []string{"a", "b"}, `{"a":{"b":null}}`, "", false},
		{"a number", `{"a":{"b":12}}`, []string{"a", "b"}, `{"a":{"b":12}}`, "", false},
		{"an object", `{"a":{"b":{"b":"x","a":{"b":"y"},"":"z"}}}`, []string{"a", "b"}, `{"a":{"b":{"b":"x","a":{"b":"y"},"":"z"}}}`, "", false},
		{"an array", `{"a":{"b":["x",{"b":"x"}]}}`, []string{"a", "b"}, `{"a":{"b":["x",{"b":"x"}]}}`, "", false},
		{"another case", `{"A":{"b":"x"},"a":{"B":"x"}}`, []string{"a", "b"}, `{"A":{"b":"x"},"a":{"B":"x"}}`, "", false},
		{"too high", `{"b":"x","a":"x"}`, []string{"a", "b"}, `{"b":"x","a":"x"}`, "", false},
		{"too deep", `{"c":{"a":{"b":"x"}}}`, []string{"a", "b"}, `{"c":{"a":{"b":"x"}}}`, "", false},
		{"another parent", `{"c":{"b":"x"},"a":{"c":{"b":"x"}}}`, []string{"a", "b"}, `{"c":{"b":"x"},"a":{"c":{"b":"x"}}}`, "", false},
		{"in an array on the way", `{"a":[{"b":"x"}]}`, []string{"a", "b"}, `{"a":[{"b":"x"}]}`, "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			everySplit(test.doc, func(how string, r io.Reader) {
				rest, sunk, diverted, err := read(r, test.path...)
				if err != nil {
					t.Fatalf("%s: got error %v", how, err)
				}
				if rest != test.rest || sunk != test.sunk || diverted != test.diverted {
					t.Fatalf("%s: got %s, sunk %q, diverted %v; want %s, %q, %v",
						how, rest, sunk, diverted, test.rest, test.sunk, test.diverted)
				}
			})
		})
	}
}

func TestDuplicateOfDivertedKey(t *testing.T) {
	for _, second := range []string{`"m":"again"`, `"\u006d":"again"`, `"m":null`} {
		_, sunk, _, err := read(strings.NewReader(`{"m":"once",`+second+`}`), "m")
		want := &SyntaxError{12, `duplicate key "m"`}
		if !reflect.DeepEqual(err, want) || sunk != "once" {
			t.Errorf("%s: got %v, sunk %q; want %v", second, err, sunk, want)
		}
	}
}

// Everything that is longer than a byte, across the end of the buffer at every
// place, in a diverted string, in another one and in a key.
func TestAcrossTheEndOfTheBuffer(t *testing.T) {
	// The empty token stands for the closing quote.
	for _, token := range []string{"é", "€", "😀", `\n`, `\/`, `\u20ac`, `\ud83d\ude00`, `\"`, `\\`, ""} {
		var unescaped string
		if err := json.Unmarshal([]byte(`"`+token+`"`), &unescaped); err != nil {
			t.Fatal(err)
		}
		for shift := range 20 {
			fill := strings.Repeat("x", bufferSize-shift)
			kept := `"` + fill + token + `"`
			rest, sunk, diverted, err := read(strings.NewReader(`{"m":`+kept+`}`), "m")
			if err != nil || !diverted || rest != `{"m":""}` || sunk != fill+unescaped {
				t.Fatalf("%s, shift %d: got %.50s, %d bytes sunk, error %v", token, shift, rest, len(sunk), err)
			}
			doc := `{` + kept + `:` + kept + `}`
			if rest, _, _, err = read(strings.NewReader(doc), "m"); err != nil || rest != doc {
				t.Fatalf("%s, shift %d: got error %v, rest as sent: %v", token, shift, err, rest == doc)
			}
			_, _, diverted, err = read(strings.NewReader(doc), fill+unescaped)
			if err != nil || !diverted {
				t.Fatalf("%s, shift %d, in the path: got diverted %v, error %v", token, shift, diverted, err)
			}
		}
	}
	for _, broken := range []string{"\xe2\x82", "\xf0\x9f\x98", "\xff", `\ud83d`, `\u20a`, `\x`, "\n"} {
		for shift := range 16 {
			doc := `{"m":"` + strings.Repeat("x", bufferSize-shift) + broken + `"}`
			_, _, _, err := read(strings.NewReader(doc), "m")
			var got *SyntaxError
			if want := int64(6 + bufferSize - shift); !errors.As(err, &got) || got.Offset != want {
				t.Fatalf("%q, shift %d: got %v, want a syntax error at %d", broken, shift, err, want)
			}
		}
	}
}

// pieces keeps what it is given, call by call.
type pieces [][]byte

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, bytes.Clone(b))
	return len(b), nil
}

func TestPiecesArriveAsReadAndInWholeCharacters(t *testing.T) {
	doc := `{"m":"` + strings.Repeat("a€😀", 50_000) + `"}`
	var got pieces
	if _, err := Object(strings.NewReader(doc), Options{Path: []string{"m"}, Sink: &got, MaxRest: 100, MaxBody: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	for i, piece := range got {
		if len(piece) == 0 || !utf8.Valid(piece) {
			t.Errorf("piece %d: got %d bytes, valid UTF-8: %v", i, len(piece), utf8.Valid(piece))
		}
	}
	if most := len(doc)/bufferSize + 1; len(got) > most {
		t.Errorf("got %d pieces, want at most %d", len(got), most)
	}
}

var errDisk = errors.New("disk full")

type failingSink struct{ accept int }

func (s *failingSink) Write(b []byte) (int, error) {
	if len(b) > s.accept {
		return s.accept, fmt.Errorf("spool: %w", errDisk)
	}
	s.accept -= len(b)
	return len(b), nil
}

type shortSink struct{}

func (shortSink) Write(b []byte) (int, error) { return len(b) - 1, nil }

func TestSinkErrorEndsTheReading(t *testing.T) {
	o := Options{Path: []string{"m"}, MaxRest: 100, MaxBody: 1 << 20}
	for _, doc := range []string{`{"m":"abc"}`, `{"m":"ab\n"}`, `{"m":"ab`, `{"m":"abc"} x`} {
		o.Sink = &failingSink{accept: 1}
		res, err := Object(strings.NewReader(doc), o)
		if !errors.Is(err, errDisk) || err.Error() != "spool: disk full" || res.Diverted {
			t.Errorf("%s: got %+v, %v; want no result and the sink's error", doc, res, err)
		}
	}
	// A sink's io.EOF must not be taken for the end of the body.
	reader, writer := io.Pipe()
	reader.CloseWithError(io.EOF)
	o.Sink = writer
	if _, err := Object(strings.NewReader(`{"m":"abc"}`), o); err != io.EOF {
		t.Errorf("sink that returns io.EOF: got %v", err)
	}
	o.Sink = shortSink{}
	if _, err := Object(strings.NewReader(`{"m":"abc"}`), o); err != io.ErrShortWrite {
		t.Errorf("sink that writes short: got %v", err)
	}
}

// checkSame fails unless rest with the sunk string put back means what doc means.
func checkSame(t *testing.T, doc, rest, sunk []byte, diverted bool, path []string) {
	t.Helper()
	want, got := decode(t, doc), decode(t, rest)
	if diverted {
		parent := got
		for _, key := range path[:len(path)-1] {
			parent = parent[key].(map[string]any)
		}
		last := path[len(path)-1]
		if parent[last] != "" {
			t.Fatalf("rest has %q in place of the diverted string", parent[last])
		}
		parent[last] = string(sunk)
	} else if len(sunk) > 0 {
		t.Fatalf("nothing diverted, but %d bytes sunk", len(sunk))
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("the rest means something else\n got %.200v\nwant %.200v", got, want)
	}
}

// decode is encoding/json's view; numbers stay text, as 1e999 is well formed.
func decode(t *testing.T, doc []byte) map[string]any {
	t.Helper()
	if !json.Valid(doc) {
		t.Fatalf("encoding/json does not take %.200q", doc)
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json does not take %.200q: %v", doc, err)
	}
	return v
}
