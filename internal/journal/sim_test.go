package journal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/appendlog/disktest"
	"messagesender/internal/message"
)

var (
	full    = flag.Bool("full", false, "simulate 10,000 seeds instead of 1,000")
	oneSeed = flag.Uint64("seed", 0, "simulate only this seed")
)

func TestSimulation(t *testing.T) {
	from, to := uint64(1), uint64(1000)
	if *full {
		to = 10_000
	}
	if *oneSeed > 0 {
		from, to = *oneSeed, *oneSeed
	}
	// What happens at the same instant then happens in the same order each time.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	start := time.Now()
	total := counts{}
	for seed := from; seed <= to && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed, total) })
		if t.Failed() {
			t.Logf("repeat with: go test ./internal/journal -run TestSimulation -seed %d", seed)
		}
	}
	t.Logf("measured: %d seeds in %v: %v", to-from+1, time.Since(start).Round(time.Millisecond), total)
}

type counts map[string]int

// world is a service on a disk, a platform, and clients that all want the best
// from it. Only one seed decides what happens.
type world struct {
	t      *testing.T
	seed   uint64
	disk   *disktest.Disk
	size   int64 // of segments
	faults bool  // a sync failed or the disk was full

	asked sync.WaitGroup // requests of which the client may have left

	mu      sync.Mutex // guards what follows, and is never held while time passes
	count   counts
	process *process         // nil: the service is down
	effects map[int][]effect // by key: what reached the recipient
	acked   map[int]string   // by key: the id that a client was given
	ackedBy map[int]*process
	refused map[string]bool // requests that a client was told were not sent
}

type effect struct{ request, id string }

type process struct {
	journal *Journal
	dead    chan struct{}
}

func (p *process) died() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

func simulate(t *testing.T, seed uint64, total counts) {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{
		t: t, seed: seed, disk: disktest.New(seed), size: []int64{400, 3000, 0}[rng.IntN(3)], count: total,
		effects: map[int][]effect{}, acked: map[int]string{}, ackedBy: map[int]*process{}, refused: map[string]bool{},
	}
	pause := rand.New(rand.NewPCG(seed, 1))
	var pausing sync.Mutex
	w.disk.Pause = func() {
		pausing.Lock()
		d := time.Duration(pause.IntN(3_000_000))
		pausing.Unlock()
		time.Sleep(d)
	}
	w.start(rng)
	var clients sync.WaitGroup
	keys := 1 + rng.IntN(5)
	for client := range 2 + rng.IntN(10) {
		key := rng.IntN(keys)
		clients.Go(func() { w.client(client, key) })
	}
	quiet := make(chan struct{})
	go func() { clients.Wait(); close(quiet) }()
	w.disturb(rng, quiet)
	<-quiet

	w.crash(rng)
	w.asked.Wait()
	w.disk.FailSync(0)
	w.disk.SetRoom(-1)
	w.start(rng)
	w.lastLook(keys)
	w.process.journal.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count["syncs"] += w.disk.Syncs()
}

// disturb crashes and restarts the service and harms its disk until all clients
// are done.
func (w *world) disturb(rng *rand.Rand, quiet <-chan struct{}) {
	for range rng.IntN(5) {
		select {
		case <-quiet:
			return
		case <-time.After(time.Duration(rng.IntN(150_000_000))):
		}
		switch rng.IntN(6) {
		case 0:
			w.fault("failing syncs")
			w.disk.FailSync(1 + rng.IntN(4))
		case 1:
			w.fault("full disks")
			w.disk.SetRoom(int64(rng.IntN(400)))
		case 2:
			w.disk.SetRoom(-1)
		default:
			w.crash(rng)
			time.Sleep(time.Duration(rng.IntN(10_000_000)))
			w.start(rng)
		}
	}
}

func (w *world) fault(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = true
	w.count[kind]++
}

func (w *world) crash(rng *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.process.dead)
	w.process = nil
	if rng.IntN(3) == 0 {
		w.count["kills"]++
		w.disk.Kill()
		return
	}
	w.count["power losses"]++
	w.disk.LosePower()
}

// start opens the journal, again and again if the disk fails meanwhile, but
// never finds it damaged.
func (w *world) start(rng *rand.Rand) {
	for {
		j, err := Open("journal", Options{Disk: w.disk, SegmentSize: w.size})
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.process = &process{j, make(chan struct{})}
			return
		}
		if !w.faults {
			w.t.Fatalf("open: %v", err)
		}
		if damaged(err) {
			w.t.Fatalf("open found damage: %v", err)
		}
		w.disk.SetRoom(-1)
		if rng.IntN(2) == 0 {
			w.disk.LosePower()
		} else {
			w.disk.Kill()
		}
	}
}

// client asks for one message until it is content.
func (w *world) client(number, key int) {
	rng := rand.New(rand.NewPCG(w.seed, uint64(number)+100))
	for attempt := range 1 + rng.IntN(6) {
		time.Sleep(time.Duration(rng.IntN(40_000_000)))
		r := Request{Key: KeyOf("a", fmt.Sprint(key)), ID: fmt.Sprintf("%d-%d", number, attempt)}
		if rng.IntN(20) == 0 {
			r.Digest[0] = 1
		}
		patience := time.Hour
		if rng.IntN(2) == 0 {
			patience = time.Duration(rng.IntN(30_000_000))
		}
		if a, ok := w.ask(r, key, patience); ok && a.state() != Unknown && rng.IntN(2) == 0 {
			if e, failed := errors.AsType[*message.Error](a.Err); !failed || !e.Retryable {
				return
			}
		}
	}
}

