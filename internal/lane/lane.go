// Package lane delivers first come, first delivered: the messages of one account
// to one number take their turns in the order in which their requests were
// accepted. A lane is what one such pair has; lanes do not wait for each other.
//
// It also paces: no faster per account than its rate, and with a pause between
// two deliveries to one number. See Pace.
package lane

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// MaxWaiting is how many tickets of one lane may wait while another has its turn.
const MaxWaiting = 32

// minRetryAfter is the least that a refused client is asked to stay away. How
// long turns take is only known roughly, and less is not worth a round trip.
const minRetryAfter = time.Second

// Why a send is refused before anything reached the recipient.
var (
	ErrFull    = errors.New("too many messages to this number are waiting")
	ErrTooLong = errors.New("the message would wait longer than is allowed")

	errLeft = errors.New("lane: Wait after Leave or Delivered")
)

// RefusedError says when a refused send is worth another try.
type RefusedError struct {
	Reason     error         // ErrFull or ErrTooLong; also what Unwrap returns
	RetryAfter time.Duration // an estimate, at least a second
}

func (e *RefusedError) Error() string { return e.Reason.Error() }
func (e *RefusedError) Unwrap() error { return e.Reason }

func refused(reason error, after time.Duration) *RefusedError {
	return &RefusedError{reason, max(after, minRetryAfter)}
}

// Lanes are all lanes of a process. All methods may be called from any goroutine.
//
// One mutex guards them all. It is held for well under a microsecond at a time
// and never while anything waits: some 700,000 messages a second pass through
// it on two cores, so there is nothing to divide. A lane is kept only while it has tickets or the
// pause after its last delivery is not over.
type Lanes struct {
	maxWait time.Duration

	mu       sync.Mutex
	lanes    map[address]*lane
	accounts map[string]*account // those with a rate
}

// New makes Lanes in which no Wait takes longer than maxWait; 0: a send that
// would have to wait at all is refused.
func New(maxWait time.Duration) *Lanes {
	return &Lanes{maxWait: maxWait, lanes: make(map[address]*lane), accounts: make(map[string]*account)}
}

type address struct{ account, number string }

// lane is the queue of one address. The first ticket has its turn.
type lane struct {
	address address
	tickets list.List   // of *Ticket
	due     time.Time   // no delivery before; zero: no pause is due
	expiry  *time.Timer // removes the lane once it is due; nil: not set

	// How long turns take, measured only while tickets wait for each other.
	began time.Time     // of this turn; zero: not known
	turn  time.Duration // how long the last one took; 0: not known
}

// Ticket is a place in a lane. It is held until Leave or Delivered is called,
// one of which must be: everything behind it in the lane waits for that. It is
// bound to no request, so that another may take it over and call Wait again.
type Ticket struct {
	lanes   *Lanes
	lane    *lane
	account *account // nil: no rate to keep to
	hold    time.Duration
	gap     time.Duration

	// The rest is guarded by Lanes.mu.
	place *list.Element // in lane.tickets; nil: has left
	ready bool          // Wait has returned nil
	wake  chan struct{} // holds one wake-up; nil: has never had to wait
	start reservation   // under account
}

// Enter takes the next place in the lane of account and number. It is to be
// called when the request has been accepted, and not after anything that takes
// longer for one message than for another, because it alone decides the order.
// hold is how long the sender will hold the message between Wait and delivery
// (0: not at all); a pause or a place in time is chosen for the delivery, so the
// hold may run at the same time.
//
// A lane with MaxWaiting tickets waiting, or a wait known already to be too
// long, is a *RefusedError, and there is nothing to leave.
func (l *Lanes) Enter(account, number string, hold time.Duration, pace Pace) (*Ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	where := address{account, number}
	ln := l.lanes[where]
	if ln != nil {
		now, ahead := time.Now(), ln.tickets.Len()
		if ahead > MaxWaiting {
			return nil, refused(ErrFull, ln.turnLeft(now))
		}
		// Each ticket ahead may end with a delivery, and each of these with a pause.
		pauses := later(now, ln.due).Add(time.Duration(ahead) * pace.RecipientGap)
		if wait := later(now.Add(hold), pauses).Sub(now) - hold; wait > l.maxWait {
			return nil, refused(ErrTooLong, wait)
		}
		if ahead > 0 && ln.began.IsZero() {
			ln.began = now // or before: this turn was not measured from its beginning
		}
	}
	t := &Ticket{lanes: l, lane: ln, hold: hold, gap: pace.RecipientGap}
	if interval := pace.interval(); interval > 0 {
		a := l.paced(account, interval)
		now := time.Now()
		if wait := a.expect(now, hold).Sub(now); wait > l.maxWait {
			l.retire(a)
			return nil, refused(ErrTooLong, wait)
		}
		a.tickets++
		t.account = a
	}
	if ln == nil {
		ln = &lane{address: where}
		l.lanes[where] = ln
		t.lane = ln
	}
	t.place = ln.tickets.PushBack(t)
	return t, nil
}

