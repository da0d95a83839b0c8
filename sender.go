package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"messagesender/internal/account"
	"messagesender/internal/lane"
	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/metrics"
	"messagesender/internal/outbox"
	"messagesender/internal/whatsapp"
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

// route is where an account's messages go.
type route struct {
	Platform
	links   bool // the platform fetches media URLs itself
	status  func(id string) (messageState, bool)
	webhook func(w http.ResponseWriter, r *http.Request) error // nil: it takes no notifications
	problem func() string                                      // for /readyz; empty: none is known
	pace    lane.Pace
}

// routes knows where the messages of each account go.
type routes struct {
	sender      string               // the default
	credentials *account.Credentials // of accounts that have none of their own; nil: none
	outbox      *outbox.Store        // nil: no account sends into it
	client      *whatsapp.Client
	links       bool
	records     *whatsapp.Records // nil: no account sends through WhatsApp
	log         *slog.Logger

	byAccount atomic.Pointer[map[string]route]
}

// openRoutes opens what the accounts of set send through, and no more.
func openRoutes(c settings, getenv func(string) string, set account.Set, m *metrics.Metrics, logger *slog.Logger) (*routes, error) {
	credentials, err := account.EnvironmentCredentials(getenv)
	if err != nil {
		return nil, usageError{err}
	}
	client, err := whatsapp.NewClient(whatsapp.Settings{BaseURL: c.whatsappURL, Version: c.whatsappVersion, UserAgent: userAgent, Links: c.whatsappLinks,
		Retried: m.Retries.Inc, PresenceNotShown: m.PresenceNotShown.Inc})
	if err != nil {
		return nil, usageError{err}
	}
	rs := &routes{sender: c.sender, credentials: credentials, client: client, links: c.whatsappLinks, log: logger}
	for _, a := range set.Accounts() {
		switch cmp.Or(a.Sender, c.sender) {
		case account.Outbox:
			if rs.outbox == nil {
				rs.outbox, err = outbox.Open(outbox.Options{
					Dir: filepath.Join(c.data, "outbox"), MaxMessages: c.outboxMessages, MaxBytes: int64(c.outboxBytes), Log: logger, Faults: c.faults,
				})
			}
		case account.WhatsApp:
			if rs.records == nil {
				rs.records, err = whatsapp.OpenRecords(filepath.Join(c.data, "whatsapp"), logger)
			}
		}
		if err != nil {
			rs.close()
			return nil, err
		}
	}
	if err := rs.replace(set); err != nil {
		rs.close()
		return nil, usageError{err}
	}
	return rs, nil
}

// replace makes the routes of a new set of accounts, all or none.
func (rs *routes) replace(set account.Set) error {
	byAccount := map[string]route{}
	for _, a := range set.Accounts() {
		open := rs.toWhatsApp
		if cmp.Or(a.Sender, rs.sender) == account.Outbox {
			open = rs.toOutbox
		}
		to, err := open(a)
		if err != nil {
			return fmt.Errorf("account %q: %w", a.Name, err)
		}
		to.pace = lane.Pace{PerSecond: a.RatePerSecond, RecipientGap: a.RecipientGap}
		byAccount[a.Name] = to
	}
	rs.byAccount.Store(&byAccount)
	return nil
}

func (rs *routes) toOutbox(a account.Account) (route, error) {
	if rs.outbox == nil {
		return route{}, errors.New("sends into the outbox, which no account did at the start; restart for that")
	}
	return route{Platform: rs.outbox, status: func(id string) (messageState, bool) {
		sentAt, ok := rs.outbox.SentAt(a.Name, id)
		return messageState{State: string(whatsapp.Sent), UpdatedAt: sentAt}, ok
	}}, nil
}

func (rs *routes) toWhatsApp(a account.Account) (route, error) {
	if rs.records == nil {
		return route{}, errors.New("sends through WhatsApp, which no account did at the start; restart for that")
	}
	c := cmp.Or(a.WhatsApp, rs.credentials)
	if c == nil {
		return route{}, errors.New("sends through WhatsApp and has no credentials: set WHATSAPP_PHONE_NUMBER_ID and WHATSAPP_ACCESS_TOKEN, or whatsapp in the accounts file")
	}
	p, err := whatsapp.NewPlatform(rs.client, whatsapp.Account{Name: a.Name, PhoneNumberID: c.PhoneNumberID, AccessToken: c.AccessToken, AppSecret: c.AppSecret, VerifyToken: c.VerifyToken}, rs.records, rs.log)
	if err != nil {
		return route{}, err
	}
	status := func(id string) (messageState, bool) {
		known, ok := p.Status(id)
		state := messageState{State: string(known.State), UpdatedAt: known.UpdatedAt.UTC()}
		if known.Error != nil {
			state.Error = &stateError{known.Error.Code, known.Error.Text}
		}
		return state, ok
	}
	return route{Platform: p, links: rs.links, status: status, webhook: p.ServeWebhook, problem: p.Problem}, nil
}

