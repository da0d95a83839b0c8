package lane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// run sends in its own goroutine and notes when it delivered, or why not.
type runner struct {
	l   *Lanes
	all sync.WaitGroup

	mu        sync.Mutex
	delivered []time.Duration // since began
	began     time.Time
	refusals  []error
}

func newRunner(l *Lanes) *runner { return &runner{l: l, began: time.Now()} }

func (r *runner) send(ctx context.Context, number string, hold time.Duration, pace Pace) {
	note := func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.refusals = append(r.refusals, err)
		} else {
			r.delivered = append(r.delivered, time.Since(r.began))
		}
	}
	ticket, err := r.l.Enter("shop", number, hold, pace)
	if err != nil {
		note(err)
		return
	}
	r.all.Go(func() {
		defer ticket.Leave()
		if err := ticket.Wait(ctx); err != nil {
			note(err)
			return
		}
		select {
		case <-time.After(hold):
		case <-ctx.Done():
			note(context.Cause(ctx))
			return
		}
		note(nil)
		ticket.Delivered()
	})
	synctest.Wait()
}

func every(interval time.Duration, n int, from time.Duration) []time.Duration {
	var times []time.Duration
	for i := range n {
		times = append(times, from+time.Duration(i)*interval)
	}
	return times
}

func TestRateIsExact(t *testing.T) {
	for _, hold := range []time.Duration{0, 1500 * time.Millisecond} {
		t.Run(fmt.Sprint("hold ", hold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRunner(New(testWait))
				for i := range 100 { // 60 s at 1/s: 61 fit
					r.send(t.Context(), fmt.Sprint(i), hold, Pace{PerSecond: 1})
				}
				r.all.Wait()
				if want := every(time.Second, 61, hold); !slices.Equal(r.delivered, want) {
					t.Errorf("delivered: got %v, want %v", r.delivered, want)
				}
				if len(r.refusals) != 39 {
					t.Errorf("refused: got %d, want 39", len(r.refusals))
				}
				for _, err := range r.refusals {
					wantRefused(t, err, ErrTooLong, 61*time.Second)
				}
				time.Sleep(2 * time.Second)
				wantEmpty(t, r.l)
			})
		})
	}
}

func TestRestIsNotSavedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		r.send(t.Context(), "1", 0, Pace{PerSecond: 2})
		time.Sleep(10*time.Second + 123*time.Millisecond)
		for i := range 3 {
			r.send(t.Context(), fmt.Sprint(i), 0, Pace{PerSecond: 2})
		}
		r.all.Wait()
		want := append([]time.Duration{0}, every(500*time.Millisecond, 3, 10_123*time.Millisecond)...)
		if !slices.Equal(r.delivered, want) {
			t.Errorf("delivered: got %v, want %v", r.delivered, want)
		}
	})
}

// TestRateHoldsForMixedHolds is the property of pacing: whatever the holds are
// and whoever leaves, no two deliveries are closer than an interval.
func TestRateHoldsForMixedHolds(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			r := newRunner(New(testWait))
			for i := range 300 {
				ctx := t.Context()
				if random.IntN(4) == 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(30_000))*time.Millisecond)
					defer cancel()
				}
				r.send(ctx, fmt.Sprint(i%200), time.Duration(random.IntN(20_000))*time.Millisecond, Pace{PerSecond: 10})
				time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			}
			r.all.Wait()
			for i, at := range r.delivered[1:] {
				if gap := at - r.delivered[i]; gap < 100*time.Millisecond {
					t.Errorf("seed %d: deliveries %v apart, want at least 100ms", seed, gap)
				}
			}
			if got := len(r.delivered) + len(r.refusals); got != 300 {
				t.Errorf("seed %d: got %d outcomes, want 300", seed, got)
			}
			time.Sleep(time.Second)
			wantEmpty(t, r.l)
		})
	}
}

func TestMixedHoldsUseTheWholeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 0))
		r := newRunner(New(testWait))
		for i := range 3000 { // in 300 s at 5/s: twice what fits
			r.send(t.Context(), fmt.Sprint(i), time.Duration(random.IntN(10_000))*time.Millisecond, Pace{PerSecond: 5})
			time.Sleep(100 * time.Millisecond)
		}
		r.all.Wait()
		within := 0
		for _, at := range r.delivered {
			if at > 20*time.Second && at <= 280*time.Second {
				within++
			}
		}
		if within < 1287 { // 99 % of 260 s at 5/s
			t.Errorf("delivered in 260 s: got %d, want about 1300", within)
		}
	})
}

func TestShortHoldIsNotBehindALongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		r.send(t.Context(), "long", time.Minute, Pace{PerSecond: 1})
		r.send(t.Context(), "short", 0, Pace{PerSecond: 1})
		r.all.Wait()
		if want := []time.Duration{0, time.Minute}; !slices.Equal(r.delivered, want) {
			t.Errorf("delivered: got %v, want %v", r.delivered, want)
		}
	})
}

func TestSlotsGivenUpMoveTheOthersUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		leaving, leave := context.WithCancel(t.Context())
		pace := Pace{PerSecond: 1}
		r.send(t.Context(), "first", 0, pace)
		for i := range 30 {
			r.send(leaving, fmt.Sprint(i), 0, pace)
		}
		for i := range 3 {
			r.send(t.Context(), fmt.Sprint("stays", i), 0, pace)
		}
		time.Sleep(2500 * time.Millisecond) // two of those that leave have been delivered
		leave()
		r.all.Wait()
		want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second}
		if !slices.Equal(r.delivered, want) {
			t.Errorf("delivered: got %v, want %v", r.delivered, want)
		}
	})
}

func TestHoldGivenUpFreesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		pace := Pace{PerSecond: 0.1}
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		r.send(leaving, "1", 5*time.Second, pace)
		r.send(t.Context(), "2", 5*time.Second, pace) // at first planned to begin at 10 s
		r.all.Wait()
		if want := []time.Duration{6 * time.Second}; !slices.Equal(r.delivered, want) {
			t.Errorf("delivered: got %v, want %v", r.delivered, want)
		}
	})
}

func TestRecipientGap(t *testing.T) {
	pace := Pace{RecipientGap: 6 * time.Second}
	for name, c := range map[string]struct {
		hold time.Duration
		pace Pace
		want []time.Duration
	}{
		"no hold":                    {0, pace, []time.Duration{0, 6 * time.Second, 12 * time.Second}},
		"hold runs during the pause": {4 * time.Second, pace, []time.Duration{4 * time.Second, 10 * time.Second, 16 * time.Second}},
		"hold longer than the pause": {7 * time.Second, pace, []time.Duration{7 * time.Second, 14 * time.Second, 21 * time.Second}},
		"with a rate":                {0, Pace{PerSecond: 0.125, RecipientGap: 6 * time.Second}, []time.Duration{0, 8 * time.Second, 16 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRunner(New(testWait))
				for range c.want {
					r.send(t.Context(), "1", c.hold, c.pace)
				}
				r.all.Wait()
				if !slices.Equal(r.delivered, c.want) {
					t.Errorf("delivered: got %v, want %v", r.delivered, c.want)
				}
				time.Sleep(6*time.Second - time.Nanosecond)
				r.l.mu.Lock()
				lanes := len(r.l.lanes)
				r.l.mu.Unlock()
				if lanes != 1 {
					t.Errorf("lanes before the pause is over: got %d, want 1", lanes)
				}
				time.Sleep(10 * time.Second)
				wantEmpty(t, r.l)
			})
		})
	}
}

func TestPauseDelaysNoOtherNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		pace := Pace{PerSecond: 10, RecipientGap: 6 * time.Second}
		r.send(t.Context(), "1", 0, pace)
		r.send(t.Context(), "1", 0, pace)
		r.send(t.Context(), "2", 0, pace)
		r.all.Wait()
		if want := []time.Duration{0, 100 * time.Millisecond, 6 * time.Second}; !slices.Equal(r.delivered, want) {
			t.Errorf("delivered: got %v, want %v", r.delivered, want)
		}
	})
}

func TestPauseOnlyAfterADelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		pace := Pace{PerSecond: 1, RecipientGap: 6 * time.Second}
		ticket := mustEnter(t, l, "1", 0, pace)
		mustWait(t, ticket)
		ticket.Leave()
		wantEmpty(t, l)
	})
}

