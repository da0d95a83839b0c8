package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The programs and recipes of docs/clients run as they stand there, so that what a
// user copies is what was tested.
const clientsFolder = "../docs/clients"

// fate is what a flaky proxy does with one request.
type fate int

const (
	pass       fate = iota
	cutAnswer       // hands the request over, and closes the connection when the answer is there
	swallow         // never answers
	badGateway      // answers 502 with a page of its own
	forbidden       // answers 403 with a page of its own
	wrongKey        // hands the request over with another apikey
)

// flaky is a proxy between a client and the service. The last of its fates is that of
// all further requests.
type flaky struct {
	*httptest.Server
	mu    sync.Mutex
	fates []fate
	keys  []string    // Idempotency-Key of each request
	at    []time.Time // of each request
}

func newFlaky(t *testing.T, target string, fates []fate) *flaky {
	t.Helper()
	f := &flaky{fates: fates}
	left := make(chan struct{})
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		does := f.note(r)
		switch does {
		case swallow:
			select {
			case <-r.Context().Done():
			case <-left:
			}
			return
		case badGateway, forbidden:
			w.WriteHeader(map[fate]int{badGateway: 502, forbidden: 403}[does])
			_, _ = io.WriteString(w, "<html><title>proxy</title></html>")
			return
		}
		on, err := http.NewRequestWithContext(r.Context(), r.Method, target+r.URL.Path, bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		on.Header = r.Header.Clone()
		if does == wrongKey {
			on.Header.Set("apikey", "another-key-0123456789")
		}
		response, err := http.DefaultTransport.RoundTrip(on)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil || does == cutAnswer {
			panic(http.ErrAbortHandler)
		}
		for _, name := range []string{"Content-Type", "Retry-After"} {
			if value := response.Header.Get(name); value != "" {
				w.Header().Set(name, value)
			}
		}
		w.WriteHeader(response.StatusCode)
		_, _ = w.Write(content)
	}))
	t.Cleanup(func() { close(left); f.Close() })
	return f
}

// note records a request and returns its fate.
func (f *flaky) note(r *http.Request) fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	does := f.fates[min(len(f.keys), len(f.fates)-1)]
	f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	f.at = append(f.at, time.Now())
	return does
}

// clientRun is one run of a program of docs/clients.
type clientRun struct {
	exit           int
	stdout, stderr string
}

func runClient(t *testing.T, command []string, base string, env []string, number, text string) clientRun {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:len(command):len(command)], number, text)...)
	cmd.Env = append(append(account(), "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "BASE_URL="+base), env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var failed *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	for _, secret := range []string{key, token} {
		if strings.Contains(stdout.String()+stderr.String(), secret) {
			t.Errorf("a secret was printed: %s%s", stdout.String(), stderr.String())
		}
	}
	return clientRun{cmd.ProcessState.ExitCode(), strings.TrimSpace(stdout.String()), strings.TrimSpace(stderr.String())}
}

// awkward is what a program must carry unharmed from its argument into JSON.
const awkward = "Größe \"L\" für 5 €, 20 % off \\o/ & `x` $(x) ${x} '…'\n\tsecond line\r\n\u0001 \U0001F600"

// TestClients runs every program in every situation, all at the same time: they
// mostly wait.
func TestClients(t *testing.T) {
	goClient := filepath.Join(t.TempDir(), "send")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", goClient, clientsFolder+"/go").CombinedOutput(); err != nil {
		t.Fatalf("building the Go program: %v\n%s", err, output)
	}
	var wait sync.WaitGroup
	for _, c := range []struct {
		name, program string
		command       []string
	}{
		{"Go", "go", []string{goClient}},
		{"JavaScript", "node", []string{"node", clientsFolder + "/send.mjs"}},
		{"Python", "python3", []string{"python3", clientsFolder + "/send.py"}},
		{"PHP", "php", []string{"php", clientsFolder + "/send.php"}},
		{"shell", "curl", []string{"sh", clientsFolder + "/send.sh"}},
	} {
		wait.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				need(t, c.program)
				testClient(t, c.command)
			})
		})
	}
	wait.Wait()
}

