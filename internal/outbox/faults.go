package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"messagesender/internal/message"
)

// Faults makes sends into the outbox fail as sends through a real platform do,
// so that the clients of the service can be tested. The zero value fails nothing
// but what is sent to a reserved number.
type Faults struct {
	Latency time.Duration // that every delivery takes
	rates   []faultRate
	random  *rand.Rand // nil: no delivery fails by chance
	mu      sync.Mutex // guards random
}

// faultRate is the part of all deliveries that fails in one way.
type faultRate struct {
	fault fault
	rate  float64
}

// fault is one way to fail.
type fault struct {
	reason   message.Reason // empty: it is only slow
	arrives  bool           // the recipient gets the message all the same
	early    bool           // known before anything is shown
	retry    time.Duration  // Retry-After
	after    time.Duration  // how long the platform takes to answer
	code     int            // the code that a real platform gives, where it has one
	platform string         // and its text
}

// What a platform takes for its answers: to refuse, and to stop answering.
const (
	refusalTime = 200 * time.Millisecond
	unknownTime = 3 * time.Second
	slowTime    = 10 * time.Second
)

// reserved are the numbers that fail. They lie under the country code 999, which
// is not assigned to anybody (ITU-T E.164), so none of them is a person's.
var reserved = map[message.Number]fault{
	"9990000422": {reason: message.RecipientUnavailable, after: refusalTime, code: 131026, platform: "Message undeliverable"},
	"9990001422": {reason: message.RecipientUnavailable, after: refusalTime, code: 131047, platform: "Re-engagement message"},
	"9990002422": {reason: message.PlatformLimit, early: true, code: 131051, platform: "Unsupported message type"},
	"9990003422": {reason: message.MediaUnavailable, after: refusalTime, code: 131053, platform: "Media upload error"},
	"9990000429": {reason: message.RateLimited, after: refusalTime, retry: 6 * time.Second, code: 131056, platform: "Pair rate limit hit"},
	"9990000502": {reason: message.PlatformRejected, after: refusalTime, code: 190, platform: "Access token has expired"},
	"9990001502": {reason: message.PlatformFailed, after: refusalTime},
	"9990000503": {reason: message.Unavailable, after: refusalTime, retry: 5 * time.Second, code: 131016, platform: "Service unavailable"},
	"9990000504": {reason: message.DeliveryUnknown, after: unknownTime},
	"9990001504": {reason: message.DeliveryUnknown, after: unknownTime, arrives: true},
	"9990000200": {after: slowTime},
}

// byReason are the faults that can happen by chance.
var byReason = map[string]fault{
	string(message.RecipientUnavailable): reserved["9990000422"],
	string(message.PlatformLimit):        reserved["9990002422"],
	string(message.MediaUnavailable):     reserved["9990003422"],
	string(message.RateLimited):          reserved["9990000429"],
	string(message.PlatformRejected):     reserved["9990000502"],
	string(message.PlatformFailed):       reserved["9990001502"],
	string(message.Unavailable):          reserved["9990000503"],
	string(message.DeliveryUnknown):      reserved["9990000504"],
	"delivery_unknown_arrived":           reserved["9990001504"],
	"slow":                               reserved["9990000200"],
}

// ParseFaults reads the setting -outbox-failures: CODE=RATE,… with rates from 0
// to 1 that add up to at most 1, and optionally seed=NUMBER, which makes the same
// deliveries fail in every run that sends one after the other. Empty: none fails.
func ParseFaults(text string, latency time.Duration) (*Faults, error) {
	f := &Faults{Latency: latency}
	if text == "" {
		return f, nil
	}
	seed, sum := rand.Uint64(), 0.0
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		if name == "seed" {
			var err error
			if seed, err = strconv.ParseUint(value, 10, 64); err != nil {
				return nil, errors.New("seed must be a whole number")
			}
			continue
		}
		known, ok := byReason[name]
		if !ok {
			return nil, fmt.Errorf("%q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(byReason)), ", "))
		}
		rate, err := strconv.ParseFloat(value, 64)
		if sum += rate; err != nil || !(rate >= 0 && sum <= 1) {
			return nil, errors.New("rates must be numbers from 0 to 1 that add up to at most 1")
		}
		f.rates = append(f.rates, faultRate{known, rate})
	}
	f.random = rand.New(rand.NewPCG(seed, 0))
	return f, nil
}

// of is the fault that a message to number meets.
func (f *Faults) of(number message.Number) fault {
	if known, ok := reserved[number]; ok {
		return known
	}
	if f.random == nil {
		return fault{}
	}
	f.mu.Lock()
	dice := f.random.Float64()
	f.mu.Unlock()
	for _, r := range f.rates {
		if dice -= r.rate; dice < 0 {
			return r.fault
		}
	}
	return fault{}
}

// err is what the sender is told; nil: nothing is wrong.
func (f fault) err() error {
	if f.reason == "" {
		return nil
	}
	e := message.NewError(f.reason, "the outbox was asked to answer "+string(f.reason)).After(f.retry)
	if f.code != 0 {
		e.Details = []message.Detail{{Message: f.platform, PlatformCode: f.code}}
	}
	return e
}

// wait takes as long as the platform would.
func (f fault) wait(ctx context.Context, latency time.Duration) {
	if f.after+latency == 0 {
		return
	}
	timer := time.NewTimer(f.after + latency)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
