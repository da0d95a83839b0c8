package whatsapp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/platformtest"
)

func TestRepetition(t *testing.T) {
	for _, c := range []struct {
		name     string
		status   int
		header   string // Retry-After
		body     string
		upload   bool
		failures int // of the first attempts; then it is taken
		attempts int
		sent     bool
	}{
		{"throughput, once", 429, "", errorBody(130429, ""), false, 1, 2, true},
		{"throughput, twice", 429, "", errorBody(130429, ""), false, 2, 3, true},
		{"throughput, always", 429, "", errorBody(130429, ""), false, 9, 3, false},
		{"service down, once", 500, "", errorBody(2, ""), false, 1, 2, true},
		{"service unavailable, once", 503, "", errorBody(131016, ""), false, 1, 2, true},
		{"429 without a code, once", 429, "", "", false, 1, 2, true},
		{"a short wait is waited", 429, "3", errorBody(80007, ""), false, 1, 2, true},
		{"a long wait is the caller's", 429, "30", errorBody(130429, ""), false, 1, 1, false},
		{"a long wait by our own estimate", 429, "", errorBody(131056, ""), false, 1, 1, false},
		{"maintenance", 500, "", errorBody(131057, ""), false, 1, 1, false},
		{"spam", 429, "1", errorBody(131048, ""), false, 1, 1, false},
		{"unknown outcome by code", 500, "", errorBody(131000, ""), false, 1, 1, false},
		{"unknown outcome by status", 502, "", "<html>", false, 1, 1, false},
		{"200 without an id", 200, "", "{}", false, 1, 1, false},
		{"token", 401, "", errorBody(190, ""), false, 1, 1, false},
		{"upload, unknown outcome by code", 500, "", errorBody(131000, ""), true, 2, 3, true},
		{"upload, unknown outcome by status", 502, "", "<html>", true, 2, 3, true},
		{"upload, 200 without an id", 200, "", "{}", true, 1, 2, true},
		{"upload, always", 502, "", "", true, 9, 3, false},
		{"upload, refused", 400, "", errorBody(100, ""), true, 1, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			meta := newMeta(t)
			kind, m := "messages", text("Hello")
			if c.upload {
				kind, m = "media", file(t, media.Image, platformtest.PNG)
			}
			var attempts atomic.Int64
			meta.answer = func(k string, w http.ResponseWriter, _ *http.Request) bool {
				if k != kind || attempts.Add(1) > int64(c.failures) {
					return false
				}
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				return true
			}
			r := newRig(t, Settings{BaseURL: meta.server.URL})
			id, err := r.send(t.Context(), m)
			if got := int(attempts.Load()); got != c.attempts {
				t.Errorf("%d attempts, want %d", got, c.attempts)
			}
			if (err == nil && id != "") != c.sent {
				t.Errorf("got id %q, error %v; want it sent: %t", id, err, c.sent)
			}
			if e := (*message.Error)(nil); errors.As(err, &e) && c.upload && e.Reason == message.DeliveryUnknown {
				t.Error("a failed upload leaves the delivery unknown, although nothing was sent")
			}
			for i, pause := range *r.pauses {
				least, most := time.Duration(0), firstPause<<i
				if c.header == "3" {
					least, most = 3*time.Second, 3*time.Second
				}
				if pause < least || pause > most {
					t.Errorf("pause %d is %v, want %v to %v", i, pause, least, most)
				}
			}
		})
	}
}

func TestRepetitionEndsWithItsContext(t *testing.T) {
	meta := newMeta(t)
	var attempts atomic.Int64
	meta.answer = func(_ string, w http.ResponseWriter, _ *http.Request) bool {
		attempts.Add(1)
		w.Header().Set("Retry-After", "4")
		http.Error(w, errorBody(130429, ""), http.StatusTooManyRequests)
		return true
	}
	r := newRig(t, Settings{BaseURL: meta.server.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := r.send(ctx, text("Hello"))
	var e *message.Error
	if !errors.As(err, &e) || e.Reason != message.RateLimited || attempts.Load() != 1 || len(*r.pauses) != 0 {
		t.Errorf("got %v after %d attempts and pauses %v; want the rate limit at once, because the context ends before the wait",
			err, attempts.Load(), *r.pauses)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if err := sleep(t.Context(), time.Nanosecond); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestTokenProblemIsKnownAndLoggedOnce(t *testing.T) {
	meta := newMeta(t)
	var refuse atomic.Bool
	refuse.Store(true)
	meta.answer = func(_ string, w http.ResponseWriter, _ *http.Request) bool {
		if refuse.Load() {
			http.Error(w, errorBody(190, `,"error_subcode":463`), http.StatusUnauthorized)
		}
		return refuse.Load()
	}
	r := newRig(t, Settings{BaseURL: meta.server.URL})
	if got := r.Problem(); got != "" {
		t.Errorf("before any send: %q", got)
	}
	for range 3 {
		if _, err := r.send(t.Context(), text("Hello")); err == nil {
			t.Error("sent with a refused token")
		}
	}
	if got := r.Problem(); !strings.Contains(got, "platform code 190") || !strings.Contains(got, "subcode 463") {
		t.Errorf("the problem is %q, want one that names code and subcode", got)
	}
	if got := strings.Count(r.logs.String(), "refuses the access token"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, r.logs)
	}
	refuse.Store(false)
	if _, err := r.send(t.Context(), text("Hello")); err != nil {
		t.Error(err)
	}
	if got := r.Problem(); got != "" {
		t.Errorf("after a send that was taken: %q", got)
	}
}
