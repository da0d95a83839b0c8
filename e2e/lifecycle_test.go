package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A stranger starts the program and pastes what it prints.
func TestPrintedCallsWork(t *testing.T) {
	need(t, "curl")
	s := start(t, filepath.Join(t.TempDir(), "data"), nil)
	var printed strings.Builder
	for s.lines.Scan() && !strings.Contains(s.lines.Text(), "/outbox/messages") {
		fmt.Fprintln(&printed, s.lines.Text())
	}
	last := strings.TrimSpace(s.lines.Text())
	blocks := strings.Split(printed.String(), "\n\n")
	calls := slices.DeleteFunc(blocks, func(b string) bool { return !strings.HasPrefix(strings.TrimSpace(b), "curl ") })
	if len(calls) != 3 {
		t.Fatalf("got %d printed calls, want 3:\n%s", len(calls), printed.String())
	}
	for _, call := range calls {
		output, err := exec.Command("sh", "-c", strings.TrimSpace(call)+" -sS").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(output), `{"status":"success"`) {
			t.Errorf("%s\ngot %s (%v), want a success", call, output, err)
		}
	}
	output, err := exec.Command("sh", "-c", last+" -sS").CombinedOutput()
	if got := strings.Count(string(output), `"state":"sent"`); err != nil || got != 3 {
		t.Errorf("%s\ngot %d messages (%v), want 3: %s", last, got, err, output)
	}
	// The same key and token work after a restart.
	s.signal(syscall.SIGTERM)
	if got := s.wait(); got != 0 {
		t.Errorf("got exit status %d, want 0", got)
	}
	again := start(t, s.data, nil)
	call := strings.ReplaceAll(calls[0], s.url, again.url)
	output, err = exec.Command("sh", "-c", strings.TrimSpace(call)+" -sS").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(output), `{"status":"success"`) {
		t.Errorf("after a restart: got %s (%v), want a success", output, err)
	}
}

// Another program that is not on this machine must not see the outbox without a key.
func TestOpenOutboxIsForThisMachineOnly(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), nil)
	for _, c := range []struct {
		name, header, value string
		want                int
	}{
		{"as it is", "X-Nothing", "x", 200},
		{"through a proxy", "X-Forwarded-For", "203.0.113.9", 401},
		{"through a proxy that says so in another way", "Forwarded", "for=203.0.113.9", 401},
		{"through a proxy with Via", "Via", "1.1 proxy", 401},
		{"with the name of somebody else's page", "Host", "evil.example", 401},
		{"with a wrong key", "apikey", "wrong", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequest("GET", s.url+"/outbox/messages", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(c.header, c.value)
			if c.header == "Host" {
				r.Host = c.value
			}
			response, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != c.want {
				t.Errorf("got %d, want %d", response.StatusCode, c.want)
			}
		})
	}
}

// manyConnections is a client that does not share connections.
func manyConnections() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true}}
}

// SIGTERM with 1,000 requests in a hold: every client gets a whole answer, and
// none of those told "not sent" is in the outbox.
func TestTermWithThousandHolds(t *testing.T) {
	const holds = 1000
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-shutdown-grace", "3s")
	client := manyConnections()
	var wait sync.WaitGroup
	answers := make([]answer, holds)
	failures := make([]error, holds)
	for i := range holds {
		wait.Go(func() {
			delay := 2000
			if i%2 == 1 {
				delay = 60_000
			}
			answers[i], failures[i] = s.sendWith(client, "sendText", textTo(fmt.Sprint(15550000000+i), delay+rand.IntN(1000), fmt.Sprint(i)))
		})
	}
	time.Sleep(time.Second)
	begin := time.Now()
	s.signal(syscall.SIGTERM)
	eventually(t, "readyz says 503", func() bool { status, _ := s.get("/readyz"); return status == 503 })
	if a, err := s.send("sendText", text(0, "new")); err != nil || a.Error.Code != "shutting_down" || !a.Error.Retryable {
		t.Errorf("a new send got %v %v, want shutting_down", a, err)
	}
	wait.Wait()
	if got := s.wait(); got != 0 {
		t.Errorf("got exit status %d, want 0", got)
	}
	took := time.Since(begin)

	again := start(t, s.data, account())
	sent := map[string]string{}
	for _, m := range again.outbox() {
		sent[m.Text] = m.MessageID
	}
	told := map[string]int{}
	for i, a := range answers {
		id, there := sent[fmt.Sprint(i)]
		switch {
		case failures[i] != nil:
			t.Fatalf("request %d got no whole answer: %v", i, failures[i])
		case a.Status == 200 && (!there || id != a.Data.MessageID):
			t.Errorf("request %d was told sent as %s, the outbox has %q", i, a.Data.MessageID, id)
		case a.Status == 503 && (there || a.Error.Code != "shutting_down"):
			t.Errorf("request %d was told %s, and the outbox has %q", i, a.Error.Code, id)
		}
		told[fmt.Sprint(a.Status)]++
	}
	if told["200"] == 0 || told["503"] == 0 || told["200"]+told["503"] != holds {
		t.Errorf("got answers %v, want some 200 and some 503 and nothing else", told)
	}
	t.Logf("measured: SIGTERM with %d holds: %v, ended after %v", holds, slices.Sorted(maps.Keys(told)), took)
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	go s.send("sendText", text(25_000, "x"))
	time.Sleep(200 * time.Millisecond)
	s.signal(syscall.SIGTERM)
	eventually(t, "readyz says 503", func() bool { status, _ := s.get("/readyz"); return status == 503 })
	begin := time.Now()
	s.signal(syscall.SIGTERM)
	if got := s.wait(); got == 0 {
		t.Errorf("got exit status 0 after a second signal, want another")
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
}

// An event stream must not keep the process alive.
func TestTermClosesEventStreams(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	r, err := http.NewRequest("GET", s.url+"/outbox/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("apikey", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	begin := time.Now()
	s.signal(syscall.SIGTERM)
	if got := s.wait(); got != 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("got exit status %d after %v, want 0 at once", got, time.Since(begin))
	}
}

// Killed under load, the outbox has every message that was acknowledged.
func TestKillLosesNoAcknowledgedMessage(t *testing.T) {
	rounds := 5
	if *full {
		rounds = 50
	}
	data := filepath.Join(t.TempDir(), "data")
	acknowledged := map[string]string{} // id → text
	for round := range rounds {
		s := start(t, data, account(), "-outbox-messages", "1000000")
		client := manyConnections()
		var mu sync.Mutex
		var wait sync.WaitGroup
		for worker := range 16 {
			wait.Go(func() {
				for n := 0; ; n++ {
					content := fmt.Sprintf("%d/%d/%d", round, worker, n)
					a, err := s.sendWith(client, "sendText", textTo(fmt.Sprint(15550000000+worker), 0, content))
					if err != nil {
						return
					}
					mu.Lock()
					acknowledged[a.Data.MessageID] = content
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		s.kill()
		wait.Wait()
	}
	s := start(t, data, account(), "-outbox-messages", "1000000")
	there := map[string]string{}
	for _, m := range s.outbox() {
		if _, twice := there[m.MessageID]; twice {
			t.Errorf("%s is there twice", m.MessageID)
		}
		there[m.MessageID] = m.Text
	}
	lost := 0
	for id, content := range acknowledged {
		if there[id] != content {
			lost++
		}
	}
	if lost > 0 || len(acknowledged) == 0 {
		t.Errorf("%d of %d acknowledged messages are lost, want 0 of more than 0", lost, len(acknowledged))
	}
	t.Logf("measured: %d kills, %d acknowledged messages, %d lost", rounds, len(acknowledged), lost)
}
