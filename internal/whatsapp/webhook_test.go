package whatsapp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"messagesender/internal/message"
)

func sign(body, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

func notify(p *Platform, body, signature string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/webhook/whatsapp/shop", strings.NewReader(body))
	if signature != "" {
		r.Header.Set("X-Hub-Signature-256", signature)
	}
	return w, p.ServeWebhook(w, r)
}

// notification is one with items of the field messages or statuses.
func notification(phoneID, field string, items ...string) string {
	return fmt.Sprintf(`{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"4930","phone_number_id":"%s"},"%s":[%s]}}]}]}`,
		phoneID, field, strings.Join(items, ","))
}

func received(id string, at time.Time) string {
	return fmt.Sprintf(`{"from":"%s","id":"%s","timestamp":"%d","type":"text","text":{"body":"private"}}`, testNumber, id, at.Unix())
}

func status(id, state string, at time.Time) string {
	return fmt.Sprintf(`{"id":"%s","status":"%s","timestamp":"%d","recipient_id":"%s","errors":[{"code":131053,"title":"Media upload error","message":"Media upload error","error_data":{"details":"Unsupported type"}}]}`, id, state, at.Unix(), testNumber)
}

func TestHandshake(t *testing.T) {
	r := newRig(t, Settings{})
	for _, c := range []struct {
		name, mode, token, challenge string
		want                         message.Reason // empty: the challenge is echoed
	}{
		{"as it should be", "subscribe", testVerify, "1158201444", ""},
		{"another token", "subscribe", "guess", "1158201444", message.Unauthorized},
		{"no token", "subscribe", "", "1158201444", message.Unauthorized},
		{"another mode", "unsubscribe", testVerify, "1158201444", message.Unauthorized},
		{"no challenge", "subscribe", testVerify, "", message.InvalidRequest},
		{"a challenge too long", "subscribe", testVerify, strings.Repeat("1", maxChallenge+1), message.InvalidRequest},
		{"a challenge that breaks lines", "subscribe", testVerify, "a\r\nb", message.InvalidRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := url.Values{"hub.mode": {c.mode}, "hub.verify_token": {c.token}, "hub.challenge": {c.challenge}}
			w := httptest.NewRecorder()
			err := r.ServeWebhook(w, httptest.NewRequest(http.MethodGet, "/webhook/whatsapp/shop?"+q.Encode(), nil))
			if c.want == "" {
				if err != nil || w.Body.String() != c.challenge || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
					t.Errorf("got %q as %q, %v; want the challenge as plain text", w.Body, w.Header().Get("Content-Type"), err)
				}
				return
			}
			wantReason(t, err, c.want)
			if w.Body.Len() != 0 {
				t.Errorf("%q was written beside an error", w.Body)
			}
		})
	}
}

func wantReason(t *testing.T, err error, want message.Reason) {
	t.Helper()
	var e *message.Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err != nil && (strings.Contains(err.Error(), testVerify) || strings.Contains(err.Error(), testSecret)) {
		t.Error("a secret stands in the error")
	}
}

func TestWebhookExistsOnlyWithBothSecrets(t *testing.T) {
	r := newRig(t, Settings{})
	for _, secrets := range [][2]string{{"", ""}, {testSecret, ""}, {"", testVerify}} {
		r.account.AppSecret, r.account.VerifyToken = secrets[0], secrets[1]
		_, err := notify(r.Platform, "{}", sign("{}", secrets[0]))
		wantReason(t, err, message.NotFound)
		w := httptest.NewRecorder()
		err = r.ServeWebhook(w, httptest.NewRequest(http.MethodGet, "/?hub.mode=subscribe&hub.challenge=1&hub.verify_token="+secrets[1], nil))
		wantReason(t, err, message.NotFound)
	}
}