// of is the route of an account.
func (rs *routes) of(account string) (route, bool) {
	to, ok := (*rs.byAccount.Load())[account]
	return to, ok
}

// stopStreams ends everything that would outlive a drain.
func (rs *routes) stopStreams() {
	if rs.outbox != nil {
		rs.outbox.StopStreams()
	}
}

func (rs *routes) close() {
	_ = rs.client.Close()
	if rs.outbox != nil {
		_ = rs.outbox.Close()
	}
	if rs.records != nil {
		_ = rs.records.Close()
	}
}

// presenceTimeout bounds one call that shows a presence. A platform that is slow
// to show "composing" must not hold up the message.
const presenceTimeout = 5 * time.Second

// presenceSender is the Sender: it brings the media here, shows the presence,
// waits out the delay and delivers.
type presenceSender struct {
	route    func(account string) (route, bool)
	gatherer *gatherer
	lanes    *lane.Lanes
	drain    *drain
	metrics  *metrics.Metrics
	log      *slog.Logger
}

// Send prepares m, waits for its turn among the messages to the same number,
// holds it for its delay while its presence is shown, and delivers it. Everything
// that can be refused is refused before the hold, so that the delay is the one
// that was asked for. A client that leaves, or a service that stops, before
// delivery has begun means that nothing is sent; from then on delivery is
// finished whatever happens, because half a delivery is the one thing nobody can
// mend.
func (s *presenceSender) Send(ctx context.Context, m message.Message) (string, error) {
	to, ok := s.route(m.Account)
	if !ok {
		return "", message.NewError(message.Unavailable, "the account has no platform to send through").After(restartTime)
	}
	ticket, err := s.lanes.Enter(m.Account, string(m.Number), m.Delay, to.pace)
	if err != nil {
		return "", queued(err)
	}
	defer ticket.Leave()
	begin := time.Now()
	m, err = s.gatherer.gather(ctx, m, to.links)
	if err != nil {
		return "", err
	}
	defer m.Close()
	delivery, err := to.Prepare(ctx, m)
	s.metrics.Prepare.Observe(time.Since(begin))
	if err != nil {
		return "", s.refused(err)
	}
	defer func() {
		if err := delivery.Close(context.WithoutCancel(ctx)); err != nil {
			s.log.Warn("delivery not closed", "requestId", m.RequestID, "error", err)
		}
	}()
	begin = time.Now()
	err = ticket.Wait(ctx)
	s.metrics.LaneWait.Observe(time.Since(begin))
	if err != nil {
		return "", queued(err)
	}
	s.metrics.Held.Inc()
	begin = time.Now()
	err = s.hold(ctx, delivery, m)
	s.metrics.Hold.Observe(time.Since(begin))
	s.metrics.Held.Dec()
	if err != nil {
		return "", err
	}
	if m.Begin != nil {
		if err := m.Begin(); err != nil {
			return "", err
		}
	}
	begin = time.Now()
	id, err := delivery.Deliver(context.WithoutCancel(ctx))
	s.metrics.Platform.Observe(time.Since(begin))
	ticket.Delivered()
	if _, explained := errors.AsType[*message.Error](err); err != nil && !explained {
		err = message.NewError(message.DeliveryUnknown, "whether the message was sent is not known").Because(err)
	}
	return id, s.refused(err)
}

// refused counts what a platform said no to, and returns err.
func (s *presenceSender) refused(err error) error {
	if e, ok := errors.AsType[*message.Error](err); ok && len(e.Details) > 0 && e.Details[0].PlatformCode != 0 {
		s.metrics.PlatformError(e.Details[0].PlatformCode)
	}
	return err
}

// queued is the answer to a message that had to wait too long for its turn; any
// other end of its waiting is the client's or the service's.
func queued(err error) error {
	if refused, ok := errors.AsType[*lane.RefusedError](err); ok {
		return message.NewError(message.RateLimited, refused.Error()+"; it was not sent").After(refused.RetryAfter)
	}
	return err
}

// hold shows the presence and returns when the delay is over, never earlier. The
// delay counts from the moment the presence is shown, and the presence is shown
// again before it expires. That it cannot be shown is logged and otherwise
// harmless.
func (s *presenceSender) hold(ctx context.Context, delivery message.Delivery, m message.Message) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
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
		s.metrics.PresenceNotShown.Inc()
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.log.Warn("presence not shown", "requestId", m.RequestID, "account", m.Account, "number", m.Number, "error", err)
		}
		return 0
	}
	return lasts * 4 / 5
}

// maxDownloads is how many media URLs are downloaded at once; more wait, in the
// order in which they came.
const maxDownloads = 64

// gatherer brings the media of a message here, as it is to be sent.
type gatherer struct {
	fetcher   *media.Fetcher
	encoder   *media.Encoder
	downloads chan struct{} // holds one for each running download
}

