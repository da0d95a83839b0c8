package outbox

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"messagesender/internal/message"
)

// maxWait is how long a list may be held (contract 4.6).
const maxWait = 60 * time.Second

// query is what a list asks for. The zero value asks for everything, now.
type query struct {
	number message.Number // empty: any
	what   string         // an operation or media type; empty: any
	text   string         // in lower case; empty: any
	after  uint64         // a sequence, itself excluded
	before uint64         // a sequence, itself excluded; 0: none
	limit  int            // 0: none
	newest int            // of those that match, only so many of the last; 0: all
	wait   time.Duration
}

// parseQuery reads the query of a list. An empty value counts as absent.
func parseQuery(r *http.Request) (q query, err error) {
	values, err := parameters(r, "number", "type", "text", "after", "before", "limit", "newest", "wait")
	if err != nil {
		return query{}, err
	}
	if s := values["number"]; s != "" {
		// Looser than in a send: what nobody can be sent to just matches nothing.
		if len(s) > 15 || strings.Trim(s, "0123456789") != "" {
			return query{}, invalid("number", "must be 1 to 15 digits")
		}
		q.number = message.Number(s)
	}
	if q.what = values["type"]; q.what != "" && !slices.ContainsFunc(kinds[:], q.isType) {
		return query{}, invalid("type", "must be one of text, media, audio, image, video, document")
	}
	q.text = strings.ToLower(values["text"])
	if q.after, err = parseAfter("after", values["after"]); err != nil {
		return query{}, err
	}
	if q.before, err = parseAfter("before", values["before"]); err != nil {
		return query{}, err
	}
	if q.limit, err = parseCount("limit", values["limit"]); err != nil {
		return query{}, err
	}
	if q.newest, err = parseCount("newest", values["newest"]); err != nil {
		return query{}, err
	}
	if s := values["wait"]; s != "" {
		if q.wait, err = time.ParseDuration(s); err != nil || q.wait < 0 || q.wait > maxWait {
			return query{}, invalid("wait", "must be a duration of at most 60s, like 5s or 1500ms")
		}
	}
	return q, nil
}

// parseAfter reads a messageId that marks a place; empty: before all messages.
// It need not be that of a message that still exists.
func parseAfter(field, s string) (sequence uint64, err error) {
	if s == "" {
		return 0, nil
	}
	i, ok := parseID(s)
	if !ok {
		return 0, invalid(field, "must be a messageId")
	}
	return i.sequence, nil
}

// parseCount reads a number of messages; empty: 0.
func parseCount(field, s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, invalid(field, "must be a whole number of at least 1")
	}
	return n, nil
}

// parameters returns the query parameters of a request, each given at most once
// and with a known name: a filter that is silently ignored would answer a
// question that was not asked, or delete what was not meant.
func parameters(r *http.Request, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, message.NewError(message.InvalidRequest, "the query of the URL is not well-formed")
	}
	single := make(map[string]string, len(values))
	for name, v := range values {
		if !slices.Contains(known, name) {
			return nil, invalid(name[:min(len(name), maxNameShown)], "is not a parameter here")
		}
		if len(v) > 1 {
			return nil, invalid(name, "is given more than once")
		}
		single[name] = v[0]
	}
	return single, nil
}

// maxNameShown bounds what an error repeats of an unknown parameter's name.
const maxNameShown = 40

func invalid(field, problem string) error {
	field = strings.ToValidUTF8(field, "�")
	e := message.NewError(message.InvalidRequest, field+" "+problem)
	e.Details = []message.Detail{{Field: field, Message: problem}}
	return e
}

func (q query) isType(k kind) bool {
	return q.what == string(k.operation) || q.what == string(k.media)
}

// matchesEntry decides what can be decided without reading the record.
func (q query) matchesEntry(e *entry) bool {
	return (q.before == 0 || e.sequence < q.before) &&
		(q.number == "" || q.number == e.number) &&
		(q.what == "" || q.isType(kinds[e.kind]))
}

// matchesRecord decides the rest.
func (q query) matchesRecord(b []byte) (bool, error) {
	if q.text == "" {
		return true, nil
	}
	var r struct{ Text, Caption, FileName string }
	if err := json.Unmarshal(b, &r); err != nil {
		return false, err
	}
	return slices.ContainsFunc([]string{r.Text, r.Caption, r.FileName}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), q.text)
	}), nil
}
