package whatsapp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"messagesender/internal/message"
)

// What clients are asked to wait when the platform does not say.
const (
	unreachableWait = 5 * time.Second
	throughputWait  = time.Second     // 130429: messages per second of a number
	pairWait        = 6 * time.Second // 131056: one message in 6 s to one recipient
	quotaWait       = time.Minute     // calls of an application or a business, counted by the hour
	maintenanceWait = time.Minute     // 131057: "about a minute"
	spamWait        = time.Hour       // 131048: lifted by hand or after hours
	maxWait         = 24 * time.Hour  // whatever the platform says
)

// maxPlatformText bounds what is passed on of the platform's words, in characters.
const maxPlatformText = 300

// class is what a code of the platform means to the caller.
type class struct {
	reason message.Reason
	wait   time.Duration // 0: none is said
	final  bool          // repeating does not help, whatever the reason usually means
}

// classes maps the platform's codes. The HTTP status that comes with a code is
// not looked at: the platform's documents contradict each other about it.
var classes = func() map[int]class {
	all := map[int]class{}
	add := func(c class, codes ...int) {
		for _, code := range codes {
			all[code] = c
		}
	}
	add(class{reason: message.PlatformRejected}, 0, 190, 104, 3, 10, 100, 368, 130497, 131005, 131008, 131009, 131031, 131042, 133010)
	for code := 200; code <= 299; code++ { // permissions
		add(class{reason: message.PlatformRejected}, code)
	}
	add(class{reason: message.RateLimited, wait: quotaWait}, 4, 17, 613, 80007)
	add(class{reason: message.RateLimited, wait: throughputWait}, 130429)
	add(class{reason: message.RateLimited, wait: pairWait}, 131056)
	add(class{reason: message.RateLimited, wait: spamWait, final: true}, 131048)
	add(class{reason: message.RecipientUnavailable}, 131021, 131026, 131030, 131047)
	add(class{reason: message.PlatformLimit}, 131051)
	add(class{reason: message.MediaUnavailable}, 131052, 131053)
	add(class{reason: message.Unavailable, wait: unreachableWait}, 2, 131016)
	add(class{reason: message.Unavailable, wait: maintenanceWait}, 131057)
	add(class{reason: message.DeliveryUnknown}, 1, 131000)
	return all
}()

// tokenCodes say that the access token itself is refused.
var tokenCodes = []int{0, 104, 190}

// texts are the sentences for the client.
var texts = map[message.Reason]string{
	message.PlatformRejected:     "the platform rejected the message",
	message.PlatformFailed:       "the platform failed to take the message",
	message.RateLimited:          "the platform's rate limit is reached",
	message.RecipientUnavailable: "the platform cannot reach the recipient",
	message.PlatformLimit:        "the platform does not take messages of this kind",
	message.MediaUnavailable:     "the platform could not use the media",
	message.Unavailable:          "the platform is not available; the message was not sent",
	message.DeliveryUnknown:      "the platform did not say whether it took the message",
}

// platformError is the part of an error answer that is used.
type platformError struct {
	Error struct {
		Code        json.Number `json:"code"`
		Subcode     int         `json:"error_subcode"`
		Message     string      `json:"message"`
		IsTransient bool        `json:"is_transient"`
		Trace       string      `json:"fbtrace_id"`
		Data        struct {
			Details string `json:"details"`
		} `json:"error_data"`
	} `json:"error"`
}

// code is the platform's own; false: there is none that can be read.
func (p *platformError) code() (int, bool) {
	code, err := strconv.ParseInt(p.Error.Code.String(), 10, 32)
	return int(code), err == nil
}

// failure is a call that did not succeed.
type failure struct {
	err   *message.Error
	again bool          // certainly without effect, and repeating it soon may help
	said  time.Duration // how long the platform itself said to wait; 0: it did not
	token bool          // the access token was refused
}

// refusal judges a complete answer that does not report success.
func refusal(a answer, token string) failure {
	said := waitOf(a.header)
	c, p := classOf(a)
	e := message.NewError(c.reason, texts[c.reason])
	if c.final {
		e.Retryable = false
	}
	if c.wait > 0 {
		e.RetryAfter = c.wait
		if said > 0 {
			e.RetryAfter = said
		}
	}
	cause := fmt.Sprintf("platform answered HTTP %d without a code", a.status)
	code, coded := p.code()
	if coded {
		cause = fmt.Sprintf("platform code %d, HTTP %d", code, a.status)
		if p.Error.Subcode != 0 {
			cause += fmt.Sprintf(", subcode %d", p.Error.Subcode)
		}
		if trace := clean(p.Error.Trace, token); trace != "" {
			cause += ", trace " + strconv.Quote(trace)
		}
		e.Details = []message.Detail{{PlatformCode: code, Message: platformText(p.Error.Message, p.Error.Data.Details, token)}}
	}
	return failure{
		err:   e.Because(errors.New(cause)),
		again: c.wait > 0 && !c.final,
		said:  said,
		token: coded && slices.Contains(tokenCodes, code),
	}
}

