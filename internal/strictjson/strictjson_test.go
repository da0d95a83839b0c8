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
	"testing/iotest"
)

// read runs Object with limits that do not matter.
func read(r io.Reader, path ...string) (rest, sunk string, diverted bool, err error) {
	var sink bytes.Buffer
	res, err := Object(r, Options{Path: path, Sink: &sink, MaxRest: 1 << 20, MaxBody: 1 << 24})
	return string(res.Rest), sink.String(), res.Diverted, err
}

// everySplit calls f with readers that deliver doc in every way that matters:
// whole, byte by byte, in two pieces split anywhere, and with io.EOF together
// with the last bytes.
func everySplit(doc string, f func(how string, r io.Reader)) {
	f("whole", strings.NewReader(doc))
	f("byte by byte", iotest.OneByteReader(strings.NewReader(doc)))
	f("end with the last bytes", iotest.DataErrReader(strings.NewReader(doc)))
	for i := 1; i < len(doc); i++ {
		pieces := io.MultiReader(strings.NewReader(doc[:i]), strings.NewReader(doc[i:]))
		f(fmt.Sprintf("split at %d", i), pieces)
	}
}

func nested(open, inner, close string, levels int) string {
	return strings.Repeat(open, levels) + inner + strings.Repeat(close, levels)
}

// values are put in place of V in several documents.
var validValues = []string{
	`null`, `true`, `false`, `0`, `-0`, `-0.0`, `0e1`, `0E+1`, `1e5`, `1E-5`, `1.5e+3`, `123.456e78`, `1e999`,
	`-123456789012345678901234567890`, `0.1`, `1500.0`,
	`""`, `"a"`, `" "`, `"\u0000"`, `"\"\\\/\b\f\n\r\t"`, `"\u00e9\u20AC\u20ac"`, `"\uD83D\uDE00"`, `"\ud800\udc00\udbff\udfff"`,
	`"\ufffd\uFFFF\uFEFF"`, `"a\u002bb\/c"`, "\"\x7f\"", "\"\u0080é€\uFEFF\uFFFD\uFFFF😀\U0010FFFF\"", "\"\u2028\"", `"/* not a comment */"`,
	`"long enough to fill a whole word"`, `"seven 7"`, `"word of eight é and then more \n and more"`,
	`{}`, `[]`, `[[]]`, `[{}]`, `[1,2,"3",null]`, `{"":0}`, `{"a":{"a":{"a":1}}}`, `{"a":1,"A":2,"\u00c5":3}`, `[{"a":1},{"a":2}]`,
	"[ 1 ,\n\t2\r]", "{ \"a\" :\n1 , \"b\"\t: 2 }",
}