// gather downloads the media of m, unless the platform takes links, and turns
// a voice message into a voice note where that was asked for. The caller closes
// the message it returns; with an error nothing of it is left.
func (g *gatherer) gather(ctx context.Context, m message.Message, links bool) (message.Message, error) {
	switch c := m.Content.(type) {
	case message.File:
		if c.Source.Blob == nil && !links {
			blob, fetched, err := g.fetch(ctx, mediaPath, c.Source.URL, func(t media.Type) bool { return t.Is(c.Kind) }, c.Kind)
			if err != nil {
				return m, err
			}
			c.Source.Blob = blob
			c.Name = cmp.Or(c.Name, fetched.FileName)
		}
		m.Content = c
	case message.Voice:
		if c.Source.Blob == nil && (!links || c.Encode) {
			blob, _, err := g.fetch(ctx, audioPath, c.Source.URL, c.Takes, media.Audio)
			if err != nil {
				return m, err
			}
			c.Source.Blob = blob
		}
		if c.Encode && !c.Source.Blob.Type().IsOpus() {
			blob, err := g.encode(ctx, c.Source.Blob)
			_ = c.Source.Blob.Close() // the spool has better use for the room
			if err != nil {
				return m, err
			}
			c.Source.Blob = blob
		}
		m.Content = c
	}
	return m, nil
}

// fetch downloads what is at url, which must be of a type that fits.
func (g *gatherer) fetch(ctx context.Context, field, url string, fits func(media.Type) bool, kind media.Kind) (*media.Blob, media.Fetched, error) {
	select {
	case g.downloads <- struct{}{}:
		defer func() { <-g.downloads }()
	case <-ctx.Done():
		return nil, media.Fetched{}, context.Cause(ctx)
	}
	blob, fetched, err := g.fetcher.Fetch(ctx, url)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fetched, context.Cause(ctx)
		}
		return nil, fetched, unfetched(field, err)
	}
	if !fits(blob.Type()) {
		defer blob.Close()
		return nil, fetched, message.FieldError(message.MediaTypeMismatch, field, fmt.Sprintf("is not %s: the server answered %d with %d bytes of %s, as Content-Type %q",
			articles[kind], fetched.Status, blob.Size(), blob.Type(), fetched.ContentType))
	}
	return blob, fetched, nil
}

// unfetched is the answer to a download that failed.
func unfetched(field string, err error) error {
	if errors.Is(err, media.ErrSpoolFull) {
		return spoolFull()
	}
	failed, ok := errors.AsType[*media.FetchError](err)
	if !ok {
		return message.NewError(message.Unavailable, "the media could not be stored; the message was not sent").After(restartTime).Because(err)
	}
	e := message.FieldError(message.MediaUnavailable, field, "could not be fetched: "+failed.Text).Because(failed)
	e.Retryable = failed.Retryable
	return e
}

func (g *gatherer) encode(ctx context.Context, in *media.Blob) (*media.Blob, error) {
	blob, err := g.encoder.Encode(ctx, in)
	failed, ours := errors.AsType[*media.EncodeError](err)
	switch {
	case err == nil:
		return blob, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, media.ErrNoEncoder):
		return nil, message.NewError(message.EncodingUnavailable, fmt.Sprintf("options.encoding needs ffmpeg on the server, which is not there; %s was received, and only Ogg/Opus needs no encoding", in.Type()))
	case errors.Is(err, media.ErrSpoolFull):
		return nil, spoolFull()
	case ours:
		e := message.FieldError(message.MediaUnavailable, audioPath, failed.Text).Because(failed)
		e.Retryable = failed.Retryable
		return nil, e
	}
	return nil, message.NewError(message.Unavailable, "the audio could not be stored; the message was not sent").After(restartTime).Because(err)
}

func spoolFull() *message.Error {
	return message.NewError(message.Unavailable, "too much media is being taken in at the moment; the message was not sent").After(restartTime)
}

func shuttingDown() *message.Error {
	return message.NewError(message.ShuttingDown, "the service is shutting down; the message was not sent").After(restartTime)
}

// restartTime is how long clients are asked to stay away from a service that
// stops: about what a restart takes.
const restartTime = 5 * time.Second

// drain is the door of the service and its orderly end. It lets in as many sends
// as there is room for; once it has begun, no more, and those inside have until
// the deadline.
type drain struct {
	room int // sends that may be inside at a time

	mu       sync.Mutex
	active   int
	deadline time.Time
	start    chan struct{} // closed when the drain begins
	idle     chan struct{} // closed when it has begun and nothing is active
}

func newDrain(room int) *drain {
	return &drain{room: room, start: make(chan struct{}), idle: make(chan struct{})}
}

// enter lets one send in, or says why not. Each nil is paired with one leave.
func (d *drain) enter() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.deadline.IsZero() {
		return shuttingDown()
	}
	if d.active >= d.room {
		return overloaded()
	}
	d.active++
	return nil
}

func overloaded() *message.Error {
	return message.NewError(message.Unavailable, "the service has as much to do as it can take; the message was not sent").After(time.Second)
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
