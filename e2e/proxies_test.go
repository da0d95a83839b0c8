package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// proxy is nginx or HAProxy, running with a configuration of deploy/ in which
// only addresses and file names are other ones.
type proxy struct {
	url    string
	dir    string       // for everything it writes
	client *http.Client // trusts its certificate, speaks HTTP/2
	pool   *x509.CertPool
	cmd    *exec.Cmd
}

// proxies are the programs that stand in front of one service.
var proxies = []struct {
	program string
	start   func(t *testing.T, backend string) *proxy
}{
	{"nginx", startNginx},
	{"haproxy", func(t *testing.T, backend string) *proxy {
		return startHAProxy(t, "haproxy.cfg", "127.0.0.1:8080", backend)
	}},
}

func startNginx(t *testing.T, backend string) *proxy {
	t.Helper()
	p := newProxy(t)
	config := p.configure(t, "nginx.conf",
		"listen 443 ssl http2", "listen "+strings.TrimPrefix(p.url, "https://")+" ssl http2",
		"/etc/messagesender/tls.crt", filepath.Join(p.dir, "tls.crt"),
		"/etc/messagesender/tls.key", filepath.Join(p.dir, "tls.key"),
		"127.0.0.1:8080", backend,
		"/run/nginx.pid", filepath.Join(p.dir, "nginx.pid"),
		"/var/log/nginx/error.log", "stderr",
		"/var/log/nginx/access.log", filepath.Join(p.dir, "access.log"),
		"worker_rlimit_nofile 65536;", "", // needs a privilege that a test may lack
		"worker_connections 20000", "worker_connections 4096",
		// Debian's are in /var/lib/nginx, which is not a test's to write to.
		"server_tokens off;", fmt.Sprintf("client_body_temp_path %[1]s/temp; proxy_temp_path %[1]s/temp; fastcgi_temp_path %[1]s/temp; uwsgi_temp_path %[1]s/temp; scgi_temp_path %[1]s/temp;", p.dir))
	p.run(t, exec.Command("nginx", "-e", "stderr", "-p", p.dir, "-c", config, "-g", "daemon off;"))
	return p
}

func startHAProxy(t *testing.T, name string, replace ...string) *proxy {
	t.Helper()
	p := newProxy(t)
	config := p.configure(t, name, append(replace,
		"bind :443", "bind "+strings.TrimPrefix(p.url, "https://"),
		"/etc/messagesender/tls.pem", filepath.Join(p.dir, "tls.pem"),
		"abns@messagesender", "abns@"+rand.Text(), // there may be one HAProxy with that name on a machine
		"maxconn 20000", "maxconn 2000")...)
	p.run(t, exec.Command("haproxy", "-db", "-f", config))
	return p
}

// newProxy finds a free address and makes a certificate for it.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{dir: t.TempDir(), url: "https://" + freeAddress(t), pool: x509.NewCertPool()}
	p.pool.AppendCertsFromPEM(writeCertificate(t, p.dir, "proxy"))
	p.client = p.newClient(true)
	return p
}

// newClient makes a client with connections of its own.
func (p *proxy) newClient(http2 bool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: p.pool},
		ForceAttemptHTTP2:   http2,
		MaxIdleConnsPerHost: 1000,
		// Not 127.0.0.1, so that the service can tell the client from the proxy.
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext,
	}}
}

// configure writes a configuration of deploy/ with each first of two strings
// replaced by the second. One that is not there any more fails the test.
func (p *proxy) configure(t *testing.T, name string, replace ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(replace, 2) {
		before := len(content)
		if !bytes.Contains(content, []byte(pair[0])) {
			t.Fatalf("deploy/%s does not hold %q (%d bytes)", name, pair[0], before)
		}
		content = bytes.ReplaceAll(content, []byte(pair[0]), []byte(pair[1]))
	}
	file := filepath.Join(p.dir, name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (p *proxy) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	p.cmd = cmd
	cmd.Stdout, cmd.Stderr = &log, &log
	// A group, so that its workers end with it also when the test is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		access, _ := os.ReadFile(filepath.Join(p.dir, "access.log"))
		written := log.String() + string(access)
		if t.Failed() {
			t.Logf("log of %s:\n%s", cmd.Path, tail(written, 40))
		}
		for _, secret := range []string{token, key, tokenOf(""), keyOf("")} {
			if strings.Contains(written, secret) {
				t.Errorf("the log of %s holds a token or a key: %s", cmd.Path, tail(written, 5))
			}
		}
	})
	eventually(t, cmd.Path+" listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s ended: %s", cmd.Path, log.String())
		default:
		}
		response, err := p.client.Get(p.url + "/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
}

// in is a service as it is seen through the proxy.
func (p *proxy) in(s *service) *service {
	through := *s
	through.url = p.url
	return &through
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// writeCertificate puts tls.crt, tls.key and both as tls.pem into dir, valid for
// 127.0.0.1, and returns the certificate in PEM.
func writeCertificate(t *testing.T, dir, name string) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	for file, content := range map[string][]byte{"tls.crt": cert, "tls.key": key, "tls.pem": slices.Concat(cert, key)} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}

// peak is the most memory that one process of the proxy ever had, in MiB.
func (p *proxy) peak() (most int64) {
	status, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range status {
		content, _ := os.ReadFile(file)
		// pid (name) state ppid pgrp …
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		if len(fields) > 2 && fields[2] == fmt.Sprint(p.cmd.Process.Pid) {
			most = max(most, peakOf(filepath.Dir(file)))
		}
	}
	return most
}

func peakOf(process string) int64 {
	content, _ := os.ReadFile(filepath.Join(process, "status"))
	_, after, _ := strings.Cut(string(content), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(after, &kib)
	return kib >> 10
}

func (p *proxy) request(body io.Reader) (*http.Request, error) {
	r, err := http.NewRequest("POST", p.url+"/message/sendText/"+token, body)
	if err == nil {
		r.Header = http.Header{"Apikey": {key}, "Content-Type": {"application/json"}}
	}
	return r, err
}

// do returns an answer that has all of the one shape, and its header.
func (p *proxy) do(r *http.Request) (answer, http.Header, error) {
	response, err := p.client.Do(r)
	if err != nil {
		return answer{}, nil, err
	}
	defer response.Body.Close()
	a := answer{Status: response.StatusCode}
	return a, response.Header, json.NewDecoder(response.Body).Decode(&a)
}
