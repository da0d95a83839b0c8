package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// keyed is an answer with the headers that matter to idempotency.
type keyed struct {
	answer
	body     string
	replayed bool
}

// sendKeyed posts a text with an Idempotency-Key.
func sendKeyed(ctx context.Context, client *http.Client, url, idempotencyKey, number, text string, delay int) (keyed, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", url+"/message/sendText/"+token, textTo(number, delay, text))
	if err != nil {
		return keyed{}, err
	}
	r.Header = http.Header{"Apikey": {key}, "Content-Type": {"application/json"}, "Idempotency-Key": {idempotencyKey}}
	response, err := client.Do(r)
	if err != nil {
		return keyed{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return keyed{}, err
	}
	k := keyed{body: string(content), replayed: response.Header.Get("Idempotent-Replayed") == "true"}
	err = json.Unmarshal(content, &k.answer)
	k.Status = response.StatusCode
	return k, err
}

func (s *service) keyed(idempotencyKey, text string, delay int) keyed {
	s.t.Helper()
	k, err := sendKeyed(s.t.Context(), http.DefaultClient, s.url, idempotencyKey, number, text, delay)
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

func (s *service) outcome(idempotencyKey, want string) {
	s.t.Helper()
	status, body := s.get("/message/outcome/" + token + "?key=" + idempotencyKey)
	if got := fmt.Sprint(status, " ", string(body)); !strings.Contains(got, want) {
		s.t.Errorf("outcome of %s: got %s, want %s", idempotencyKey, got, want)
	}
}

func TestSameKeySameAnswer(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := start(t, data, account())
	s.outcome("k1", "404")
	first := s.keyed("k1", "hello", 5)
	if first.Status != 200 || first.replayed {
		t.Fatalf("the first: got %+v, want 200, not replayed", first)
	}
	s.outcome("k1", `"state":"sent","messageId":"`+first.Data.MessageID)
	for _, when := range []string{"at once", "after a restart", "after a kill"} {
		if again := s.keyed("k1", "hello", 5); again.Status != 200 || again.body != first.body || !again.replayed {
			t.Errorf("again %s: got %+v, want %+v, replayed", when, again, first)
		}
		if other := s.keyed("k1", "hello!", 5); other.Status != 422 || other.Error.Code != "idempotency_key_reused" {
			t.Errorf("another request %s: got %+v, want 422 idempotency_key_reused", when, other)
		}
		if when == "at once" {
			s.signal(syscall.SIGTERM)
			s.wait()
		}
		s.kill()
		s = start(t, data, account())
	}
	if got := len(s.outbox()); got != 1 {
		t.Errorf("the outbox has %d messages, want 1", got)
	}
	for _, bad := range []string{"", " ", "a b", "ü", strings.Repeat("k", 256)} {
		r, _ := http.NewRequest("POST", s.url+"/message/sendText/"+token, text(0, "x"))
		r.Header = http.Header{"Apikey": {key}, "Content-Type": {"application/json"}, "Idempotency-Key": {bad}}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 400 {
			t.Errorf("key %q: got %d, want 400", bad, response.StatusCode)
		}
	}
}

func TestThousandRequestsWithOneKey(t *testing.T) {
	const requests = 1000
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	client := manyConnections()
	var wait sync.WaitGroup
	answers := make([]keyed, requests)
	for i := range requests {
		wait.Go(func() {
			var err error
			if answers[i], err = sendKeyed(t.Context(), client, s.url, "one", number, "hello", 500); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		})
	}
	wait.Wait()
	first := 0
	for i, a := range answers {
		if a.Status != 200 || a.body != answers[0].body {
			t.Fatalf("request %d got %+v, request 0 got %+v, want equal 200s", i, a, answers[0])
		}
		if !a.replayed {
			first++
		}
	}
	if got := len(s.outbox()); got != 1 || first != 1 {
		t.Errorf("%d messages were sent and %d answers were first ones, want 1 and 1", got, first)
	}
}

// The usual case: a client gives up during the hold and asks again.
func TestRetryTakesOverFromAClientThatLeft(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	left := make(chan error, 1)
	go func() {
		_, err := sendKeyed(impatient, manyConnections(), s.url, "k", number, "hello", 600)
		left <- err
	}()
	time.Sleep(100 * time.Millisecond)
	s.outcome("k", `"state":"running"`)
	second := s.keyed("k", "hello", 600) // waits, then takes over
	if err := <-left; err == nil {
		t.Error("the first client was answered, want its own time-out")
	}
	if second.Status != 200 || len(s.outbox()) != 1 {
		t.Errorf("got %+v and %d messages, want 200 and 1", second, len(s.outbox()))
	}
}

// A message that the platform took and never answered for is not sent again,
// whatever happens to the service.
func TestKilledDuringDelivery(t *testing.T) {
	var arrived atomic.Int64
	stall := make(chan struct{})
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived.Add(1)
		<-stall
	}))
	defer platform.Close()
	defer close(stall)
	data := filepath.Join(t.TempDir(), "data")
	env := append(account(), "WHATSAPP_PHONE_NUMBER_ID="+phoneID, "WHATSAPP_ACCESS_TOKEN="+graphToken)
	s := start(t, data, env, "-sender", "whatsapp", "-whatsapp-url", platform.URL)
	go sendKeyed(t.Context(), manyConnections(), s.url, "k", number, "hello", 0)
	eventually(t, "the platform has the message", func() bool { return arrived.Load() == 1 })
	s.kill()
	s = start(t, data, env, "-sender", "whatsapp", "-whatsapp-url", platform.URL)
	if got := s.keyed("k", "hello", 0); got.Status != 504 || got.Error.Code != "delivery_unknown" || got.Error.Retryable {
		t.Errorf("got %+v, want 504 delivery_unknown, not retryable", got)
	}
	s.outcome("k", `"state":"unknown"`)
	if got := arrived.Load(); got != 1 {
		t.Errorf("the platform got the message %d times, want once", got)
	}
}