// ask makes one request; false: the client left, or the connection broke.
func (w *world) ask(r Request, key int, patience time.Duration) (Answer, bool) {
	w.mu.Lock()
	p := w.process
	w.count["requests"]++
	w.mu.Unlock()
	if p == nil {
		return Answer{}, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	answer := make(chan Answer, 1)
	w.asked.Go(func() {
		defer cancel()
		answer <- p.journal.Do(ctx, r, func(begin func() error) (string, error) { return w.send(ctx, p, r, key, begin) })
	})
	select {
	case a := <-answer:
		w.mu.Lock()
		defer w.mu.Unlock()
		if p.died() || ctx.Err() != nil && errors.Is(a.Err, ctx.Err()) {
			return Answer{}, false
		}
		w.count["answers"]++
		w.check(p, r, key, a)
		return a, true
	case <-p.dead:
	case <-ctx.Done():
	}
	return Answer{}, false
}

// send is the rest of the service, and the platform.
func (w *world) send(ctx context.Context, p *process, r Request, key int, begin func() error) (string, error) {
	var own uint64
	for _, c := range r.ID {
		own = own*31 + uint64(c)
	}
	rng := rand.New(rand.NewPCG(w.seed, own))
	select {
	case <-time.After(time.Duration(rng.IntN(20_000_000))):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	switch rng.IntN(20) {
	case 0:
		return "", message.NewError(message.MediaUnavailable, "")
	case 1:
		return "", message.NewError(message.RateLimited, "")
	}
	if err := begin(); err != nil {
		return "", err
	}
	if p.died() {
		return "", errors.New("dead")
	}
	time.Sleep(time.Duration(rng.IntN(20_000_000)))
	if p.died() && rng.IntN(2) == 0 {
		return "", errors.New("dead before it was on its way")
	}
	id := "wamid." + r.ID
	outcome := rng.IntN(10)
	if outcome < 7 || outcome == 7 && rng.IntN(2) == 0 {
		w.mu.Lock()
		w.effects[key] = append(w.effects[key], effect{r.ID, id})
		w.count["effects"]++
		w.mu.Unlock()
	}
	time.Sleep(time.Duration(rng.IntN(5_000_000)))
	switch outcome {
	case 7:
		return "", errors.New("connection reset")
	case 8:
		return "", message.NewError(message.RateLimited, "")
	case 9:
		return "", message.NewError(message.PlatformRejected, "")
	}
	return id, nil
}

// check holds an answer that a client was really given against what happened.
func (w *world) check(p *process, r Request, key int, a Answer) {
	effects := w.effects[key]
	if a.Replayed {
		w.count["replayed"]++
	}
	failure, _ := errors.AsType[*message.Error](a.Err)
	switch {
	case a.Err == nil:
		w.count["sent"]++
		if len(effects) != 1 || effects[0].id != a.MessageID || effects[0].request != a.RequestID {
			w.t.Errorf("seed %d, key %d: answered sent %s, got effects %v", w.seed, key, a.MessageID, effects)
		}
		w.acked[key], w.ackedBy[key] = a.MessageID, p
		return
	case failure == nil:
		w.t.Errorf("seed %d, key %d: answered %v", w.seed, key, a.Err)
		return
	}
	w.count[string(failure.Reason)]++
	switch failure.Reason {
	case message.KeyReused, message.InProgress:
	case message.DeliveryUnknown:
		if id := w.acked[key]; id != "" && (!w.faults || w.ackedBy[key] == p) {
			w.t.Errorf("seed %d, key %d: answered unknown after sent %s", w.seed, key, id)
		}
	default:
		w.refused[a.RequestID] = true
		if len(effects) != 0 {
			w.t.Errorf("seed %d, key %d: answered %s, got effects %v", w.seed, key, failure.Reason, effects)
		}
	}
}

// lastLook is at what remains when everything is over and the power was lost.
func (w *world) lastLook(keys int) {
	for key := range keys {
		effects, id := w.effects[key], w.acked[key]
		if len(effects) > 1 {
			w.t.Errorf("seed %d, key %d: got effects %v, want at most one", w.seed, key, effects)
		}
		for _, e := range effects {
			if w.refused[e.request] {
				w.t.Errorf("seed %d, key %d: request %s was answered not sent", w.seed, key, e.request)
			}
		}
		state, got, ok, err := w.process.journal.Outcome(KeyOf("a", fmt.Sprint(key)))
		w.count["outcome "+string(state)]++
		bad := err != nil || ok != (state != "")
		switch state {
		case Sent:
			bad = bad || len(effects) != 1 || effects[0].id != got
		case NotSent:
			bad = bad || len(effects) != 0
		case Unknown:
			bad = bad || id != "" && !w.faults
		case Running:
			bad = true
		default:
			bad = bad || len(effects) != 0
		}
		if bad {
			w.t.Errorf("seed %d, key %d: got outcome %q %s, %v, with effects %v and answered %q", w.seed, key, state, got, err, effects, id)
		}
	}
}
