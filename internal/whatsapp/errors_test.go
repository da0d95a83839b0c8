package whatsapp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"messagesender/internal/message"
)

// documented is every code of the platform's documents, and what it has to
// become: the reason, whether repeating may help, and how long to wait first.
var documented = []struct {
	codes     []int
	want      message.Reason
	retryable bool
	wait      time.Duration
}{
	{[]int{0, 190, 104}, message.PlatformRejected, false, 0},
	{[]int{3, 10, 200, 201, 250, 294, 299}, message.PlatformRejected, false, 0},
	{[]int{100}, message.PlatformRejected, false, 0},
	{[]int{368, 130497, 131031, 131005, 131008, 131009, 131042, 133010}, message.PlatformRejected, false, 0},
	{[]int{4, 17, 613, 80007}, message.RateLimited, true, time.Minute},
	{[]int{130429}, message.RateLimited, true, time.Second},
	{[]int{131056}, message.RateLimited, true, 6 * time.Second},
	{[]int{131048}, message.RateLimited, false, time.Hour},
	{[]int{131021, 131026, 131030, 131047}, message.RecipientUnavailable, false, 0},
	{[]int{131051}, message.PlatformLimit, false, 0},
	{[]int{131052, 131053}, message.MediaUnavailable, false, 0},
	{[]int{2, 131016}, message.Unavailable, true, 5 * time.Second},
	{[]int{131057}, message.Unavailable, true, time.Minute},
	{[]int{1, 131000}, message.DeliveryUnknown, false, 0},
}

func errorBody(code int, more string) string {
	return fmt.Sprintf(`{"error":{"message":"(#%d) Some words","type":"OAuthException","code":%d,"error_data":{"messaging_product":"whatsapp","details":"More words"},"fbtrace_id":"Az8or2yhqkZfEZ"%s}}`, code, code, more)
}

func TestCodesDecideWhateverTheStatus(t *testing.T) {
	for _, row := range documented {
		for _, code := range row.codes {
			for _, status := range []int{200, 400, 401, 403, 408, 422, 429, 500, 502, 503} {
				f := refusal(answer{status: status, body: []byte(errorBody(code, ""))}, testToken)
				if f.err.Reason != row.want || f.err.Retryable != row.retryable || f.err.RetryAfter != row.wait {
					t.Errorf("code %d with HTTP %d: got %s, retryable %t, after %v; want %s, %t, %v",
						code, status, f.err.Reason, f.err.Retryable, f.err.RetryAfter, row.want, row.retryable, row.wait)
				}
				want := []message.Detail{{PlatformCode: code, Message: fmt.Sprintf("(#%d) Some words: More words", code)}}
				if !slices.Equal(f.err.Details, want) {
					t.Errorf("code %d: details %+v, want %+v", code, f.err.Details, want)
				}
				if f.err.Text == "" {
					t.Errorf("code %d: no text", code)
				}
				if token := slices.Contains([]int{0, 104, 190}, code); f.token != token {
					t.Errorf("code %d: a token problem %t, want %t", code, f.token, token)
				}
				if got, want := f.err.Error(), fmt.Sprintf(`%s: platform code %d, HTTP %d, trace "Az8or2yhqkZfEZ"`, row.want, code, status); got != want {
					t.Errorf("for the log: %s, want %s", got, want)
				}
			}
		}
	}
}

func TestStatusesDecideWithoutACode(t *testing.T) {
	bodies := map[string]string{
		"empty":              "",
		"HTML":               "<html><body><h1>Bad Gateway</h1></body></html>",
		"JSON":               `{"message":"no"}`,
		"JSON null":          `null`,
		"JSON array":         `[1,2]`,
		"error without code": `{"error":{"message":"something"}}`,
		"error as a string":  `{"error":"no"}`,
		"code in words":      `{"error":{"code":"no"}}`,
		"code with a point":  `{"error":{"code":190.5}}`,
		"code beyond all":    `{"error":{"code":99999999999}}`,
		"JSON cut":           `{"error":{"code":190`,
		"JSON and more":      `{"error":{"code":190}}}`,
		"unknown code":       errorBody(999999, ""),
	}
	for status := 400; status <= 599; status++ {
		want, retryable := message.PlatformFailed, false
		switch {
		case status == 429:
			want, retryable = message.RateLimited, true
		case status == 408 || status >= 500:
			want = message.DeliveryUnknown
		}
		for name, body := range bodies {
			f := refusal(answer{status: status, body: []byte(body)}, testToken)
			if f.err.Reason != want || f.err.Retryable != retryable {
				t.Errorf("HTTP %d, %s: got %s, retryable %t; want %s, %t", status, name, f.err.Reason, f.err.Retryable, want, retryable)
			}
			if again := want == message.RateLimited; f.again != again {
				t.Errorf("HTTP %d, %s: repeated %t, want %t", status, name, f.again, again)
			}
		}
	}
	for _, status := range []int{200, 201, 204, 299, 301, 302, 307, 308, 399} {
		if f := refusal(answer{status: status, body: []byte("{}")}, testToken); f.err.Reason != message.DeliveryUnknown || f.again {
			t.Errorf("HTTP %d without an id: got %s, repeated %t; want %s, not repeated", status, f.err.Reason, f.again, message.DeliveryUnknown)
		}
	}
}