// Wait returns nil when t's turn has come: every ticket taken before it in its
// lane has left, and what its pace asks for will be kept to if the delivery
// follows after the hold. From then on it returns nil at once.
//
// It ends with ctx, and then returns its cause. It returns a *RefusedError with
// ErrTooLong as soon as it is known that it would take longer than the Lanes
// allow, at the latest when it has. After either, t still has its place: call
// Leave, or Wait again. A ticket is waited for by one goroutine at a time.
func (t *Ticket) Wait(ctx context.Context) error {
	deadline := time.Now().Add(t.lanes.maxWait)
	for {
		at, err := t.advance(ctx, deadline)
		if err != nil || at.IsZero() {
			return err
		}
		timer := time.NewTimer(time.Until(at))
		select {
		case <-t.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// advance takes t as far as it can go now. A zero time means that its turn has
// come; any other is when to advance again, unless t is woken before.
func (t *Ticket) advance(ctx context.Context, deadline time.Time) (at time.Time, err error) {
	t.lanes.mu.Lock()
	defer t.lanes.mu.Unlock()
	if t.place == nil {
		return at, errLeft
	}
	if t.ready {
		return at, nil
	}
	if err := context.Cause(ctx); err != nil {
		t.standBack()
		return at, err
	}
	now := time.Now()
	certain := t.lane.tickets.Front() == t.place // whether expected is more than an estimate
	expected := now.Add(t.lane.turnLeft(now))
	if certain {
		expected = t.lane.due.Add(-t.hold)
		// The pause comes before the queue of the account, which would otherwise
		// stand still with it.
		if t.account != nil && !expected.After(now) {
			expected, certain = t.reserve(now, deadline)
		}
		if certain && !expected.After(now) {
			t.ready = true
			if t.account != nil {
				t.account.depart(t)
			}
			return at, nil
		}
	}
	// An estimate does not refuse anything: what is ahead may leave.
	if !now.Before(deadline) || certain && expected.After(deadline) {
		t.standBack()
		return at, refused(ErrTooLong, expected.Sub(now))
	}
	at = deadline
	if certain {
		at = expected
	}
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	return at, nil
}

// Delivered ends the turn of t with a delivery that is over, however it went.
// The pause until the next delivery to this number counts from now. It does
// nothing to a ticket that has left.
func (t *Ticket) Delivered() { t.leave(true) }

// Leave gives up the place of t, or ends its turn without a delivery: the others
// move up, and its place in time is free for another. It may be called at any
// time and any number of times, also after Delivered.
func (t *Ticket) Leave() { t.leave(false) }

func (t *Ticket) leave(delivered bool) {
	l, ln := t.lanes, t.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.place == nil {
		return
	}
	hadTurn := ln.tickets.Front() == t.place
	ln.tickets.Remove(t.place)
	t.place = nil
	t.nudge() // a Wait that is under way returns
	if delivered && t.gap > 0 {
		ln.due = time.Now().Add(t.gap)
	}
	if t.account != nil {
		if delivered {
			t.start.use()
		}
		t.standBack()
		t.account.tickets--
		l.retire(t.account)
	}
	if next := ln.tickets.Front(); next == nil {
		l.remove(ln)
	} else if hadTurn {
		ln.nextTurn(time.Now())
		next.Value.(*Ticket).nudge()
	}
}

// nudge has t's Wait advance again.
func (t *Ticket) nudge() {
	select {
	case t.wake <- struct{}{}: // never, if there is no channel
	default:
	}
}

// nextTurn notes that one turn ends and another begins.
func (ln *lane) nextTurn(now time.Time) {
	if !ln.began.IsZero() {
		ln.turn = now.Sub(ln.began)
	}
	ln.began = now
}

// turnLeft estimates when the next turn begins. A turn that has outlasted the
// one before it is taken to need as long again as it has taken.
func (ln *lane) turnLeft(now time.Time) time.Duration {
	if ln.began.IsZero() {
		return 0
	}
	taken := now.Sub(ln.began)
	if ln.turn > taken {
		return ln.turn - taken
	}
	return taken
}

// remove forgets a lane without tickets, at once or when its pause is over.
func (l *Lanes) remove(ln *lane) {
	if l.lanes[ln.address] != ln {
		return // a timer that came too late
	}
	left := time.Until(ln.due)
	if left <= 0 {
		delete(l.lanes, ln.address)
		return
	}
	ln.began, ln.turn = time.Time{}, 0
	if ln.expiry == nil {
		ln.expiry = time.AfterFunc(left, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			ln.expiry = nil
			if ln.tickets.Len() == 0 {
				l.remove(ln)
			}
		})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
