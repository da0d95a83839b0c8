package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// closeTime is how long the service takes for its last answers after the grace.
const closeTime = 10 * time.Second

// Whoever builds the same source with the same Go gets the same bytes, wherever
// the source lies.
func TestBuildIsReproducible(t *testing.T) {
	var builds [2][]byte
	for i := range builds {
		source := filepath.Join(t.TempDir(), strings.Repeat("elsewhere", i+1))
		copySource(t, source)
		program := filepath.Join(t.TempDir(), "program")
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-o", program, ".")
		build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if output, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		var err error
		if builds[i], err = os.ReadFile(program); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(builds[0], builds[1]) {
		t.Errorf("two builds differ: %d and %d bytes", len(builds[0]), len(builds[1]))
	}
	if bytes.Contains(builds[0], []byte("elsewhere")) {
		t.Error("the program holds the path of its source")
	}
	modules, err := exec.Command("go", "list", "-m", "all").Output()
	if got := string(modules); err != nil || got != "messagesender\n" {
		t.Errorf("the modules are %q (%v), want this one alone", got, err)
	}
	t.Logf("measured: the program has %.2f MiB", float64(len(builds[0]))/(1<<20))
}

// copySource copies what the Containerfile copies.
func copySource(t *testing.T, to string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(to, "internal"), os.DirFS("../internal")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range append(files, "../go.mod") {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(from)), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHealthAndVersion(t *testing.T) {
	// VERSION and HEALTH are variables that an image may have for its own reasons.
	s := start(t, filepath.Join(t.TempDir(), "data"), append(account(), "VERSION=3", "HEALTH=x"), "-shutdown-grace", "5s")
	go s.send("sendText", text(3000, "so that the drain takes a moment"))
	if output, err := exec.Command(binary, "-version").Output(); err != nil || !strings.HasPrefix(string(output), "messagesender ") {
		t.Errorf("got %q (%v), want the version", output, err)
	}
	ask := func(url string) int {
		cmd := exec.Command(binary, "-health", url)
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode()
	}
	for _, c := range []struct {
		name, url string
		want      int
	}{
		{"alive", s.url + "/healthz", 0},
		{"ready", s.url + "/readyz", 0},
		{"not found", s.url + "/nothing", 1},
		{"nobody there", "http://" + freeAddress(t) + "/healthz", 1},
		{"no URL", "healthz", 1},
	} {
		if got := ask(c.url); got != c.want {
			t.Errorf("%s: got exit status %d, want %d", c.name, got, c.want)
		}
	}
	time.Sleep(200 * time.Millisecond)
	s.signal(syscall.SIGTERM)
	eventually(t, "readyz says 503", func() bool { status, _ := s.get("/readyz"); return status == 503 })
	if alive, ready := ask(s.url+"/healthz"), ask(s.url+"/readyz"); alive != 0 || ready != 1 {
		t.Errorf("while it drains: got exit status %d for alive and %d for ready, want 0 and 1", alive, ready)
	}
}

// deployed is the text of a file of deploy/, without comments.
func deployed(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(string(content), "")
}

// all returns what the group of a pattern matches, at least once.
func all(t *testing.T, text, pattern string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	if len(found) == 0 {
		t.Fatalf("nothing matches %s", pattern)
	}
	return found
}

// environment reads settings out of a text and checks that the program has them.
func environment(t *testing.T, text, pattern string) map[string]string {
	t.Helper()
	help, err := exec.Command(binary, "-h").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found[match[1]] = match[2]
		flag := "-" + strings.ToLower(strings.ReplaceAll(match[1], "_", "-"))
		if !regexp.MustCompile(`(?m)^ +` + flag + `\b`).Match(help) {
			t.Errorf("%s is no setting of the program", match[1])
		}
	}
	return found
}

// graceFits checks that whoever stops the service waits longer than it takes.
func graceFits(t *testing.T, grace string, patience time.Duration) {
	t.Helper()
	drain, err := time.ParseDuration(grace)
	if err != nil {
		t.Fatal(err)
	}
	if patience <= drain+closeTime {
		t.Errorf("it is killed after %v, while it may take %v and %v", patience, drain, closeTime)
	}
}

func TestKubernetesManifests(t *testing.T) {
	text := deployed(t, "kubernetes.yaml")
	env := environment(t, text, `\{name: ([A-Z_]+), value: "?([^"}]+)"?\}`)
	for _, pattern := range []string{`containerPort: (\d+)`, `(?m)^      port: (\d+)$`} {
		if got, want := all(t, text, pattern)[0], strings.TrimPrefix(env["ADDR"], "0.0.0.0:"); got != want {
			t.Errorf("%s: got %s, want the port of ADDR, %s", pattern, got, want)
		}
	}
	if got := all(t, text, `\{name: data, mountPath: ([^}]+)\}`)[0]; got != env["DATA"] {
		t.Errorf("the volume is at %s, DATA is %s", got, env["DATA"])
	}
	if got := all(t, text, `\{name: accounts, mountPath: ([^,}]+)`)[0]; filepath.Dir(env["ACCOUNTS"]) != got {
		t.Errorf("the accounts are at %s, ACCOUNTS is %s", got, env["ACCOUNTS"])
	}
	user := all(t, deployed(t, "Containerfile"), `USER (\d+):`)[0]
	for _, pattern := range []string{`runAsUser: (\d+)`, `runAsGroup: (\d+)`, `fsGroup: (\d+)`} {
		if got := all(t, text, pattern)[0]; got != user {
			t.Errorf("%s: got %s, want the image's %s", pattern, got, user)
		}
	}
	for _, want := range []string{"kind: StatefulSet", "volumeClaimTemplates:", "clusterIP: None", "runAsNonRoot: true", "readOnlyRootFilesystem: true", "allowPrivilegeEscalation: false", "capabilities: {drop: [ALL]}", "seccompProfile: {type: RuntimeDefault}"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	seconds, err := strconv.Atoi(all(t, text, `terminationGracePeriodSeconds: (\d+)`)[0])
	if err != nil {
		t.Fatal(err)
	}
	graceFits(t, env["SHUTDOWN_GRACE"], time.Duration(seconds)*time.Second)

	// The program, with the manifest's settings, answers what the probes ask.
	r := startReplica(t, "shop")
	var args []string
	for name, value := range env {
		switch name {
		case "ADDR", "DATA", "ACCOUNTS": // the pod's own
		default:
			args = append(args, "-"+strings.ToLower(strings.ReplaceAll(name, "_", "-")), value)
		}
	}
	r.kill()
	s := start(t, r.data, nil, append(r.args, args...)...)
	probes := map[string]string{}
	for _, match := range regexp.MustCompile(`(\w+)Probe:\s+httpGet: \{path: (\S+), port: http\}`).FindAllStringSubmatch(text, -1) {
		probes[match[1]] = match[2]
		if status, body := s.get(match[2]); status != 200 {
			t.Errorf("%s: GET %s answers %d %s", match[1], match[2], status, body)
		}
	}
	if len(probes) != 3 || probes["readiness"] != "/readyz" || probes["liveness"] != "/healthz" {
		t.Errorf("got probes %v, want startup, liveness on /healthz and readiness on /readyz", probes)
	}
}

func TestSystemdUnit(t *testing.T) {
	text := deployed(t, "messagesender.service")
	line := all(t, text, `(?m)^Environment=(.*)$`)[0]
	env := environment(t, line, `([A-Z_]+)=(\S+)`)
	patience, err := time.ParseDuration(all(t, text, `TimeoutStopSec=(\S+)`)[0])
	if err != nil {
		t.Fatal(err)
	}
	graceFits(t, env["SHUTDOWN_GRACE"], patience)
	if want := "/var/lib/" + all(t, text, `StateDirectory=(\S+)`)[0]; env["DATA"] != want {
		t.Errorf("DATA is %s, the state directory %s", env["DATA"], want)
	}

	need(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "messagesender.service")
	here := strings.ReplaceAll(text, all(t, text, `ExecStart=(\S+)`)[0], binary)
	if err := os.WriteFile(unit, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("systemd-analyze verify: %v %s", err, output)
	}
	// The threshold is in tenths.
	output, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=15", unit).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: %v", err)
	}
	t.Logf("measured: systemd-analyze security: %s", strings.TrimSpace(tail(strings.TrimSpace(string(output)), 1)))
}

