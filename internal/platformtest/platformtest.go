// Package platformtest is the contract that every platform passes, whatever it
// delivers to: what package main relies on and a recipient would notice.
package platformtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"messagesender/internal/message"
)

// Platform is what package main consumes.
type Platform interface {
	Prepare(ctx context.Context, m message.Message) (message.Delivery, error)
}

// Harness makes the platforms under test.
type Harness struct {
	// Open makes a platform with a fault; empty: none. What it takes ends with t.
	Open func(t *testing.T, fault string) Subject

	// Failures are the faults that make a delivery fail, and how.
	Failures []Failure
	// PresenceFault makes every call for presence fail; empty: it cannot.
	PresenceFault string
	// StallFault makes the far side never answer; empty: there is no far side.
	StallFault string
}

// Failure is a fault and the class it has to be reported as.
type Failure struct {
	Fault     string
	Want      message.Reason
	Retryable bool
	Waits     bool // a RetryAfter is said
}

// Subject is one platform under test.
type Subject struct {
	Platform Platform
	Account  string
	Number   message.Number   // a recipient to whom presence can be shown
	Arrived  func() []Arrival // what has reached recipients, oldest first
	Logs     func() string    // everything logged so far
	Secrets  []string         // must appear nowhere
	Open     func() int       // answers of the far side whose body is not closed; nil: there are none
}

// Arrival is a message as its recipient has it.
type Arrival struct {
	Number message.Number
	Text   string // or caption
	Size   int64  // of the media, bytes; 0: none
}

// private stands in every text and caption, and must appear in no error or log.
const private = "for the recipient only"

// patience bounds what has to end by itself.
const patience = 10 * time.Second

// Run holds a platform to the contract.
func Run(t *testing.T, h Harness) {
	for _, c := range contents {
		t.Run("delivers "+c.name, func(t *testing.T) { delivers(t, h, c) })
		t.Run("keeps back "+c.name+" that is only prepared", func(t *testing.T) { keepsBack(t, h, c) })
	}
	t.Run("gives every message an id of its own", func(t *testing.T) { distinct(t, h) })
	for _, f := range h.Failures {
		t.Run("reports "+f.Fault, func(t *testing.T) { fails(t, h, f) })
	}
	if h.PresenceFault != "" {
		t.Run("delivers although presence fails", func(t *testing.T) { presenceFails(t, h) })
	}
	if h.StallFault != "" {
		t.Run("ends with its context", func(t *testing.T) { stalls(t, h) })
	}
}

func delivers(t *testing.T, h Harness, c content) {
	s := h.Open(t, "")
	m, size := c.message(t, s)
	d := prepare(t, s, m)
	if _, err := d.ShowPresence(t.Context()); err != nil {
		t.Errorf("ShowPresence: %v", err)
	}
	if got := s.Arrived(); len(got) != 0 {
		t.Errorf("before Deliver, %d messages arrived, want none", len(got))
	}
	id, err := d.Deliver(t.Context())
	if err != nil || id == "" {
		t.Fatalf("Deliver gave id %q, error %v", id, err)
	}
	want := Arrival{Number: s.Number, Text: c.text, Size: size}
	if got := s.Arrived(); len(got) != 1 || got[0] != want {
		t.Errorf("arrived: %+v, want one %+v", got, want)
	}
	closeTwice(t, d)
	if err := m.Close(); err != nil {
		t.Errorf("closing the message after the delivery: %v", err)
	}
	if got := s.Arrived(); len(got) != 1 {
		t.Errorf("after Close, %d messages have arrived, want 1", len(got))
	}
	discreet(t, s, nil)
}

func keepsBack(t *testing.T, h Harness, c content) {
	s := h.Open(t, "")
	m, _ := c.message(t, s)
	d := prepare(t, s, m)
	if _, err := d.ShowPresence(t.Context()); err != nil {
		t.Errorf("ShowPresence: %v", err)
	}
	closeTwice(t, d)
	if err := m.Close(); err != nil {
		t.Errorf("closing the message: %v", err)
	}
	if got := s.Arrived(); len(got) != 0 {
		t.Errorf("%d messages arrived, want none", len(got))
	}
}

