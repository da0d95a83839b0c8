package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	benchKey   = "bench-key-0123456789"
	benchToken = "bench_token_0123456789"
)

// bench holds the built service and the folder everything happens in.
type bench struct {
	dir     string
	service string // path of the binary
}

func newBench(ctx context.Context) (*bench, error) {
	dir, err := os.MkdirTemp("", "bench-*")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir, service: filepath.Join(dir, "messagesender")}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-o", b.service, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		b.close()
		return nil, fmt.Errorf("building the service (run this from the top of the repository): %v\n%s", err, output)
	}
	return b, nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// process is a server under measurement.
type process struct {
	cmd  *exec.Cmd
	addr string
}

// startService starts the service with a fresh data directory.
func (b *bench) startService(ctx context.Context, env []string, args ...string) (*process, error) {
	data, err := os.MkdirTemp(b.dir, "data-*")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, b.service, append([]string{"-addr", "127.0.0.1:0", "-data", data}, args...)...)
	cmd.Env = append(os.Environ(), "API_KEY="+benchKey, "API_TOKEN="+benchToken)
	cmd.Env = append(cmd.Env, env...)
	return b.start(cmd)
}

// startFloor starts one of the bare handlers of floor.go.
func (b *bench) startFloor(ctx context.Context, kind string, env ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-floor", kind)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+b.dir), env...)
	return b.start(cmd)
}

// start starts a server that says "listening on http://…" first. Its log goes
// to a file, as an operator's would.
func (b *bench) start(cmd *exec.Cmd) (*process, error) {
	log, err := os.CreateTemp(b.dir, "log-*")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGKILL) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on http://")
	if err != nil || !ok {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("%s did not start: %q", filepath.Base(cmd.Path), line)
	}
	return &process{cmd, addr}, nil
}

// cpu is the processor time the process has used so far (Linux only; clock
// ticks there are hundredths of a second).
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // behind the name, which may hold anything
	var ticks int64
	for _, i := range []int{11, 12} { // utime and stime, fields 14 and 15 of proc(5)
		n, err := strconv.ParseInt(strings.Fields(fields)[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// stop ends the process by its own id and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill()
		<-ended
	}
}

// memory reads a line of /proc/PID/status, in bytes: VmRSS is what is resident
// now, VmHWM the most that ever was.
func (p *process) memory(field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, errors.New("/proc does not tell " + field)
}
