package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// These tests look at the outbox's page as a person does: in a browser.

// openPage starts the service and a browser that shows its page.
func openPage(t *testing.T, args ...string) (*service, *browser) {
	t.Helper()
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), args...)
	b := openBrowser(t)
	b.visit(s, "")
	b.until(`document.getElementById("state").dataset.state === "live"`)
	return s, b
}

// bubbles are the texts of the messages in the open conversation, joined.
func (b *browser) bubbles() string {
	b.t.Helper()
	return b.text(`[...document.querySelectorAll(".message .words")].map(w => w.textContent).join("|")`)
}

// giveAccess fills in key and token.
func (b *browser) giveAccess() {
	b.t.Helper()
	b.run(`document.getElementById("text").focus(); return true`, nil)
	b.fill("#key", key)
	b.fill("#token", token)
}

func TestPageShowsPresenceThenMessage(t *testing.T) {
	s, b := openPage(t)
	b.run(`
		window.seen = {};
		new MutationObserver(() => {
			const shown = document.querySelector(".typing-bubble"), now = performance.now();
			if (shown && !seen.from) seen.from = now;
			if (!shown && seen.from && !seen.until) seen.until = now;
			if (document.querySelector(".message") && !seen.message) seen.message = now;
		}).observe(document.body, {childList: true, subtree: true});
		return true`, nil)
	const hold = 1500
	done := make(chan error, 1)
	go func() {
		_, err := s.send("sendText", text(hold, "First line\nSee https://example.com/a?b=1. And javascript:alert(1)"))
		done <- err
	}()
	b.until(`document.querySelector(".typing-bubble")`)
	if got := b.text(`document.getElementById("presence-line").textContent`); got != "composing…" {
		t.Errorf("got the presence %q, want composing…", got)
	}
	if got := b.number(`document.querySelectorAll(".message").length`); got != 0 {
		t.Errorf("got %v messages while the presence is shown, want none", got)
	}
	b.until(`document.querySelector(".message")`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if shown := b.number("seen.until - seen.from"); shown < hold-200 || shown > hold+400 {
		t.Errorf("the presence was shown for %.0f ms, want %d", shown, hold)
	}
	if gap := b.number("seen.message - seen.until"); gap != 0 {
		t.Errorf("the message came %.0f ms after the presence ended, want both in one step", gap)
	}
	if got, want := b.text(`document.querySelector(".words").innerText`), "First line\nSee https://example.com/a?b=1. And javascript:alert(1)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := b.text(`[...document.querySelectorAll(".words a")].map(a => [a.href, a.rel, a.target])`), "https://example.com/a?b=1,noopener noreferrer,_blank"; got != want {
		t.Errorf("got the links %q, want %q", got, want)
	}
	if got := b.text(`document.querySelector(".foot").textContent`); !strings.Contains(got, "composing 1.5") {
		t.Errorf("got the timeline %q, want the hold of 1.5 s in it", got)
	}

	// A presence whose message never comes ends as well.
	abandoned, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := `{"number":"4917012345678","options":{"delay":60000,"presence":"paused"},"textMessage":{"text":"x"}}`
	fmt.Fprintf(abandoned, "POST /message/sendText/%s HTTP/1.1\r\nHost: x\r\napikey: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, key, len(body), body)
	b.until(`document.querySelector('[data-number="4917012345678"] .typing')`)
	abandoned.Close()
	b.until(`!document.querySelector('[data-number="4917012345678"]')`)
}

func TestPageComposerSends(t *testing.T) {
	s, b := openPage(t)
	b.click("#new")
	b.fill("#number", number)
	b.giveAccess()
	b.click("#options-toggle")
	b.fill("#delay", "300")
	b.fill("#text", "Written by hand")
	b.click("#send")
	b.until(`document.querySelectorAll(".message").length === 1`)
	b.until(`document.getElementById("answer").textContent.startsWith("Sent as OB")`)
	if got := b.text(`document.getElementById("text").value`); got != "" {
		t.Errorf("got the text %q left over, want none", got)
	}

	dir := t.TempDir()
	files := map[string][]byte{"hills.png": picture(t, 64, 48), "tone.wav": tone(3)}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.click("input[value=media]")
	b.fill("#media-file", filepath.Join(dir, "hills.png"))
	b.fill("#caption", "From the window")
	b.click("#send")
	b.until(`document.querySelectorAll(".message").length === 2`)
	b.until(`document.querySelector(".picture img")?.naturalWidth === 64`)

	b.click("input[value=audio]")
	b.fill("#audio-file", filepath.Join(dir, "tone.wav"))
	b.click("#send")
	b.until(`document.querySelectorAll(".message").length === 3`)
	b.until(`document.querySelector(".voice output")?.textContent === "0:03"`)

	// What is dropped on the page is sent as a file.
	b.run(`
		const data = new DataTransfer();
		data.items.add(new File(["dropped"], "dropped.txt", {type: "text/plain"}));
		document.querySelector("input[value=text]").click();
		document.getElementById("thread").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
		return true`, nil)
	b.click("#send")
	b.until(`document.querySelector('.paper[download="dropped.txt"]')`)

	// The browser's pretended microphone beeps.
	b.click("input[value=audio]")
	b.click("#record")
	b.until(`document.getElementById("record").textContent.trim() === "Stop"`)
	time.Sleep(700 * time.Millisecond)
	b.click("#record")
	b.until(`document.getElementById("audio-chosen").textContent.startsWith("Recording")`)
	b.click("#send")
	b.until(`document.querySelectorAll(".voice").length === 2`)

	got := s.outbox()
	if len(got) != 5 || got[0].Text != "Written by hand" || got[0].Number != number {
		t.Fatalf("got %+v in the outbox, want five messages to %s", got, number)
	}
	for i, name := range map[int]string{1: "hills.png", 2: "tone.wav"} {
		if _, content := s.get("/outbox/messages/" + got[i].MessageID + "/media"); !bytes.Equal(content, files[name]) {
			t.Errorf("%s: got %d bytes, want the file's %d", name, len(content), len(files[name]))
		}
	}

	// A send that is cancelled during its hold sends nothing.
	b.click("input[value=text]")
	b.fill("#delay", "60000")
	b.fill("#text", "Never")
	b.click("#send")
	b.until(`document.querySelector(".typing-bubble")`)
	b.click("#send")
	b.until(`document.getElementById("answer").textContent.startsWith("Cancelled")`)
	b.until(`!document.querySelector(".typing-bubble")`)
	if got := len(s.outbox()); got != 5 {
		t.Errorf("got %d messages after a cancelled one, want 5", got)
	}
}

func TestPageShowsErrorsAtTheirFields(t *testing.T) {
	_, b := openPage(t)
	b.expected = failedRequest
	problems := func() string {
		return b.text(`[...document.querySelectorAll(".problem")].filter(p => p.offsetParent).map(p => {
			const input = p.parentElement.querySelector("[aria-invalid=true]");
			return p.parentElement.dataset.field + " " + p.textContent + (input.getAttribute("aria-describedby") === p.id ? "" : " (not described)");
		}).join("\n")`)
	}
	b.click("#new")
	b.fill("#text", "x")
	b.click("#send")
	if got, want := problems(), "apikey is needed to send\napiToken is needed to send"; got != want {
		t.Errorf("without access: got %q, want %q", got, want)
	}
	b.giveAccess()
	b.fill("#number", "012")
	b.click("#options-toggle")
	b.fill("#delay", "soon")
	b.click("#options-toggle") // an error opens it again
	b.click("#send")
	b.until(`document.querySelector("[data-field='options.delay'] .problem")?.offsetParent`)
	got := problems()
	for _, field := range []string{"number ", "options.delay "} {
		if !strings.Contains(got, field) || strings.Contains(got, "(not described)") {
			t.Errorf("got the problems %q, want one of %q", got, field)
		}
	}
	if got := b.text("document.activeElement.id"); got != "number" {
		t.Errorf("got the focus at %q, want the first wrong field", got)
	}
	if got := b.text(`document.getElementById("answer").textContent`); !strings.HasPrefix(got, "400 invalid_request: ") {
		t.Errorf("got the answer %q, want status and code", got)
	}
	b.fill("#number", number)
	b.fill("#delay", "0")
	b.click("input[value=media]")
	b.run(`document.getElementById("media-type").value = "image"; return true`, nil)
	b.fill("#media-url", "bm90IGEgcGljdHVyZQ==")
	b.click("#send")
	b.until(`document.querySelector("[data-field='mediaMessage.media'] .problem")`)
	b.fill("#token", "wrong_token_0123456789")
	b.click("#send")
	b.until(`document.querySelector("[data-field='apiToken'] .problem")`)
}

func TestPageSearch(t *testing.T) {
	s, b := openPage(t)
	for i := range 120 {
		s.postText(number, fmt.Sprintf("Message %d, nothing special", i), nil)
		if i == 20 {
			s.postText(number, "Here is the needle you look for", nil)
			s.postFile(number, "document", "Needlework.txt", "", []byte("x"))
		}
	}
	s.postText("4917012345678", "Somebody else", nil)
	b.fill("#search", "nEEdle")
	b.until(`document.querySelectorAll("#found-messages li").length === 2`)
	if got := b.text(`[...document.querySelectorAll("#found-messages mark")].map(m => m.textContent)`); got != "Needle,needle" {
		t.Errorf("got the matches %q, want both, newest first", got)
	}
	b.click("#found-messages li:nth-child(2) button")
	b.until(`document.querySelector(".message.found")`)
	if got := b.text(`document.querySelector(".message.found .words").textContent`); !strings.Contains(got, "needle") {
		t.Errorf("got %q, want the message that was found", got)
	}
	b.until(`(r => r.top > 0 && r.bottom < innerHeight)(document.querySelector(".message.found").getBoundingClientRect())`)
	// From there on to the newest, page by page.
	b.until(`(document.getElementById("thread").scrollTop = 1e9, [...document.querySelectorAll(".message .words")].at(-1).textContent.startsWith("Message 119,"))`)
	b.fill("#search", "+49 170")
	b.until(`document.querySelectorAll("#found-numbers li").length === 1`)
	b.click("#found-numbers button")
	b.until(`document.getElementById("title").textContent === "+4917012345678"`)
	b.fill("#search", "not anywhere")
	b.until(`document.getElementById("found-none").textContent !== ""`)
}

func TestPageDetailsAndCall(t *testing.T) {
	need(t, "curl")
	s, b := openPage(t)
	s.postText(number, "It's \\ 100%\n\"quoted\" $HOME `x` ü", object{"presence": "composing", "delay": 100, "linkPreview": false})
	s.postFile(number, "document", "it's.txt", "50% 'off'", []byte("the document"))
	s.postVoice(number, tone(1), object{"presence": "recording", "delay": 120})
	b.click(".list .entry")
	b.until(`document.querySelectorAll(".message").length === 3`)
	ids := s.outbox()
	for i := range 3 {
		b.click(fmt.Sprintf(".message:nth-child(%d) .about", i+1))
		b.until(`document.getElementById("details").open`)
		if got := b.text(`document.getElementById("details-id").textContent`); got != ids[i].MessageID {
			t.Errorf("got the id %q, want %q", got, ids[i].MessageID)
		}
		_, whole := s.get("/outbox/messages/" + ids[i].MessageID)
		var want map[string]any
		if err := json.Unmarshal(whole, &want); err != nil {
			t.Fatal(err)
		}
		fields := b.text(`[...document.querySelectorAll(".facts dt")].map(d => d.textContent).join(" ")`)
		for name := range want {
			if !strings.Contains(" "+fields+" ", " "+name+" ") {
				t.Errorf("the details have %q, want also %s", fields, name)
			}
		}
		call := b.text(`document.querySelector("#details pre").textContent`)
		if strings.Contains(call, key) || strings.Contains(call, token) {
			t.Errorf("the call has a secret in it: %s", call)
		}
		run := exec.Command("sh", "-c", call)
		run.Env = append(os.Environ(), "KEY="+key, "TOKEN="+token)
		output, err := run.Output()
		if err != nil || !bytes.HasPrefix(output, []byte(`{"status":"success"`)) {
			t.Fatalf("%s\ngot %s (%v), want a success", call, output, err)
		}
		all := s.outbox()
		_, again := s.get("/outbox/messages/" + all[len(all)-1].MessageID)
		var got map[string]any
		if err := json.Unmarshal(again, &got); err != nil {
			t.Fatal(err)
		}
		for _, own := range []string{"messageId", "mediaUrl", "requestedAt", "presenceFrom", "presenceUntil", "sentAt"} {
			delete(want, own)
			delete(got, own)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("sent again: got %v, want %v", got, want)
		}
		b.click("#details form button")
	}
	if got := b.text("document.activeElement.className"); !strings.Contains(got, "about") {
		t.Errorf("got the focus at %q after the details, want it where it was", got)
	}
}

func TestPageByKeyboard(t *testing.T) {
	s, b := openPage(t)
	for i := range 3 {
		s.postText(fmt.Sprint(4917012345670+i), fmt.Sprint("to ", i), nil)
	}
	b.until(`document.querySelectorAll("#list li").length === 3`)
	keys := func(keys string) {
		t.Helper()
		var active map[string]string
		b.command("GET", "/element/active", nil, &active)
		b.command("POST", "/element/"+active[elementKey]+"/value", map[string]string{"text": keys}, nil)
	}
	// WebDriver's names of keys (section 17.4.2).
	const down, enter, escape = "\ue015", "\ue007", "\ue00c"
	keys("/")
	if got := b.text("document.activeElement.id"); got != "search" {
		t.Fatalf("got the focus at %q, want the search", got)
	}
	keys(down)
	keys(down)
	keys(enter)
	b.until(`document.getElementById("title").textContent === "+4917012345671"`)
	b.click(".about")
	keys(escape)
	b.until(`!document.getElementById("details").open`)
	b.giveAccess()
	b.fill("#text", "two\ue008\ue007\ue000lines"+enter) // with Shift and Enter between
	eventuallyEqual(t, "the page", "to 1|two\nlines", b.bubbles)
}
