package e2e

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// Each reserved number, through the front door: the answer, its timing, what the
// outbox then holds, and that a key does with it what it does with a real failure.
func TestReservedNumbers(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	for _, c := range []struct {
		number     string
		status     int
		code       string
		retryable  bool
		retryAfter string
		takes      time.Duration
		arrives    bool
		replayed   bool // a repetition with the same key gets the first answer again
	}{
		{"9990000422", 422, "recipient_unavailable", false, "", 200 * time.Millisecond, false, true},
		{"9990001422", 422, "recipient_unavailable", false, "", 200 * time.Millisecond, false, true},
		{"9990002422", 422, "platform_limit", false, "", 0, false, false}, // refused before delivery began: nothing to record
		{"9990003422", 422, "media_unavailable", false, "", 200 * time.Millisecond, false, true},
		{"9990000429", 429, "rate_limited", true, "6", 200 * time.Millisecond, false, false},
		{"9990000502", 502, "platform_rejected", false, "", 200 * time.Millisecond, false, true},
		{"9990001502", 502, "platform_failed", false, "", 200 * time.Millisecond, false, true},
		{"9990000503", 503, "unavailable", true, "5", 200 * time.Millisecond, false, false},
		{"9990000504", 504, "delivery_unknown", false, "", 3 * time.Second, false, true},
		{"9990001504", 504, "delivery_unknown", false, "", 3 * time.Second, true, true},
		{"9990000200", 200, "", false, "", 10 * time.Second, true, true},
	} {
		t.Run(c.number, func(t *testing.T) {
			t.Parallel()
			send := func() (answer, *http.Response) {
				r, err := http.NewRequest("POST", s.url+"/message/sendText/"+token, textTo(c.number, 0, "x"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header = http.Header{"Apikey": {key}, "Content-Type": {"application/json"}, "Idempotency-Key": {c.number}}
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				a := answer{Status: response.StatusCode}
				if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
					t.Fatal(err)
				}
				return a, response
			}
			begin := time.Now()
			a, response := send()
			if took := time.Since(begin); took < c.takes || took > c.takes+2*time.Second {
				t.Errorf("it took %v, want %v", took, c.takes)
			}
			if a.Status != c.status || a.Error.Code != c.code || a.Error.Retryable != c.retryable || response.Header.Get("Retry-After") != c.retryAfter {
				t.Errorf("got %+v with Retry-After %q, want %d %s, retryable %v, Retry-After %q", a, response.Header.Get("Retry-After"), c.status, c.code, c.retryable, c.retryAfter)
			}
			if _, again := send(); (again.Header.Get("Idempotent-Replayed") == "true") != c.replayed {
				t.Errorf("a repetition was replayed: %v, want %v", !c.replayed, c.replayed)
			}
			status, content := s.get("/outbox/messages?number=" + c.number)
			var list struct{ Messages []record }
			if err := json.Unmarshal(content, &list); status != 200 || err != nil {
				t.Fatalf("the outbox answered %d %s", status, content)
			}
			want := 0
			if c.arrives {
				want = 1
			}
			if len(list.Messages) != want {
				t.Errorf("the outbox holds %d messages, want %d", len(list.Messages), want)
			}
		})
	}
}

func TestFailuresByChance(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account(), "-outbox-failures", "platform_failed=1", "-outbox-latency", "100ms")
	begin := time.Now()
	a, err := s.send("sendText", text(0, "x"))
	if err != nil || a.Status != 502 || a.Error.Code != "platform_failed" || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("got %+v %v after %v, want 502 platform_failed after 300ms", a, err, time.Since(begin))
	}
}
