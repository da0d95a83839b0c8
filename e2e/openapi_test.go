package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"messagesender/internal/openapi/openapitest"
)

// openapi writes the description that a service gives of itself to a file.
func (s *service) openapi() (file string) {
	s.t.Helper()
	response, err := http.Get(s.url + "/openapi.json") // without a key
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		s.t.Fatalf("GET /openapi.json: got %d, %v, want the description", response.StatusCode, err)
	}
	file = filepath.Join(s.t.TempDir(), "openapi.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func TestOpenAPILint(t *testing.T) {
	need(t, "redocly")
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-platform", "Any1", "-max-delay", "1500ms")
	lint := exec.CommandContext(t.Context(), "redocly", "lint", "--config", "../.ci/redocly.yaml", s.openapi())
	lint.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	if output, err := lint.CombinedOutput(); err != nil {
		t.Errorf("the linter: %v\n%s", err, output)
	}
}

// prism is a proxy that holds every request and every answer against the
// description and reports differences in a header. It does not run with --errors:
// then it would answer a request that the description forbids by itself, and the
// service's answer to it would never be looked at.
type prism struct {
	t   *testing.T
	url string
}

// output is written by a process and read by a test.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func startPrism(t *testing.T, file, upstream string) *prism {
	t.Helper()
	host, port, _ := strings.Cut(freePort(t), ":")
	var said output
	cmd := exec.Command("prism", "proxy", "-h", host, "-p", port, file, upstream)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("prism said:\n%s", tail(said.String(), 30))
		}
	})
	eventually(t, "prism listens", func() bool { return strings.Contains(said.String(), "Prism is listening") })
	return &prism{t, "http://" + host + ":" + port}
}

// violation is one difference that prism reports.
type violation struct {
	Location []string `json:"location"` // "request" or "response", and where in it
	Severity string   `json:"severity"`
	Code     any      `json:"code"`
	Message  string   `json:"message"`
}

// exchange is a request through prism and what came of it.
type exchange struct {
	status     int
	code       string // of a failure
	body       []byte
	ours       bool // the service answered, and not prism
	described  bool // the description has this route and method
	requested  []violation
	differing  []violation // of the answer
	header     http.Header
	violations string
}

func (p *prism) do(method, path string, header http.Header, body string) exchange {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header = header
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	x := exchange{status: response.StatusCode, described: true, header: response.Header, violations: response.Header.Get("sl-violations")}
	x.ours = response.Header.Get("X-Request-Id") != ""
	if x.body, err = io.ReadAll(response.Body); err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	var failure struct{ Error struct{ Code string } }
	_ = json.Unmarshal(x.body, &failure)
	x.code = failure.Error.Code
	if x.violations == "" {
		return x
	}
	var all []violation
	if err := json.Unmarshal([]byte(x.violations), &all); err != nil {
		p.t.Fatalf("%s %s: prism reports %q: %v", method, path, x.violations, err)
	}
	for _, v := range all {
		switch {
		case v.Message == "Selected route not found":
			x.described = false
		case v.Location[0] == "request":
			x.requested = append(x.requested, v)
		default:
			x.differing = append(x.differing, v)
		}
	}
	return x
}

// script is one case of testdata/scripts.
type script struct {
	title, method, path string
	header              http.Header
	body                string
	status, code        string // wanted
}

