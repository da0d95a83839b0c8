package lane

import (
	"container/list"
	"math"
	"math/bits"
	"time"
)

// Pace is how fast an account may deliver (ratePerSecond and recipientGap of the
// accounts file). The zero Pace asks for nothing.
//
// The burst is 1: time not used is not saved up, so there are never two
// deliveries in the time of one. What is kept apart is the beginning of the
// deliveries as planned, the end of each hold; that something else delays one
// of them (a slow presence call, a slow disk) is not known here.
type Pace struct {
	PerSecond    float64       // deliveries of the account; 0: no limit. Less than one an hour counts as one an hour
	RecipientGap time.Duration // from the end of a delivery to the beginning of the next to the same number; 0: none
}

const maxInterval = time.Hour

// interval is the time that one delivery takes up, rounded up; 0: no limit.
func (p Pace) interval() time.Duration {
	if !(p.PerSecond > 0) {
		return 0
	}
	return time.Duration(math.Ceil(min(float64(time.Second)/p.PerSecond, float64(maxInterval))))
}

// maxPlanned is how many sends of an account have a slot before their hold begins.
// One alone would often stand in the way of others whose holds have another
// length (it made use of three quarters of a rate); with too many, each that
// gives up its slot would have many to move up.
const maxPlanned = 16

// account is the pacing of one account with a rate. A send comes here when its
// turn in its lane has come, and goes when its hold begins. Until then it is in
// the queue, and then planned, which is to say that it has a slot.
type account struct {
	name    string
	slots   *slots
	queue   list.List   // of *Ticket
	planned list.List   // of *Ticket; at most maxPlanned
	tickets int         // that may come to queue here
	expiry  *time.Timer // removes the account; nil: not set
}

// reservation is what a ticket has in its account. The zero value holds nothing.
type reservation struct {
	in    *list.List // queue or planned; nil: neither
	place *list.Element
	slots *slots // nil: no slot is reserved
	slot  int64
}

// paced finds or makes the account. A rate that differs from the one before
// (the accounts file was read again) holds from now on; sends in their holds
// keep their slots, so both rates may be used up side by side until these end.
func (l *Lanes) paced(name string, interval time.Duration) *account {
	a := l.accounts[name]
	if a == nil {
		a = &account{name: name, slots: &slots{interval: interval}}
		l.accounts[name] = a
	} else if a.slots.interval != interval {
		a.slots = &slots{interval: interval, free: a.slots.free}
	}
	return a
}

// expect estimates when a send that joins the queue now can begin a hold, as if
// all that are in the queue were to take the slots before its own.
func (a *account) expect(now time.Time, hold time.Duration) time.Time {
	slot := a.slots.first(now.Add(hold))
	return a.slots.at(slot).Add(time.Duration(a.queue.Len())*a.slots.interval - hold)
}

// reserve puts t into the queue, unless it could not begin its hold before
// deadline, and reserves a slot when it is its time to. It returns when t may
// begin its hold, and whether that is certain: for one that stays in the queue
// it is an estimate.
func (t *Ticket) reserve(now, deadline time.Time) (at time.Time, certain bool) {
	a, r := t.account, &t.start
	if r.in == nil {
		if at := a.expect(now, t.hold); at.After(deadline) {
			return at, true
		}
		r.in, r.place = &a.queue, a.queue.PushBack(t)
	}
	if r.in == &a.queue {
		if a.queue.Front() != r.place || a.planned.Len() == maxPlanned {
			return a.expect(now, t.hold), false
		}
		a.queue.Remove(r.place)
		r.in, r.place = &a.planned, a.planned.PushBack(t)
		a.nudgeFirst()
	}
	ready := now.Add(t.hold)
	switch {
	case r.slots == nil:
		r.take(a.slots, ready)
	case r.slots == a.slots && ready.Before(r.time()):
		// One given up may be earlier. A slot that is missed by a little, because
		// timers run late, is kept: it would be missed each time.
		before := r.time()
		r.release()
		r.take(a.slots, ready)
		if r.time().Before(before) {
			a.nudgePlanned()
		}
	}
	return r.time().Add(-t.hold), true
}