func TestValidDocuments(t *testing.T) {
	docs := []string{
		`{}`, " \n{\t}\r\n ", `{"x":0}` + strings.Repeat(" ", 100),
		nested(`{"a":`, `1`, `}`, MaxDepth),
		`{"a":` + nested(`[`, ``, `]`, MaxDepth-1) + `}`,
		`{"a":` + nested(`[`, ``, `]`, MaxDepth-1) + `,"b":` + nested(`[`, ``, `]`, MaxDepth-1) + `}`,
	}
	for _, v := range validValues {
		docs = append(docs, `{"v":`+v+`}`, "{\"v\" : "+v+" , \"w\":["+v+"] }\n")
	}
	for _, doc := range docs {
		everySplit(doc, func(how string, r io.Reader) {
			rest, _, diverted, err := read(r)
			if err != nil || diverted {
				t.Fatalf("%s, %s: got diverted %v, error %v", doc, how, diverted, err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, []byte(doc)); err != nil {
				t.Fatalf("%s: the test is wrong: %v", doc, err)
			}
			if rest != want.String() {
				t.Fatalf("%s, %s: got rest %s, want %s", doc, how, rest, want.String())
			}
		})
	}
}

func TestInvalidDocuments(t *testing.T) {
	const (
		early   = "the body ends early"
		utf8    = "invalid UTF-8"
		lone    = "lone surrogate in a \\u escape"
		control = "control character in a string; it must be escaped"
		follow  = "nothing may follow the object"
		hex     = "\\u needs four hexadecimal digits"
		digit   = "expected a digit"
		value   = "expected a value"
		key     = "expected a key in double quotes"
		bom     = "the body must be a JSON object in UTF-8 without a byte order mark"
	)
	tests := []struct {
		doc    string
		offset int64
		msg    string
	}{
		{``, 0, "the body is empty"},
		{" \n ", 3, "the body is empty"},
		{`[1,2]`, 0, "the body must be a JSON object, not an array"},
		{`"text"`, 0, "the body must be a JSON object, not a string"},
		{` 12`, 1, "the body must be a JSON object, not a number"},
		{`-1`, 0, "the body must be a JSON object, not a number"},
		{`true`, 0, "the body must be a JSON object, not a boolean"},
		{`null`, 0, "the body must be a JSON object, not null"},
		{`false`, 0, "the body must be a JSON object, not a boolean"},
		{`number=1&text=hi`, 0, "the body must be a JSON object"},
		{`text=hi`, 0, "the body must be a JSON object"},
		{`nul`, 0, "the body must be a JSON object"},
		{`a=1`, 0, "the body must be a JSON object"},
		{"\xEF\xBB\xBF{}", 0, bom},
		{"\xFF\xFE{\x00}\x00", 0, bom},
		{"\x00{\x00}", 0, "the body must be a JSON object"},

		{`{}x`, 2, follow},
		{`{} {}`, 3, follow},
		{`{},`, 2, follow},
		{`{}}`, 2, follow},
		{"{}\x00", 2, follow},
		{"{}\f", 2, follow},
		{"{}\u00a0", 2, follow},

		{`{,}`, 1, key},
		{`{"a":1,}`, 7, "unexpected } after a comma"},
		{`{"a":1,,"b":2}`, 7, key},
		{`{"a":[1,]}`, 8, "unexpected ] after a comma"},
		{`{"a":[,1]}`, 6, value},
		{`{"a":[1 2]}`, 8, "expected a comma or ]"},
		{`{"a":1 "b":2}`, 7, "expected a comma or }"},
		{`{"a":1]`, 6, "expected a comma or }"},
		{`{"a":[1}`, 7, "expected a comma or ]"},
		{`{"a" 1}`, 5, "expected a colon after a key"},
		{`{"a"}`, 4, "expected a colon after a key"},
		{`{"a"::1}`, 5, value},
		{`{"a":}`, 5, value},
		{`{a:1}`, 1, key},
		{`{1:1}`, 1, key},
		{`{null:1}`, 1, key},
		{`{'a':1}`, 1, key + "; strings need double quotes"},
		{`{"a":'b'}`, 5, value + "; strings need double quotes"},
		{`{"a":"b'}`, 9, early},
		{`{/* c */"a":1}`, 1, key + "; comments are not allowed"},
		{`{"a":1 // c` + "\n}", 7, "expected a comma or }; comments are not allowed"},
		{`{"a":#1` + "\n}", 5, value + "; comments are not allowed"},
		{"{\v\"a\":1}", 1, key},
		{"{\u00a0\"a\":1}", 1, key},
		{"{\uFEFF\"a\":1}", 1, key},

		{`{"a":01}`, 6, "a number must not begin with 0"},
		{`{"a":-01}`, 7, "a number must not begin with 0"},
		{`{"a":00}`, 6, "a number must not begin with 0"},
		{`{"a":1.}`, 7, digit},
		{`{"a":1.e1}`, 7, digit},
		{`{"a":.5}`, 5, "a number must begin with a digit or -"},
		{`{"a":+1}`, 5, "a number must begin with a digit or -"},
		{`{"a":-}`, 6, digit},
		{`{"a":--1}`, 6, digit},
		{`{"a":-.5}`, 6, digit},
		{`{"a":1e}`, 7, digit},
		{`{"a":1e+}`, 8, digit},
		{`{"a":1E-}`, 8, digit},
		{`{"a":1e1.5}`, 8, "expected a comma or }"},
		{`{"a":1.2.3}`, 8, "expected a comma or }"},
		{`{"a":0x1F}`, 6, "expected a comma or }"},
		{`{"a":1_000}`, 6, "expected a comma or }"},
		{`{"a":1a}`, 6, "expected a comma or }"},
		{`{"a":NaN}`, 5, value},
		{`{"a":Infinity}`, 5, value},
		{`{"a":-Infinity}`, 6, digit},
		{`{"a":True}`, 5, value},
		{`{"a":tru}`, 5, "expected true"},
		{`{"a":nulL}`, 5, "expected null"},
		{`{"a":falsee}`, 10, "expected a comma or }"},
		{`{"a":undefined}`, 5, value},
		{"{\"a\":\uff11}", 5, value},

		{`{"a":"\x41"}`, 6, "invalid escape in a string"},
		{`{"a":"\'"}`, 6, "invalid escape in a string"},
		{`{"a":"\U0041"}`, 6, "invalid escape in a string"},
		{`{"a":"\0"}`, 6, "invalid escape in a string"},
		{"{\"a\":\"\\\n\"}", 6, "invalid escape in a string"},
		{`{"a":"\u12"}`, 6, hex},
		{`{"a":"\u123g"}`, 6, hex},
		{`{"a":"\u+123"}`, 6, hex},
		{`{"a":"\u{41}"}`, 6, hex},
		{`{"a":"\uD83D\u12"}`, 6, hex},
		{`{"a":"\uD800"}`, 6, lone},
		{`{"a":"\uDC00"}`, 6, lone},
		{`{"a":"\uDFFF\uD800"}`, 6, lone},
		{`{"a":"\uD800\uD800"}`, 6, lone},
		{`{"a":"\uD800\u0041"}`, 6, lone},
		{`{"a":"\uD800\n"}`, 6, lone},
		{`{"a":"\uD800x"}`, 6, lone},
		{`{"\uD800":1}`, 2, lone},
		{"{\"a\":\"x\ny\"}", 7, control},
		{"{\"a\":\"\t\"}", 6, control},
		{"{\"a\":\"\x00\"}", 6, control},
		{"{\"a\":\"0123456789abcdef\x1f\"}", 22, control},
		{"{\"\r\":1}", 2, control},

		{"{\"a\":\"\x80\"}", 6, utf8},
		{"{\"a\":\"0123456789\xbf\"}", 16, utf8},
		{"{\"a\":\"\xc3\"}", 6, utf8},
		{"{\"a\":\"\xc3(\"}", 6, utf8},
		{"{\"a\":\"\xe2\x82\"}", 6, utf8},
		{"{\"a\":\"é\xf0\x9f\x98\"}", 8, utf8},
		{"{\"a\":\"\xc0\x80\"}", 6, utf8},
		{"{\"a\":\"\xc1\xbf\"}", 6, utf8},
		{"{\"a\":\"\xe0\x80\xaf\"}", 6, utf8},
		{"{\"a\":\"\xf0\x80\x80\xaf\"}", 6, utf8},
		{"{\"a\":\"\xed\xa0\x80\"}", 6, utf8},
		{"{\"a\":\"\xed\xa0\xbd\xed\xb8\x80\"}", 6, utf8},
		{"{\"a\":\"\xf4\x90\x80\x80\"}", 6, utf8},
		{"{\"a\":\"\xf5\x80\x80\x80\"}", 6, utf8},
		{"{\"a\":\"\xfe\"}", 6, utf8},
		{"{\"a\":\"\xff\"}", 6, utf8},
		{"{\"caf\xe9\":1}", 5, utf8},
		{"{\"a\":\"\xef\xbb\"", 6, utf8},

		{`{"a":1,"a":2}`, 7, `duplicate key "a"`},
		{`{"a":1, "\u0061":2}`, 8, `duplicate key "a"`},
		{`{"\u0061":1,"a":2}`, 12, `duplicate key "a"`},
		{`{"":1,"":2}`, 6, `duplicate key ""`},
		{`{"a":{"b":1,"c":{},"b":2}}`, 19, `duplicate key "b"`},
		{`{"a":{"a":{}},"a":1}`, 14, `duplicate key "a"`},
		{`{"a":[{"b":1,"b":2}]}`, 13, `duplicate key "b"`},
		{`{"\ud83d\ude00":1,"😀":2}`, 18, `duplicate key "😀"`},
		{"{\"\\n\u202e\":1,\"\\n\u202e\":1}", 11, `duplicate key "\n\u202e"`},

		{nested(`{"a":`, `1`, `}`, MaxDepth+1), 5 * MaxDepth, "nested more than 32 levels deep"},
		{`{"a":` + nested(`[`, ``, `]`, MaxDepth), 4 + MaxDepth, "nested more than 32 levels deep"},
	}
	for _, test := range tests {
		everySplit(test.doc, func(how string, r io.Reader) {
			rest, _, diverted, err := read(r)
			want := &SyntaxError{Offset: test.offset, Msg: test.msg}
			var got *SyntaxError
			if !errors.As(err, &got) || *got != *want {
				t.Errorf("%q, %s: got %v, want %v", test.doc, how, err, want)
			}
			if rest != "" || diverted {
				t.Errorf("%q, %s: got a result beside the error", test.doc, how)
			}
		})
	}
}

func TestTruncatedDocumentsEndEarly(t *testing.T) {
	const doc = `{"a":-12.5e+3,"b":[true,false,null,{}],"c":{"d":"é€😀\n\u20ac\ud83d\ude00"},"media":"QUJ\/D\ud83d\ude00é"}`
	for i := 1; i < len(doc); i++ {
		everySplit(doc[:i], func(how string, r io.Reader) {
			_, _, _, err := read(r, "media")
			var got *SyntaxError
			if !errors.As(err, &got) || got.Msg != "the body ends early" || got.Offset != int64(i) {
				t.Errorf("%s, %s: got %v", doc[:i], how, err)
			}
		})
	}
}

func TestErrorsNameKeysCutAndNoValues(t *testing.T) {
	long := strings.Repeat("é", 65)
	_, _, _, err := read(strings.NewReader(`{"` + long + `":1,"` + long + `":2}`))
	want := `invalid JSON at byte 136: duplicate key "` + long[:128] + `…"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	fits := long[:128]
	_, _, _, err = read(strings.NewReader(`{"` + fits + `":1,"` + fits + `":2}`))
	want = `invalid JSON at byte 134: duplicate key "` + fits + `"`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestDuplicateAmongManyKeys(t *testing.T) {
	for _, n := range []int{fewKeys - 1, fewKeys, fewKeys + 1, 3 * fewKeys} {
		for twice := range n {
			var doc strings.Builder
			doc.WriteString(`{`)
			for i := range n {
				// Each holds an object of many keys too, and one of none.
				fmt.Fprintf(&doc, `"key%d":[{%s},{}],`, i, manyKeys(i%3*fewKeys))
			}
			offset := doc.Len()
			distinct := strings.TrimSuffix(doc.String(), ",") + "}"
			fmt.Fprintf(&doc, `"key%d":0}`, twice)
			if _, _, _, err := read(strings.NewReader(distinct)); err != nil {
				t.Fatalf("%d different keys: got %v", n, err)
			}
			_, _, _, err := read(strings.NewReader(doc.String()))
			want := &SyntaxError{int64(offset), fmt.Sprintf(`duplicate key "key%d"`, twice)}
			if !reflect.DeepEqual(err, want) {
				t.Fatalf("key %d of %d twice: got %v, want %v", twice, n, err, want)
			}
		}
	}
}

func manyKeys(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"%d":0`, i)
	}
	return strings.Join(members, ",")
}

func TestRestSurvivesTheNextReading(t *testing.T) {
	const first = `{"a":"first"}`
	res, err := Object(strings.NewReader(first), Options{MaxRest: 100, MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := read(strings.NewReader(strings.Repeat(" ", bufferSize) + `{"b":"other"}`)); err != nil {
		t.Fatal(err)
	}
	if string(res.Rest) != first {
		t.Errorf("got %s, want %s", res.Rest, first)
	}
}
