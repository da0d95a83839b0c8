package outbox

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/message"
)

// subscription is an event stream over a connection in memory.
type subscription struct {
	events chan received // closed when the stream ends
	status int
	leave  func()
	conn   net.Conn
}

type received struct{ name, id, data string }

// connect opens a stream and reads it until it ends, or not at all if paused.
func connect(t *testing.T, s *Store, path string, paused bool, header ...string) *subscription {
	t.Helper()
	client, server := net.Pipe()
	listener := &oneConn{conn: server, done: make(chan struct{})}
	srv := &http.Server{Handler: api(s)}
	go srv.Serve(listener)
	t.Cleanup(func() { srv.Close(); client.Close() })
	fmt.Fprintf(client, "GET /outbox/%s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", path, strings.Join(header, "\r\n"))
	sub := &subscription{events: make(chan received, 20_000), leave: func() { client.Close() }, conn: client}
	if paused {
		synctest.Wait()
		return sub
	}
	answer, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	sub.status = answer.StatusCode
	go func() {
		defer close(sub.events)
		lines := bufio.NewScanner(answer.Body)
		var e received
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case ":":
				if e == (received{}) {
					e.name = "comment"
				}
			case "":
				if e.name != "comment" {
					sub.events <- e
				}
				e = received{}
			}
		}
	}()
	synctest.Wait()
	return sub
}

// got returns what has arrived so far.
func (sub *subscription) got() []received {
	synctest.Wait()
	var all []received
	for len(sub.events) > 0 {
		all = append(all, <-sub.events)
	}
	return all
}

// oneConn is a listener for one connection.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (c net.Conn, err error) {
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	select {
	case <-l.done:
	default:
		close(l.done)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func names(events []received) string {
	var all []string
	for _, e := range events {
		var data struct {
			Text  string
			Shown *bool
		}
		if err := json.Unmarshal([]byte(e.data), &data); err != nil {
			return err.Error()
		}
		name := e.name + data.Text
		if data.Shown != nil {
			name += fmt.Sprint(*data.Shown)
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

func TestEventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()})
		send(t, s, text("0"))
		live := connect(t, s, "events", false)
		other := connect(t, s, "events", false, "account: b")
		m := text("1")
		m.Presence, m.Delay = message.Composing, 1500*time.Millisecond
		d, _ := s.Prepare(t.Context(), m)
		start := time.Now()
		for range 2 {
			if lasts, err := d.ShowPresence(t.Context()); lasts != 0 || err != nil {
				t.Errorf("got %v, %v, want it to stay until it is cleared", lasts, err)
			}
			time.Sleep(time.Second)
		}
		late := connect(t, s, "events", false)
		id, err := d.Deliver(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.Close(t.Context())
		d.Close(t.Context())
		unsent, _ := s.Prepare(t.Context(), m)
		unsent.ShowPresence(t.Context())
		unsent.Close(t.Context())
		synctest.Wait() // a message that is deleted before its turn is not sent
		do(s, "DELETE", "messages")
		send(t, s, text("2"))

		events := live.got()
		const want = "presencetrue message1 presencefalse presencetrue presencefalse clear message2"
		if got := names(events); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := names(late.got()); got != want {
			t.Errorf("joined during the presence: got %s\nwant %s", got, want)
		}
		if got := other.got(); len(got) != 0 {
			t.Errorf("another account: got %v", got)
		}
		var p presence
		if err := json.Unmarshal([]byte(events[0].data), &p); err != nil || events[0].id != "" ||
			p.Number != m.Number || p.Presence != m.Presence || p.Operation != message.SendText || p.Delay != 1500 ||
			!p.PresenceFrom.Equal(start) || p.PresenceID == "" {
			t.Errorf("presence: got %+v", events[0])
		}
		if e := events[1]; e.id != id || !strings.Contains(e.data, `"messageId":"`+id+`"`) ||
			!strings.Contains(e.data, `"presenceFrom":"2000-01-01T00:00:00Z","presenceUntil":"2000-01-01T00:00:02Z"`) {
			t.Errorf("message: got %+v", e)
		}
		live.leave()
		late.leave()
		other.leave()
		synctest.Wait()
		if s.streams != 0 || len(s.accounts["a"].readers) != 0 {
			t.Errorf("%d streams are still registered", s.streams)
		}
	})
}

