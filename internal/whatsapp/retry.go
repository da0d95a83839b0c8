package whatsapp

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	maxAttempts = 3
	firstPause  = 200 * time.Millisecond // the longest before the second attempt; doubled before the third

	// patience is the longest wait that is spent inside a request. What takes
	// longer is the caller's to wait for.
	patience = 5 * time.Second
)

// effect says what happens when the platform takes a call twice.
type effect int

const (
	once       effect = iota // a second message: repeat only what certainly did nothing
	repeatable               // nothing that anybody sees
)

// do makes the call until it succeeds, fails for good, or has been tried often
// enough. It never waits past the end of ctx, nor repeats before the platform
// said to. accept reads a 2xx answer; false: it does not hold what it should.
func (p *Platform) do(ctx context.Context, k call, accept func(body []byte) (string, bool)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		result, f := p.try(ctx, k, accept)
		if f == nil {
			return result, nil
		}
		if k.effect == repeatable {
			*f = f.harmless()
		}
		pause := max(f.said, rand.N(firstPause<<(attempt-1)))
		if !f.again || attempt == k.attempts || f.err.RetryAfter > patience || ends(ctx, pause) {
			return "", f.err
		}
		if p.client.pause(ctx, pause) != nil {
			return "", f.err
		}
		p.client.retried()
	}
}

// try makes the call once.
func (p *Platform) try(ctx context.Context, k call, accept func(body []byte) (string, bool)) (string, *failure) {
	a, err := p.client.exchange(ctx, k)
	if i := (*interruption)(nil); errors.As(err, &i) {
		f := unanswered(i, p.account.AccessToken)
		return "", &f
	}
	if a.status >= 200 && a.status <= 299 {
		if result, ok := accept(a.body); ok {
			p.tokenAccepted()
			return result, nil
		}
	}
	f := refusal(a, p.account.AccessToken)
	if f.token {
		p.tokenRefused(f.err.Cause)
	}
	return "", &f
}

// ends tells whether ctx ends within d.
func ends(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= d
}

// sleep waits for d or for the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
