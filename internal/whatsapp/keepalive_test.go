package whatsapp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"messagesender/internal/message"
)

// moody is a platform that closes or resets kept connections at random, at the
// moments that tempt a client to send again.
type moody struct {
	listener net.Listener
	wait     sync.WaitGroup

	mu   sync.Mutex
	seen map[string]int // complete requests by their text
}

func newMoody(t *testing.T) *moody {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &moody{listener: listener, seen: map[string]int{}}
	m.wait.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			m.wait.Go(func() { m.serve(c.(*net.TCPConn)) })
		}
	})
	return m
}

func (m *moody) stop() {
	_ = m.listener.Close()
	m.wait.Wait()
}

func (m *moody) serve(c *net.TCPConn) {
	defer c.Close()
	if rand.N(2) == 0 {
		_ = c.SetLinger(0) // every close is a reset
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		var got struct{ Text struct{ Body string } }
		body, err := io.ReadAll(req.Body)
		if err != nil || json.Unmarshal(body, &got) != nil {
			return
		}
		m.mu.Lock()
		m.seen[got.Text.Body]++
		m.mu.Unlock()
		if rand.N(10) == 0 {
			return // taken, and no answer
		}
		answer := `{"messages":[{"id":"wamid.` + got.Text.Body + `"}]}`
		_, err = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		if err != nil || rand.N(4) == 0 {
			return // while it seems to be kept
		}
		if rand.N(4) == 0 {
			// Just when the next request may be on its way.
			_ = c.SetReadDeadline(time.Now().Add(rand.N(200 * time.Microsecond)))
			if _, err := r.Peek(1); err != nil {
				return
			}
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		}
	}
}

// TestNothingIsSentTwice is for the client's own repetitions as much as for
// those of net/http.
func TestNothingIsSentTwice(t *testing.T) {
	const sends, workers = 10_000, 16
	platform := newMoody(t)
	r := newRig(t, Settings{BaseURL: "http://" + platform.listener.Addr().String()})
	var (
		next    atomic.Int64
		wait    sync.WaitGroup
		reports [sends]string
	)
	for range workers {
		wait.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= sends {
					return
				}
				_, err := r.send(t.Context(), text(fmt.Sprint(i)))
				var e *message.Error
				switch {
				case err == nil:
					reports[i] = "sent"
				case errors.As(err, &e) && e.Reason == message.Unavailable:
					reports[i] = "not sent"
				case errors.As(err, &e) && e.Reason == message.DeliveryUnknown:
					reports[i] = "unknown"
				default:
					reports[i] = err.Error()
				}
			}
		})
	}
	wait.Wait()
	_ = r.client.Close()
	platform.stop()
	counts := map[string]int{}
	for i, report := range reports {
		counts[report]++
		switch seen := platform.seen[fmt.Sprint(i)]; {
		case seen > 1:
			t.Errorf("message %d (%s) arrived %d times", i, report, seen)
		case report == "sent" && seen != 1, report == "not sent" && seen != 0:
			t.Errorf("message %d was reported as %s and arrived %d times", i, report, seen)
		case report != "sent" && report != "not sent" && report != "unknown":
			t.Errorf("message %d: %s", i, report)
		}
	}
	t.Logf("reported: %v; %d attempts repeated", counts, len(*r.pauses))
	if counts["sent"] < sends/2 || counts["unknown"] < sends/100 {
		t.Errorf("the test did not test much: %v", counts)
	}
}
