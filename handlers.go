package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"messagesender/internal/account"
	"messagesender/internal/body"
	"messagesender/internal/clientaddr"
	"messagesender/internal/journal"
	"messagesender/internal/media"
	"messagesender/internal/message"
	"messagesender/internal/metrics"
	"messagesender/internal/outbox"
	"messagesender/internal/strictjson"
)

// Limits of what a client may make the service do.
const (
	maxTextBody = 256 << 10        // bytes of a request body, its media apart
	writeTime   = 30 * time.Second // for one answer

	// A refused body that is not read away is left alone for lingerTime before the
	// connection is closed, unless it came with the header, in one read of net/http.
	lingerTime = 500 * time.Millisecond
	readAhead  = 2 << 10
)

// server is the API: it turns HTTP requests into calls of a Sender.
type server struct {
	audioWord  string // "WhatsApp" of sendWhatsAppAudio
	maxDelay   time.Duration
	maxMedia   int64
	accounts   *account.Registry
	proxies    clientaddr.Proxies
	openOutbox string // account whose outbox loopback may read without a key; empty: none
	sender     Sender
	route      func(account string) (route, bool)
	journal    *journal.Journal
	encoder    *media.Encoder
	spool      *media.Spool
	outbox     *outbox.Store // nil: no account sends into it
	writable   func() error  // nil error: the data directory can be written
	drain      *drain
	metrics    *metrics.Metrics
	ownMetrics bool   // they are served elsewhere, on -metrics-addr
	openapi    []byte // the description of all this
	page       *outbox.Page
	log        *slog.Logger
}

// exchange is one request on its way through: the writer of its answer and what
// the log says of it. It travels as the ResponseWriter, so that the request
// itself is not copied and keeps the pattern that the mux notes in it.
type exchange struct {
	http.ResponseWriter
	id     string
	client netip.Addr // the real one, as far as trusted proxies tell
	status int        // 0: nothing is written yet
	unread bool       // the request has a body that has not been read to its end
	begun  bool       // reading the body has begun

	// For the log; empty: not known, or not what happened.
	account   string
	number    message.Number
	delay     time.Duration
	messageID string
	replayed  string // the request that was really carried out
	code      message.Reason
	cause     error
}

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	return x.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// record writes the one log line of a request. It has no token, because it names
// the route and not the path, and no answer, because that may name a number.
func (x *exchange) record(log *slog.Logger, r *http.Request, took time.Duration) {
	attrs := make([]slog.Attr, 0, 13)
	attrs = append(attrs, slog.String("requestId", x.id), slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Any("client", x.client),
		slog.Int("status", x.status), slog.Duration("took", took))
	if x.account != "" {
		attrs = append(attrs, slog.String("account", x.account))
	}
	if x.number != "" {
		attrs = append(attrs, slog.Any("number", x.number), slog.Duration("delay", x.delay))
	}
	if x.messageID != "" {
		attrs = append(attrs, slog.String("messageId", x.messageID))
	}
	if x.replayed != "" {
		attrs = append(attrs, slog.String("replayed", x.replayed))
	}
	if x.code != "" {
		attrs = append(attrs, slog.String("code", string(x.code)))
	}
	if x.cause != nil {
		attrs = append(attrs, slog.String("error", x.cause.Error()))
	}
	level := slog.LevelInfo
	if x.status >= 500 {
		level = slog.LevelWarn
	}
	log.LogAttrs(context.Background(), level, "request", attrs...)
}

// handler answers a request or returns the error that is to be answered; it
// writes nothing before it returns one.
type handler func(x *exchange, r *http.Request) error

