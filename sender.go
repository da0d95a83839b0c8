package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"messagesender/internal/message"
)

// Sender sends one message, once, and returns the platform's identifier for it.
// An error that is a *message.Error says what became of the message; any other
// means that nothing reached the recipient.
type Sender interface {
	Send(ctx context.Context, m message.Message) (id string, err error)
}

// Platform is a place that messages are delivered to.
type Platform interface {
	// Prepare checks m against the platform's limits and moves its media there.
	// Nothing reaches the recipient yet.
	Prepare(ctx context.Context, m message.Message) (message.Delivery, error)
}

// presenceTimeout bounds one call that shows a presence. A platform that is slow
// to show "composing" must not hold up the message.
const presenceTimeout = 5 * time.Second

// presenceSender is the Sender: it shows the presence, waits out the delay and
// delivers.
type presenceSender struct {
	platform func(account string) (Platform, error)
	drain    *drain
	log      *slog.Logger
}

// Send prepares m, holds it for its delay while its presence is shown, and
// delivers it. A client that leaves, or a service that stops, before delivery
// has begun means that nothing is sent; from then on delivery is finished
// whatever happens, because half a delivery is the one thing nobody can mend.
func (s *presenceSender) Send(ctx context.Context, m message.Message) (string, error) {
	platform, err := s.platform(m.Account)
	if err != nil {
		return "", err
	}
	delivery, err := platform.Prepare(ctx, m)
	if err != nil {
		return "", err
	}
	defer func() {
		if err := delivery.Close(context.WithoutCancel(ctx)); err != nil {
			s.log.Warn("delivery not closed", "requestId", m.RequestID, "error", err)
		}
	}()
	if err := s.hold(ctx, delivery, m); err != nil {
		return "", err
	}
	id, err := delivery.Deliver(context.WithoutCancel(ctx))
	if _, explained := errors.AsType[*message.Error](err); err != nil && !explained {
		return "", message.NewError(message.DeliveryUnknown, "whether the message was sent is not known").Because(err)
	}
	return id, err
}

// hold shows the presence and returns when the delay is over, never earlier. The
// delay counts from the moment the presence is shown, and the presence is shown
// again before it expires. That it cannot be shown is logged and otherwise
// harmless.
func (s *presenceSender) hold(ctx context.Context, delivery message.Delivery, m message.Message) error {
	var refresh time.Duration // 0: the presence need not be shown again
	if m.Presence != message.None {
		refresh = s.show(ctx, delivery, m, presenceTimeout)
	}
	end := time.Now().Add(m.Delay)
	draining := s.drain.begun()
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		wake := left
		if refresh > 0 {
			wake = min(left, refresh)
		}
		timer := time.NewTimer(wake)
		select {
		case <-timer.C:
			if left = time.Until(end); left > 0 && refresh > 0 {
				// The call ends with the hold, so that it cannot lengthen it. One
				// that failed is due again at the pace of the last that did not.
				if lasts := s.show(ctx, delivery, m, min(left, presenceTimeout)); lasts > 0 {
					refresh = lasts
				}
			}
		case <-ctx.Done():
		case <-draining:
			draining = nil // seen; a nil channel is never ready
			if !s.drain.fits(end) {
				timer.Stop()
				return shuttingDown()
			}
		}
		timer.Stop()
	}
}

// show shows the presence once and says when to show it again: somewhat before
// it expires; 0: not needed, or not known because it failed.
func (s *presenceSender) show(ctx context.Context, delivery message.Delivery, m message.Message, limit time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lasts, err := delivery.ShowPresence(ctx)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.log.Warn("presence not shown", "requestId", m.RequestID, "account", m.Account, "number", m.Number, "error", err)
		}
		return 0
	}
	return lasts * 4 / 5
}

func shuttingDown() *message.Error {
	return message.NewError(message.ShuttingDown, "the service is shutting down; the message was not sent").After(restartTime)
}

// restartTime is how long clients are asked to stay away from a service that
// stops: about what a restart takes.
const restartTime = 5 * time.Second

// drain is the orderly end of the service. Once begun, no send is let in, and
// those inside have until the deadline.
type drain struct {
	mu       sync.Mutex
	active   int
	deadline time.Time
	start    chan struct{} // closed when the drain begins
	idle     chan struct{} // closed when it has begun and nothing is active
}

func newDrain() *drain {
	return &drain{start: make(chan struct{}), idle: make(chan struct{})}
}

// enter lets one send in; false: the drain has begun. Each true is paired with
// one leave.
func (d *drain) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.deadline.IsZero() {
		return false
	}
	d.active++
	return true
}

func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active--
	d.settle()
}

// begin starts the drain. What is inside may stay for grace. It is called once.
func (d *drain) begin(grace time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deadline = time.Now().Add(grace)
	close(d.start)
	d.settle()
}

// settle closes idle at the one moment when nothing is active any more.
func (d *drain) settle() {
	if d.active == 0 && !d.deadline.IsZero() {
		close(d.idle)
	}
}

// begun is closed once the drain has begun.
func (d *drain) begun() <-chan struct{} { return d.start }

// fits tells whether what ends at t ends in time; only after the drain has begun.
func (d *drain) fits(t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !t.After(d.deadline)
}