func distinct(t *testing.T, h Harness) {
	s := h.Open(t, "")
	seen := map[string]bool{}
	for range 20 {
		m, _ := contents[0].message(t, s)
		d := prepare(t, s, m)
		id, err := d.Deliver(t.Context())
		if err != nil || seen[id] {
			t.Fatalf("Deliver gave id %q (seen before: %t), error %v", id, seen[id], err)
		}
		seen[id] = true
		closeTwice(t, d)
	}
	if got := len(s.Arrived()); got != len(seen) {
		t.Errorf("%d messages arrived, want %d", got, len(seen))
	}
}

func fails(t *testing.T, h Harness, f Failure) {
	s := h.Open(t, f.Fault)
	m, _ := contents[0].message(t, s)
	d, err := s.Platform.Prepare(t.Context(), m)
	if err == nil {
		_, err = d.Deliver(t.Context())
		closeTwice(t, d)
	}
	var e *message.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %T (%v), want a *message.Error", err, err)
	}
	if e.Reason != f.Want || e.Retryable != f.Retryable || (e.RetryAfter > 0) != f.Waits {
		t.Errorf("got %s, retryable %t, after %v; want %s, retryable %t, with a wait %t",
			e.Reason, e.Retryable, e.RetryAfter, f.Want, f.Retryable, f.Waits)
	}
	if e.Text == "" {
		t.Error("there is no text for the client")
	}
	discreet(t, s, e)
}

func presenceFails(t *testing.T, h Harness) {
	s := h.Open(t, h.PresenceFault)
	m, _ := contents[0].message(t, s)
	d := prepare(t, s, m)
	_, err := d.ShowPresence(t.Context())
	if err == nil {
		t.Error("ShowPresence reports no error")
	}
	if id, err := d.Deliver(t.Context()); err != nil || id == "" {
		t.Errorf("Deliver gave id %q, error %v", id, err)
	}
	if got := len(s.Arrived()); got != 1 {
		t.Errorf("%d messages arrived, want 1", got)
	}
	closeTwice(t, d)
	discreet(t, s, err)
}

func stalls(t *testing.T, h Harness) {
	for _, c := range contents {
		s := h.Open(t, h.StallFault)
		m, _ := c.message(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begun := time.Now()
		d, err := s.Platform.Prepare(ctx, m)
		if err == nil {
			_, _ = d.ShowPresence(ctx)
			_, err = d.Deliver(ctx)
			closeTwice(t, d)
		}
		cancel()
		if err == nil {
			t.Errorf("%s: sent, although the far side never answers", c.name)
		}
		if took := time.Since(begun); took > patience {
			t.Errorf("%s: ended %v after its context", c.name, took)
		}
		discreet(t, s, err)
		if err := m.Close(); err != nil {
			t.Errorf("%s: closing the message: %v", c.name, err)
		}
	}
}

func prepare(t *testing.T, s Subject, m message.Message) message.Delivery {
	t.Helper()
	d, err := s.Platform.Prepare(t.Context(), m)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	return d
}

func closeTwice(t *testing.T, d message.Delivery) {
	t.Helper()
	for range 2 {
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

// discreet checks that nothing confidential stands in the log or in err, and
// that no answer was left open.
func discreet(t *testing.T, s Subject, err error) {
	t.Helper()
	logs, shown := s.Logs(), ""
	if err != nil {
		logs += "\n" + err.Error() // the operator's text
	}
	if e := (*message.Error)(nil); errors.As(err, &e) {
		shown = e.Text + fmt.Sprintf("%+v", e.Details)
	}
	for _, secret := range s.Secrets {
		if strings.Contains(logs, secret) || strings.Contains(shown, secret) {
			t.Error("a secret stands in an error or in the log")
		}
	}
	if strings.Contains(logs, private) || strings.Contains(shown, private) {
		t.Error("the message's text stands in an error or in the log")
	}
	if strings.Contains(logs, string(s.Number)) {
		t.Error("the whole number stands in the log")
	}
	if s.Open == nil {
		return
	}
	for deadline := time.Now().Add(patience); s.Open() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d answers are still open", s.Open())
			return
		}
	}
}