// routes is everything the service answers (contract 4.1).
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, h handler) { mux.Handle(pattern, s.answered(h)) }

	route("POST /message/sendText/{apiToken}", s.send(message.SendText))
	route("POST /message/sendMedia/{apiToken}", s.send(message.SendMedia))
	route("POST /message/send"+s.audioWord+"Audio/{apiToken}", s.send(message.SendAudio))
	route("GET /message/status/{apiToken}/{messageId}", s.messageStatus)
	route("GET /message/outcome/{apiToken}", s.outcome)
	route("GET /webhook/whatsapp/{account}", s.webhook)
	route("POST /webhook/whatsapp/{account}", s.webhook)
	route("GET /healthz", s.healthz)
	route("GET /readyz", s.readyz)
	route("GET /openapi.json", s.description)
	if !s.ownMetrics {
		route("GET /metrics", s.scrape)
	}
	if s.outbox != nil {
		route("GET /outbox/{$}", s.outboxed(s.page.Serve))
		route("GET /outbox/page.css", s.outboxed(s.page.Serve))
		route("GET /outbox/page.js", s.outboxed(s.page.Serve))
		route("GET /outbox/conversations", s.outboxed(s.outbox.Conversations))
		route("GET /outbox/messages", s.outboxed(s.outbox.List))
		route("GET /outbox/messages/{messageId}", s.outboxed(s.outbox.One))
		route("GET /outbox/messages/{messageId}/media", s.outboxed(s.outbox.Media))
		route("DELETE /outbox/messages", s.outboxed(s.outbox.Clear))
		route("GET /outbox/events", s.outboxed(s.outbox.Events))
	}
	return s.observed(mux)
}

// observed gives every request its id, its one log line and, when it reaches no
// route, its answer.
func (s *server) observed(mux *http.ServeMux) http.Handler {
	unrouted := s.answered(func(x *exchange, r *http.Request) error { return s.unrouted(mux, x, r) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		x := &exchange{ResponseWriter: w, id: rand.Text(), client: s.proxies.Of(r), unread: r.Body != nil && r.Body != http.NoBody}
		x.Header().Set("X-Request-Id", x.id)
		defer func() { // also of an answer that was broken off
			x.record(s.log, r, time.Since(start))
			s.metrics.Request(metrics.OperationOf(r.Pattern), x.status, x.code)
		}()
		if r.Context().Value(overConnections{}) != nil {
			s.answered(func(x *exchange, r *http.Request) error {
				x.Header().Set("Connection", "close")
				return overloaded()
			}).ServeHTTP(x, r)
		} else if s.routed(mux, r) {
			mux.ServeHTTP(x, r)
		} else {
			unrouted.ServeHTTP(x, r)
		}
	})
}

// overConnections marks, in a request's context, a connection beyond the limit:
// it is told so and closed.
type overConnections struct{}

// routed tells whether r reaches a route. A path that is not clean does not: the
// mux would redirect it, token and all.
func (s *server) routed(mux *http.ServeMux, r *http.Request) bool {
	if !isClean(r) {
		return false
	}
	_, pattern := mux.Handler(r)
	return pattern != ""
}

// isClean tells whether the mux would take the path of r as it is. Only the
// outbox's page has a slash at its end.
func isClean(r *http.Request) bool {
	escaped := r.URL.EscapedPath()
	return path.Clean(escaped) == escaped && escaped != outboxPath[:len(outboxPath)-1] || escaped == outboxPath
}

const outboxPath = "/outbox/"

// unrouted is the 404 or 405 of a request that matches no route. What the mux
// would say to it is asked, not sent.
func (s *server) unrouted(mux *http.ServeMux, x *exchange, r *http.Request) error {
	probe := probeWriter{header: http.Header{}}
	if h, pattern := mux.Handler(r); pattern == "" && isClean(r) {
		h.ServeHTTP(&probe, r)
	}
	if probe.status == http.StatusMethodNotAllowed {
		allow := probe.header.Get("Allow")
		x.Header().Set("Allow", allow)
		return message.NewError(message.MethodNotAllowed, "the method is not allowed here; use "+allow)
	}
	if word, ok := strings.CutPrefix(path.Dir(r.URL.Path), "/message/send"); ok && strings.HasSuffix(word, "Audio") {
		return message.NewError(message.NotFound, "this service sends audio at /message/send"+s.audioWord+"Audio/{apiToken}")
	}
	return message.NewError(message.NotFound, "there is nothing at this path")
}

// probeWriter notes a status and a header and drops the rest.
type probeWriter struct {
	header http.Header
	status int
}

func (p *probeWriter) Header() http.Header         { return p.header }
func (p *probeWriter) WriteHeader(status int)      { p.status = status }
func (p *probeWriter) Write(b []byte) (int, error) { return len(b), nil }

// answered makes an http.Handler of h: it answers h's error, and a panic as a
// 500 of the same shape.
func (s *server) answered(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		defer func() {
			switch panicked := recover(); panicked {
			case nil:
			case http.ErrAbortHandler:
				panic(panicked)
			default:
				s.log.Error("panic", "requestId", x.id, "route", r.Pattern, "panic", fmt.Sprint(panicked), "stack", string(debug.Stack()))
				if x.status != 0 {
					panic(http.ErrAbortHandler) // half an answer must not look whole
				}
				s.fail(x, r, message.NewError(message.Internal, "the service failed"))
			}
		}()
		if err := h(x, r); err != nil {
			s.fail(x, r, err)
		}
	})
}

