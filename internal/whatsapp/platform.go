// Package whatsapp sends through Meta's WhatsApp Business Platform (Cloud API),
// over HTTP/1.1 with the standard library alone.
//
// It tells the truth about what became of a message: sent only with the
// platform's id in hand; not sent only when the platform refused it, or when not
// one byte of the request left; anything else is unknown and never repeated.
//
// What the platform cannot do: show "recording" (it shows typing), take a
// presence back, or show one to somebody who has not written within 24 hours. An
// accepted message may still fail; that comes by webhook.
package whatsapp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"messagesender/internal/media"
	"messagesender/internal/message"
)

// typingLife is how long the typing indicator stays shown by itself.
const typingLife = 25 * time.Second

// maxUnshown bounds the numbers remembered as logged; then it starts over.
const maxUnshown = 10_000

// Account is a business phone number and what it takes to use it.
type Account struct {
	Name          string // of the account here; no secret
	PhoneNumberID string // digits; not the phone number itself
	AccessToken   string

	// AppSecret and VerifyToken belong to the webhook, which exists only with both.
	AppSecret   string
	VerifyToken string
}

// Platform sends for one account. It is safe for concurrent use.
type Platform struct {
	client  *Client
	account Account
	records *Records
	log     *slog.Logger

	messagesURL, mediaURL *url.URL

	mu         sync.Mutex
	logged     map[digest]struct{} // numbers whose missing presence was logged
	tokenState string              // what the platform said of the token; empty: nothing bad
}

var phoneNumberIDForm = regexp.MustCompile(`^[0-9]{1,32}$`)

// maxToken bounds an access token, in bytes; real ones have about 200.
const maxToken = 4096

// NewPlatform checks the account. Its errors name no value.
func NewPlatform(client *Client, account Account, records *Records, log *slog.Logger) (*Platform, error) {
	if !phoneNumberIDForm.MatchString(account.PhoneNumberID) {
		return nil, errors.New("the WhatsApp phone number id must be 1 to 32 digits")
	}
	if t := account.AccessToken; t == "" || len(t) > maxToken || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, errors.New("the WhatsApp access token must be visible ASCII characters without spaces")
	}
	number := client.base.JoinPath(account.PhoneNumberID)
	return &Platform{
		client: client, account: account, records: records, log: log,
		messagesURL: number.JoinPath("messages"), mediaURL: number.JoinPath("media"),
		logged: map[digest]struct{}{},
	}, nil
}

// Prepare checks m against the platform's limits and uploads its media. Nothing
// reaches the recipient. An error that is not a *message.Error is the end of ctx.
func (p *Platform) Prepare(ctx context.Context, m message.Message) (message.Delivery, error) {
	if err := checkLimits(m); err != nil {
		return nil, err
	}
	d := &delivery{platform: p, number: m.Number, presence: m.Presence}
	var source media.Source
	var voice bool
	switch c := m.Content.(type) {
	case message.Text:
		d.payload = payload(m, reference{}, false)
		return d, nil
	case message.File:
		source = c.Source
	case message.Voice:
		source, voice = c.Source, true
	}
	if source.Blob == nil {
		if !p.client.links {
			return nil, message.NewError(message.Internal, "the media could not be read").Because(errors.New("media was not downloaded before Prepare"))
		}
		// What a link leads to is not known, and a voice note that is not Ogg/Opus
		// fails at the platform, after the send. So it goes as an audio file.
		d.payload = payload(m, reference{Link: source.URL}, false)
		return d, nil
	}
	voice = voice && source.Blob.Type().IsOpus() && mono(source.Blob)
	id, err := p.upload(ctx, source.Blob)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	// The hold may last minutes; the spool has better use for the room.
	if err := source.Close(); err != nil {
		p.log.Warn("uploaded media not removed", "account", p.account.Name, "error", err)
	}
	d.payload = payload(m, reference{ID: id}, voice)
	return d, nil
}

// Status tells how far a message of this account has come; false: not known.
func (p *Platform) Status(id string) (Status, bool) {
	return p.records.statuses.get(p.account.Name, id)
}

// Problem is what keeps the account from sending, in words for the operator;
// empty: nothing known. A send that is taken clears it.
func (p *Platform) Problem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokenState
}

func (p *Platform) tokenRefused(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokenState == "" {
		p.log.Error("the platform refuses the access token", "account", p.account.Name, "error", cause)
	}
	p.tokenState = "the platform refuses the access token: " + cause.Error()
}

func (p *Platform) tokenAccepted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokenState != "" {
		p.log.Info("the platform takes the access token again", "account", p.account.Name)
		p.tokenState = ""
	}
}

// noPresence counts, and logs once per number, that a presence was not shown.
func (p *Platform) noPresence(n message.Number) {
	p.client.notShown()
	key := digestOf(p.account.Name, string(n))
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.logged[key]; ok {
		return
	}
	if len(p.logged) >= maxUnshown {
		clear(p.logged)
	}
	p.logged[key] = struct{}{}
	p.log.Info("presence cannot be shown: the recipient has not written within 24 hours, or the webhook is not set up",
		"account", p.account.Name, "number", n)
}

// messages is a call to the endpoint of that name.
func (p *Platform) messages(body []byte, e effect, attempts int) call {
	return call{
		url:         p.messagesURL,
		token:       p.account.AccessToken,
		contentType: "application/json",
		body:        func() io.Reader { return bytes.NewReader(body) },
		size:        int64(len(body)),
		effect:      e,
		attempts:    attempts,
		timeout:     callTimeout,
	}
}

// delivery is one message, ready to go.
type delivery struct {
	platform *Platform
	number   message.Number
	presence message.Presence
	payload  []byte
}

// ShowPresence shows the typing indicator, whichever presence was asked for: the
// platform has no other. Where the recipient has not written, it shows nothing
// and says so in the log, once per number.
func (d *delivery) ShowPresence(ctx context.Context) (time.Duration, error) {
	if d.presence != message.Composing && d.presence != message.Recording {
		return 0, nil
	}
	p := d.platform
	id, ok := p.records.inbound.get(p.account.Name, string(d.number), time.Now())
	if !ok {
		p.noPresence(d.number)
		return 0, nil
	}
	// Tried once: it will be shown again soon, or the message is about to come.
	if _, err := p.do(ctx, p.messages(typingPayload(id), repeatable, 1), shownTyping); err != nil {
		return 0, err
	}
	return typingLife, nil
}

// Deliver sends the message. Only what certainly had no effect is repeated.
func (d *delivery) Deliver(ctx context.Context) (string, error) {
	p := d.platform
	id, err := p.do(ctx, p.messages(d.payload, once, maxAttempts), sentID)
	if err != nil {
		return "", err
	}
	p.records.sent(p.account.Name, id)
	return id, nil
}

// Close has nothing to clear or free: the indicator vanishes with the message,
// or by itself.
func (d *delivery) Close(context.Context) error { return nil }

// sentID reads the answer to a message. Held for assessment is sent: the platform
// has it.
func sentID(body []byte) (string, bool) {
	var reply struct {
		Messages []struct {
			ID string `json:"id"`
		} `json:"messages"`
	}
	if !decode(body, &reply) || len(reply.Messages) == 0 {
		return "", false
	}
	id := reply.Messages[0].ID
	return id, usableID(id)
}

func shownTyping(body []byte) (string, bool) {
	var reply struct {
		Success bool `json:"success"`
	}
	return "", decode(body, &reply) && reply.Success
}
