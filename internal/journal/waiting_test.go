package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/appendlog/disktest"
	"messagesender/internal/message"
)

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
