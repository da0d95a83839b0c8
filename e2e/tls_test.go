package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// startTLS starts the program with a certificate in dir, and gives a client that
// trusts it and speaks HTTP/2.
func startTLS(t *testing.T, dir string, args ...string) (*service, *http.Client) {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(writeCertificate(t, dir, "first"))
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), append(args, "-tls-cert", filepath.Join(dir, "tls.crt"), "-tls-key", filepath.Join(dir, "tls.key"))...)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	return s, client
}

func TestOverHTTP2(t *testing.T) {
	t.Parallel()
	s, client := startTLS(t, t.TempDir())
	t.Run("large upload", func(t *testing.T) {
		_, body := document(100 << 20)
		if a, err := s.sendWith(client, "sendMedia", body); err != nil || a.Status != 200 {
			t.Errorf("got %v %v, want 200", a, err)
		}
	})
	t.Run("events arrive as they happen", func(t *testing.T) { testEvents(t, s, client) })
	t.Run("a client that leaves", func(t *testing.T) { testLeaving(t, s, client) })
	t.Run("refused while it is sent", func(t *testing.T) { testRefusedUpload(t, s, client) })
	t.Run("more holds than streams", func(t *testing.T) {
		var wait sync.WaitGroup
		for range 400 {
			wait.Go(func() {
				a, err := s.sendWith(client, "sendText", textTo(newNumber(), 2000, "held"))
				if err != nil || a.Status != 200 {
					t.Errorf("got %v %v, want 200", a, err)
				}
			})
		}
		wait.Wait()
	})
	t.Logf("measured: HTTP/2 with 400 holds and 100 MiB: peak RSS %d MiB", s.peak())
	if got := exec.Command(binary, "-health", s.url+"/healthz").Run(); got != nil {
		t.Errorf("-health over HTTPS: got %v, want success", got)
	}
}

// One client with a wrong key does not end the connection that others share.
func TestRefusalLeavesOtherStreamsAlone(t *testing.T) {
	t.Parallel()
	s, client := startTLS(t, t.TempDir())
	var dials atomic.Int64
	transport := client.Transport.(*http.Transport)
	transport.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		config := transport.TLSClientConfig.Clone()
		config.NextProtos = []string{"h2"}
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	}
	held := make(chan error, 1)
	go func() {
		a, err := s.sendWith(client, "sendText", textTo(newNumber(), 1500, "held"))
		if err == nil && a.Status != 200 {
			err = errors.New(a.Message)
		}
		held <- err
	}()
	time.Sleep(300 * time.Millisecond)
	testRefusedUpload(t, s, client)
	if err := <-held; err != nil {
		t.Errorf("the request that was held beside it got %v", err)
	}
	if status, _ := s.find(client, "held"); status != 200 || dials.Load() != 1 {
		t.Errorf("got %d on connection number %d, want 200 on the first", status, dials.Load())
	}
}

func TestTermOverHTTP2(t *testing.T) {
	t.Parallel()
	const holds = 200
	s, client := startTLS(t, t.TempDir(), "-shutdown-grace", "3s")
	var wait sync.WaitGroup
	told := [2]atomic.Int64{}
	for i := range holds {
		wait.Go(func() {
			a, err := s.sendWith(client, "sendText", textTo(newNumber(), []int{2000, 60_000}[i%2], "held"))
			switch {
			case err != nil:
				t.Errorf("no whole answer: %v", err)
			case a.Status == 200:
				told[0].Add(1)
			case a.Error.Code == "shutting_down":
				told[1].Add(1)
			}
		})
	}
	time.Sleep(time.Second)
	s.signal(syscall.SIGTERM)
	wait.Wait()
	begin := time.Now()
	if got := s.wait(); got != 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("got exit status %d after %v, want 0 at once", got, time.Since(begin))
	}
	if sent, refused := told[0].Load(), told[1].Load(); sent != holds/2 || refused != holds/2 {
		t.Errorf("got %d sent and %d shutting_down, want %d of each", sent, refused, holds/2)
	}
}

func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, client := startTLS(t, dir)
	held := make(chan error, 1)
	go func() {
		a, err := s.sendWith(client, "sendText", textTo(newNumber(), 8000, "held meanwhile"))
		if err == nil && a.Status != 200 {
			err = errors.New(a.Message)
		}
		held <- err
	}()
	name := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "first" {
		t.Errorf("got the certificate %q, want the first", got)
	}
	writeCertificate(t, dir, "second")
	begin := time.Now()
	eventually(t, "the second certificate is served", func() bool { return name() == "second" })
	t.Logf("measured: a new certificate is served after %v", time.Since(begin))
	if err := <-held; err != nil {
		t.Errorf("the request that was held meanwhile got %v", err)
	}
}

func TestWrongCertificateEndsTheProgram(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	writeCertificate(t, dir, "one")
	writeCertificate(t, other, "other")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"only a certificate", []string{"-tls-cert", filepath.Join(dir, "tls.crt")}},
		{"the key of another", []string{"-tls-cert", filepath.Join(dir, "tls.crt"), "-tls-key", filepath.Join(other, "tls.key")}},
		{"no such file", []string{"-tls-cert", filepath.Join(dir, "none"), "-tls-key", filepath.Join(dir, "tls.key")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := command(t, filepath.Join(t.TempDir(), "data"), c.args...)
			output, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != 2 || !strings.Contains(string(output), "-tls-") {
				t.Errorf("got exit status %d and %q, want 2 and a word about -tls-cert", got, output)
			}
		})
	}
}
