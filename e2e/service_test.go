// Package e2e tests the program as it is shipped: the real binary, started as a
// process, reached over real HTTP, stopped by real signals.
package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var full = flag.Bool("full", false, "use the long counts")

const (
	key    = "e2e-key-0123456789"
	token  = "e2e_token_0123456789"
	number = "15550001234"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "e2e-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "messagesender")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-w", "-o", binary, "..")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the program: %v\n%s", err, output)
			return 1
		}
		return m.Run()
	}())
}

// service is one running process.
type service struct {
	t      *testing.T
	url    string
	data   string
	cmd    *exec.Cmd
	stderr *lockedBuffer
	lines  *bufio.Scanner // of standard output, behind the line that says where it listens
}

// lockedBuffer holds what a process writes while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// account is the environment of the account that most tests use.
func account() []string { return []string{"API_KEY=" + key, "API_TOKEN=" + token} }

// start starts the program on a free port, with data in its own folder.
func start(t *testing.T, data string, env []string, args ...string) *service {
	t.Helper()
	s := &service{t: t, data: data, stderr: &lockedBuffer{}}
	s.cmd = exec.Command(binary, append([]string{"-addr", "127.0.0.1:0", "-data", data}, args...)...)
	s.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	s.cmd.Stderr = s.stderr
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewScanner(stdout)
	if !s.lines.Scan() {
		_ = s.cmd.Wait()
		t.Fatalf("the program ended before it listened: %s", s.stderr)
	}
	s.url = strings.TrimPrefix(s.lines.Text(), "listening on ")
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("log of the program:\n%s", tail(s.stderr.String(), 40))
		}
		for _, secret := range []string{key, token, number} {
			if strings.Contains(s.stderr.String(), secret) {
				t.Errorf("the log holds %q", secret)
			}
		}
	})
	return s
}

func tail(text string, lines int) string {
	all := strings.Split(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// signal sends a signal by the process's own id.
func (s *service) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal %v: %v", sig, err)
	}
}

// wait waits for the end and returns the exit status; -1: ended by a signal.
func (s *service) wait() int {
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// kill ends the process without notice; it may have ended already.
func (s *service) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// answer is what came back.
type answer struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Data    struct {
		MessageID string `json:"messageId"`
	} `json:"data"`
	Error struct {
		Code      string `json:"code"`
		Retryable bool   `json:"retryable"`
	} `json:"error"`
}

// send posts body to an operation. The error is the transport's: no complete answer.
func (s *service) send(operation string, body io.Reader) (answer, error) {
	return s.sendWith(http.DefaultClient, operation, body)
}

func (s *service) sendWith(client *http.Client, operation string, body io.Reader) (answer, error) {
	r, err := http.NewRequest("POST", s.url+"/message/"+operation+"/"+token, body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("apikey", key)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	a := answer{Status: response.StatusCode}
	return a, json.NewDecoder(response.Body).Decode(&a)
}

func text(delay int, text string) io.Reader { return textTo(number, delay, text) }

func textTo(number string, delay int, text string) io.Reader {
	return strings.NewReader(fmt.Sprintf(`{"number":%q,"options":{"delay":%d,"presence":"composing"},"textMessage":{"text":%q}}`, number, delay, text))
}

// get fetches a path with the account's key.
func (s *service) get(path string) (int, []byte) {
	s.t.Helper()
	r, err := http.NewRequest("GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("apikey", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	return response.StatusCode, content
}

// record is a message in the outbox.
type record struct {
	MessageID string
	Text      string
	Number    string
	SHA256    string
}

func (s *service) outbox() []record {
	s.t.Helper()
	status, content := s.get("/outbox/messages")
	var list struct{ Messages []record }
	if err := json.Unmarshal(content, &list); status != 200 || err != nil {
		s.t.Fatalf("the outbox answered %d %.200q", status, content)
	}
	return list.Messages
}

// peak is the most memory the process ever had resident, in MiB; 0 where the
// system does not tell.
func (s *service) peak() int64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return n >> 10
		}
	}
	return 0
}

// eventually waits for what another process brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// need skips a test whose outside program is absent; in CI that is a failure.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed", program)
		}
		t.Skipf("not tested, because %s is not installed", program)
	}
}

// command is the program with the account, not started.
func command(t *testing.T, data string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"-addr", "127.0.0.1:0", "-data", data}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, account()...)
	return cmd
}
