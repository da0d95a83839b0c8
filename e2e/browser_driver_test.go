package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// browser is one session of a headless Chromium, driven over W3C WebDriver
// (https://www.w3.org/TR/webdriver2/).
type browser struct {
	t       *testing.T
	session string // URL
	// What the console may say; nil: nothing. Chromium reports every answer from
	// 400 on, and every connection that is refused.
	expected *regexp.Regexp
}

var failedRequest = regexp.MustCompile(`Failed to load resource`)

// elementKey names an element in an answer (WebDriver section 12.1).
const elementKey = "element-6066-11e4-a52e-4f735466cecf"

// openBrowser starts a Chromium with a profile of its own. At the end of the test
// its console and its requests are looked at.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	need(t, "chromedriver")
	need(t, "chromium")
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "browser-*")
	if err != nil {
		t.Fatal(err)
	}
	driver := exec.Command("chromedriver", "--port=0")
	driver.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the browser is its child
	driver.Env = append(os.Environ(), "HOME="+profile)
	stdout, err := driver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-driver.Process.Pid, syscall.SIGKILL)
		_ = driver.Wait()
		_ = os.RemoveAll(profile) // the browser may still be writing to it
	})
	lines, port := bufio.NewScanner(stdout), ""
	for port == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "started successfully on port "); ok {
			port = strings.TrimSuffix(after, ".")
		}
	}
	go func() { // or it would block on a full pipe
		_, _ = io.Copy(io.Discard, stdout)
	}()
	b := &browser{t: t, session: "http://127.0.0.1:" + port}
	var made struct{ SessionID string }
	b.command("POST", "/session", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{
		"browserName":             "chrome",
		"unhandledPromptBehavior": "ignore", // a prompt is something that a test looks for
		"goog:loggingPrefs":       map[string]string{"browser": "ALL", "performance": "ALL"},
		"goog:chromeOptions": map[string]any{
			"binary": chromium,
			"args": []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
				"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
				"--force-color-profile=srgb", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
				"--window-size=1280,860", "--user-data-dir=" + filepath.Join(profile, "profile")},
			"prefs": map[string]any{"download.default_directory": profile},
		},
	}}}, &made)
	b.session += "/session/" + made.SessionID
	b.open("about:blank") // in place of Chromium's own first page
	b.logs("performance")
	t.Cleanup(func() {
		if t.Failed() {
			b.saveFailure()
		}
		b.checkLogs()
		b.command("DELETE", "", nil, nil)
	})
	return b
}

// command makes one WebDriver command; it fails the test when that fails.
func (b *browser) command(method, path string, body, result any) {
	b.t.Helper()
	if err := b.try(method, path, body, result); err != nil {
		b.t.Fatalf("browser: %s %s: %v", method, path, err)
	}
}

func (b *browser) try(method, path string, body, result any) error {
	var sent io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(encoded)
	}
	r, err := http.NewRequest(method, b.session+path, sent)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var got struct{ Value json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
		return err
	}
	if response.StatusCode != 200 {
		var failed struct{ Error, Message string }
		_ = json.Unmarshal(got.Value, &failed)
		return fmt.Errorf("%s: %.300s", failed.Error, failed.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(got.Value, result)
}

// visit opens the outbox page of s, with the key as the password of HTTP Basic.
func (b *browser) visit(s *service, fragment string) {
	b.t.Helper()
	b.open(strings.Replace(s.url, "http://", "http://any:"+key+"@", 1) + "/outbox/" + fragment)
}

func (b *browser) open(url string) {
	b.t.Helper()
	b.command("POST", "/url", map[string]string{"url": url}, nil)
}

// run runs the body of a function in the page; result is what it returns, or what
// its promise becomes. A nil result is dropped.
func (b *browser) run(script string, result any, args ...any) {
	b.t.Helper()
	if args == nil {
		args = []any{}
	}
	b.command("POST", "/execute/sync", map[string]any{"script": script, "args": args}, result)
}

func (b *browser) text(expression string) string {
	b.t.Helper()
	var s string
	b.run("return String("+expression+")", &s)
	return s
}

func (b *browser) number(expression string) float64 {
	b.t.Helper()
	var n float64
	b.run("return Number("+expression+")", &n)
	return n
}

// until waits for an expression to become true in the page.
func (b *browser) until(expression string) {
	b.t.Helper()
	eventually(b.t, expression, func() bool {
		var is bool
		b.run("return Boolean("+expression+")", &is)
		return is
	})
}

// element waits for the element of a CSS selector.
func (b *browser) element(selector string) string {
	b.t.Helper()
	b.until("document.querySelector(" + quote(selector) + ")")
	var found map[string]string
	b.command("POST", "/element", map[string]string{"using": "css selector", "value": selector}, &found)
	return "/element/" + found[elementKey]
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.command("POST", b.element(selector)+"/click", map[string]any{}, nil)
}

// fill puts text into a field in place of what is there. A path given to a file
// field chooses that file.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	e := b.element(selector)
	b.run(`const e = document.querySelector(arguments[0]); if (e.type !== "file") e.value = ""; return true`, nil, selector)
	b.command("POST", e+"/value", map[string]string{"text": text}, nil)
}