// The image is built of what a first stage would have built; the stage itself needs
// an image from elsewhere, and its one command is what TestBuildIsReproducible runs.
func TestImage(t *testing.T) {
	need(t, "buildah")
	text := deployed(t, "Containerfile")
	if !strings.Contains(text, "CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags=-w ") {
		t.Error("the first stage does not build as is tested")
	}
	_, second, ok := strings.Cut(text, "FROM scratch")
	if !ok {
		t.Fatal("there is no FROM scratch")
	}
	dir := t.TempDir()
	stage := filepath.Join(dir, "build")
	for _, folder := range []string{"out/data", "etc/ssl/certs"} {
		if err := os.MkdirAll(filepath.Join(stage, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"build/out/messagesender": program, "build/etc/ssl/certs/ca-certificates.crt": nil, "Containerfile": []byte("FROM scratch" + second)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	buildah := func(args ...string) *exec.Cmd {
		cmd := exec.Command("buildah", append([]string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "runroot"), "--storage-driver", "vfs"}, args...)...)
		cmd.Env = append(os.Environ(), "BUILDAH_ISOLATION=chroot")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}
	if output, err := buildah("build", "--format", "docker", "--build-context", "build="+stage, "-f", filepath.Join(dir, "Containerfile"), "-t", "messagesender", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	t.Cleanup(func() { _ = buildah("rm", "--all").Run() })
	output, err := buildah("inspect", "--type", "image", "messagesender").Output()
	if err != nil {
		t.Fatal(err)
	}
	var image struct {
		Docker struct {
			Config struct {
				User        string
				Env         []string
				Entrypoint  []string
				StopSignal  string
				Healthcheck struct{ Test []string }
			} `json:"config"`
		}
	}
	if err := json.Unmarshal(output, &image); err != nil {
		t.Fatal(err)
	}
	config := image.Docker.Config
	if user, _, _ := strings.Cut(config.User, ":"); user == "" || user == "0" || user == "root" {
		t.Errorf("it runs as %q, want another user than root", config.User)
	}
	if config.StopSignal != "SIGTERM" || len(config.Healthcheck.Test) != 4 {
		t.Fatalf("got %+v, want SIGTERM and a health check", config)
	}

	// It runs as that user, writes to its volume and finds itself healthy.
	name, err := buildah("from", "messagesender").Output()
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	running := buildah("run", "--env", "ADDR="+address, strings.TrimSpace(string(name)), config.Entrypoint[0])
	stdout, err := running.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-running.Process.Pid, syscall.SIGKILL)
		_ = running.Wait()
	})
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "listening on http://"+address {
		t.Fatalf("it says %q, want where it listens", lines.Text())
	}
	// In the health check the port is the image's own.
	check := config.Healthcheck.Test[1:]
	check[2] = strings.Replace(check[2], "127.0.0.1:8080", address, 1)
	if output, err := buildah(append([]string{"run", strings.TrimSpace(string(name))}, check...)...).CombinedOutput(); err != nil {
		t.Errorf("the health check fails: %v %s", err, output)
	}
}
