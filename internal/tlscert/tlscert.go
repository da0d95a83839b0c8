// Package tlscert serves TLS with a certificate that may be replaced while the
// service runs.
package tlscert

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkEvery is how long a replaced certificate may go unnoticed, and so how
	// often handshakes read the files at most.
	checkEvery = 5 * time.Second

	// maxFile bounds a certificate or key file, in bytes. A chain of ten has 20 KB.
	maxFile = 1 << 20
)

// Certificate is a certificate with its key, from two PEM files that are looked
// at again as handshakes need it: at most every 5 s, by one handshake while the
// others go on with what there is. All methods may be called from any goroutine.
//
// The files are compared by content, so it does not matter how they are replaced:
// in place, by rename, or by a link that points elsewhere, as certbot and
// Kubernetes do. The first handshake after a replacement already gets the new
// one if the files were last looked at 5 s ago. A pair that is not right, among
// them a certificate beside the key of the other, which is what a replacement in
// two steps looks like in its middle, changes nothing and is logged once.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]

	mu      sync.Mutex // held by the one handshake that looks
	checked time.Time
	seen    digest // of what was read last, right or not; zero: it could not be read
}

type digest = [sha256.Size]byte

// Load reads the certificate chain, leaf first, and the key. A certificate that
// has ended is an error.
func Load(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, checked: time.Now()}
	pair, seen, err := c.read()
	if err != nil {
		return nil, err
	}
	c.seen = seen
	c.current.Store(pair)
	return c, nil
}

// Config is for a server: TLS 1.2 and newer with the cipher suites that Go holds
// for safe. http.Server adds HTTP/2 to it.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.Get}
}

// Get is a tls.Config's GetCertificate. It never fails.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.mu.TryLock() {
		if now := time.Now(); now.Sub(c.checked) >= checkEvery {
			c.checked = now
			c.reload()
		}
		c.mu.Unlock()
	}
	return c.current.Load(), nil
}

// reload takes what is in the files if it is new and right. c.mu is held.
func (c *Certificate) reload() {
	pair, seen, err := c.read()
	if seen == c.seen {
		return
	}
	c.seen = seen
	if err != nil {
		c.log.Error("certificate not replaced; the old one stays", "error", err)
		return
	}
	c.current.Store(pair)
	c.log.Info("certificate replaced", "file", c.certFile, "notAfter", pair.Leaf.NotAfter)
}

// read reads and checks both files. The digest is zero when one cannot be read.
func (c *Certificate) read() (*tls.Certificate, digest, error) {
	cert, err := readFile(c.certFile)
	if err != nil {
		return nil, digest{}, err
	}
	key, err := readFile(c.keyFile)
	if err != nil {
		return nil, digest{}, err
	}
	seen := sha256.Sum256(bytes.Join([][]byte{cert, key}, []byte{0})) // PEM has no zero byte
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, seen, fmt.Errorf("%s and %s: %w", c.certFile, c.keyFile, err)
	}
	if pair.Leaf.NotAfter.Before(time.Now()) {
		return nil, seen, fmt.Errorf("%s: the certificate ended on %s", c.certFile, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	return &pair, seen, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return content, nil
}
