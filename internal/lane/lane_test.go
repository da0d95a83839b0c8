package lane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testWait = time.Minute

func mustEnter(t testing.TB, l *Lanes, number string, hold time.Duration, pace Pace) *Ticket {
	t.Helper()
	ticket, err := l.Enter("shop", number, hold, pace)
	if err != nil {
		t.Fatalf("Enter: got error %v, want none", err)
	}
	return ticket
}

func mustWait(t testing.TB, ticket *Ticket) {
	t.Helper()
	if err := ticket.Wait(t.Context()); err != nil {
		t.Fatalf("Wait: got error %v, want none", err)
	}
}

func wantRefused(t testing.TB, err, reason error, after time.Duration) {
	t.Helper()
	r, ok := errors.AsType[*RefusedError](err)
	if !ok || !errors.Is(err, reason) || r.RetryAfter != after {
		t.Errorf("got error %v (%+v), want %v with RetryAfter %v", err, r, reason, after)
	}
}

// wantEmpty fails unless l has forgotten everything.
func wantEmpty(t testing.TB, l *Lanes) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lanes) != 0 || len(l.accounts) != 0 {
		t.Errorf("left over: got %d lanes and %d accounts, want none", len(l.lanes), len(l.accounts))
	}
}

func TestOrderOfAcceptance(t *testing.T) {
	const messages, numbers = 10_000, 100
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		l := New(time.Hour)
		var mu sync.Mutex
		delivered := make(map[string][]int)
		busy := make(map[string]bool)
		var all sync.WaitGroup
		for i := range messages {
			number := fmt.Sprint(i % numbers)
			ticket, err := l.Enter("shop", number, 0, Pace{})
			for errors.Is(err, ErrFull) {
				time.Sleep(100 * time.Millisecond)
				ticket, err = l.Enter("shop", number, 0, Pace{})
			}
			if err != nil {
				t.Fatal(err)
			}
			prepare, deliver := time.Duration(r.IntN(1000))*time.Millisecond, time.Duration(r.IntN(100))*time.Millisecond
			all.Go(func() {
				time.Sleep(prepare)
				if err := ticket.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				if busy[number] {
					t.Errorf("message %d: two have their turn at once", i)
				}
				busy[number] = true
				mu.Unlock()
				time.Sleep(deliver)
				mu.Lock()
				delivered[number] = append(delivered[number], i)
				busy[number] = false
				mu.Unlock()
				ticket.Delivered()
			})
		}
		all.Wait()
		count := 0
		for number, order := range delivered {
			count += len(order)
			if !slices.IsSorted(order) {
				t.Errorf("number %s: got order %v, want ascending", number, order)
			}
		}
		if count != messages {
			t.Errorf("delivered: got %d, want %d", count, messages)
		}
		wantEmpty(t, l)
	})
}

func TestStalledNumberDelaysNoOther(t *testing.T) {
	for name, pace := range map[string]Pace{
		"not paced": {},
		"paced":     {PerSecond: 1000, RecipientGap: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(testWait)
				stalled := mustEnter(t, l, "stalled", 0, pace)
				mustWait(t, stalled)
				behind := mustEnter(t, l, "stalled", 0, pace)
				var all sync.WaitGroup
				all.Go(func() {
					if err := behind.Wait(t.Context()); err != nil {
						t.Error(err)
					}
					behind.Leave()
				})
				for i := range 20 {
					time.Sleep(time.Second)
					start := time.Now()
					ticket := mustEnter(t, l, fmt.Sprint(i), 0, pace)
					mustWait(t, ticket)
					if took := time.Since(start); took != 0 {
						t.Errorf("another number waited: got %v, want 0", took)
					}
					ticket.Delivered()
				}
				stalled.Leave()
				all.Wait()
				time.Sleep(time.Second)
				wantEmpty(t, l)
			})
		})
	}
}

func TestOtherAccountHasItsOwnLane(t *testing.T) {
	l := New(0)
	shop := mustEnter(t, l, "1", 0, Pace{})
	defer shop.Leave()
	other, err := l.Enter("other", "1", 0, Pace{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Leave()
	mustWait(t, shop)
	mustWait(t, other)
}

func TestLeavingWaitersDoNotDisturbTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		head := mustEnter(t, l, "1", 0, Pace{})
		mustWait(t, head)
		var order []int
		var all sync.WaitGroup
		for i := range 20 {
			ticket := mustEnter(t, l, "1", 0, Pace{})
			all.Go(func() {
				defer ticket.Leave()
				ctx := t.Context()
				if i%3 != 1 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, time.Duration(20-i)*time.Second)
					defer cancel()
				}
				err := ticket.Wait(ctx)
				if stays := i%3 == 1; stays != (err == nil) {
					t.Errorf("waiter %d: got error %v", i, err)
				}
				if err == nil {
					order = append(order, i) // one at a time: it is the turn
				}
			})
		}
		time.Sleep(30 * time.Second)
		head.Leave()
		head.Leave() // the second does nothing
		all.Wait()
		if want := []int{1, 4, 7, 10, 13, 16, 19}; !slices.Equal(order, want) {
			t.Errorf("order: got %v, want %v", order, want)
		}
		wantEmpty(t, l)
	})
}

func TestFullLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		var tickets []*Ticket
		for range 1 + MaxWaiting {
			tickets = append(tickets, mustEnter(t, l, "1", 0, Pace{}))
		}
		_, err := l.Enter("shop", "1", 0, Pace{})
		wantRefused(t, err, ErrFull, time.Second)
		mustEnter(t, l, "2", 0, Pace{}).Leave()

		time.Sleep(10 * time.Second) // the turn that goes on has taken 10 s so far
		_, err = l.Enter("shop", "1", 0, Pace{})
		wantRefused(t, err, ErrFull, 10*time.Second)

		tickets[0].Leave() // a turn takes 10 s
		tickets = append(tickets[1:], mustEnter(t, l, "1", 0, Pace{}))
		time.Sleep(4 * time.Second)
		_, err = l.Enter("shop", "1", 0, Pace{})
		wantRefused(t, err, ErrFull, 6*time.Second)

		tickets[7].Leave() // one that waits
		tickets[7] = mustEnter(t, l, "1", 0, Pace{})
		for _, ticket := range tickets {
			ticket.Leave()
		}
		wantEmpty(t, l)
	})
}

func TestTakeoverKeepsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		head := mustEnter(t, l, "1", 0, Pace{})
		taken := mustEnter(t, l, "1", 0, Pace{})
		last := mustEnter(t, l, "1", 0, Pace{})

		cause := errors.New("client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := taken.Wait(ctx); err != cause {
			t.Errorf("Wait of a client that left: got %v, want its cause", err)
		}
		var order []string
		var all sync.WaitGroup
		for name, ticket := range map[string]*Ticket{"taken": taken, "last": last} {
			all.Go(func() {
				if err := ticket.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, name)
				ticket.Delivered()
			})
		}
		synctest.Wait()
		head.Leave()
		all.Wait()
		if want := []string{"taken", "last"}; !slices.Equal(order, want) {
			t.Errorf("order: got %v, want %v", order, want)
		}
		wantEmpty(t, l)
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(testWait)
		head := mustEnter(t, l, "1", 0, Pace{})
		waiting := mustEnter(t, l, "1", 0, Pace{})

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := waiting.Wait(ctx); err != context.DeadlineExceeded || time.Since(start) != time.Second {
			t.Errorf("with its context: got %v after %v, want %v after 1s", err, time.Since(start), context.DeadlineExceeded)
		}
		start = time.Now()
		err := waiting.Wait(t.Context())
		if took := time.Since(start); took != testWait {
			t.Errorf("took: got %v, want %v", took, testWait)
		}
		wantRefused(t, err, ErrTooLong, time.Second+testWait) // as long as the turn has taken

		var all sync.WaitGroup
		all.Go(func() {
			if err := waiting.Wait(t.Context()); err == nil {
				t.Error("Wait of a ticket that leaves: got nil, want an error")
			}
		})
		synctest.Wait()
		waiting.Leave()
		all.Wait()

		mustWait(t, head)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := head.Wait(gone); err != nil {
			t.Errorf("Wait again in its turn: got %v, want nil", err)
		}
		head.Delivered()
		head.Leave()
		wantEmpty(t, l)
	})
}

func TestNoWaitAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(0)
		head := mustEnter(t, l, "1", 0, Pace{PerSecond: 1})
		mustWait(t, head)
		behind := mustEnter(t, l, "1", 0, Pace{})
		wantRefused(t, behind.Wait(t.Context()), ErrTooLong, time.Second)
		behind.Leave()
		_, err := l.Enter("shop", "2", 0, Pace{PerSecond: 1})
		wantRefused(t, err, ErrTooLong, time.Second)
		head.Leave()
		wantEmpty(t, l)
	})
}

// TestStress has real goroutines do everything at once, for the race detector.
func TestStress(t *testing.T) {
	l := New(50 * time.Millisecond)
	var all sync.WaitGroup
	turns := make([]int, 5) // guarded by the lane of its number alone
	for seed := range uint64(20) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, 0))
			for range 200 {
				number := r.IntN(len(turns))
				pace := Pace{}
				if number%2 == 0 {
					pace = Pace{PerSecond: float64(10_000 * (1 + r.IntN(2))), RecipientGap: time.Duration(r.IntN(20)) * time.Microsecond}
				}
				ticket, err := l.Enter("shop", fmt.Sprint(number), time.Duration(r.IntN(100))*time.Microsecond, pace)
				if err != nil {
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(5000))*time.Microsecond)
				switch err := ticket.Wait(ctx); {
				case err != nil && r.IntN(2) == 0:
					if ticket.Wait(t.Context()) == nil {
						turns[number]++
					}
				case err == nil:
					turns[number]++
					ticket.Delivered()
				}
				cancel()
				ticket.Leave()
			}
		})
	}
	all.Wait()
	// Pauses and slots end within microseconds; their timers may take a little.
	for range 1000 {
		l.mu.Lock()
		left := len(l.lanes) + len(l.accounts)
		l.mu.Unlock()
		if left == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	wantEmpty(t, l)
}

func BenchmarkUncontended(b *testing.B) {
	for name, pace := range map[string]Pace{"not paced": {}, "paced": {PerSecond: 1e9}} {
		b.Run(name, func(b *testing.B) {
			l := New(testWait)
			b.ReportAllocs()
			for b.Loop() {
				ticket, err := l.Enter("shop", "491701234567", 0, pace)
				if err != nil {
					b.Fatal(err)
				}
				if err := ticket.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				ticket.Leave()
			}
		})
	}
}

func BenchmarkParallel(b *testing.B) {
	numbers := make([]string, 10_000)
	for i := range numbers {
		numbers[i] = fmt.Sprint(491700000000 + i)
	}
	l := New(testWait)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ticket, err := l.Enter("shop", numbers[rand.IntN(len(numbers))], 0, Pace{})
			if err != nil {
				b.Fatal(err)
			}
			if err := ticket.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			ticket.Leave()
		}
	})
}