// TestPauseTimersDoNotAddUp: leaving again and again during a pause keeps one
// timer, and the lane still goes when the pause is over.
func TestPauseTimersDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		pace := Pace{PerSecond: 0.1, RecipientGap: 6 * time.Second}
		ticket := mustEnter(t, l, "1", 0, pace)
		mustWait(t, ticket)
		ticket.Delivered()
		timer := l.lanes[address{"shop", "1"}].expiry
		for range 100 {
			mustEnter(t, l, "1", 0, pace).Leave()
		}
		if got := l.lanes[address{"shop", "1"}].expiry; got != timer {
			t.Error("got another timer, want the first to stay")
		}
		held := mustEnter(t, l, "1", 0, pace)
		time.Sleep(7 * time.Second) // the timer finds a ticket
		held.Leave()
		time.Sleep(4 * time.Second)
		wantEmpty(t, l)
	})
}

func TestTooManyPausesAreRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		for range 12 { // a minute of pauses of 6 s: 11 fit
			r.send(t.Context(), "1", 0, Pace{RecipientGap: 6 * time.Second})
		}
		if len(r.refusals) != 1 {
			t.Fatalf("refused: got %d, want 1", len(r.refusals))
		}
		wantRefused(t, r.refusals[0], ErrTooLong, 66*time.Second)
		r.all.Wait()
		if len(r.delivered) != 11 {
			t.Errorf("delivered: got %d, want 11", len(r.delivered))
		}
	})
}

func TestTakeoverInTheQueueOfTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		pace := Pace{PerSecond: 1}
		first := mustEnter(t, l, "0", 0, pace)
		mustWait(t, first)
		first.Delivered()

		ticket := mustEnter(t, l, "1", 0, pace)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := ticket.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: got %v, want the end of its context", err)
		}
		// Nobody waits for the ticket now, so it must not be in the way.
		other := mustEnter(t, l, "2", 0, pace)
		start := time.Now()
		mustWait(t, other)
		if took := time.Since(start); took != 999*time.Millisecond {
			t.Errorf("another number waited: got %v, want 999ms", took)
		}
		mustWait(t, ticket)
		if took := time.Since(start); took != 1999*time.Millisecond {
			t.Errorf("taken over: got %v, want 1.999s", took)
		}
		ticket.Leave()
		other.Leave()
		wantEmpty(t, l)
	})
}

func TestNewRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRunner(New(testWait))
		for i := range 3 {
			r.send(t.Context(), fmt.Sprint(i), 0, Pace{PerSecond: 1})
		}
		for i := range 3 {
			r.send(t.Context(), fmt.Sprint("new", i), 0, Pace{PerSecond: 10})
		}
		r.all.Wait()
		if last := r.delivered[len(r.delivered)-1]; len(r.delivered) != 6 || last > 2*time.Second {
			t.Errorf("got %v, want 6 deliveries in at most 2s", r.delivered)
		}
		time.Sleep(time.Second)
		wantEmpty(t, r.l)
	})
}

func TestInterval(t *testing.T) {
	for name, c := range map[string]struct {
		perSecond float64
		want      time.Duration
	}{
		"none":             {0, 0},
		"negative":         {-1, 0},
		"not a number":     {math.NaN(), 0},
		"infinite":         {math.Inf(1), 0},
		"80":               {80, 12_500 * time.Microsecond},
		"3 is rounded up":  {3, 333_333_334},
		"more than a ns":   {1e12, 1},
		"one a minute":     {1.0 / 60, time.Minute},
		"less than hourly": {1e-300, time.Hour},
	} {
		if got := (Pace{PerSecond: c.perSecond}).interval(); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		s := &slots{interval: time.Second}
		s.first(time.Now())
		want := make(map[int64]bool) // the slots taken, kept in the plainest way
		for range 20_000 {
			if len(want) > 0 && random.IntN(3) == 0 {
				for slot := range want {
					s.clear(slot)
					delete(want, slot)
					break
				}
				continue
			}
			from := s.zero.Add(time.Duration(random.IntN(2000)-1000) * 500 * time.Millisecond)
			slot := s.first(from)
			expect := slot
			if len(want) > 0 {
				expect = int64(math.Ceil(from.Sub(s.zero).Seconds()))
				for want[expect] {
					expect++
				}
			}
			if slot != expect {
				t.Fatalf("first: got %d, want %d", slot, expect)
			}
			s.set(slot)
			want[slot] = true
		}
		for slot := range want {
			s.clear(slot)
		}
		if s.count != 0 || len(s.taken) != 0 {
			t.Errorf("left over: got %d slots in %d words, want none", s.count, len(s.taken))
		}
	})
}