// classOf decides by the platform's code, then by its is_transient, then by the
// HTTP status.
func classOf(a answer) (class, platformError) {
	var p platformError
	if !decode(a.body, &p) {
		p = platformError{}
	}
	if code, ok := p.code(); ok {
		if c, ok := classes[code]; ok {
			return c, p
		}
		// With a 5xx even a temporary failure may have happened half way.
		if p.Error.IsTransient && a.status < 500 {
			return class{reason: message.Unavailable, wait: unreachableWait}, p
		}
	}
	switch {
	case a.status == http.StatusTooManyRequests:
		return class{reason: message.RateLimited, wait: throughputWait}, p
	case a.status >= 400 && a.status < 500 && a.status != http.StatusRequestTimeout:
		return class{reason: message.PlatformFailed}, p
	}
	return class{reason: message.DeliveryUnknown}, p
}

// unanswered judges a call that ended without a complete answer. Errors of
// net/http quote what could not be read, and that may be anything.
func unanswered(i *interruption, token string) failure {
	reason := message.Unavailable
	if i.written {
		reason = message.DeliveryUnknown
	}
	e := message.NewError(reason, texts[reason]).Because(errors.New(clean(i.Error(), token)))
	if !i.written {
		e.RetryAfter = unreachableWait
	}
	return failure{err: e, again: !i.written}
}

// harmless is f for a call that reaches nobody, such as an upload: what is not
// known to have happened can be repeated there.
func (f failure) harmless() failure {
	if f.err.Reason != message.DeliveryUnknown {
		return f
	}
	e := message.NewError(message.Unavailable, texts[message.Unavailable]).After(unreachableWait).Because(f.err.Cause)
	e.Details = f.err.Details
	return failure{err: e, again: true, said: f.said}
}

// decode reads one JSON value. A field of another type than expected is left
// empty; anything that is not JSON as a whole is refused.
func decode(body []byte, into any) bool {
	err := json.Unmarshal(body, into)
	var odd *json.UnmarshalTypeError
	return err == nil || errors.As(err, &odd)
}

// waitOf is how long the platform says to wait, by Retry-After (RFC 9110,
// section 10.2.3) or by the minutes of its usage header; 0: it does not say.
func waitOf(h http.Header) time.Duration {
	if v := h.Get("Retry-After"); v != "" {
		if seconds, err := strconv.ParseInt(v, 10, 64); err == nil {
			return bounded(time.Duration(min(max(seconds, 0), int64(maxWait/time.Second))) * time.Second)
		}
		if at, err := http.ParseTime(v); err == nil {
			return bounded(time.Until(at))
		}
	}
	var usage map[string][]struct {
		Minutes int64 `json:"estimated_time_to_regain_access"`
	}
	if v := h.Get("X-Business-Use-Case-Usage"); v == "" || !decode([]byte(v), &usage) {
		return 0
	}
	var longest int64
	for _, business := range usage {
		for _, use := range business {
			longest = max(longest, use.Minutes)
		}
	}
	return bounded(time.Duration(min(longest, int64(maxWait/time.Minute))) * time.Minute)
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), maxWait) }

// platformText joins the platform's words, which often repeat each other.
func platformText(text, details, token string) string {
	text, details = clean(text, token), clean(details, token)
	switch {
	case details == "" || strings.Contains(text, details):
		return text
	case text == "":
		return details
	}
	return shorten(text + ": " + details)
}

// clean makes foreign text fit for an answer: without the token, without control
// and other invisible characters, bounded.
func clean(text, token string) string {
	if token != "" {
		text = strings.ReplaceAll(text, token, "[token]")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return -1
	}, text)
	return shorten(strings.TrimSpace(text))
}

func shorten(text string) string {
	if utf8.RuneCountInString(text) <= maxPlatformText {
		return text
	}
	return string([]rune(text)[:maxPlatformText-1]) + "…"
}