// The one shape of every failure (contract 4.3).
type failure struct {
	Status  string       `json:"status"`
	Message string       `json:"message"`
	Error   failureError `json:"error"`
}

type failureError struct {
	Code      message.Reason   `json:"code"`
	Retryable bool             `json:"retryable"`
	RequestID string           `json:"requestId"`
	Details   []message.Detail `json:"details"`
}

type success struct {
	Status  string      `json:"status"`
	Message string      `json:"message"`
	Data    successData `json:"data"`
}

type successData struct {
	MessageID string `json:"messageId"`
}

// fail writes the answer of every failure. A client that is still sending its
// body gets the answer at once, and what it sends is then read away, bounded, so
// that also a client that only listens after it has sent everything can read it.
func (s *server) fail(x *exchange, r *http.Request, err error) {
	e := explain(err)
	x.code, x.cause = e.Reason, e.Cause
	if e.Reason == message.Unauthorized {
		s.metrics.AuthFailures.Inc()
	}
	if e.RetryAfter > 0 {
		seconds := int64((e.RetryAfter + time.Second - 1) / time.Second)
		x.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	details := e.Details
	if details == nil {
		details = []message.Detail{}
	}
	answer := failure{"error", e.Text, failureError{e.Reason, e.Retryable, cmp.Or(x.replayed, x.id), details}}

	if !x.unread {
		s.write(x, e.Reason.Status(), answer)
		return
	}
	// Without this net/http reads the body before it writes the answer.
	control := http.NewResponseController(x)
	_ = control.EnableFullDuplex()
	waiting := r.Header.Get("Expect") != "" && !x.begun // the client sends nothing until it is asked to
	drained := e.Reason != message.Unauthorized && e.Reason != message.RequestTimeout && !waiting
	// Over HTTP/2 the header would end the connection for all its streams; there
	// the rest of a body ends with its stream.
	if r.ProtoMajor < 2 && (!drained || r.ContentLength < 0 || r.ContentLength > maxTextBody) {
		x.Header().Set("Connection", "close")
	}
	s.write(x, e.Reason.Status(), answer)
	_ = control.Flush()
	if drained {
		body.Drain(r.Body, control)
		return
	}
	if e.Reason == message.Unauthorized && !waiting && r.ProtoMajor < 2 && (r.ContentLength < 0 || r.ContentLength > readAhead) {
		// Closing on what nobody has read resets the connection, and the reset
		// overtakes the answer: a proxy then tells its client that the outcome is
		// not known. net/http waits likewise, but not for a request that asked for
		// the close, and proxies do.
		select {
		case <-time.After(lingerTime):
		case <-r.Context().Done():
		}
	}
	_ = control.SetReadDeadline(time.Now()) // net/http is not to wait for it either
}

// explain turns any error into what a client is told.
func explain(err error) *message.Error {
	if e, ok := errors.AsType[*message.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		// Mostly there is nobody to read this; a client that has closed only its
		// sending side can.
		return message.NewError(message.Unavailable, "the client closed the connection; the message was not sent").Because(errors.New("client left before delivery"))
	}
	return message.NewError(message.Internal, "the service failed").Because(err)
}

// write writes an answer as JSON, whole or not at all.
func (s *server) write(x *exchange, status int, answer any) {
	text, err := json.Marshal(answer)
	if err != nil { // an answer is plain data: this cannot be
		panic(err)
	}
	_ = http.NewResponseController(x).SetWriteDeadline(time.Now().Add(writeTime))
	x.Header().Set("Content-Type", "application/json")
	x.Header().Set("Content-Length", strconv.Itoa(len(text)))
	x.WriteHeader(status)
	_, _ = x.Write(text) // a client that is gone cannot be told
}

// operation is what differs between the three operations.
type operation struct {
	path []string // of the string that is diverted while it arrives; empty: none
	sent string   // the message of a success
}

var operations = map[message.Operation]operation{
	message.SendText:  {nil, "Message sent successfully"},
	message.SendMedia: {strings.Split(mediaPath, "."), "Media sent successfully"},
	message.SendAudio: {strings.Split(audioPath, "."), "Audio message sent successfully"},
}

// send is the handler of all three operations.
func (s *server) send(op message.Operation) handler {
	return func(x *exchange, r *http.Request) error {
		account, err := s.authenticate(x, r)
		if err != nil {
			return err
		}
		if err := s.drain.enter(); err != nil {
			return err
		}
		defer s.drain.leave()
		if err := checkContentType(r.Header); err != nil {
			return err
		}
		key, err := idempotencyKey(r.Header)
		if err != nil {
			return err
		}
		m, err := s.receive(x, r, op)
		if err != nil {
			return err
		}
		defer m.Close()
		m.Account, m.RequestID, m.RequestedAt = account.Name, x.id, time.Now()
		x.number, x.delay = m.Number, m.Delay

		answer := s.deliver(r.Context(), m, key)
		if answer.Replayed {
			x.Header().Set("Idempotent-Replayed", "true")
			x.replayed = answer.RequestID
		}
		if answer.Err != nil {
			return answer.Err
		}
		x.messageID = answer.MessageID
		s.write(x, http.StatusOK, success{"success", operations[op].sent, successData{answer.MessageID}})
		return nil
	}
}

// deliver sends m, or gives the answer that its idempotency key already has.
func (s *server) deliver(ctx context.Context, m message.Message, key string) journal.Answer {
	if key == "" {
		id, err := s.sender.Send(ctx, m)
		return journal.Answer{MessageID: id, Err: err}
	}
	request := journal.Request{Key: journal.KeyOf(m.Account, key), Digest: m.Digest(), ID: m.RequestID}
	return s.journal.Do(ctx, request, func(begin func() error) (string, error) {
		m.Begin = begin
		return s.sender.Send(ctx, m)
	})
}

// maxKey is how long an idempotency key may be, in bytes.
const maxKey = 255

// idempotencyKey is the Idempotency-Key of a request; empty: it has none.
func idempotencyKey(h http.Header) (string, error) {
	keys := h.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	if key := keys[0]; len(keys) == 1 && isKey(key) {
		return key, nil
	}
	return "", message.FieldError(message.InvalidRequest, "Idempotency-Key", fmt.Sprintf("must be one header of 1 to %d visible ASCII characters", maxKey))
}

func isKey(key string) bool {
	return key != "" && len(key) <= maxKey && !strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })
}