// freePort is an address that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestKilledAtRandomInstants kills the service under load, again and again, while
// clients repeat every request with its key until they know what became of it.
func TestKilledAtRandomInstants(t *testing.T) {
	kills := 10
	if os.Getenv("CI") != "" {
		kills = 100
	}
	if *full {
		kills = 1000
	}
	effects := newEffects(t)
	addr, data := freePort(t), filepath.Join(t.TempDir(), "data")
	env := append(account(), "WHATSAPP_PHONE_NUMBER_ID="+phoneID, "WHATSAPP_ACCESS_TOKEN="+graphToken)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wait sync.WaitGroup
	var mu sync.Mutex
	acknowledged := map[string]string{} // text → id
	unknown := map[string]bool{}
	for worker := range 16 {
		wait.Go(func() {
			client := manyConnections()
			for n := 0; ctx.Err() == nil; n++ {
				text, delay := fmt.Sprintf("%d/%d", worker, n), rand.IntN(3)
				for ctx.Err() == nil {
					k, err := sendKeyed(ctx, client, "http://"+addr, text, fmt.Sprint(15550000000+worker), text, delay)
					if err != nil || k.Error.Retryable {
						time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
						continue
					}
					mu.Lock()
					switch {
					case k.Status == 200:
						acknowledged[text] = k.Data.MessageID
					case k.Error.Code == "delivery_unknown":
						unknown[text] = true
					default:
						t.Errorf("%s got %+v, want 200 or 504", text, k)
					}
					mu.Unlock()
					break
				}
			}
		})
	}
	var slowest time.Duration
	for range kills {
		begin := time.Now()
		s := start(t, data, env, "-addr", addr, "-sender", "whatsapp", "-whatsapp-url", effects.URL)
		slowest = max(slowest, time.Since(begin))
		time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond)
		s.kill()
	}
	stop()
	wait.Wait()
	twice, lost, wrong := 0, 0, 0
	effects.mu.Lock()
	defer effects.mu.Unlock()
	for text, ids := range effects.ids {
		if len(ids) > 1 {
			twice++
			t.Errorf("%s arrived %d times", text, len(ids))
		}
	}
	for text, id := range acknowledged {
		switch ids := effects.ids[text]; {
		case len(ids) == 0:
			lost++
			t.Errorf("%s was acknowledged and did not arrive", text)
		case ids[0] != id:
			wrong++
			t.Errorf("%s arrived as %s and was acknowledged as %s", text, ids[0], id)
		}
	}
	if len(acknowledged) == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("measured: %d kills: %d acknowledged, %d unknown, %d twice, %d lost, %d with another id; slowest start %v", kills, len(acknowledged), len(unknown), twice, lost, wrong, slowest)
}

// effects is a stand-in of the Cloud API that logs what arrives.
type effects struct {
	*httptest.Server
	mu  sync.Mutex
	ids map[string][]string // text → ids given
}

