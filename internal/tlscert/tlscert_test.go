package tlscert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pair makes a certificate for name and its key, both in PEM.
func pair(t *testing.T, name string, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: notAfter.AddDate(-1, 0, 0), NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// files is a folder with a pair in it.
type files struct {
	t         *testing.T
	cert, key string
}

func newFiles(t *testing.T) files {
	dir := t.TempDir()
	return files{t, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

func (f files) write(cert, key []byte) {
	f.t.Helper()
	for name, content := range map[string][]byte{f.cert: cert, f.key: key} {
		if content == nil {
			continue
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

// name is what a handshake would be given.
func (c *Certificate) name(t *testing.T) string {
	t.Helper()
	got, err := c.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	return got.Leaf.Subject.CommonName
}

// nextYear is in the future of both a synctest bubble and of the real clock.
func nextYear() time.Time { return time.Now().AddDate(1, 0, 0) }

func TestReplacement(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace func(f files)
		want    string // of the certificate that is served after it
		log     string // what is logged; empty: nothing
	}{
		{"nothing changes", func(files) {}, "old", ""},
		{"a new pair", func(f files) { f.write(pair(f.t, "new", nextYear())) }, "new", "certificate replaced"},
		{"a new pair by rename", func(f files) {
			next := newFiles(f.t)
			next.write(pair(f.t, "new", nextYear()))
			for from, to := range map[string]string{next.cert: f.cert, next.key: f.key} {
				if err := os.Rename(from, to); err != nil {
					f.t.Fatal(err)
				}
			}
		}, "new", "certificate replaced"},
		{"only the certificate, its key not yet", func(f files) {
			cert, _ := pair(f.t, "new", nextYear())
			f.write(cert, nil)
		}, "old", "not replaced"},
		{"half a file", func(f files) {
			cert, key := pair(f.t, "new", nextYear())
			f.write(cert, key[:len(key)/2])
		}, "old", "not replaced"},
		{"a pair that has ended", func(f files) { f.write(pair(f.t, "new", time.Now().AddDate(0, 0, -1))) }, "old", "ended on"},
		{"no file any more", func(f files) { _ = os.Remove(f.key) }, "old", "not replaced"},
		{"far too large a file", func(f files) { f.write(bytes.Repeat([]byte{'x'}, maxFile+1), nil) }, "old", "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t)
				f.write(pair(t, "old", nextYear()))
				var logged bytes.Buffer
				served, err := Load(f.cert, f.key, slog.New(slog.NewTextHandler(&logged, nil)))
				if err != nil {
					t.Fatal(err)
				}
				c.replace(f)
				time.Sleep(checkEvery - time.Nanosecond)
				if got := served.name(t); got != "old" {
					t.Errorf("before it is time to look: got %q, want %q", got, "old")
				}
				time.Sleep(time.Nanosecond)
				for range 3 { // a mistake is logged once, and not at every look
					if got := served.name(t); got != c.want {
						t.Errorf("got %q, want %q", got, c.want)
					}
					time.Sleep(checkEvery)
				}
				if lines := strings.Count(logged.String(), "\n"); lines > 1 || !strings.Contains(logged.String(), c.log) || c.log == "" && lines > 0 {
					t.Errorf("got log %q, want one line with %q", logged.String(), c.log)
				}
				f.write(pair(t, "right again", nextYear()))
				time.Sleep(checkEvery)
				if got := served.name(t); got != "right again" {
					t.Errorf("after a right pair: got %q, want %q", got, "right again")
				}
			})
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	cert, key := pair(t, "one", nextYear())
	_, otherKey := pair(t, "other", nextYear())
	endedCert, endedKey := pair(t, "ended", time.Now().AddDate(0, 0, -1))
	for _, c := range []struct {
		name      string
		cert, key []byte
	}{
		{"no certificate", nil, key},
		{"no key", cert, nil},
		{"the key of another", cert, otherKey},
		{"the files exchanged", key, cert},
		{"a certificate that has ended", endedCert, endedKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFiles(t)
			f.write(c.cert, c.key)
			if _, err := Load(f.cert, f.key, slog.New(slog.DiscardHandler)); err == nil {
				t.Error("got no error, want one")
			}
		})
	}
}

// Connections that are open keep going while new ones get the new certificate.
func TestHandshakes(t *testing.T) {
	f := newFiles(t)
	f.write(pair(t, "old", nextYear()))
	served, err := Load(f.cert, f.key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", served.Config())
	if err != nil {
		t.Fatal(err)
	}
	var echoes sync.WaitGroup
	echoes.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			echoes.Go(func() { defer conn.Close(); _, _ = io.Copy(conn, conn) })
		}
	})
	defer echoes.Wait()
	defer listener.Close()
	dial := func(version uint16) (*tls.Conn, error) {
		return tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: version})
	}
	echo := func(conn net.Conn) {
		t.Helper()
		got := make([]byte, 4)
		if _, err := conn.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
			t.Errorf("got %q (%v), want ping", got, err)
		}
	}
	if conn, err := dial(tls.VersionTLS11); err == nil {
		conn.Close()
		t.Error("TLS 1.1 was accepted")
	}
	before, err := dial(tls.VersionTLS12)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	echo(before)

	f.write(pair(t, "new", nextYear()))
	served.mu.Lock()
	served.checked = time.Now().Add(-checkEvery)
	served.mu.Unlock()
	var names sync.Map
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			conn, err := dial(tls.VersionTLS13)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			names.Store(conn.ConnectionState().PeerCertificates[0].Subject.CommonName, true)
		})
	}
	wait.Wait()
	if _, ok := names.Load("new"); !ok {
		t.Error("no handshake got the new certificate")
	}
	echo(before)
}