func TestOnlySignedNotificationsAreRead(t *testing.T) {
	body := notification(testPhoneID, "messages", received("wamid.new", time.Now()))
	right := sign(body, testSecret)
	for name, signature := range map[string]string{
		"none":                 "",
		"of another secret":    sign(body, "guess"),
		"of another body":      sign(body+" ", testSecret),
		"without its prefix":   strings.TrimPrefix(right, "sha256="),
		"of another algorithm": strings.Replace(right, "sha256", "sha1", 1),
		"not hexadecimal":      "sha256=" + strings.Repeat("zz", 32),
		"cut":                  right[:len(right)-2],
		"longer":               right + "00",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Settings{})
			_, err := notify(r.Platform, body, signature)
			wantReason(t, err, message.Unauthorized)
			if _, ok := r.records.inbound.get(testAccount, string(testNumber), time.Now()); ok {
				t.Error("it was read all the same")
			}
		})
	}
	r := newRig(t, Settings{})
	if w, err := notify(r.Platform, body, right); err != nil || w.Code != http.StatusOK {
		t.Errorf("rightly signed: got %d, %v", w.Code, err)
	}
	if id, _ := r.records.inbound.get(testAccount, string(testNumber), time.Now()); id != "wamid.new" {
		t.Errorf("rightly signed: remembered %q", id)
	}
}

func TestNotificationsAreBounded(t *testing.T) {
	r := newRig(t, Settings{})
	body := `{"x":"` + strings.Repeat("x", maxNotice) + `"}`
	_, err := notify(r.Platform, body, sign(body, testSecret))
	wantReason(t, err, message.TooLarge)
	w := httptest.NewRecorder()
	cut := io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF))
	wantReason(t, r.ServeWebhook(w, httptest.NewRequest(http.MethodPost, "/", cut)), message.RequestTimeout)
}

