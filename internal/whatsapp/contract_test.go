package whatsapp

import (
	"io"
	"net"
	"net/http"
	"testing"

	"messagesender/internal/message"
	"messagesender/internal/platformtest"
)

func TestContract(t *testing.T) {
	platformtest.Run(t, platformtest.Harness{
		Open:          openSubject,
		PresenceFault: "presence refused",
		StallFault:    "stalled",
		Failures: []platformtest.Failure{
			{Fault: "an unreachable platform", Want: message.Unavailable, Retryable: true, Waits: true},
			{Fault: "a refused token", Want: message.PlatformRejected},
			{Fault: "a rate limit", Want: message.RateLimited, Retryable: true, Waits: true},
			{Fault: "an unreachable recipient", Want: message.RecipientUnavailable},
			{Fault: "a broken platform", Want: message.DeliveryUnknown},
			{Fault: "a lost answer", Want: message.DeliveryUnknown},
			{Fault: "an answer that quotes the request", Want: message.DeliveryUnknown},
			{Fault: "an endless answer", Want: message.DeliveryUnknown},
			{Fault: "an answer without an id", Want: message.DeliveryUnknown},
			{Fault: "an unknown refusal", Want: message.PlatformFailed},
		},
	})
}

func openSubject(t *testing.T, fault string) platformtest.Subject {
	t.Helper()
	meta := newMeta(t)
	settings := Settings{BaseURL: meta.server.URL}
	sends := func(status int, body string) {
		meta.answer = func(kind string, w http.ResponseWriter, _ *http.Request) bool {
			if kind == "messages" {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}
			return kind == "messages"
		}
	}
	switch fault {
	case "":
	case "presence refused":
		meta.answer = func(kind string, w http.ResponseWriter, _ *http.Request) bool {
			if kind == "typing" {
				http.Error(w, errorBody(100, ""), http.StatusBadRequest)
			}
			return kind == "typing"
		}
	case "stalled":
		meta.answer = func(_ string, _ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		}
	case "an unreachable platform":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		settings.BaseURL = "http://" + listener.Addr().String()
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	case "a refused token":
		sends(401, `{"error":{"message":"Malformed access token `+testToken+`","code":190}}`)
	case "a rate limit":
		sends(429, errorBody(131056, ""))
	case "an unreachable recipient":
		sends(400, errorBody(131026, ""))
	case "a broken platform":
		sends(502, "<html>Bad Gateway</html>")
	case "a lost answer":
		meta.answer = func(kind string, w http.ResponseWriter, _ *http.Request) bool { panic(http.ErrAbortHandler) }
	case "an answer that quotes the request":
		meta.answer = func(_ string, w http.ResponseWriter, _ *http.Request) bool {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 "+testToken+"\r\n\r\n")
				_ = c.Close()
			}
			return true
		}
	case "an endless answer":
		sends(200, `{"messages":[{"id":"wamid.1"}],"x":"`+string(make([]byte, maxAnswer))+`"}`)
	case "an answer without an id":
		sends(200, `{"messages":[]}`)
	case "an unknown refusal":
		sends(422, "")
	default:
		t.Fatalf("there is no fault %q", fault)
	}
	r := newRig(t, settings)
	r.heard(t)
	return platformtest.Subject{
		Platform: r.Platform,
		Account:  testAccount,
		Number:   testNumber,
		Arrived:  meta.arrived,
		Logs:     r.logs.String,
		Secrets:  []string{testToken, testSecret, testVerify},
		Open:     func() int { return int(meta.active.Load()) },
	}
}