func TestTransientDecidesForUnknownCodes(t *testing.T) {
	for status, want := range map[int]message.Reason{400: message.Unavailable, 403: message.Unavailable, 500: message.DeliveryUnknown, 503: message.DeliveryUnknown} {
		f := refusal(answer{status: status, body: []byte(errorBody(999999, `,"is_transient":true`))}, testToken)
		if f.err.Reason != want {
			t.Errorf("HTTP %d: got %s, want %s", status, f.err.Reason, want)
		}
	}
	f := refusal(answer{status: 500, body: []byte(errorBody(131000, `,"is_transient":true`))}, testToken)
	if f.err.Reason != message.DeliveryUnknown {
		t.Errorf("a known code is transient: got %s, want %s", f.err.Reason, message.DeliveryUnknown)
	}
}

func TestUploadsKnowNoUnknown(t *testing.T) {
	f := refusal(answer{status: 500, body: []byte(errorBody(131000, ""))}, testToken).harmless()
	if f.err.Reason != message.Unavailable || !f.err.Retryable || !f.again || f.err.RetryAfter == 0 || len(f.err.Details) != 1 {
		t.Errorf("got %+v, again %t; want %s, retryable and repeated, with the platform's words", f.err, f.again, message.Unavailable)
	}
	if f := refusal(answer{status: 400, body: []byte(errorBody(100, ""))}, testToken).harmless(); f.err.Reason != message.PlatformRejected || f.again {
		t.Errorf("a refusal: got %s, again %t; want %s, final", f.err.Reason, f.again, message.PlatformRejected)
	}
}

func TestWaitOf(t *testing.T) {
	const usage = "X-Business-Use-Case-Usage"
	for _, c := range []struct {
		name, header, value string
		want                time.Duration
	}{
		{"nothing", "", "", 0},
		{"seconds", "Retry-After", "7", 7 * time.Second},
		{"zero", "Retry-After", "0", 0},
		{"negative", "Retry-After", "-5", 0},
		{"absurd", "Retry-After", "99999999999", 24 * time.Hour},
		{"beyond int64", "Retry-After", "99999999999999999999999", 0},
		{"words", "Retry-After", "soon", 0},
		{"a date long gone", "Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT", 0},
		{"a date far ahead", "Retry-After", "Wed, 21 Oct 2185 07:28:00 GMT", 24 * time.Hour},
		{"usage", usage, `{"123":[{"type":"whatsapp","call_count":100,"estimated_time_to_regain_access":3},{"estimated_time_to_regain_access":2}]}`, 3 * time.Minute},
		{"usage without need", usage, `{"123":[{"estimated_time_to_regain_access":0}]}`, 0},
		{"absurd usage", usage, `{"123":[{"estimated_time_to_regain_access":9000000000000000000}]}`, 24 * time.Hour},
		{"negative usage", usage, `{"123":[{"estimated_time_to_regain_access":-9}]}`, 0},
		{"usage of another form", usage, `[1,2`, 0},
	} {
		h := http.Header{}
		if c.header != "" {
			h.Set(c.header, c.value)
		}
		if got := waitOf(h); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	f := refusal(answer{status: 400, header: http.Header{"Retry-After": {"90"}}, body: []byte(errorBody(80007, ""))}, testToken)
	if f.err.RetryAfter != 90*time.Second || f.said != 90*time.Second {
		t.Errorf("the platform's word: got %v and %v, want 90 s", f.err.RetryAfter, f.said)
	}
	f = refusal(answer{status: 400, header: http.Header{"Retry-After": {"90"}}, body: []byte(errorBody(190, ""))}, testToken)
	if f.err.RetryAfter != 0 {
		t.Errorf("a refusal for good: got a wait of %v, want none", f.err.RetryAfter)
	}
}

func TestPlatformTextIsFitToShow(t *testing.T) {
	for _, c := range []struct{ name, text, details, want string }{
		{"both", "(#100) Invalid parameter", "to is missing", "(#100) Invalid parameter: to is missing"},
		{"repeated", "(#100) Invalid parameter", "Invalid parameter", "(#100) Invalid parameter"},
		{"details only", "", "to is missing", "to is missing"},
		{"neither", "", "", ""},
		{"the token", "Malformed access token " + testToken + "x", "", "Malformed access token [token]x"},
		{"the token in the details", "Bad", "token " + testToken, "Bad: token [token]"},
		{"invisible", "a\x00b\u202ec\nd\u200be", "", "abcde"},
		{"long", strings.Repeat("ä", 1000), "", strings.Repeat("ä", maxPlatformText-1) + "…"},
		{"long together", strings.Repeat("ä", 200), strings.Repeat("b", 200), strings.Repeat("ä", 200) + ": " + strings.Repeat("b", maxPlatformText-203) + "…"},
	} {
		if got := platformText(c.text, c.details, testToken); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add(400, []byte(errorBody(190, "")))
	f.Add(500, []byte("<html>"))
	f.Add(429, []byte(`{"error":{"code":1e3}}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		got := refusal(answer{status: status, body: body}, testToken)
		if got.err == nil || got.err.Text == "" {
			t.Fatal("no error, or one without a text")
		}
		if got.again && !got.err.Retryable {
			t.Error("repeated, although repeating is not safe")
		}
		if got.err.Reason == message.DeliveryUnknown && got.again {
			t.Error("repeated, although the outcome is not known")
		}
		if s := fmt.Sprintf("%s %+v %v", got.err.Text, got.err.Details, got.err); strings.Contains(s, testToken) {
			t.Errorf("the token shows: %s", s)
		}
		if !errors.Is(got.err, got.err.Cause) {
			t.Error("the cause is lost")
		}
	})
}
