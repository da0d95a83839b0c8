package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"messagesender/internal/message"
)

// What the routes of contract 4.1 are for, in the label operation. The three
// sends have the names they have everywhere (message.Operation).
const (
	operationText        = string(message.SendText)
	operationMedia       = string(message.SendMedia)
	operationAudio       = string(message.SendAudio)
	operationStatus      = "status"
	operationOutcome     = "outcome"
	operationOutbox      = "outbox"
	operationWebhook     = "webhook"
	operationProbe       = "probe"
	operationDescription = "description"
	operationMetrics     = "metrics"
)

var (
	sends      = []string{operationText, operationMedia, operationAudio}
	operations = append(slices.Clone(sends), operationStatus, operationOutcome, operationOutbox, operationWebhook,
		operationProbe, operationDescription, operationMetrics)
)

// OperationOf is the operation that a ServeMux pattern is for; a pattern that is
// not known, and the empty one of a request that reached no route, is other.
func OperationOf(pattern string) string {
	_, path, _ := strings.Cut(pattern, " ")
	in := func(prefix string) bool { return strings.HasPrefix(path, prefix) }
	switch {
	case in("/message/sendText/"):
		return operationText
	case in("/message/sendMedia/"):
		return operationMedia
	case in("/message/send"):
		return operationAudio
	case in("/message/status/"):
		return operationStatus
	case in("/message/outcome/"):
		return operationOutcome
	case in("/outbox/"):
		return operationOutbox
	case in("/webhook/"):
		return operationWebhook
	case path == "/healthz", path == "/readyz":
		return operationProbe
	case path == "/openapi.json":
		return operationDescription
	case path == "/metrics":
		return operationMetrics
	}
	return other
}

// statuses are those that the service answers with, contract 4.3 and the outbox.
var statuses = []int{200, 206, 304, 400, 401, 404, 405, 408, 409, 413, 415, 416, 422, 429, 500, 501, 502, 503, 504}

// reasons are all codes of contract 4.3.
var reasons = []message.Reason{
	message.InvalidJSON, message.InvalidRequest, message.Unauthorized, message.NotFound, message.MethodNotAllowed,
	message.RequestTimeout, message.InProgress, message.TooLarge, message.UnsupportedMediaType, message.KeyReused,
	message.MediaUnavailable, message.MediaTypeMismatch, message.RecipientUnavailable, message.PlatformLimit,
	message.RateLimited, message.Internal, message.EncodingUnavailable, message.PlatformRejected, message.PlatformFailed,
	message.Unavailable, message.ShuttingDown, message.DeliveryUnknown,
}

// noCode is the label value of an answer that is no failure.
const noCode = "none"

// platformCodes are the codes that WhatsApp documents for sending. Those of
// permissions, 200 to 299, count as one.
var platformCodes = []int{
	0, 1, 2, 3, 4, 10, 17, 100, 104, 190, 368, 613, 80007,
	130429, 130472, 130497, 131000, 131005, 131008, 131009, 131016, 131021, 131026, 131030, 131031,
	131042, 131047, 131048, 131049, 131051, 131052, 131053, 131056, 131057, 133010,
}

const (
	permissionFrom, permissionTo = 200, 299
	permissionCodes              = "200-299"
)

