package message

import "time"

// Reason is the machine-readable cause of a failure: error.code of an answer
// (contract 4.3).
type Reason string

const (
	InvalidJSON          Reason = "invalid_json"
	InvalidRequest       Reason = "invalid_request"
	Unauthorized         Reason = "unauthorized"
	NotFound             Reason = "not_found"
	MethodNotAllowed     Reason = "method_not_allowed"
	RequestTimeout       Reason = "request_timeout"
	InProgress           Reason = "in_progress"
	TooLarge             Reason = "too_large"
	UnsupportedMediaType Reason = "unsupported_media_type"
	KeyReused            Reason = "idempotency_key_reused"
	MediaUnavailable     Reason = "media_unavailable"
	MediaTypeMismatch    Reason = "media_type_mismatch"
	RecipientUnavailable Reason = "recipient_unavailable"
	PlatformLimit        Reason = "platform_limit"
	RateLimited          Reason = "rate_limited"
	Internal             Reason = "internal_error"
	EncodingUnavailable  Reason = "encoding_unavailable"
	PlatformRejected     Reason = "platform_rejected"
	PlatformFailed       Reason = "platform_failed"
	Unavailable          Reason = "unavailable"
	ShuttingDown         Reason = "shutting_down"
	DeliveryUnknown      Reason = "delivery_unknown"
)

// reasons is the table of contract 4.3: the HTTP status of each code, and
// whether repeating the request may succeed without a second message.
var reasons = map[Reason]struct {
	status    int
	retryable bool
}{
	InvalidJSON:          {400, false},
	InvalidRequest:       {400, false},
	Unauthorized:         {401, false},
	NotFound:             {404, false},
	MethodNotAllowed:     {405, false},
	RequestTimeout:       {408, true},
	InProgress:           {409, true},
	TooLarge:             {413, false},
	UnsupportedMediaType: {415, false},
	KeyReused:            {422, false},
	MediaUnavailable:     {422, false},
	MediaTypeMismatch:    {422, false},
	RecipientUnavailable: {422, false},
	PlatformLimit:        {422, false},
	RateLimited:          {429, true},
	Internal:             {500, false},
	EncodingUnavailable:  {501, false},
	PlatformRejected:     {502, false},
	PlatformFailed:       {502, false},
	Unavailable:          {503, true},
	ShuttingDown:         {503, true},
	DeliveryUnknown:      {504, false},
}

// Status is the HTTP status of the answer; 500 for a reason not in the table.
func (r Reason) Status() int {
	if row, ok := reasons[r]; ok {
		return row.status
	}
	return reasons[Internal].status
}

// Error is a failure with two texts: Text is written to the client, Cause to
// the operator's log. Neither may hold a secret, message text or media; Text
// may name the number the client itself sent, so Text is never logged.
type Error struct {
	Reason     Reason
	Text       string        // one sentence for the client, without a full stop
	Details    []Detail      // nil: nothing to add
	Retryable  bool          // repeating may succeed and cannot cause a second message
	RetryAfter time.Duration // 0: not said. Written as whole seconds, rounded up
	Cause      error         // for the log; nil: Text says it all
}

// Detail is one problem of a request, or what a platform said of it.
type Detail struct {
	Field        string `json:"field,omitempty"`
	Message      string `json:"message"`
	PlatformCode int    `json:"platformCode,omitempty"`
}

// NewError makes an Error with the usual retryability of its reason.
func NewError(reason Reason, text string) *Error {
	return &Error{Reason: reason, Text: text, Retryable: reasons[reason].retryable}
}

// FieldError is an Error about one field of the request, whose problem reads on
// from the field's name: "is required".
func FieldError(reason Reason, field, problem string) *Error {
	e := NewError(reason, field+" "+problem)
	e.Details = []Detail{{Field: field, Message: problem}}
	return e
}

// Because sets what the operator reads in the log and returns e.
func (e *Error) Because(cause error) *Error {
	e.Cause = cause
	return e
}

// After sets when to try again and returns e.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// Error is the operator's text: the reason and the cause, never Text.
func (e *Error) Error() string {
	if e.Cause != nil {
		return string(e.Reason) + ": " + e.Cause.Error()
	}
	return string(e.Reason)
}

func (e *Error) Unwrap() error { return e.Cause }