func testClient(t *testing.T, command []string) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	var wait sync.WaitGroup
	defer wait.Wait()
	for i, c := range []struct {
		name     string
		number   string // "": one of its own
		env      []string
		fates    []fate
		exit     int
		stderr   string
		requests int
		messages int
		every    time.Duration // every pause between two requests is at least this long
		shortest time.Duration // the shortest pause is below this; 0: not looked at. Others may be long on a busy machine
	}{
		{name: "sent", fates: []fate{pass}, requests: 1, messages: 1},
		{name: "refused", number: "9990000422", fates: []fate{pass},
			exit: 1, stderr: "not sent: ", requests: 1},
		{name: "down for long", number: "9990000503", env: []string{"ATTEMPTS=4", "MAX_WAIT=1"}, fates: []fate{pass},
			exit: 1, stderr: "not sent: ", requests: 4, every: time.Second, shortest: 5 * time.Second},
		{name: "told when to come again", number: "9990000503", env: []string{"ATTEMPTS=2"}, fates: []fate{pass},
			exit: 1, stderr: "not sent: ", requests: 2, every: 5 * time.Second},
		{name: "outcome unknown", number: "9990001504", fates: []fate{pass},
			exit: 3, stderr: "unknown whether it was sent: ", requests: 1, messages: 1},
		{name: "outcome unknown behind a failing proxy", number: "9990001504", env: []string{"MAX_WAIT=0"}, fates: []fate{badGateway, cutAnswer, pass},
			exit: 3, stderr: "unknown whether it was sent: ", requests: 3, messages: 1},
		{name: "cut off after the message was sent", fates: []fate{cutAnswer, pass}, requests: 2, messages: 1},
		{name: "a proxy fails, then cuts", env: []string{"MAX_WAIT=0"}, fates: []fate{badGateway, cutAnswer, badGateway, pass}, requests: 4, messages: 1},
		{name: "no answer in time", env: []string{"TIMEOUT=8", "MAX_WAIT=0"}, fates: []fate{swallow, pass}, requests: 2, messages: 1},
		{name: "refused by a proxy", fates: []fate{forbidden},
			exit: 1, stderr: "not sent: an answer 403", requests: 1},
		{name: "refused after the message was sent", env: []string{"MAX_WAIT=0"}, fates: []fate{cutAnswer, forbidden},
			exit: 3, stderr: "unknown whether it was sent: an answer 403", requests: 2, messages: 1},
		{name: "another apikey", fates: []fate{wrongKey},
			exit: 1, stderr: "not sent: ", requests: 1},
		{name: "another apikey after the message was sent", env: []string{"MAX_WAIT=0"}, fates: []fate{cutAnswer, wrongKey},
			exit: 3, stderr: "unknown whether it was sent: ", requests: 2, messages: 1},
		{name: "refused after it was not answered", number: "9990000422", env: []string{"MAX_WAIT=0"}, fates: []fate{cutAnswer, pass},
			exit: 1, stderr: "not sent: ", requests: 2},
		{name: "a proxy that always fails", env: []string{"ATTEMPTS=2", "MAX_WAIT=0"}, fates: []fate{badGateway},
			exit: 3, stderr: "unknown whether it was sent: an answer 502", requests: 2},
	} {
		number := c.number
		if number == "" {
			number = fmt.Sprint(15550002000 + i)
		}
		wait.Go(func() {
			t.Run(c.name, func(t *testing.T) {
				proxy := newFlaky(t, s.url, c.fates)
				got := runClient(t, command, proxy.URL, c.env, number, awkward+c.name)
				if got.exit != c.exit || !strings.HasPrefix(got.stderr, c.stderr) && !strings.Contains(got.stderr, "\n"+c.stderr) {
					t.Errorf("got exit status %d and %q, want %d and %q", got.exit, got.stderr, c.exit, c.stderr)
				}
				if len(proxy.keys) != c.requests {
					t.Errorf("%d requests were made, want %d", len(proxy.keys), c.requests)
				}
				var shortest time.Duration
				for i := 1; i < len(proxy.at); i++ {
					pause := proxy.at[i].Sub(proxy.at[i-1])
					if pause < c.every {
						t.Errorf("request %d came %v after the one before, want at least %v", i, pause, c.every)
					}
					if i == 1 || pause < shortest {
						shortest = pause
					}
				}
				if c.shortest > 0 && shortest >= c.shortest {
					t.Errorf("the shortest pause was %v, want less than %v", shortest, c.shortest)
				}
				for _, used := range proxy.keys {
					if used == "" || used != proxy.keys[0] {
						t.Errorf("the keys were %q, want one for all", proxy.keys)
					}
				}
				sent := s.sent(number, awkward+c.name)
				if len(sent) != c.messages {
					t.Errorf("the outbox holds %d messages, want %d", len(sent), c.messages)
				}
				if c.exit == 0 && len(sent) == 1 && got.stdout != sent[0].MessageID {
					t.Errorf("got %q, want the messageId %s", got.stdout, sent[0].MessageID)
				}
				if c.exit != 0 && got.stdout != "" {
					t.Errorf("got %q on standard output, want nothing", got.stdout)
				}
			})
		})
	}
	wait.Go(func() {
		t.Run("never answered, then asked again with the key it printed", func(t *testing.T) {
			const number = "15550003000"
			proxy := newFlaky(t, s.url, []fate{cutAnswer})
			got := runClient(t, command, proxy.URL, []string{"MAX_WAIT=0"}, number, "x")
			printed := regexp.MustCompile(`(?m)^IDEMPOTENCY_KEY=(\S+) `).FindStringSubmatch(got.stderr)
			if got.exit != 3 || len(proxy.keys) != 5 || printed == nil {
				t.Fatalf("got exit status %d after %d requests, %q, want 3 after 5 and the key", got.exit, len(proxy.keys), got.stderr)
			}
			got = runClient(t, command, s.url+"/", []string{"IDEMPOTENCY_KEY=" + printed[1]}, number, "x")
			if sent := s.sent(number, ""); len(sent) != 1 || got.exit != 0 || got.stdout != sent[0].MessageID {
				t.Errorf("got %+v and %d messages, want 0, the messageId and 1", got, len(sent))
			}
		})
	})
	wait.Go(func() {
		t.Run("nobody listens", func(t *testing.T) {
			got := runClient(t, command, "http://"+freePort(t), []string{"ATTEMPTS=2", "MAX_WAIT=0"}, number, "x")
			if got.exit != 1 || !strings.Contains(got.stderr, "not sent: ") {
				t.Errorf("got %+v, want 1, not sent", got)
			}
		})
	})
	wait.Go(func() {
		t.Run("called wrongly", func(t *testing.T) {
			if got := runClient(t, command, "localhost:8080", nil, number, "x"); got.exit != 2 {
				t.Errorf("got %+v, want 2", got)
			}
		})
	})
}