// Bounds of the histograms. Each set spans what is usual and what is alarming.
var (
	holdBounds     = seconds(0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
	waitBounds     = seconds(0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
	prepareBounds  = seconds(0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
	platformBounds = seconds(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
	fsyncBounds    = seconds(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
)

func seconds(values ...float64) []time.Duration {
	bounds := make([]time.Duration, len(values))
	for i, s := range values {
		bounds[i] = time.Duration(s * float64(time.Second))
	}
	return bounds
}

// Metrics is everything the service counts. It is made by New; all methods may
// be called from any goroutine.
type Metrics struct {
	Registry

	Held     *Gauge     // requests in their hold now
	Hold     *Histogram // from the begin of a hold to its end, however it ended
	LaneWait *Histogram // until it was a message's turn
	Prepare  *Histogram // fetching and converting media, the platform's limits, upload
	Platform *Histogram // the one call that delivers

	// JournalSync has one observation for each fsync of the journal, so its count
	// is that of the fsyncs.
	JournalSync         *Histogram
	JournalSyncFailures *Counter // after one, sends with a key are refused until a restart

	PresenceNotShown *Counter // presences that could not be shown, or shown again
	Retries          *Counter // platform calls made again within a request
	AuthFailures     *Counter // requests with a key or token that is missing or wrong

	requests       *counters
	platformErrors *counters
	statusText     map[int]string // so that counting does not allocate
	codeText       map[int]string
}

// New makes the metrics of a process of the given version. Three things that are
// known elsewhere are asked for there: see Spool and Outbox.
func New(version string) *Metrics {
	m := &Metrics{statusText: map[int]string{}, codeText: map[int]string{}}
	var status, codes, platform []string
	for _, s := range statuses {
		m.statusText[s] = strconv.Itoa(s)
		status = append(status, m.statusText[s])
	}
	for _, r := range reasons {
		codes = append(codes, string(r))
	}
	for _, c := range platformCodes {
		m.codeText[c] = strconv.Itoa(c)
		platform = append(platform, m.codeText[c])
	}
	m.requests = m.counters("messagesender_requests_total", "Requests answered, by operation, HTTP status and error code.",
		label{"operation", operations}, label{"status", status}, label{"code", append(codes, noCode)})
	for _, operation := range sends {
		m.requests.always[m.requests.at([]string{operation, "200", noCode})] = true
		for _, r := range reasons {
			m.requests.always[m.requests.at([]string{operation, strconv.Itoa(r.Status()), string(r)})] = true
		}
	}
	m.platformErrors = m.counters("messagesender_platform_errors_total", "Calls that the platform refused, by its own code; other: none that is known.",
		label{"code", append(platform, permissionCodes)})

	m.Held = m.Gauge("messagesender_held_requests", "Requests whose presence is shown or whose delay is waited out now.")
	m.Hold = m.Histogram("messagesender_hold_duration_seconds", "How long messages were held before delivery.", holdBounds...)
	m.LaneWait = m.Histogram("messagesender_lane_wait_duration_seconds", "How long messages waited for earlier ones to the same number and for the account's pace.", waitBounds...)
	m.Prepare = m.Histogram("messagesender_prepare_duration_seconds", "How long it took to fetch, convert and upload media and to check the platform's limits.", prepareBounds...)
	m.Platform = m.Histogram("messagesender_platform_duration_seconds", "How long the platform took to take a message, retries included.", platformBounds...)
	m.JournalSync = m.Histogram("messagesender_journal_fsync_duration_seconds", "How long the fsyncs of the journal of idempotency keys took.", fsyncBounds...)
	m.JournalSyncFailures = m.Counter("messagesender_journal_fsync_failures_total", "Fsyncs of the journal that failed; after one, sends with a key are refused until a restart.")
	m.PresenceNotShown = m.Counter("messagesender_presence_not_shown_total", "Presences that could not be shown; the messages were sent all the same.")
	m.Retries = m.Counter("messagesender_platform_retries_total", "Calls of the platform made again within a request.")
	m.AuthFailures = m.Counter("messagesender_auth_failures_total", "Requests whose key or token was missing or wrong.")
	addBuild(&m.Registry, version)
	addRuntime(&m.Registry)
	return m
}

// Request counts one answered request; operation is one that OperationOf
// returns. An empty code is an answer that is no
// failure. What is not known of operation, status or code counts as other.
func (m *Metrics) Request(operation string, status int, code message.Reason) {
	if code == "" {
		code = noCode
	}
	m.requests.with(operation, m.statusText[status], string(code)).Inc()
}

// PlatformError counts one call that the platform refused; its code may be any
// number, and is negative when the platform gave none that can be read.
func (m *Metrics) PlatformError(code int) {
	text := m.codeText[code]
	if code >= permissionFrom && code <= permissionTo {
		text = permissionCodes
	}
	m.platformErrors.with(text).Inc()
}

// Spool adds the bytes of media held for requests on their way. It is called at
// most once.
func (m *Metrics) Spool(bytes func() int64) {
	m.GaugeFunc("messagesender_spooled_bytes", "Media held now for requests on their way.", bytes)
}

// Outbox adds the size of the outbox. It is called at most once, and not at all
// where no account sends into the outbox.
func (m *Metrics) Outbox(messages, bytes func() int64) {
	m.GaugeFunc("messagesender_outbox_messages", "Messages kept in the outbox now.", messages)
	m.GaugeFunc("messagesender_outbox_bytes", "Bytes that the outbox takes on disk now.", bytes)
}
