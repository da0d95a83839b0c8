package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// document is a sendMedia body around size random bytes, written as it is read.
func document(size int) (content []byte, body io.Reader) {
	content = make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	reader, writer := io.Pipe()
	go func() {
		_, _ = io.WriteString(writer, `{"number":"`+number+`","mediaMessage":{"mediaType":"document","fileName":"a.bin","media":"`)
		encoder := base64.NewEncoder(base64.StdEncoding, writer)
		_, _ = encoder.Write(content)
		_ = encoder.Close()
		_, _ = io.WriteString(writer, `"}}`)
		_ = writer.Close()
	}()
	return content, reader
}

func TestHundredMebibytesOfBase64(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	content, body := document(100 << 20)
	a, err := s.send("sendMedia", body)
	if err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	status, got := s.get("/outbox/messages/" + a.Data.MessageID + "/media")
	if status != 200 || !bytes.Equal(got, content) {
		t.Errorf("got %d and %d bytes, want the %d that were sent", status, len(got), len(content))
	}
	sum := sha256.Sum256(content)
	if got := s.outbox()[0].SHA256; got != hex.EncodeToString(sum[:]) {
		t.Errorf("got SHA-256 %s, want %x", got, sum)
	}
	t.Logf("measured: 100 MiB by Base64: peak RSS %d MiB", s.peak())
}

func TestOneByteTooMuchLeavesNothing(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-max-media", "1MiB")
	_, body := document(1<<20 + 1)
	a, err := s.send("sendMedia", body)
	if err != nil || a.Status != 413 || !strings.Contains(a.Message, "1048576") {
		t.Errorf("got %v %v, want 413 naming 1048576", a, err)
	}
	left, err := os.ReadDir(filepath.Join(s.data, "spool"))
	if err != nil || len(left) != 0 {
		t.Errorf("the spool holds %v (%v), want nothing", left, err)
	}
	if got := s.outbox(); len(got) != 0 {
		t.Errorf("the outbox holds %v, want nothing", got)
	}
}