func quote(s string) string {
	encoded, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string
	}
	return string(encoded)
}

// devtools makes a command of the Chrome DevTools Protocol.
func (b *browser) devtools(command string, parameters map[string]any) {
	b.t.Helper()
	b.command("POST", "/goog/cdp/execute", map[string]any{"cmd": command, "params": parameters}, nil)
}

func (b *browser) resize(width, height int) {
	b.t.Helper()
	b.devtools("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	b.devtools("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}})
}

func (b *browser) screenshot(path string) {
	b.t.Helper()
	var encoded string
	b.command("GET", "/screenshot", nil, &encoded)
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil {
		err = os.WriteFile(path, content, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// saveFailure keeps what the page looked like where CI collects it.
func (b *browser) saveFailure() {
	path := filepath.Join(os.TempDir(), strings.ReplaceAll(b.t.Name(), "/", "-")+".png")
	var encoded string
	if b.try("GET", "/screenshot", nil, &encoded) != nil {
		return
	}
	if content, err := base64.StdEncoding.DecodeString(encoded); err == nil && os.WriteFile(path, content, 0o644) == nil {
		b.t.Logf("the page looked like %s", path)
	}
}

// request is one that the browser made.
type request struct {
	url   string
	bytes float64 // received, with headers, so far
}

// requests are those since the last call.
func (b *browser) requests() []request {
	b.t.Helper()
	var found []request
	index := map[string]int{}
	for _, entry := range b.logs("performance") {
		var event struct {
			Message struct {
				Method string
				Params struct {
					RequestID         string
					EncodedDataLength float64
					Request           struct{ URL string }
					Response          struct{ EncodedDataLength float64 }
				}
			}
		}
		if err := json.Unmarshal([]byte(entry), &event); err != nil {
			b.t.Fatal(err)
		}
		p := event.Message.Params
		switch event.Message.Method {
		case "Network.requestWillBeSent":
			if _, again := index[p.RequestID]; !again {
				index[p.RequestID] = len(found)
				found = append(found, request{url: p.Request.URL})
			}
		case "Network.responseReceived":
			if i, ok := index[p.RequestID]; ok {
				found[i].bytes += p.Response.EncodedDataLength
			}
		case "Network.dataReceived":
			if i, ok := index[p.RequestID]; ok {
				found[i].bytes += p.EncodedDataLength
			}
		case "Network.loadingFinished": // the whole, where the pieces were not known
			if i, ok := index[p.RequestID]; ok {
				found[i].bytes = max(found[i].bytes, p.EncodedDataLength)
			}
		}
	}
	return found
}

// logs takes what has been logged since the last time. It is Chromium's addition
// to WebDriver.
func (b *browser) logs(kind string) []string {
	b.t.Helper()
	var entries []struct{ Level, Message string }
	b.command("POST", "/se/log", map[string]string{"type": kind}, &entries)
	var messages []string
	for _, e := range entries {
		if kind == "performance" || e.Level == "SEVERE" || e.Level == "WARNING" {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// checkLogs demands a clean console and requests to 127.0.0.1 only.
func (b *browser) checkLogs() {
	for _, line := range b.logs("browser") {
		if b.expected == nil || !b.expected.MatchString(line) {
			b.t.Errorf("the console says %q", line)
		}
	}
	for _, r := range b.requests() {
		own := strings.HasPrefix(r.url, "http://127.0.0.1:") || strings.HasPrefix(r.url, "http://any:"+key+"@127.0.0.1:") || strings.HasPrefix(r.url, "blob:http://127.0.0.1:") || strings.HasPrefix(r.url, "data:")
		if !own {
			b.t.Errorf("the page requested %q", r.url)
		}
	}
}

// eventuallyEqual waits for a value and says what it was instead.
func eventuallyEqual[T comparable](t *testing.T, what string, want T, get func() T) {
	t.Helper()
	var got T
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if got = get(); got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}
