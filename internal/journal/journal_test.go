package journal

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"messagesender/internal/appendlog"
	"messagesender/internal/appendlog/disktest"
	"messagesender/internal/message"
)

func mustOpen(t testing.TB, d *disktest.Disk, o Options) *Journal {
	t.Helper()
	o.Disk = d
	j, err := Open("journal", o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return j
}

func request(key, id string) Request { return Request{Key: KeyOf("a", key), ID: id} }

// sends returns a Send that begins and then returns id and err, and counts.
func sends(count *atomic.Int64, id string, err error) Send {
	return func(begin func() error) (string, error) {
		if err := begin(); err != nil {
			return "", err
		}
		count.Add(1)
		return id, err
	}
}

func never(t testing.TB) Send {
	return func(func() error) (string, error) {
		t.Errorf("sent, want no send")
		return "", errors.New("not wanted")
	}
}

func reason(a Answer) message.Reason {
	if e, ok := errors.AsType[*message.Error](a.Err); ok {
		return e.Reason
	}
	return ""
}

func TestAnswersAreKeptAcrossRestart(t *testing.T) {
	rejected := &message.Error{
		Reason: message.PlatformRejected, Text: "the platform said no",
		Details: []message.Detail{{Field: "number", Message: "is wrong", PlatformCode: -131026}, {Message: "two"}},
	}
	for _, test := range []struct {
		name  string
		id    string
		err   error
		state State
		kept  bool
	}{
		{"sent", "wamid.1", nil, Sent, true},
		{"finally refused", "", rejected, NotSent, true},
		{"unknown", "", message.NewError(message.DeliveryUnknown, "x"), Unknown, true},
		{"failed half way", "", message.NewError(message.Internal, "x"), Unknown, true},
		{"not explained", "", errors.New("connection reset"), Unknown, true},
		{"refused for now", "", message.NewError(message.RateLimited, "x"), "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := disktest.New(1)
			j := mustOpen(t, d, Options{})
			var count atomic.Int64
			first := j.Do(t.Context(), request("k", "first"), sends(&count, test.id, test.err))
			for _, restarts := range []string{"none", "kill", "loss of power"} {
				switch restarts {
				case "kill":
					d.Kill()
					j = mustOpen(t, d, Options{})
				case "loss of power":
					d.LosePower()
					j = mustOpen(t, d, Options{})
				}
				state, id, ok, err := j.Outcome(KeyOf("a", "k"))
				if state != test.state || id != test.id || ok != test.kept || err != nil {
					t.Errorf("restart %s: got outcome %q %q %v %v, want %q %q", restarts, state, id, ok, err, test.state, test.id)
				}
				if !test.kept {
					continue
				}
				again := j.Do(t.Context(), request("k", "again"), never(t))
				want := first
				want.Replayed = true
				if e, ok := errors.AsType[*message.Error](want.Err); ok {
					want.Err = &message.Error{Reason: e.Reason, Text: e.Text, Details: e.Details}
				}
				if e, ok := errors.AsType[*message.Error](again.Err); ok {
					e.Cause = nil
				}
				if !reflect.DeepEqual(again, want) {
					t.Errorf("restart %s: got %+v, want %+v", restarts, again, want)
				}
			}
			if !test.kept {
				if a := j.Do(t.Context(), request("k", "again"), sends(&count, "2", nil)); a.MessageID != "2" || a.Replayed {
					t.Errorf("after a refusal for now: got %+v, want it sent", a)
				}
			}
		})
	}
}

func TestBeginWithoutEndIsUnknown(t *testing.T) {
	d := disktest.New(1)
	j := mustOpen(t, d, Options{})
	a := j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
		if err := errors.Join(begin(), begin()); err != nil {
			t.Error(err)
		}
		d.LosePower()
		return "1", nil
	})
	if a.MessageID != "1" || a.Err != nil {
		t.Errorf("the answer could not be written: got %+v, want the truth", a)
	}
	j = mustOpen(t, d, Options{})
	a = j.Do(t.Context(), request("k", "again"), never(t))
	if reason(a) != message.DeliveryUnknown || a.RequestID != "first" || !a.Replayed {
		t.Errorf("got %+v, want %s with the first request's id", a, message.DeliveryUnknown)
	}
}

func TestCrashBeforeBeginIsACleanRetry(t *testing.T) {
	d := disktest.New(1)
	j := mustOpen(t, d, Options{})
	j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
		d.LosePower()
		return "", begin()
	})
	j = mustOpen(t, d, Options{})
	var count atomic.Int64
	if a := j.Do(t.Context(), request("k", "again"), sends(&count, "1", nil)); a.MessageID != "1" {
		t.Errorf("got %+v, want it sent", a)
	}
}

func TestKeyOfAnotherRequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustOpen(t, disktest.New(1), Options{})
		other := request("k", "other")
		other.Digest[15] = 1
		a := j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
			if a := j.Do(t.Context(), other, never(t)); reason(a) != message.KeyReused {
				t.Errorf("while the first runs: got %+v", a)
			}
			return "1", begin()
		})
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		if a := j.Do(t.Context(), other, never(t)); reason(a) != message.KeyReused || a.RequestID != "other" || a.Replayed {
			t.Errorf("after the first: got %+v", a)
		}
		var count atomic.Int64
		elsewhere := Request{Key: KeyOf("b", "k"), Digest: other.Digest}
		if a := j.Do(t.Context(), elsewhere, sends(&count, "2", nil)); a.MessageID != "2" {
			t.Errorf("the same key of another account: got %+v, want it sent", a)
		}
	})
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, appendlog.ErrLocked) {
		t.Errorf("got %v, want %v", err, appendlog.ErrLocked)
	}
	if err := j.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestNothingReadableIsOnTheDisk(t *testing.T) {
	d := disktest.New(1)
	j := mustOpen(t, d, Options{})
	var count atomic.Int64
	j.Do(t.Context(), Request{Key: KeyOf("the-account", "the-key"), ID: "r"}, sends(&count, "1", nil))
	if b := string(d.Contents("00000001.log")); strings.Contains(b, "the-account") || strings.Contains(b, "the-key") {
		t.Errorf("the journal holds the account or the key")
	}
}