func newEffects(t *testing.T) *effects {
	t.Helper()
	e := &effects{ids: map[string][]string{}}
	var next atomic.Int64
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Text struct{ Body string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return // killed half way: it did not arrive
		}
		id := fmt.Sprintf("wamid.%d", next.Add(1))
		e.mu.Lock()
		e.ids[body.Text.Body] = append(e.ids[body.Text.Body], id)
		e.mu.Unlock()
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"messaging_product":"whatsapp","contacts":[{"input":"1","wa_id":"1"}],"messages":[{"id":%q}]}`, id)
	}))
	t.Cleanup(e.Close)
	return e
}

// Messages to one number arrive in the order in which they were accepted.
func TestOrderPerNumber(t *testing.T) {
	const numbers, each = 100, 30
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	var wait sync.WaitGroup
	for n := range numbers {
		wait.Go(func() {
			to := fmt.Sprint(15550000000 + n)
			conns := make([]net.Conn, each)
			for i := range conns {
				conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				conns[i] = conn
				body, _ := io.ReadAll(textTo(to, rand.IntN(60), fmt.Sprint(i)))
				idempotencyKey := fmt.Sprintf("%s-%d", to, i)
				fmt.Fprintf(conn, "POST /message/sendText/%s HTTP/1.1\r\nHost: x\r\napikey: %s\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, key, idempotencyKey, len(body), body)
				// The next is sent when this one has been accepted, which its key tells.
				eventually(t, "a request is accepted", func() bool {
					status, _ := s.get("/message/outcome/" + token + "?key=" + idempotencyKey)
					return status == 200
				})
				time.Sleep(20 * time.Millisecond)
			}
			for _, conn := range conns {
				_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	last := map[string]int{}
	swapped, total := 0, 0
	for _, m := range s.outbox() {
		var i int
		fmt.Sscan(m.Text, &i)
		if i < last[m.Number] {
			swapped++
		}
		last[m.Number] = i
		total++
	}
	if swapped > 0 || total != numbers*each {
		t.Errorf("%d of %d messages arrived before one that was asked for earlier, want 0 of %d", swapped, total, numbers*each)
	}
}

func TestFullLane(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	client := manyConnections()
	var wait sync.WaitGroup
	var sent, limited atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i := range 40 {
		wait.Go(func() {
			k, err := sendKeyed(ctx, client, s.url, fmt.Sprint(i), number, fmt.Sprint(i), 5000)
			switch {
			case err == nil && k.Status == 429 && k.Error.Code == "rate_limited" && k.Error.Retryable:
				limited.Add(1)
			case err == nil || !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("got %+v %v, want 429 or to wait", k, err)
			default:
				sent.Add(1)
			}
		})
	}
	wait.Wait()
	if sent.Load() != 33 || limited.Load() != 7 {
		t.Errorf("%d waited and %d got 429, want 33 (one in its turn, 32 behind it) and 7", sent.Load(), limited.Load())
	}
	eventually(t, "the lane is free again", func() bool { k := s.keyed("free", "x", 0); return k.Status == 200 })
	if got := len(s.outbox()); got != 1 {
		t.Errorf("%d messages were sent, want only the last", got)
	}
}

func TestOverloadIsRefusedAtOnce(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-max-sends", "10")
	client := manyConnections()
	var wait sync.WaitGroup
	var sent, shed atomic.Int64
	for i := range 100 {
		wait.Go(func() {
			begin := time.Now()
			a, err := s.sendWith(client, "sendText", textTo(fmt.Sprint(15550000000+i), 1000, "x"))
			switch {
			case err != nil:
				t.Error(err)
			case a.Status == 200:
				sent.Add(1)
			case a.Status == 503 && a.Error.Code == "unavailable" && a.Error.Retryable && time.Since(begin) < 900*time.Millisecond:
				shed.Add(1)
			default:
				t.Errorf("got %+v after %v, want 200 or 503 at once", a, time.Since(begin))
			}
		})
	}
	wait.Wait()
	if sent.Load() != 10 || shed.Load() != 90 {
		t.Errorf("%d were sent and %d refused, want 10 and 90", sent.Load(), shed.Load())
	}
}

func TestTooManyConnections(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-max-connections", "5")
	var open []net.Conn
	for range 5 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	eventually(t, "the sixth is refused", func() bool {
		a, err := s.sendWith(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "sendText", text(0, "x"))
		return err == nil && a.Status == 503
	})
	for _, conn := range open {
		conn.Close()
	}
	eventually(t, "there is room again", func() bool {
		a, err := s.sendWith(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "sendText", text(0, "x"))
		return err == nil && a.Status == 200
	})
}

// A second process must not touch what the first one works with.
func TestSecondProcessIsRefused(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	second := command(t, s.data)
	output, err := second.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "another process") {
		t.Errorf("a second process ended with %v: %s, want to be told of another process", err, output)
	}
	if a, err := s.send("sendText", text(0, "x")); err != nil || a.Status != 200 {
		t.Errorf("the first one: got %v %v, want 200", a, err)
	}
}

// A journal that is damaged in the middle is refused, never guessed at; -repair
// cuts it and keeps a copy.
func TestDamagedJournal(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := start(t, data, account())
	for i := range 20 {
		if k := s.keyed(fmt.Sprint(i), "x", 0); k.Status != 200 {
			t.Fatalf("got %+v, want 200", k)
		}
	}
	s.kill()
	file := filepath.Join(data, "journal", "00000001.log")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 4
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := command(t, data).CombinedOutput()
	if err == nil || !strings.Contains(string(output), file) || !strings.Contains(string(output), "-repair") {
		t.Errorf("got %v: %s, want a refusal that names the file and -repair", err, output)
	}
	if output, err = command(t, data, "-repair").CombinedOutput(); err != nil || !strings.Contains(string(output), "journal: ") {
		t.Fatalf("-repair: got %v: %s", err, output)
	}
	copies, _ := filepath.Glob(filepath.Join(data, "journal.damaged-*", "00000001.log"))
	if len(copies) != 1 {
		t.Fatalf("got copies %v, want one", copies)
	}
	if kept, err := os.ReadFile(copies[0]); err != nil || string(kept) != string(content) {
		t.Errorf("the copy is not what was damaged (%v)", err)
	}
	s = start(t, data, account())
	if k := s.keyed("0", "x", 0); k.Status != 200 || !k.replayed {
		t.Errorf("a key before the damage: got %+v, want its answer again", k)
	}
}

// SIGTERM with holds, lanes and keys in play: everybody is answered, and nothing
// is sent for those who were told that it is not.
func TestTermWithLanesAndKeys(t *testing.T) {
	const numbers, each = 200, 5
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-shutdown-grace", "2s")
	client := manyConnections()
	var wait sync.WaitGroup
	var mu sync.Mutex
	told := map[string]keyed{}
	for n := range numbers {
		for i := range each {
			wait.Go(func() {
				text := fmt.Sprintf("%d/%d", n, i)
				// Every other request has a twin with the same key, which waits for it.
				idempotencyKey := fmt.Sprintf("%d/%d", n, i/2*2)
				if i%2 == 1 {
					text = idempotencyKey
				}
				k, err := sendKeyed(t.Context(), client, s.url, idempotencyKey, fmt.Sprint(15550000000+n), text, 300+100*(n%20))
				if err != nil {
					t.Errorf("%s got no whole answer: %v", text, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if k.Status == 200 || told[text].Status == 0 {
					told[text] = k
				}
			})
		}
	}
	time.Sleep(1200 * time.Millisecond)
	s.signal(syscall.SIGTERM)
	wait.Wait()
	if got := s.wait(); got != 0 {
		t.Errorf("got exit status %d, want 0", got)
	}
	s = start(t, s.data, account())
	there := map[string]int{}
	for _, m := range s.outbox() {
		there[m.Text]++
	}
	statuses := map[int]int{}
	for text, k := range told {
		statuses[k.Status]++
		switch {
		case there[text] > 1:
			t.Errorf("%s was sent %d times", text, there[text])
		case k.Status == 200 && there[text] == 0:
			t.Errorf("%s was told sent and is not there", text)
		case k.Status == 503 && there[text] > 0:
			t.Errorf("%s was told %s and is there", text, k.Error.Code)
		case k.Status != 200 && k.Status != 503 && k.Status != 409:
			t.Errorf("%s got %+v", text, k)
		}
	}
	t.Logf("measured: SIGTERM with %d sends in lanes and with keys: %v", numbers*each, statuses)
}

// A number whose message is held must not delay the others.
func TestStalledNumberDelaysNoOther(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	client := manyConnections()
	p99 := func() time.Duration {
		var took []time.Duration
		for i := range 1000 {
			begin := time.Now()
			if a, err := s.sendWith(client, "sendText", textTo(fmt.Sprint(15560000000+i), 0, "x")); err != nil || a.Status != 200 {
				t.Fatalf("got %+v %v, want 200", a, err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	alone := p99()
	stalled, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range 33 {
		go sendKeyed(stalled, client, s.url, fmt.Sprint(i), number, "x", 60_000)
	}
	time.Sleep(300 * time.Millisecond)
	beside := p99()
	t.Logf("measured: p99 of a send %v, beside a number with 33 that are stalled %v", alone, beside)
	if beside > alone+time.Second {
		t.Errorf("p99 went from %v to %v", alone, beside)
	}
}
