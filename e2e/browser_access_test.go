package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Nothing that is sent may run in the page, however it is dressed.
func TestPageRunsNothingThatWasSent(t *testing.T) {
	s, b := openPage(t)
	var canary atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { canary.Add(1) }))
	defer elsewhere.Close()
	script := `document.title="taken";window.canary=1;alert(1);new Image().src="` + elsewhere.URL + `"`
	attacks := []string{
		`<script>` + script + `</script>`,
		`<img src="` + elsewhere.URL + `/x" onerror='` + script + `'>`,
		`"><svg onload='` + script + `'>`,
		`javascript:` + script,
		`https://example.com/"onmouseover='` + script + `'`,
		`<a href="javascript:` + script + `">x</a>`,
		"\u202e<iframe srcdoc=\"<script>" + script + "</script>\"></iframe>",
	}
	for _, attack := range attacks {
		s.postText(number, attack, nil)
		s.postFile(number, "image", "", attack, picture(t, 8, 8))
		name := strings.NewReplacer("/", "", "\u202e", "").Replace(attack)
		s.postFile(number, "document", name, attack, []byte(attack))
	}
	svg := `<svg xmlns="http://www.w3.org/2000/svg" onload='` + script + `'><script>` + script + `</script></svg>`
	html := `<!doctype html><title>taken</title><script>` + script + `</script><img src="` + elsewhere.URL + `">`
	s.postFile(number, "document", "drawing.svg", "", []byte(svg))
	s.postFile(number, "document", "page.html", "", []byte(html))
	count := 3*len(attacks) + 2
	b.until(fmt.Sprintf(`document.querySelectorAll(".message").length === %d`, count))
	b.run(`
		for (const node of document.querySelectorAll(".message")) {
			node.scrollIntoView();
			await new Promise(resolve => setTimeout(resolve, 30)); // pictures load when they come into view
		}
		return true`, nil)
	b.until(`[...document.images].every(i => i.complete && i.naturalWidth === 8)`)
	for _, i := range []int{1, 2, 3, 6, count - 1, count} {
		b.click(fmt.Sprintf(".message:nth-child(%d) .about", i))
		b.until(`document.getElementById("details").open`)
		b.click("#details form button")
	}
	b.fill("#search", "<")
	b.until(`document.querySelectorAll("#found-messages li").length > 5`)
	if got := b.text(`[...document.querySelectorAll(".pane a")].map(a => new URL(a.href).protocol).filter(p => p !== "http:" && p !== "https:")`); got != "" {
		t.Errorf("got links of the kinds %q, want http and https only", got)
	}
	unharmed := func(where string) {
		t.Helper()
		if err := b.try("GET", "/alert/text", nil, nil); err == nil {
			t.Errorf("%s: an alert is shown", where)
		}
		if got := b.text("typeof window.canary"); got != "undefined" {
			t.Errorf("%s: a script ran", where)
		}
		if got := b.text("document.title"); strings.Contains(got, "taken") {
			t.Errorf("%s: got the title %q", where, got)
		}
		if n := canary.Load(); n != 0 {
			t.Errorf("%s: %d requests were made elsewhere", where, n)
		}
	}
	unharmed("the page")

	// The same when somebody opens the media itself, also inside a frame of the page.
	var media []string
	b.run(`return [...document.querySelectorAll(".paper")].slice(-2).map(a => a.href)`, &media)
	if len(media) != 2 {
		t.Fatalf("got %d documents, want 2", len(media))
	}
	for _, url := range media {
		b.run(`window.open(arguments[0], "other"); return true`, nil, url)
		time.Sleep(300 * time.Millisecond)
		unharmed("a window with " + url)
	}
	b.command("POST", "/refresh", object{}, nil)
	b.until(`document.getElementById("state").dataset.state === "live"`)
	unharmed("the page again")
}

// The start-up lines print a link that makes the page work at once.
func TestPageOnTheFirstRunAccount(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), nil)
	var firstKey, firstToken string
	for form := regexp.MustCompile(`/message/sendText/(\S+)|apikey: ([^']+)'`); firstKey == "" && s.lines.Scan(); {
		for _, found := range form.FindAllStringSubmatch(s.lines.Text(), -1) {
			firstToken, firstKey = firstToken+found[1], firstKey+found[2]
		}
	}
	b := openBrowser(t)
	b.open(s.url + "/outbox/#key=" + firstKey + "&token=" + firstToken)
	b.until(`document.getElementById("state").dataset.state === "live"`)
	if got := b.text("location.href"); got != s.url+"/outbox/" {
		t.Errorf("got the address %q, want key and token erased", got)
	}
	b.click("#welcome-new")
	b.fill("#number", number)
	b.fill("#text", "At once")
	b.click("#send")
	eventuallyEqual(t, "the page", "At once", b.bubbles)
	b.command("POST", "/refresh", object{}, nil)
	b.until(`document.querySelector(".message")`)
	b.fill("#text", "Also after a reload")
	b.click("#send")
	eventuallyEqual(t, "the page", "At once|Also after a reload", b.bubbles)
	if got := b.text("localStorage.length + document.cookie.length"); got != "0" {
		t.Errorf("got %s things that outlive the tab, want none", got)
	}
	for _, path := range []string{"", "page.js", "page.css", "conversations", "messages"} {
		response, err := http.Get(s.url + "/outbox/" + path)
		if err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		_, err = content.ReadFrom(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != 200 {
			t.Fatalf("%s: got %d (%v)", path, response.StatusCode, err)
		}
		for _, secret := range []string{firstKey, firstToken} {
			if strings.Contains(content.String(), secret) || strings.Contains(fmt.Sprint(response.Header), secret) {
				t.Errorf("/outbox/%s holds a secret", path)
			}
		}
	}
}

