// Send sends one text: send NUMBER TEXT, with BASE_URL, API_KEY and API_TOKEN in the
// environment.
//
// It prints the messageId and exits with 0; 1: not sent; 2: called wrongly; 3: nobody
// knows whether it was sent. Optional: IDEMPOTENCY_KEY, ATTEMPTS (5), and in seconds
// MAX_WAIT between two attempts (60) and TIMEOUT of one (60).
//
// Build it before relying on the exit status: go run makes 1 of every failure.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

var (
	errNotSent = errors.New("not sent")
	errUnknown = errors.New("unknown whether it was sent")
)

func main() {
	if len(os.Args) != 3 || !strings.HasPrefix(os.Getenv("BASE_URL"), "http") || os.Getenv("API_KEY") == "" || os.Getenv("API_TOKEN") == "" {
		fmt.Fprintln(os.Stderr, "usage: BASE_URL=… API_KEY=… API_TOKEN=… send NUMBER TEXT")
		os.Exit(2)
	}
	// Once for each message, before the first attempt. Keep it with the message (in the
	// order's row, in the job), so that a program that starts again uses the same one.
	key := os.Getenv("IDEMPOTENCY_KEY")
	if key == "" {
		key = rand.Text()
	}
	id, err := send(os.Args[1], os.Args[2], key)
	switch {
	case errors.Is(err, errUnknown):
		fmt.Fprintf(os.Stderr, "%v\nIDEMPOTENCY_KEY=%s asks again and cannot send twice\n", err, key)
		os.Exit(3)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(id)
}

// send sends a text and returns its messageId; the error is errNotSent or errUnknown.
// The key belongs to this one message.
func send(number, text, key string) (string, error) {
	attempts := int(setting("ATTEMPTS", 5))
	client := &http.Client{
		Timeout:       seconds(setting("TIMEOUT", 60)), // longer than the longest options.delay you use
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	outcome := errNotSent // errUnknown: an attempt ended so that it may have been the one that sent
	for attempt := 0; ; attempt++ {
		a, err := post(client, number, text, key)
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial":
			a.Message = "no connection: " + err.Error()
		case err != nil:
			a.Message = "no answer: " + err.Error()
			outcome = errUnknown
		case a.status == http.StatusOK && a.Data.MessageID != "":
			return a.Data.MessageID, nil
		case a.Error.Retryable != nil && !*a.Error.Retryable:
			if a.Error.Code == "delivery_unknown" || a.Error.Code == "internal_error" {
				return "", fmt.Errorf("%w: %s", errUnknown, a.Message)
			}
			if a.Error.Code == "unauthorized" { // says nothing of the attempts before it; every other refusal does
				return "", fmt.Errorf("%w: %s", outcome, a.Message)
			}
			return "", fmt.Errorf("%w: %s", errNotSent, a.Message)
		case a.Error.Retryable == nil: // of a proxy: it refused (3xx, 4xx), or it does not know either
			a.Message = fmt.Sprintf("an answer %d that is not the service's", a.status)
			if a.status >= 300 && a.status < 500 && a.status != http.StatusTooManyRequests {
				return "", fmt.Errorf("%w: %s", outcome, a.Message)
			}
			outcome = errUnknown
		}
		if attempt+1 >= attempts {
			return "", fmt.Errorf("%w: %s (%d attempts)", outcome, a.Message, attempts)
		}
		jitter := mathrand.Float64() * float64(uint64(1)<<min(attempt, 32))
		time.Sleep(seconds(min(setting("MAX_WAIT", 60), float64(a.retryAfter)+jitter)))
	}
}

type answer struct {
	status     int
	retryAfter int // seconds; 0: not said

	Message string
	Data    struct{ MessageID string }
	Error   struct {
		Code      string
		Retryable *bool
	}
}

// post makes one attempt. The error is that of the connection; an answer that is not
// the service's comes back empty but for its status.
func post(client *http.Client, number, text, key string) (answer, error) {
	var a answer
	body, err := json.Marshal(map[string]any{"number": number, "textMessage": map[string]string{"text": text}})
	if err != nil {
		return a, err
	}
	target := strings.TrimRight(os.Getenv("BASE_URL"), "/") + "/message/sendText/" + os.Getenv("API_TOKEN")
	r, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	if err == nil {
		r.Header.Set("apikey", os.Getenv("API_KEY"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", key)
		var response *http.Response
		if response, err = client.Do(r); err == nil {
			defer response.Body.Close()
			if body, err = io.ReadAll(io.LimitReader(response.Body, 1<<20)); err == nil {
				if json.Unmarshal(body, &a) != nil {
					a = answer{}
				}
				a.status = response.StatusCode
				a.retryAfter, _ = strconv.Atoi(response.Header.Get("Retry-After"))
			}
		}
	}
	var withURL *url.Error
	if errors.As(err, &withURL) { // the URL holds the token
		err = withURL.Err
	}
	return a, err
}

// setting is a number of the environment.
func setting(name string, otherwise float64) float64 {
	if n, err := strconv.ParseFloat(os.Getenv(name), 64); err == nil {
		return n
	}
	return otherwise
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
