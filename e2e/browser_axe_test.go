package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// axe finds axe-core: AXE names its file, or npm has it.
func axe(t *testing.T) string {
	t.Helper()
	paths := []string{os.Getenv("AXE")}
	if root, err := exec.Command("npm", "root", "-g").Output(); err == nil {
		paths = append(paths, filepath.Join(strings.TrimSpace(string(root)), "axe-core", "axe.min.js"))
	}
	for _, path := range paths {
		if content, err := os.ReadFile(path); path != "" && err == nil {
			return string(content)
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("axe-core is not installed: npm install -g axe-core, or set AXE to its axe.min.js")
	}
	t.Skip("not tested, because axe-core is not installed")
	return ""
}

func TestPageIsAccessible(t *testing.T) {
	source := axe(t)
	s, b := openPage(t)
	b.expected = failedRequest
	check := func(state string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			time.Sleep(300 * time.Millisecond) // animations end: axe measures colours as they are
			var violations []string
			b.run(source+`;
				const result = await axe.run(document, {resultTypes: ["violations"]});
				return result.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html.slice(0, 200) + " " + n.failureSummary).join(" | "))`, &violations)
			for _, v := range violations {
				t.Errorf("%s, %s: %s", state, scheme, v)
			}
		}
	}
	check("empty")
	s.postText("4917012345678", "Hello", nil)
	s.postAllKinds(b)
	b.click(`[data-number="` + number + `"] button`)
	b.until(`document.querySelectorAll(".message").length === 7`)
	held := make(chan struct{})
	go func() {
		defer close(held)
		_, _ = s.send("sendText", text(8000, "later"))
	}()
	b.until(`document.querySelector(".typing-bubble")`)
	check("conversation")
	<-held
	b.click(".message:nth-child(3) .about")
	check("details")
	b.click("#details form button")
	b.fill("#search", "o")
	b.until(`document.querySelectorAll("#found-messages li").length > 0`)
	check("search")
	b.click("#new")
	b.giveAccess()
	b.click("#options-toggle")
	b.click("input[value=media]")
	b.click("#send")
	b.until(`document.querySelector(".problem")`)
	check("composer with errors")
	b.resize(360, 740)
	check("phone")
	if got := b.number("document.documentElement.scrollWidth"); got > 360 {
		t.Errorf("on a phone the page is %.0f px wide, want at most 360", got)
	}
	b.click("#back")
	b.click("#clear")
	check("question")
}