// nudgeFirst has the first of the queue look whether it can be planned.
func (a *account) nudgeFirst() {
	if first := a.queue.Front(); first != nil {
		first.Value.(*Ticket).nudge()
	}
}

// nudgePlanned has those that are planned look for an earlier slot.
func (a *account) nudgePlanned() {
	for e := a.planned.Front(); e != nil; e = e.Next() {
		e.Value.(*Ticket).nudge()
	}
}

// depart takes t out of the queue or the planned. If it has a slot it keeps it.
func (a *account) depart(t *Ticket) {
	if t.start.in != nil {
		t.start.in.Remove(t.start.place)
		t.start.in, t.start.place = nil, nil
	}
	a.nudgeFirst()
}

// standBack gives up what t has in its account, its place in the lane apart.
func (t *Ticket) standBack() {
	if t.account == nil {
		return
	}
	if t.start.slots != nil {
		t.start.release()
		t.account.nudgePlanned()
	}
	t.account.depart(t)
}

func (r *reservation) take(s *slots, ready time.Time) {
	r.slots, r.slot = s, s.first(ready)
	s.set(r.slot)
}

// time is that of the slot; there must be one.
func (r *reservation) time() time.Time { return r.slots.at(r.slot) }

// release makes the slot, if there is one, free for another.
func (r *reservation) release() {
	if r.slots != nil {
		r.slots.clear(r.slot)
		r.slots = nil
	}
}

// use gives the slot up after a delivery: its time is not to be had again.
func (r *reservation) use() {
	if r.slots != nil {
		r.slots.free = later(r.slots.free, r.time().Add(r.slots.interval))
		r.release()
	}
}

// retire forgets an account without tickets, at once or when its last slot is over.
func (l *Lanes) retire(a *account) {
	if a.tickets > 0 || l.accounts[a.name] != a {
		return
	}
	left := time.Until(a.slots.free)
	if left <= 0 {
		delete(l.accounts, a.name)
		return
	}
	if a.expiry == nil {
		a.expiry = time.AfterFunc(left, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			a.expiry = nil
			l.retire(a)
		})
	}
}

// slots are the times at which an account may deliver, one interval apart, and
// which of them are taken. Because holds differ in length they are not taken in
// order; one interval apart, none leaves a gap too narrow to be of use. The price:
// while one is taken, another send may have to wait for up to an interval
// although it would not come too close. An account at rest waits for nothing,
// since slots that are all free are counted from whenever they are needed.
type slots struct {
	interval time.Duration
	zero     time.Time        // of slot 0; slots before it have negative numbers
	free     time.Time        // no slot before this is to be had
	taken    map[int64]uint64 // 64 slots a word; words of which none is taken are not kept
	count    int              // of slots taken
}

func (s *slots) at(slot int64) time.Time {
	return s.zero.Add(time.Duration(slot) * s.interval)
}

// first is the first free slot at t or later. In an account that is as busy as
// it may be that takes a step for each 64 sends that are in their holds.
func (s *slots) first(t time.Time) int64 {
	t = later(t, s.free)
	if s.count == 0 {
		s.zero = t
		return 0
	}
	slot := int64(t.Sub(s.zero) / s.interval)
	if s.at(slot).Before(t) {
		slot++
	}
	word, bit := slot>>6, uint(slot&63)
	for {
		if open := ^s.taken[word] >> bit << bit; open != 0 {
			return word<<6 + int64(bits.TrailingZeros64(open))
		}
		word, bit = word+1, 0
	}
}

func (s *slots) set(slot int64) {
	if s.taken == nil {
		s.taken = make(map[int64]uint64)
	}
	s.taken[slot>>6] |= 1 << uint(slot&63)
	s.count++
}

func (s *slots) clear(slot int64) {
	word := s.taken[slot>>6] &^ (1 << uint(slot&63))
	s.count--
	if word == 0 {
		delete(s.taken, slot>>6)
	} else {
		s.taken[slot>>6] = word
	}
}