func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()})
		var sent []string
		for i := range 4 {
			sent = append(sent, send(t, s, text(fmt.Sprint(i))))
		}
		m := text("x")
		m.Presence = message.Composing
		d, _ := s.Prepare(t.Context(), m)
		d.ShowPresence(t.Context())
		defer d.Close(t.Context())
		for _, test := range []struct {
			path, header string
			want         string
		}{
			{"events", "", "presencetrue"},
			{"events?after=" + sent[1], "", "message2 message3 presencetrue"},
			{"events", "Last-Event-ID: " + sent[2], "message3 presencetrue"},
			{"events?after=" + sent[0], "Last-Event-ID: " + sent[2], "message3 presencetrue"},
			{"events?after=OB000000000000000000000000", "", "message0 message1 message2 message3 presencetrue"},
			{"events?after=OBffffffffffff000000000000", "", "presencetrue"},
		} {
			header := test.header
			if header == "" {
				header = "X-Nothing: x"
			}
			sub := connect(t, s, test.path, false, header)
			if got := names(sub.got()); got != test.want {
				t.Errorf("%s %s: got %s, want %s", test.path, test.header, got, test.want)
			}
			sub.leave()
			synctest.Wait()
		}
		ahead := connect(t, s, "events?after=OBffffffffffff000000000000", false)
		ahead.got()
		send(t, s, text("new"))
		if got := names(ahead.got()); got != "messagenew" {
			t.Errorf("after a place that was never reached: got %s, want what is new", got)
		}
		for _, path := range []string{"events?after=x", "events?number=1"} {
			if w := do(s, "GET", path); w.Code != 400 {
				t.Errorf("%s: got %d, want 400", path, w.Code)
			}
		}
		if w := do(s, "GET", "events", "Last-Event-ID: x"); w.Code != 400 {
			t.Errorf("Last-Event-ID x: got %d, want 400", w.Code)
		}
	})
}

func TestCatchUpDuringSendsMissesAndDoublesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()})
		first := send(t, s, text("first"))
		var wg sync.WaitGroup
		const workers, each = 8, 60
		for range workers {
			wg.Go(func() {
				for range each {
					if _, err := trySend(s, text("x")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var subs []*subscription
		for range 5 {
			subs = append(subs, connect(t, s, "events?after="+first, false))
		}
		wg.Wait()
		want := ids(t, s, "?after="+first)
		if len(want) != workers*each {
			t.Fatalf("got %d messages, want %d", len(want), workers*each)
		}
		for _, sub := range subs {
			var got []string
			for _, e := range sub.got() {
				got = append(got, e.id)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %d events, want %d, in order", len(got), len(want))
			}
			sub.leave()
		}
	})
}

func TestSlowReadersAreDropped(t *testing.T) {
	t.Run("does not read at all", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Options{Dir: t.TempDir()})
			connect(t, s, "events", true)
			start := time.Now()
			for range 1000 {
				send(t, s, text("x"))
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("sends took %v longer", took)
			}
			time.Sleep(writeTimeout + time.Second)
			synctest.Wait()
			if s.streams != 0 {
				t.Errorf("the stream is still open")
			}
		})
	})
	t.Run("does not keep up with events", func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()})
		r, _, err := s.subscribe("a", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		defer s.unregister(r)
		for range maxQueued {
			s.clear("a")
		}
		if _, events, ok := s.news(r, 0); !ok || len(events) != maxQueued {
			t.Errorf("a full queue: got %d events, %v, want %d, true", len(events), ok, maxQueued)
		}
		for range maxQueued + 1 {
			s.clear("a")
		}
		if _, _, ok := s.news(r, 0); ok || len(r.queue) != 0 {
			t.Errorf("a queue that overflowed: got %v with %d events", ok, len(r.queue))
		}
	})
}

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()})
		sub := connect(t, s, "events", true)
		lines := bufio.NewReader(sub.conn)
		read := func() string {
			for {
				line, err := lines.ReadString('\n')
				if err != nil || strings.HasPrefix(line, ":") {
					return fmt.Sprintf("%q %v", line, err)
				}
			}
		}
		start := time.Now()
		for i := range 3 {
			if got := read(); got != `":\n" <nil>` || time.Since(start) != time.Duration(i)*heartbeat {
				t.Errorf("comment %d: got %s after %v", i, got, time.Since(start))
			}
		}
		sub.leave()
	})
}

func TestStopStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Dir: t.TempDir()})
		sub := connect(t, s, "events", false)
		s.StopStreams()
		s.StopStreams()
		if _, open := <-sub.events; open {
			t.Error("got an event, want the end")
		}
		if w := do(s, "GET", "events"); w.Code != 503 {
			t.Errorf("then: got %d, want 503", w.Code)
		}
		send(t, s, text("still possible"))
	})
}

func TestStreamsAreBounded(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	for range maxStreams {
		r, _, err := s.subscribe("a", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		defer s.unregister(r)
	}
	w := do(s, "GET", "events", "account: b")
	if w.Code != 503 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("one more: got %d, Retry-After %q, want 503, 2", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestDeliveryOutlivesItsClient(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	d, err := s.Prepare(t.Context(), text("x"))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Deliver(gone); err != nil || s.Count() != 1 {
		t.Errorf("got %v, %d messages, want it stored", err, s.Count())
	}
}