// scripts reads testdata/scripts; the form is described in text.txt there.
func scripts(t *testing.T) []script {
	t.Helper()
	var dot bytes.Buffer
	if err := png.Encode(&dot, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	samples := strings.NewReplacer("{token}", token,
		"{png}", base64.StdEncoding.EncodeToString(dot.Bytes()),
		"{ogg}", "T2dnUwACAAAAAAAAAAAAAAAAAAAAAAIotXIBE09wdXNIZWFkAQE4AYC7AAAAAAA=",
		"{pdf}", base64.StdEncoding.EncodeToString([]byte("%PDF-1.4\n%%EOF\n")))
	files, err := filepath.Glob("../testdata/scripts/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []script
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split(string(content), "\n## ")[1:] {
			title, text, _ := strings.Cut(text, "\n")
			request, want, ok := strings.Cut(samples.Replace(text), "\n=> ")
			if !ok {
				t.Fatalf("%s: %s: the script has no answer", file, title)
			}
			c := script{title: strings.TrimSuffix(filepath.Base(file), ".txt") + "/" + title,
				header: http.Header{"Apikey": {key}, "Content-Type": {"application/json"}}}
			lines := strings.Split(request, "\n")
			c.method, c.path, _ = strings.Cut(lines[0], " ")
			for lines = lines[1:]; len(lines) > 0 && !strings.HasPrefix(lines[0], "{"); lines = lines[1:] {
				name, value, _ := strings.Cut(lines[0], ":")
				c.header.Set(name, strings.TrimSpace(value))
			}
			c.body = strings.Join(lines, "\n")
			head, _, _ := strings.Cut(strings.TrimSpace(want), "\n")
			c.status, c.code, _ = strings.Cut(head, " ")
			all = append(all, c)
		}
	}
	return all
}

// TestScriptsThroughPrism plays all scripts through prism. Of every answer of the
// service, nothing may differ from the description; neither may a request that
// the service took.
//
// Prism reads a request before it passes it on: what is no JSON it refuses
// itself, equal keys become one, and a path that is not clean it cleans. What
// the service says to those is told by the scripts without prism.
func TestScriptsThroughPrism(t *testing.T) {
	need(t, "prism")
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	p := startPrism(t, s.openapi(), s.url)
	counts := map[string]int{}
	for _, c := range scripts(t) {
		t.Run(c.title, func(t *testing.T) {
			x := (&prism{t, p.url}).do(c.method, c.path, c.header, c.body)
			clean := path.Clean(c.path) == c.path || strings.HasSuffix(c.path, "/")
			counts["cases"]++
			switch {
			case c.code == "invalid_json" && !x.ours:
				counts["refused by prism itself"]++
				return
			case c.code == "invalid_json" || !clean:
				counts["changed by prism on the way"]++
			case fmt.Sprint(x.status) != c.status || c.code != "" && x.code != c.code:
				t.Fatalf("got %d %s, want %s %s; answer %s", x.status, x.code, c.status, c.code, x.body)
			}
			for _, v := range x.differing {
				t.Errorf("the answer is not as described: %v %s\n%s", v.Location, v.Message, x.body)
			}
			if clean && !x.described && x.status != 404 && x.status != 405 {
				t.Errorf("answered %d, and the description has no such route", x.status)
			}
			if x.status == 200 {
				for _, v := range x.requested {
					t.Errorf("the request was taken, and is described as wrong: %v %s", v.Location, v.Message)
				}
			}
			if x.code == "invalid_request" && len(x.requested) == 0 {
				counts["refused, and described as valid"]++
			}
		})
	}
	t.Logf("measured: through prism %v", counts)
}

// TestRoutesThroughPrism asks every route that is described for an answer of
// success, and wants no difference at all.
func TestRoutesThroughPrism(t *testing.T) {
	need(t, "prism")
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	p := startPrism(t, s.openapi(), s.url)
	d, err := openapitest.Read("WhatsApp", 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	ask := func(route, path string, header http.Header, body string, want int) []byte {
		t.Helper()
		asked[route] = true
		if header == nil {
			header = http.Header{}
		}
		header.Set("apikey", key)
		method, _, _ := strings.Cut(route, " ")
		if method == "POST" {
			header.Set("Content-Type", "application/json")
		}
		x := p.do(method, path, header, body)
		if x.status != want || x.violations != "" {
			t.Errorf("%s: got %d with the differences %q, want %d and none; answer %.300s", path, x.status, x.violations, want, x.body)
		}
		return x.body
	}
	samples := map[string]string{}
	for _, c := range scripts(t) { // the first of each operation that is taken
		if operation, _, _ := strings.Cut(strings.TrimPrefix(c.path, "/message/"), "/"); c.status == "200" && samples[operation] == "" {
			samples[operation] = c.body
		}
	}
	var last answer
	for operation, body := range map[string]string{"sendText": samples["sendText"], "sendMedia": samples["sendMedia"], "sendWhatsAppAudio": samples["sendWhatsAppAudio"]} {
		route := "POST /message/" + operation + "/{apiToken}"
		keyed := func() http.Header { return http.Header{"Idempotency-Key": {"key-of-" + operation}} }
		first := ask(route, "/message/"+operation+"/"+token, keyed(), body, 200)
		if again := ask(route, "/message/"+operation+"/"+token, keyed(), body, 200); !bytes.Equal(first, again) {
			t.Errorf("%s: a replay answers %s, want %s", operation, again, first)
		}
		ask(route, "/message/"+operation+"/"+token, keyed(), strings.Replace(body, number, "15550009999", 1), 422)
		if err := json.Unmarshal(first, &last); err != nil {
			t.Fatal(err)
		}
		if operation == "sendMedia" {
			ask("GET /outbox/messages/{messageId}/media", "/outbox/messages/"+last.Data.MessageID+"/media", nil, "", 200)
			ask("GET /outbox/messages/{messageId}/media", "/outbox/messages/"+last.Data.MessageID+"/media", http.Header{"Range": {"bytes=0-3"}}, "", 206)
			ask("GET /outbox/messages/{messageId}/media", "/outbox/messages/"+last.Data.MessageID+"/media", http.Header{"Range": {"bytes=9999-"}}, "", 416)
		}
	}
	id := last.Data.MessageID
	ask("GET /message/status/{apiToken}/{messageId}", "/message/status/"+token+"/"+id, nil, "", 200)
	ask("GET /message/status/{apiToken}/{messageId}", "/message/status/"+token+"/nothing", nil, "", 404)
	ask("GET /message/outcome/{apiToken}", "/message/outcome/"+token+"?key=key-of-sendText", nil, "", 200)
	ask("GET /message/outcome/{apiToken}", "/message/outcome/"+token+"?key=never", nil, "", 404)
	for _, file := range []string{"", "page.css", "page.js"} {
		ask("GET /outbox/"+file, "/outbox/"+file, nil, "", 200)
	}
	ask("GET /outbox/messages", "/outbox/messages?type=media&limit=1&wait=1s&number="+number, nil, "", 200)
	ask("GET /outbox/messages", "/outbox/messages", nil, "", 200)
	ask("GET /outbox/messages/{messageId}", "/outbox/messages/"+id, nil, "", 200)
	ask("GET /outbox/conversations", "/outbox/conversations?limit=5", nil, "", 200)
	ask("DELETE /outbox/messages", "/outbox/messages", nil, "", 200)
	ask("GET /healthz", "/healthz", nil, "", 200)
	ask("GET /readyz", "/readyz", nil, "", 200)
	ask("GET /metrics", "/metrics", nil, "", 200)
	ask("GET /openapi.json", "/openapi.json", nil, "", 200)
	// This account has no webhook.
	ask("POST /webhook/whatsapp/{account}", "/webhook/whatsapp/default", http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}}, "{}", 404)
	ask("GET /webhook/whatsapp/{account}", "/webhook/whatsapp/default?"+url.Values{"hub.mode": {"subscribe"}, "hub.verify_token": {"x"}, "hub.challenge": {"1"}}.Encode(), nil, "", 404)
	asked["GET /outbox/events"] = true // prism passes an answer on when it is over, and this one never is

	for _, route := range d.Routes() {
		if !asked[route] {
			t.Errorf("%s is described and not tested here", route)
		}
	}
	for route := range asked {
		if !slices.Contains(d.Routes(), route) {
			t.Errorf("%s is not described", route)
		}
	}
}
