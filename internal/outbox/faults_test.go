package outbox

import (
	"testing"

	"messagesender/internal/message"
)

func TestParseFaults(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{"", true}, {"rate_limited=0.5", true}, {"rate_limited=0.5,slow=0.5,seed=1", true}, {"seed=1", true}, {"slow=0", true},
		{"rate_limited=1.1", false}, {"rate_limited=0.6,slow=0.6", false}, {"rate_limited=-1", false}, {"rate_limited=NaN", false},
		{"rate_limited", false}, {"teapot=0.1", false}, {"seed=x", false}, {",", false}, {"slow=0.1,", false},
	} {
		if _, err := ParseFaults(c.text, 0); (err == nil) != c.ok {
			t.Errorf("%q: got %v, want ok %v", c.text, err, c.ok)
		}
	}
}

func FuzzParseFaults(f *testing.F) {
	f.Add("rate_limited=0.5,slow=0.5,seed=1")
	f.Fuzz(func(t *testing.T, text string) {
		if faults, err := ParseFaults(text, 0); err == nil {
			faults.of("15550001234")
		}
	})
}

func TestSameSeedSameFailures(t *testing.T) {
	const deliveries = 10_000
	var runs [2][]message.Reason
	for run := range runs {
		f, err := ParseFaults("rate_limited=0.2,unavailable=0.1,seed=42", 0)
		if err != nil {
			t.Fatal(err)
		}
		for range deliveries {
			runs[run] = append(runs[run], f.of("15550001234").reason)
		}
	}
	count := map[message.Reason]int{}
	for i := range deliveries {
		if runs[0][i] != runs[1][i] {
			t.Fatalf("delivery %d fails with %q in one run and %q in the other", i, runs[0][i], runs[1][i])
		}
		count[runs[0][i]]++
	}
	if n := count[message.RateLimited]; n < 1800 || n > 2200 {
		t.Errorf("%d of %d were rate limited, want about 2,000", n, deliveries)
	}
	if n := count[message.Unavailable]; n < 900 || n > 1100 {
		t.Errorf("%d of %d were unavailable, want about 1,000", n, deliveries)
	}
}
