package openapi_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"messagesender/internal/message"
	"messagesender/internal/openapi"
	"messagesender/internal/openapi/openapitest"
)

func read(t *testing.T, audioWord string, maxDelay time.Duration) *openapitest.Description {
	t.Helper()
	d, err := openapitest.Read(audioWord, maxDelay)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tree is the description as plain JSON.
func tree(t *testing.T) map[string]any {
	t.Helper()
	document, err := openapi.Document("WhatsApp", 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var root map[string]any
	if err := json.Unmarshal(document, &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// walk calls see for every object in v, with its path.
func walk(v any, path string, see func(path string, o map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		see(path, v)
		for name, member := range v {
			walk(member, path+"/"+name, see)
		}
	case []any:
		for i, member := range v {
			walk(member, fmt.Sprintf("%s/%d", path, i), see)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name     string
		word     string
		maxDelay time.Duration
		in, out  string // delays that are valid and not, in milliseconds
	}{
		{"as they come", "WhatsApp", 5 * time.Minute, "300000", "300000.5"},
		{"another platform", "Telegram", time.Second, "1000", "1001"},
		{"less than a millisecond", "X", 500 * time.Microsecond, "0.5", "0.6"},
		{"no delay at all", "X", 0, "0", "0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := read(t, c.word, c.maxDelay)
			route := "POST /message/send" + c.word + "Audio/{apiToken}"
			if n := slices.Index(d.Routes(), route); n < 0 {
				t.Errorf("got routes %v, want %s among them", d.Routes(), route)
			}
			body, err := d.Body(route)
			if err != nil {
				t.Fatal(err)
			}
			voice := func(delay string) []byte {
				return []byte(`{"number":"15550001234","options":{"delay":` + delay + `},"audioMessage":{"audio":"AAAA"}}`)
			}
			if err := body.Check(voice(c.in)); err != nil {
				t.Errorf("a delay of %s: got %v, want it to be valid", c.in, err)
			}
			if body.Check(voice(c.out)) == nil {
				t.Errorf("a delay of %s: got no error, want one", c.out)
			}
		})
	}
}

// An example is there to be tried, whatever the settings are.
func TestRequestExamplesAreValid(t *testing.T) {
	for _, maxDelay := range []time.Duration{5 * time.Minute, time.Second, 0} {
		document, err := openapi.Document("WhatsApp", maxDelay)
		if err != nil {
			t.Fatal(err)
		}
		var root struct {
			Paths map[string]struct {
				Post struct {
					RequestBody struct {
						Content map[string]struct {
							Examples map[string]struct{ Value json.RawMessage }
						}
					}
				}
			}
		}
		if err := json.Unmarshal(document, &root); err != nil {
			t.Fatal(err)
		}
		d, sends := read(t, "WhatsApp", maxDelay), 0
		for path, item := range root.Paths {
			for name, example := range item.Post.RequestBody.Content["application/json"].Examples {
				sends++
				body, err := d.Body("POST " + path)
				if err != nil {
					t.Fatal(err)
				}
				if err := body.Check(example.Value); err != nil {
					t.Errorf("%s, example %s, -max-delay %v: got %v, want it to be valid", path, name, maxDelay, err)
				}
			}
		}
		if sends < 3 {
			t.Errorf("got %d examples, want one for each operation", sends)
		}
	}
}

func TestReferences(t *testing.T) {
	root := tree(t)
	used := map[string]bool{}
	walk(root, "", func(path string, o map[string]any) {
		reference, ok := o["$ref"].(string)
		if !ok {
			return
		}
		used[strings.TrimPrefix(reference, "#")] = true
		var at any = root
		for name := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
			inner, _ := at.(map[string]any)
			at = inner[name]
		}
		if at == nil {
			t.Errorf("%s refers to %s, which is not there", path, reference)
		}
	})
	for kind, each := range root["components"].(map[string]any) {
		for name := range each.(map[string]any) {
			if path := "/components/" + kind + "/" + name; kind != "securitySchemes" && !used[path] {
				t.Errorf("%s is not used", path)
			}
		}
	}
}

func TestServerIsRelative(t *testing.T) {
	servers := tree(t)["servers"].([]any)
	if got := servers[0].(map[string]any)["url"]; len(servers) != 1 || got != "." {
		t.Errorf("got %v, want the folder that the description is in", servers)
	}
}

// declared are the codes of the code, with what the code does with them.
func declared(t *testing.T) []openapitest.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../message/error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []openapitest.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); ok && kind.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			r := message.Reason(text)
			codes = append(codes, openapitest.Code{Reason: r, Status: r.Status(), Retryable: message.NewError(r, "").Retryable})
		}
		return true
	})
	return codes
}

func TestCodesAgreeWithTheCode(t *testing.T) {
	described, inCode := read(t, "WhatsApp", 0).Codes(), declared(t)
	for _, c := range inCode {
		if !slices.Contains(described, c) {
			t.Errorf("the code has %+v, the description has not", c)
		}
	}
	for _, c := range described {
		if !slices.Contains(inCode, c) {
			t.Errorf("the description has %+v, the code has not", c)
		}
	}
}

// Every code but that of an undescribed method is an answer of some route, and
// only under its own status; one to be tried again later says when.
func TestCodesStandUnderTheirStatus(t *testing.T) {
	d := read(t, "WhatsApp", 0)
	answered := map[message.Reason]bool{message.MethodNotAllowed: true}
	for _, route := range d.Routes() {
		statuses, err := d.Statuses(route)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := statuses[200]; !ok {
			t.Errorf("%s has no answer of status 200", route)
		}
		for status, codes := range statuses {
			for _, code := range codes {
				answered[code] = true
				if code.Status() != status {
					t.Errorf("%s: %s stands under %d, want %d", route, code, status, code.Status())
				}
			}
		}
	}
	for _, c := range d.Codes() {
		if !answered[c.Reason] {
			t.Errorf("%s is no answer of any route", c.Reason)
		}
	}
}

func TestHeaders(t *testing.T) {
	root := tree(t)
	components := root["components"].(map[string]any)["responses"].(map[string]any)
	resolve := func(response any) map[string]any {
		r := response.(map[string]any)
		if reference, ok := r["$ref"].(string); ok {
			r = components[strings.TrimPrefix(reference, "#/components/responses/")].(map[string]any)
		}
		return r
	}
	ids := map[any]bool{}
	for path, item := range root["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			operation := operation.(map[string]any)
			if id := operation["operationId"]; id == nil || ids[id] {
				t.Errorf("%s %s: got the operationId %v, want one of its own", method, path, id)
			} else {
				ids[id] = true
			}
			for status, response := range operation["responses"].(map[string]any) {
				headers, _ := resolve(response)["headers"].(map[string]any)
				if headers["X-Request-Id"] == nil {
					t.Errorf("%s %s %s has no X-Request-Id", method, path, status)
				}
				later := status == "409" || status == "429" || status == "503"
				if got := headers["Retry-After"] != nil; got != later {
					t.Errorf("%s %s %s: got Retry-After %v, want %v", method, path, status, got, later)
				}
			}
		}
	}
}