// accountsFile makes a file of two accounts, that of the other tests and "other".
func accountsFile(t *testing.T, path, otherKey string) {
	t.Helper()
	digest := func(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }
	one := func(name, key, token string) object {
		return object{"name": name, "token": digest(token), "keys": []object{{"key": digest(key)}}}
	}
	content, err := json.Marshal(object{"accounts": []object{one("first", key, token), one("other", otherKey, "other_token_0123456789")}})
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Who sends with the key of another account than the one that the page shows goes
// on with that one. The browser then sends no key by itself, not even for media.
func TestPageFollowsTheKey(t *testing.T) {
	const otherKey, newKey = "other-key-0123456789", "newer-key-0123456789"
	accounts := filepath.Join(t.TempDir(), "accounts.json")
	accountsFile(t, accounts, otherKey)
	s := start(t, filepath.Join(t.TempDir(), "data"), nil, "-accounts", accounts)
	b := openBrowser(t)
	b.expected = failedRequest
	b.visit(s, "")
	s.postText(number, "of the first account", nil)
	b.until(`document.querySelector(".message")`)
	b.run(`document.getElementById("text").focus(); return true`, nil)
	b.fill("#key", otherKey)
	b.fill("#token", "other_token_0123456789")
	b.fill("#text", "of the other account")
	b.click("#send")
	eventuallyEqual(t, "the page", "of the other account", b.bubbles)
	s.postText(number, "not to be seen", nil)

	dir := t.TempDir()
	for name, content := range map[string][]byte{"hills.png": picture(t, 64, 48), "page.html": []byte("<script>window.canary=1</script>"), "tone.wav": tone(3)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.click("input[value=media]")
	b.fill("#media-file", filepath.Join(dir, "hills.png"))
	b.click("#send")
	b.until(`document.querySelector(".picture img")?.naturalWidth === 64`)
	if got := b.text(`document.querySelector(".picture img").src`); !strings.HasPrefix(got, "blob:") {
		t.Errorf("got the picture from %q, want a blob", got)
	}
	b.until(`document.getElementById("answer").textContent.startsWith("Sent")`)
	b.fill("#media-file", filepath.Join(dir, "page.html"))
	b.click("#send")
	b.click(".paper")
	b.until(`document.querySelector(".paper").href.startsWith("blob:")`)
	b.until(`document.getElementById("answer").textContent.startsWith("Sent")`)
	b.click("input[value=audio]")
	b.fill("#audio-file", filepath.Join(dir, "tone.wav"))
	b.click("#send")
	b.until(`document.querySelector(".voice output")?.textContent === "0:03"`)
	if got := b.text("typeof window.canary"); got != "undefined" {
		t.Error("a script of a document ran")
	}

	// When the key is no longer good, the page asks for one.
	s.kill()
	accountsFile(t, accounts, newKey)
	again := start(t, s.data, nil, "-accounts", accounts, "-addr", strings.TrimPrefix(s.url, "http://"))
	b.until(`document.getElementById("locked").open`)
	b.fill("#unlock-key", "not the right one")
	b.click("#unlock button")
	b.until(`!document.getElementById("unlock-problem").hidden`)
	b.fill("#unlock-key", newKey)
	b.click("#unlock button")
	b.until(`document.getElementById("state").dataset.state === "live" && document.querySelectorAll(".message").length === 4`)
	again.postText(number, "not to be seen", nil)
	if got := b.bubbles(); got != "of the other account" {
		t.Errorf("got %q, want the other account's only text", got)
	}
}

// The page's own files are small, cached by their digest, and under the policy.
func TestPageFiles(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	get := func(path string, header ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequest("GET", s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(":"+key)))
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response
	}
	for path, contentType := range map[string]string{
		"/outbox/": "text/html; charset=utf-8", "/outbox/page.css": "text/css; charset=utf-8", "/outbox/page.js": "text/javascript; charset=utf-8",
	} {
		got := get(path)
		h := got.Header
		if got.StatusCode != 200 || h.Get("Content-Type") != contentType || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: got %d %v", path, got.StatusCode, h)
		}
		if policy := h.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; ") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: got the policy %q", path, policy)
		}
		if again := get(path, "If-None-Match", h.Get("Etag")); again.StatusCode != 304 {
			t.Errorf("%s again: got %d, want 304", path, again.StatusCode)
		}
		if refused := get(path, "Authorization", "Basic eDp5"); refused.StatusCode != 401 {
			t.Errorf("%s with a wrong key: got %d, want 401", path, refused.StatusCode)
		}
	}
	if got := get("/outbox"); got.StatusCode != 404 {
		t.Errorf("/outbox: got %d, want 404: there are no redirects", got.StatusCode)
	}
}

// All addresses are relative, because a proxy may put a prefix before the path.
func TestPageBehindAPathPrefix(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.FlushInterval = -1
	proxy := httptest.NewServer(http.StripPrefix("/base", forward))
	t.Cleanup(proxy.Close) // after the browser has left it
	b := openBrowser(t)
	b.expected = failedRequest // the stream ends with the proxy
	b.visit(&service{t: t, url: proxy.URL + "/base"}, "")
	b.click("#new")
	b.giveAccess()
	b.fill("#number", number)
	b.fill("#text", "through the proxy")
	b.click("#send")
	eventuallyEqual(t, "the page", "through the proxy", b.bubbles)
	s.postFile(number, "image", "", "", picture(t, 64, 48))
	b.until(`document.querySelector(".picture img")?.naturalWidth === 64`)
	b.click(".about")
	if got := b.text(`document.querySelector("#details pre").textContent`); !strings.HasPrefix(got, "curl "+proxy.URL+"/base/message/sendText/$TOKEN ") {
		t.Errorf("got the call %q, want it to go through the proxy", got)
	}
}