// receive reads the body once, media straight into the spool, and applies the
// rules. When it returns nothing large is held but what is spooled.
func (s *server) receive(x *exchange, r *http.Request, op message.Operation) (message.Message, error) {
	options := strictjson.Options{Path: operations[op].path, MaxRest: maxTextBody, MaxBody: maxTextBody}
	var sink *media.Intake
	if options.Path != nil {
		sink = s.spool.NewIntake()
		defer sink.Close()
		options.Sink = sink
		// Base64 takes four bytes for three, and JSON may write each as two ("\/").
		options.MaxBody += s.maxMedia / 3 * 4 * 2
	}
	if r.ContentLength > options.MaxBody {
		return message.Message{}, s.unreadable(op, &strictjson.TooLargeError{Limit: options.MaxBody, What: "body"})
	}
	x.begun = true
	arriving := body.NewReader(r.Body, http.NewResponseController(x))
	read, err := strictjson.Object(arriving, options)
	if err != nil {
		return message.Message{}, s.unreadable(op, err)
	}
	x.unread = false
	arriving.Done()

	var in intake
	if read.Diverted {
		in.given = true
		in.source, in.err = sink.Finish()
		if _, misshapen := errors.AsType[*media.FormError](in.err); in.err != nil && !misshapen {
			return message.Message{}, s.unreadable(op, in.err) // the last byte was one too many
		}
	}
	m, problem := parse(op, read.Rest, in, s.maxDelay)
	if problem != nil {
		_ = in.source.Close()
		return message.Message{}, problem
	}
	return m, nil
}

