package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

// FuzzObject compares with encoding/json, in both directions.
func FuzzObject(f *testing.F) {
	for _, v := range validValues {
		f.Add([]byte(`{"v":` + v + `,"a":{"b":` + v + `}}`))
	}
	for _, doc := range []string{
		``, `{`, `{"a":{"b":"QUJD"}}`, `{"a":{"b":"x","b":"y"}}`, `{"\u0061":1,"a":2}`, `{"a":01}`, `{"a":1.}`, `{"a":1,}`,
		`{"a":"\ud800"}`, "{\"a\":\"\xff\"}", "\xEF\xBB\xBF{}", `{} {}`, `{"a":{"b":"\u002b\/\n"}}`, `[1]`,
		nested(`{"a":`, `1`, `}`, MaxDepth+1), `{"a":` + nested(`[`, ``, `]`, MaxDepth) + `}`,
	} {
		f.Add([]byte(doc))
	}
	path := []string{"a", "b"}
	f.Fuzz(func(t *testing.T, doc []byte) {
		rest, sunk, diverted, err := read(bytes.NewReader(doc), path...)
		if err == nil {
			checkSame(t, doc, []byte(rest), []byte(sunk), diverted, path)
			if !json.Valid([]byte(rest)) || !isStrict(doc) {
				t.Fatalf("accepted %q", doc)
			}
		} else if isStrict(doc) {
			t.Fatalf("refused %q: %v", doc, err)
		}
		// How the bytes arrive must not matter.
		rest2, sunk2, diverted2, err2 := read(iotest.OneByteReader(bytes.NewReader(doc)), path...)
		if rest2 != rest || diverted2 != diverted || (err == nil && sunk2 != sunk) || text(err2) != text(err) {
			t.Fatalf("%q: whole gives %s, %q, %v; byte by byte gives %s, %q, %v", doc, rest, sunk, err, rest2, sunk2, err2)
		}
		var syntax *SyntaxError
		if err != nil && (!errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > int64(len(doc))) {
			t.Fatalf("%q: got %v, want a syntax error within the body", doc, err)
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

var (
	pair = regexp.MustCompile(`(?i)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})`)
	half = regexp.MustCompile(`(?i)\\ud[89a-f]`)
)

// isStrict is the definition of the package put on top of encoding/json, without
// regard to memory.
func isStrict(doc []byte) bool {
	if !json.Valid(doc) || !utf8.Valid(doc) || loneSurrogate(doc) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	first, err := d.Token()
	return err == nil && first == json.Delim('{') && strictInside(d, '{', 1)
}

// strictInside reads to the end of the object or array that open began.
func strictInside(d *json.Decoder, open json.Delim, level int) bool {
	if level > MaxDepth {
		return false
	}
	seen := map[json.Token]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil || seen[key] {
				return false
			}
			seen[key] = true
		}
		value, err := d.Token()
		if err != nil {
			return false
		}
		if below, ok := value.(json.Delim); ok && !strictInside(d, below, level+1) {
			return false
		}
	}
	_, err := d.Token()
	return err == nil
}

// loneSurrogate looks for \u escapes of surrogates that are left when the pairs
// and the escaped backslashes are gone. The document must be valid otherwise.
func loneSurrogate(doc []byte) bool {
	s := strings.ReplaceAll(string(doc), `\\`, `__`)
	s = pair.ReplaceAllString(s, `__`)
	return half.MatchString(s)
}

// FuzzDivert compares what the sink gets with encoding/json's decoded string.
func FuzzDivert(f *testing.F) {
	for _, s := range []string{``, `QUJD`, `QU\/JD\u002b\r\n`, `\ud83d\ude00é€😀`, `\"\\`, `data:image/png;base64,AAAA`, "\x7f", `\`, "\n"} {
		f.Add(s, uint16(1))
	}
	f.Fuzz(func(t *testing.T, s string, split uint16) {
		doc := `{"m":"` + s + `"}`
		var want map[string]string
		if json.Unmarshal([]byte(doc), &want) != nil || len(want) != 1 || !isStrict([]byte(doc)) {
			return
		}
		i := int(split) % len(doc)
		rest, sunk, diverted, err := read(io.MultiReader(strings.NewReader(doc[:i]), strings.NewReader(doc[i:])), "m")
		if err != nil || !diverted || rest != `{"m":""}` || sunk != want["m"] {
			t.Fatalf("%s: got %s, sunk %q, diverted %v, error %v; want sunk %q", doc, rest, sunk, diverted, err, want["m"])
		}
	})
}
