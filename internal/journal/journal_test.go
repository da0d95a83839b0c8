package journal

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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

func TestThousandsWithOneKeyMakeOneSend(t *testing.T) {
	for _, err := range []error{nil, message.NewError(message.PlatformRejected, ""), message.NewError(message.RateLimited, "")} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := mustOpen(t, disktest.New(1), Options{})
				var count, firsts atomic.Int64
				var wg sync.WaitGroup
				answers := make([]Answer, 2000)
				for i := range answers {
					wg.Go(func() {
						answers[i] = j.Do(t.Context(), request("k", fmt.Sprint(i)), func(begin func() error) (string, error) {
							time.Sleep(time.Second)
							return sends(&count, "1", err)(begin)
						})
						if !answers[i].Replayed {
							firsts.Add(1)
						}
					})
				}
				wg.Wait()
				if count.Load() != 1 || firsts.Load() != 1 {
					t.Errorf("got %d sends and %d first answers, want 1", count.Load(), firsts.Load())
				}
				for _, a := range answers {
					if a.RequestID != answers[0].RequestID || a.MessageID != answers[0].MessageID || reason(a) != reason(answers[0]) {
						t.Fatalf("got answers %+v and %+v, want equal ones", a, answers[0])
					}
				}
			})
		})
	}
}

func TestNextInLineTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustOpen(t, disktest.New(1), Options{})
		var count atomic.Int64
		var wg sync.WaitGroup
		// Request i has i+1 seconds of patience, a send takes 2.5 before it begins:
		// 0 leads until 1 s, 1 until 2 s, 2 until 3 s, 3 until 4 s, 4 sends at 6.5 s.
		for i := range 8 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				patience := time.Duration(i+1) * time.Second
				if i >= 4 {
					patience = time.Hour
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				a := j.Do(ctx, request("k", fmt.Sprint(i)), func(begin func() error) (string, error) {
					select {
					case <-time.After(2500 * time.Millisecond):
					case <-ctx.Done():
					}
					return sends(&count, fmt.Sprint(i), nil)(begin)
				})
				if i < 4 && !errors.Is(a.Err, context.DeadlineExceeded) {
					t.Errorf("request %d, which left: got %+v", i, a)
				}
				if i >= 4 && (a.MessageID != "4" || a.RequestID != "4" || a.Replayed != (i > 4)) {
					t.Errorf("request %d: got %+v, want what request 4 sent", i, a)
				}
			})
		}
		wg.Wait()
		if count.Load() != 1 {
			t.Errorf("got %d sends, want 1", count.Load())
		}
	})
}

func TestEverybodyLeavesAndTheKeyIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustOpen(t, disktest.New(1), Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				a := j.Do(ctx, request("k", fmt.Sprint(i)), func(begin func() error) (string, error) {
					<-ctx.Done()
					return "", begin()
				})
				if !errors.Is(a.Err, context.DeadlineExceeded) {
					t.Errorf("got %+v", a)
				}
			})
		}
		wg.Wait()
		if _, _, ok, _ := j.Outcome(KeyOf("a", "k")); ok || j.Len() != 0 {
			t.Errorf("the key is not free, got %d keys", j.Len())
		}
	})
}

func TestClientThatLeavesAfterBeginChangesNothing(t *testing.T) {
	j := mustOpen(t, disktest.New(1), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	j.Do(ctx, request("k", "first"), func(begin func() error) (string, error) {
		err := begin()
		cancel()
		return "1", err
	})
	if a := j.Do(t.Context(), request("k", "again"), never(t)); a.MessageID != "1" || !a.Replayed {
		t.Errorf("got %+v, want the first answer", a)
	}
}

func TestStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustOpen(t, disktest.New(1), Options{})
		release := make(chan struct{})
		var count atomic.Int64
		var wg sync.WaitGroup
		wg.Go(func() {
			a := j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
				<-release
				return sends(&count, "1", nil)(begin)
			})
			if a.MessageID != "1" {
				t.Errorf("the first: got %+v, want it sent", a)
			}
		})
		synctest.Wait()
		waits := func() {
			if a := j.Do(t.Context(), request("k", "next"), never(t)); reason(a) != message.InProgress {
				t.Errorf("got %+v, want %s", a, message.InProgress)
			}
		}
		wg.Go(waits)
		synctest.Wait()
		if state, _, ok, _ := j.Outcome(KeyOf("a", "k")); state != Running || !ok {
			t.Errorf("got outcome %q, want %q", state, Running)
		}
		j.StopWaiting()
		j.StopWaiting()
		waits()
		close(release)
		wg.Wait()
	})
}

func TestPanicIsUnknownAndReleasesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := mustOpen(t, disktest.New(1), Options{})
		go func() {
			defer func() { recover() }()
			j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
				begin()
				time.Sleep(time.Second)
				panic("test")
			})
		}()
		synctest.Wait()
		for range 2 {
			if a := j.Do(t.Context(), request("k", "next"), never(t)); reason(a) != message.DeliveryUnknown {
				t.Errorf("got %+v, want %s", a, message.DeliveryUnknown)
			}
		}
	})
}

func TestKeysExpireAfterTheWindowAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		o := Options{Window: time.Hour, MaxKeys: 100, SegmentSize: 1000}
		j := mustOpen(t, d, o)
		var count atomic.Int64
		for i := range 100 {
			if a := j.Do(t.Context(), request(fmt.Sprint(i), "r"), sends(&count, "1", nil)); a.Err != nil {
				t.Fatal(a.Err)
			}
			time.Sleep(time.Minute / 10) // all in 10 minutes
		}
		time.Sleep(50*time.Minute - time.Second) // the first is 59:59 old
		for _, restarted := range []bool{false, true} {
			if restarted {
				d.LosePower()
				j = mustOpen(t, d, o)
			}
			if a := j.Do(t.Context(), request("new", "r"), never(t)); reason(a) != message.Unavailable {
				t.Errorf("one key too many: got %+v, want %s", a, message.Unavailable)
			}
			if a := j.Do(t.Context(), request("0", "r"), never(t)); !a.Replayed {
				t.Errorf("within the window: got %+v, want the first answer", a)
			}
		}
		size := j.log.Size()
		time.Sleep(2 * time.Second) // the first is over the window, the second is not
		if _, _, ok, _ := j.Outcome(KeyOf("a", "0")); ok {
			t.Errorf("after the window the key is still known")
		}
		if a := j.Do(t.Context(), request("new", "r"), sends(&count, "2", nil)); a.MessageID != "2" {
			t.Errorf("a key in place of the expired one: got %+v, want it sent", a)
		}
		if a := j.Do(t.Context(), request("1", "r"), never(t)); !a.Replayed {
			t.Errorf("the second key: got %+v, want the first answer", a)
		}
		time.Sleep(30 * time.Minute)
		j.Do(t.Context(), request("newer", "r"), sends(&count, "3", nil))
		if got := j.log.Size(); j.Len() != 2 || got > size/4 {
			t.Errorf("after the window: got %d keys and %d bytes, want 2 and much less than %d", j.Len(), got, size)
		}
		d.LosePower()
		j = mustOpen(t, d, o)
		if a := j.Do(t.Context(), request("new", "r"), never(t)); a.MessageID != "2" || j.Len() != 2 {
			t.Errorf("after a restart: got %+v and %d keys, want 2", a, j.Len())
		}
	})
}

func TestUnknownKeyExpiresToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		j := mustOpen(t, d, Options{})
		j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
			err := begin()
			d.Kill()
			return "1", err
		})
		j = mustOpen(t, d, Options{})
		time.Sleep(24 * time.Hour)
		if a := j.Do(t.Context(), request("k", "again"), never(t)); reason(a) != message.DeliveryUnknown {
			t.Errorf("within the window: got %+v", a)
		}
		time.Sleep(time.Second)
		var count atomic.Int64
		if a := j.Do(t.Context(), request("k", "again"), sends(&count, "2", nil)); a.MessageID != "2" {
			t.Errorf("after the window: got %+v, want it sent", a)
		}
	})
}

func TestDiskThatFails(t *testing.T) {
	for _, test := range []struct {
		name     string
		harm     func(*disktest.Disk)
		want     error
		recovers bool
	}{
		{"failed sync", func(d *disktest.Disk) { d.FailSync(1) }, disktest.ErrSync, false},
		{"full disk", func(d *disktest.Disk) { d.SetRoom(30) }, syscall.ENOSPC, true},
	} {
		t.Run(test.name+" at begin", func(t *testing.T) {
			d := disktest.New(1)
			j := mustOpen(t, d, Options{})
			var count atomic.Int64
			j.Do(t.Context(), request("old", "r"), sends(&count, "1", nil))
			test.harm(d)
			for range 2 {
				a := j.Do(t.Context(), request("k", "r"), sends(&count, "2", nil))
				if reason(a) != message.Unavailable || !errors.Is(a.Err, test.want) {
					t.Errorf("got %+v, want %s because of %v", a, message.Unavailable, test.want)
				}
			}
			if a := j.Do(t.Context(), request("old", "r"), never(t)); a.MessageID != "1" {
				t.Errorf("a key that has an answer: got %+v", a)
			}
			d.SetRoom(-1)
			a := j.Do(t.Context(), request("k", "r"), sends(&count, "2", nil))
			if sent := a.MessageID == "2"; sent != test.recovers || (j.Err() == nil) != test.recovers {
				t.Errorf("when the disk is well again: got %+v, want sent %v", a, test.recovers)
			}
		})
		t.Run(test.name+" at end", func(t *testing.T) {
			d := disktest.New(1)
			j := mustOpen(t, d, Options{})
			first := j.Do(t.Context(), request("k", "r"), func(begin func() error) (string, error) {
				err := begin()
				test.harm(d)
				return "1", err
			})
			if first.MessageID != "1" || first.Err != nil {
				t.Errorf("got %+v, want the truth", first)
			}
			if a := j.Do(t.Context(), request("k", "r2"), never(t)); a.MessageID != "1" || a.RequestID != "r" {
				t.Errorf("again: got %+v, want the first answer", a)
			}
			d.SetRoom(-1)
			d.LosePower()
			j = mustOpen(t, d, Options{})
			a := j.Do(t.Context(), request("k", "r3"), never(t))
			if a.MessageID != "1" && reason(a) != message.DeliveryUnknown {
				t.Errorf("after a restart: got %+v, want the first answer or unknown", a)
			}
		})
	}
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