// unreadable is the answer to a body that cannot be read or taken in.
func (s *server) unreadable(op message.Operation, err error) error {
	if e, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		return message.NewError(message.InvalidJSON, e.Error())
	}
	if e, ok := errors.AsType[*strictjson.TooLargeError](err); ok {
		text := e.Error()
		if op != message.SendText && e.Limit > maxTextBody {
			text += fmt.Sprintf(", the most that media of %d bytes can take", s.maxMedia)
		}
		return message.NewError(message.TooLarge, text)
	}
	if e, ok := errors.AsType[*media.TooLargeError](err); ok {
		return message.FieldError(message.TooLarge, strings.Join(operations[op].path, "."), fmt.Sprintf("is larger than %d bytes", e.Limit))
	}
	switch {
	case errors.Is(err, media.ErrSpoolFull):
		return spoolFull()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return message.NewError(message.RequestTimeout, "the request body did not arrive in time")
	}
	if _, ok := errors.AsType[*strictjson.ReadError](err); ok {
		return message.NewError(message.InvalidJSON, "the request body could not be read to its end").Because(err)
	}
	return message.NewError(message.Unavailable, "the media could not be stored; the message was not sent").After(restartTime).Because(err)
}

// checkContentType requires JSON in UTF-8 as it is, not packed (contract 4.2).
func checkContentType(h http.Header) error {
	contentType, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset, hasCharset := parameters["charset"]
	plain := h.Get("Content-Encoding") == "" || strings.EqualFold(h.Get("Content-Encoding"), "identity")
	if err != nil || contentType != "application/json" || hasCharset && !strings.EqualFold(charset, "utf-8") || !plain {
		return message.NewError(message.UnsupportedMediaType, "the request must have Content-Type: application/json, in UTF-8 and without a Content-Encoding")
	}
	return nil
}

// apiKey is the key of a request. Two of them are as good as none: which one
// would count is not for a proxy and us to disagree about.
func apiKey(r *http.Request) string {
	if keys := r.Header.Values("apikey"); len(keys) == 1 {
		return keys[0]
	}
	return ""
}

// authenticate finds the account of a request with a token in its path, before
// anything else is looked at.
func (s *server) authenticate(x *exchange, r *http.Request) (account.Account, error) {
	a, ok := s.accounts.Authenticate(r.PathValue("apiToken"), apiKey(r))
	if !ok {
		return account.Account{}, unauthorized()
	}
	x.account = a.Name
	return a, nil
}

func unauthorized() *message.Error {
	return message.NewError(message.Unauthorized, "the apikey header or the token in the path is missing or wrong")
}

// outboxed gives h the account whose outbox the request may see (contract 4.6).
func (s *server) outboxed(h func(http.ResponseWriter, *http.Request, string) error) handler {
	return func(x *exchange, r *http.Request) error {
		name, ok := s.outboxAccount(r)
		if !ok {
			x.Header().Set("WWW-Authenticate", `Basic realm="outbox", charset="UTF-8"`)
			return unauthorized()
		}
		x.account = name
		x.Header().Set("Cache-Control", "no-store")
		return h(x, r, name)
	}
}

// keyOrPassword is the key of a request that a browser or a Prometheus may send:
// they know HTTP Basic, and the key is its password.
func keyOrPassword(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok && len(r.Header.Values("apikey")) == 0 {
		return password
	}
	return apiKey(r)
}

func (s *server) outboxAccount(r *http.Request) (string, bool) {
	key := keyOrPassword(r)
	if key == "" && s.openOutbox != "" && clientaddr.IsLocal(r) {
		return s.openOutbox, true
	}
	a, ok := s.accounts.ByKey(key)
	return a.Name, ok
}

// description answers GET /openapi.json. It is for everybody: it tells nothing of
// this process but its platform word and its longest delay.
func (s *server) description(x *exchange, r *http.Request) error {
	_ = http.NewResponseController(x).SetWriteDeadline(time.Now().Add(writeTime))
	x.Header().Set("Content-Type", "application/json")
	_, _ = x.Write(s.openapi)
	return nil
}

// scrape answers GET /metrics to whoever has the key of any account.
func (s *server) scrape(x *exchange, r *http.Request) error {
	account, ok := s.accounts.ByKey(keyOrPassword(r))
	if !ok {
		x.Header().Set("WWW-Authenticate", `Basic realm="metrics", charset="UTF-8"`)
		return unauthorized()
	}
	x.account = account.Name
	s.writeMetrics(x)
	return nil
}

func (s *server) writeMetrics(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime))
	w.Header().Set("Content-Type", metrics.ContentType)
	_, _ = s.metrics.WriteTo(w)
}