// sent is what the outbox holds for a number, of exactly this text unless it is "".
func (s *service) sent(number, text string) []record {
	s.t.Helper()
	status, content := s.get("/outbox/messages?number=" + url.QueryEscape(number))
	var list struct{ Messages []record }
	if err := json.Unmarshal(content, &list); status != 200 || err != nil {
		s.t.Fatalf("the outbox answered %d %.200q", status, content)
	}
	var sent []record
	for _, m := range list.Messages {
		if text == "" || m.Text == text {
			sent = append(sent, m)
		}
	}
	return sent
}

func TestClientsRecipes(t *testing.T) {
	for _, c := range []struct {
		name, program string
		command       []string
	}{
		{"shell", "curl", []string{"sh", clientsFolder + "/test-suite.sh"}},
		{"Python", "python3", []string{"python3", clientsFolder + "/test_suite.py"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			need(t, c.program)
			// A name of its own tells its process from those of other tests.
			own := filepath.Join(t.TempDir(), "messagesender")
			if err := os.Symlink(binary, own); err != nil {
				t.Fatal(err)
			}
			run := func(program string) (string, error) {
				cmd := exec.CommandContext(t.Context(), c.command[0], c.command[1:]...)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "MESSAGESENDER=" + program}
				output, err := cmd.CombinedOutput()
				return string(output), err
			}
			if output, err := run(own); err != nil {
				t.Errorf("the suite failed: %v\n%s", err, output)
			}
			commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range commands {
				if line, _ := os.ReadFile(file); bytes.HasPrefix(line, []byte(own)) {
					t.Errorf("%s: the service still runs", file)
				}
			}
			if output, err := run("false"); err == nil {
				t.Errorf("the suite passed without a service: %s", output)
			}
		})
	}
}
