package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPageReconnects(t *testing.T) {
	s, b := openPage(t)
	b.expected = regexp.MustCompile(`/outbox/.*Failed to load resource`)
	for i := range 3 {
		s.postText(number, fmt.Sprint("before ", i), nil)
	}
	b.until(`document.querySelectorAll(".message").length === 3`)
	held := make(chan struct{})
	go func() {
		defer close(held)
		_, _ = s.send("sendText", text(60_000, "lost with the service"))
	}()
	b.until(`document.querySelector(".typing-bubble")`)
	s.kill()
	<-held
	b.until(`document.getElementById("state").dataset.state === "lost"`)
	b.until(`!document.querySelector(".typing-bubble")`)

	again := start(t, s.data, account(), "-addr", strings.TrimPrefix(s.url, "http://"))
	for i := range 60 { // more than one page
		again.postText(number, fmt.Sprint("between ", i), nil)
	}
	b.until(`document.getElementById("state").dataset.state === "live"`)
	again.postText(number, "after", nil)
	var want []string
	for _, m := range again.outbox() {
		want = append(want, m.Text)
	}
	eventuallyEqual(t, "the page after the restart", strings.Join(want, "|"), b.bubbles)

	// What was deleted meanwhile is not shown either.
	again.kill()
	third := start(t, s.data, account(), "-addr", strings.TrimPrefix(s.url, "http://"))
	r, err := http.NewRequest("DELETE", third.url+"/outbox/messages", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("apikey", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	third.postText(number, "a new start", nil)
	eventuallyEqual(t, "the page after a deletion", "a new start", b.bubbles)
}

func TestPageDeletesAll(t *testing.T) {
	s, b := openPage(t)
	s.postText(number, "soon gone", nil)
	b.until(`document.querySelector(".message")`)
	b.click("#clear")
	b.click("#sure button[value=no]")
	b.click("#clear")
	b.click("#sure button[value=yes]")
	b.until(`!document.querySelector(".message") && !document.querySelector("#list li")`)
	if got := len(s.outbox()); got != 0 {
		t.Errorf("got %d messages, want none", got)
	}
	b.until(`document.getElementById("welcome").checkVisibility()`)
	s.postText(number, "the next", nil)
	eventuallyEqual(t, "the page after a deletion", "the next", b.bubbles)
}

// seed sends many messages at once, as fast as it can.
func (s *service) seed(count int, message func(i int) (to, text string)) {
	s.t.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	for range 8 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				to, text := message(i)
				body := fmt.Sprintf(`{"number":%q,"textMessage":{"text":%q}}`, to, text)
				if a, err := s.sendWith(client, "sendText", strings.NewReader(body)); err != nil || a.Status != 200 {
					s.t.Errorf("message %d: got %d %q (%v)", i, a.Status, a.Message, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestPageWithManyMessages(t *testing.T) {
	const (
		firstPaint = 500   // ms
		firstView  = 60e3  // bytes
		inDocument = 200   // messages
		longest    = 250.0 // ms that a frame may take
	)
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	s.seed(10_000, func(i int) (string, string) {
		if i%4 == 0 {
			return number, fmt.Sprint("Number ", i, " of very many, with a text of the usual length in it.")
		}
		return fmt.Sprint(49170_0000000 + i%1500), fmt.Sprint("Number ", i, " of very many, with a text of the usual length in it.")
	})
	b := openBrowser(t)
	b.visit(s, "")
	b.until(`document.querySelectorAll("#list li").length > 0`)
	var total float64
	for _, r := range b.requests() {
		total += r.bytes
	}
	paint := b.number(`performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	listed := b.number(`performance.getEntriesByType("resource").find(r => r.name.includes("conversations")).responseEnd`)
	t.Logf("measured: first paint %.0f ms, list of conversations %.0f ms, first view %.1f kB", paint, listed, total/1e3)
	if paint > firstPaint {
		t.Errorf("the first paint took %.0f ms, want at most %d", paint, firstPaint)
	}
	if total > firstView || total < 10e3 {
		t.Errorf("the first view took %.0f bytes, want at most %.0f", total, firstView)
	}

	// The list goes on when it is scrolled.
	b.until(`(document.getElementById("list-scroll").scrollTop = 1e9, document.querySelectorAll("#list li").length >= 200)`)
	if got := b.text(`new Set([...document.querySelectorAll("#list li")].map(l => l.dataset.number)).size === document.querySelectorAll("#list li").length`); got != "true" {
		t.Error("a number is in the list twice")
	}

	// Up to the oldest of 2,500 messages, with few in the document at any time.
	b.fill("#search", number)
	b.click("#found-numbers button")
	b.until(`document.querySelectorAll(".message").length === 50`)
	var seen []string
	b.run(`
		const seen = [], box = document.getElementById("thread");
		let most = 0;
		for (let quiet = 0; quiet < 20; ) {
			const before = seen.length;
			for (const node of document.querySelectorAll(".message")) if (!seen.includes(node.dataset.id)) seen.push(node.dataset.id);
			most = Math.max(most, document.querySelectorAll(".message").length);
			quiet = seen.length === before ? quiet + 1 : 0;
			box.scrollTop = 0;
			await new Promise(resolve => setTimeout(resolve, 20));
		}
		window.most = most;
		return seen`, &seen)
	if len(seen) != 2500 {
		t.Errorf("scrolling to the oldest showed %d messages, want 2500", len(seen))
	}
	if most := b.number("most"); most > inDocument {
		t.Errorf("there were %v messages in the document, want at most %d", most, inDocument)
	}

	// 200 messages a second, seen from the end of the conversation.
	b.click("#jump")
	b.until(`document.getElementById("jump").hidden`)
	b.run(`
		window.live = [];
		window.gap = 0;
		let last = performance.now();
		const frame = now => { gap = Math.max(gap, now - last); last = now; requestAnimationFrame(frame); };
		requestAnimationFrame(frame);
		new MutationObserver(changes => {
			for (const change of changes) for (const node of change.addedNodes) live.push(node.querySelector(".words").textContent);
		}).observe(document.getElementById("messages"), {childList: true});
		return true`, nil)
	const rate, seconds = 200, 3
	var want []string
	began := time.Now()
	for i := range rate * seconds {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / rate)))
		want = append(want, fmt.Sprint("live ", i))
		s.postText(number, want[i], nil)
	}
	took := time.Since(began)
	eventuallyEqual(t, "what arrived", strings.Join(want, "|"), func() string { return b.text(`live.join("|")`) })
	if got := b.number(`document.querySelectorAll(".message").length`); got > inDocument {
		t.Errorf("got %v messages in the document, want at most %d", got, inDocument)
	}
	gap := b.number("gap")
	t.Logf("measured: %d messages in %.1f s, longest frame %.0f ms", len(want), took.Seconds(), gap)
	if gap > longest {
		t.Errorf("a frame took %.0f ms, want at most %.0f", gap, longest)
	}
	if got := b.number(`(t => t.scrollHeight - t.clientHeight - t.scrollTop)(document.getElementById("thread"))`); got > 2 {
		t.Errorf("the page is %.0f px away from the newest message, want it there", got)
	}
}