func TestReceivedMessages(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name, body, want string // the id that can be answered
	}{
		{"one", notification(testPhoneID, "messages", received("wamid.a", now)), "wamid.a"},
		{"the newest of several", notification(testPhoneID, "messages", received("wamid.b", now), received("wamid.a", now.Add(-time.Minute))), "wamid.b"},
		{"for another phone number", notification("999", "messages", received("wamid.a", now)), ""},
		{"too old", notification(testPhoneID, "messages", received("wamid.a", now.Add(-25*time.Hour))), ""},
		{"from the future", notification(testPhoneID, "messages", received("wamid.a", now.Add(time.Hour))), "wamid.a"},
		{"beside odd ones", notification(testPhoneID, "messages", `null`, `7`, `{"id":7}`, `{}`, `{"from":"1"}`, received("wamid.a", now)), "wamid.a"},
		{"without a timestamp", notification(testPhoneID, "messages", fmt.Sprintf(`{"from":"%s","id":"wamid.a"}`, testNumber)), "wamid.a"},
		{"an id that cannot be one", notification(testPhoneID, "messages", received(`a b`, now)), ""},
		{"not JSON", "hello", ""},
		{"another form", `{"entry":{}}`, ""},
		{"nothing", `{}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Settings{})
			for range 2 { // duplicates happen
				if w, err := notify(r.Platform, c.body, sign(c.body, testSecret)); err != nil || w.Code != http.StatusOK {
					t.Fatalf("got %d, %v; what is signed is always taken", w.Code, err)
				}
			}
			if id, _ := r.records.inbound.get(testAccount, string(testNumber), time.Now()); id != c.want {
				t.Errorf("remembered %q, want %q", id, c.want)
			}
			if logs := r.logs.String(); strings.Contains(logs, "private") || strings.Contains(logs, string(testNumber)) {
				t.Errorf("the log holds what it must not:\n%s", logs)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	failed := &StatusError{131053, "Media upload error: Unsupported type"}
	for _, c := range []struct {
		name  string
		came  []string
		want  State // empty: unknown
		fails *StatusError
	}{
		{"sent", []string{status("wamid.1", "sent", now)}, Sent, nil},
		{"delivered", []string{status("wamid.1", "delivered", now)}, Delivered, nil},
		{"read", []string{status("wamid.1", "read", now)}, Read, nil},
		{"played is read", []string{status("wamid.1", "played", now)}, Read, nil},
		{"failed", []string{status("wamid.1", "failed", now)}, Failed, failed},
		{"failed without a reason", []string{`{"id":"wamid.1","status":"failed"}`}, Failed, &StatusError{}},
		{"sent comes late", []string{status("wamid.1", "read", now), status("wamid.1", "sent", now)}, Read, nil},
		{"failed, then sent", []string{status("wamid.1", "failed", now), status("wamid.1", "sent", now)}, Failed, failed},
		{"a state that is none", []string{status("wamid.1", "warning", now)}, "", nil},
		{"another message", []string{status("wamid.2", "read", now)}, "", nil},
		{"odd items", []string{`7`, `null`, `{}`, `{"id":7,"status":"read"}`, `{"id":"wamid.1","status":7}`}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Settings{})
			for _, item := range c.came {
				body := notification(testPhoneID, "statuses", item)
				if _, err := notify(r.Platform, body, sign(body, testSecret)); err != nil {
					t.Fatal(err)
				}
			}
			got, ok := r.Status("wamid.1")
			if ok != (c.want != "") || got.State != c.want {
				t.Errorf("got %+v, %t; want %q", got, ok, c.want)
			}
			if (got.Error == nil) != (c.fails == nil) || c.fails != nil && *got.Error != *c.fails {
				t.Errorf("got error %+v, want %+v", got.Error, c.fails)
			}
		})
	}
	r := newRig(t, Settings{})
	body := notification("999", "statuses", status("wamid.1", "read", now))
	if _, err := notify(r.Platform, body, sign(body, testSecret)); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Status("wamid.1"); ok {
		t.Error("a status of another phone number was taken")
	}
}

// TestStatusBeforeOurOwnAnswer: the platform's notice may overtake its answer.
func TestStatusBeforeOurOwnAnswer(t *testing.T) {
	meta := newMeta(t)
	r := newRig(t, Settings{BaseURL: meta.server.URL})
	meta.answer = func(string, http.ResponseWriter, *http.Request) bool {
		body := notification(testPhoneID, "statuses", status("wamid.1", "delivered", time.Now()))
		if _, err := notify(r.Platform, body, sign(body, testSecret)); err != nil {
			t.Error(err)
		}
		return false
	}
	id, err := r.send(t.Context(), text("Hello"))
	if err != nil || id != "wamid.1" {
		t.Fatalf("got %q, %v", id, err)
	}
	if got, ok := r.Status(id); !ok || got.State != Delivered {
		t.Errorf("got %+v, %t; want %s", got, ok, Delivered)
	}
	id, err = r.send(t.Context(), text("Hello"))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := r.Status(id); !ok || got.State != Sent || time.Since(got.UpdatedAt) > time.Minute {
		t.Errorf("got %+v, %t; want %s now", got, ok, Sent)
	}
}

func countLines(text, part string) (n int) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func FuzzNotification(f *testing.F) {
	now := time.Now()
	f.Add([]byte(notification(testPhoneID, "messages", received("wamid.a", now))))
	f.Add([]byte(notification(testPhoneID, "statuses", status("wamid.a", "failed", now))))
	f.Add([]byte(`{"entry":[{"changes":[{"value":{"metadata":{"phone_number_id":"102290129340398"},"statuses":[{"id":"a","status":"sent","timestamp":"-1"}]}}]}]}`))
	dir := f.TempDir()
	records, err := OpenRecords(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	defer records.Close()
	p := &Platform{account: Account{Name: testAccount, PhoneNumberID: testPhoneID, AccessToken: testToken}, records: records, log: slog.New(slog.DiscardHandler)}
	f.Fuzz(func(t *testing.T, body []byte) {
		p.take(body)
		for key, e := range records.statuses.entries {
			if e.rank == 0 || int(e.rank) >= len(states) || e.at <= 0 || e.at > time.Now().UnixMilli() {
				t.Fatalf("entry %x: %+v", key, e)
			}
		}
		for key, e := range records.inbound.entries {
			if !usableID(e.id) || e.at > time.Now().UnixMilli() {
				t.Fatalf("entry %x: %+v", key, e)
			}
		}
	})
}