func (s *server) healthz(x *exchange, r *http.Request) error {
	s.write(x, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// messageState is how far a message has come (contract 4.1, message/status).
type messageState struct {
	MessageID string      `json:"messageId"`
	State     string      `json:"state"`
	UpdatedAt time.Time   `json:"updatedAt"`
	Error     *stateError `json:"error,omitempty"` // only of one that failed
}

// stateError is the platform's reason.
type stateError struct {
	PlatformCode int    `json:"platformCode"`
	Message      string `json:"message"`
}

type stateAnswer struct {
	Status  string       `json:"status"`
	Message string       `json:"message"`
	Data    messageState `json:"data"`
}

func (s *server) messageStatus(x *exchange, r *http.Request) error {
	account, err := s.authenticate(x, r)
	if err != nil {
		return err
	}
	x.messageID = r.PathValue("messageId")
	if to, ok := s.route(account.Name); ok {
		if state, known := to.status(x.messageID); known {
			state.MessageID = x.messageID
			s.write(x, http.StatusOK, stateAnswer{"success", "The message is known", state})
			return nil
		}
	}
	x.messageID = "" // whatever it is, it is not ours to repeat in the log
	return message.NewError(message.NotFound, "there is no such message")
}

// keyOutcome is what became of an idempotency key (contract 4.1, message/outcome).
type keyOutcome struct {
	State     journal.State `json:"state"`
	MessageID string        `json:"messageId,omitempty"`
}

type outcomeAnswer struct {
	Status  string     `json:"status"`
	Message string     `json:"message"`
	Data    keyOutcome `json:"data"`
}

func (s *server) outcome(x *exchange, r *http.Request) error {
	account, err := s.authenticate(x, r)
	if err != nil {
		return err
	}
	key := r.URL.Query().Get("key")
	if !isKey(key) {
		return message.FieldError(message.InvalidRequest, "key", fmt.Sprintf("must be 1 to %d visible ASCII characters", maxKey))
	}
	state, id, known, err := s.journal.Outcome(journal.KeyOf(account.Name, key))
	switch {
	case err != nil:
		return message.NewError(message.Unavailable, "the journal cannot be read at present").After(restartTime).Because(err)
	case !known:
		return message.NewError(message.NotFound, "this key was never seen, or has expired")
	}
	x.messageID = id
	s.write(x, http.StatusOK, outcomeAnswer{"success", "The key is known", keyOutcome{state, id}})
	return nil
}

// webhookTime bounds the arrival of a platform's notification.
const webhookTime = 10 * time.Second

// webhook takes what a platform has to tell about an account. It has no key: its
// sender proves itself by a signature.
func (s *server) webhook(x *exchange, r *http.Request) error {
	to, ok := s.route(r.PathValue("account"))
	if !ok || to.webhook == nil {
		return message.NewError(message.NotFound, "there is no webhook here")
	}
	x.account, x.begun = r.PathValue("account"), true
	_ = http.NewResponseController(x).SetReadDeadline(time.Now().Add(webhookTime))
	err := to.webhook(x, r)
	x.unread = x.unread && err != nil
	return err
}

// readiness is the body of /readyz. Only draining and data decide its status.
type readiness struct {
	Status   string   `json:"status"`             // "ready", "draining" or "unavailable"
	Data     string   `json:"data"`               // "writable" or "not writable"
	Journal  string   `json:"journal"`            // "writable" or "not writable"; then sends with a key are refused
	Encoder  string   `json:"encoder"`            // "available" or "no ffmpeg with libopus"
	Problems []string `json:"problems,omitempty"` // of platforms; sends through them may fail
}

// readyz answers 503 only while the service drains or when its data cannot be
// written: with anything else it can still answer truthfully.
func (s *server) readyz(x *exchange, r *http.Request) error {
	ready, status := readiness{Status: "ready", Data: "writable", Journal: "writable", Encoder: "available"}, http.StatusOK
	if err := s.journal.Err(); err != nil {
		ready.Journal = "not writable"
		x.cause = err
	}
	if err := s.writable(); err != nil {
		ready.Status, ready.Data, status = "unavailable", "not writable", http.StatusServiceUnavailable
		x.cause = err
	}
	if !s.encoder.Available() {
		ready.Encoder = "no ffmpeg with libopus"
	}
	for _, a := range s.accounts.Accounts() {
		if to, ok := s.route(a.Name); ok && to.problem != nil {
			if problem := to.problem(); problem != "" {
				ready.Problems = append(ready.Problems, "account "+a.Name+": "+problem)
			}
		}
	}
	select {
	case <-s.drain.begun():
		ready.Status, status = "draining", http.StatusServiceUnavailable
	default:
	}
	s.write(x, status, ready)
	return nil
}
