package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	graphToken  = "EAAcanary0123456789canary"
	appSecret   = "app-secret-0123456789"
	verifyToken = "verify-token-0123456789"
	phoneID     = "106540352242922"
)

// graph is a stand-in of the Cloud API: it keeps what it is sent.
type graph struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []map[string]any
	fail   string // when set, the answer to every message
	status int
}

func newGraph(t *testing.T) *graph {
	t.Helper()
	g := &graph{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+graphToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/media") {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"id":"4242"}`)
			return
		}
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.bodies = append(g.bodies, body)
		switch {
		case g.fail != "":
			w.WriteHeader(g.status)
			_, _ = io.WriteString(w, g.fail)
		case body["typing_indicator"] != nil:
			_, _ = io.WriteString(w, `{"success":true}`)
		default:
			fmt.Fprintf(w, `{"messaging_product":"whatsapp","contacts":[{"input":"1","wa_id":"1"}],"messages":[{"id":"wamid.%d"}]}`, len(g.bodies))
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *graph) answer(status int, body string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status, g.fail = status, body
}

// received is what has come so far.
func (g *graph) received() []map[string]any {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]map[string]any(nil), g.bodies...)
}

func startWhatsApp(t *testing.T, g *graph, data string) *service {
	t.Helper()
	env := append(account(), "WHATSAPP_PHONE_NUMBER_ID="+phoneID, "WHATSAPP_ACCESS_TOKEN="+graphToken, "WHATSAPP_APP_SECRET="+appSecret, "WHATSAPP_VERIFY_TOKEN="+verifyToken)
	s := start(t, data, env, "-sender", "whatsapp", "-whatsapp-url", g.URL)
	t.Cleanup(func() {
		for _, secret := range []string{graphToken, appSecret, verifyToken} {
			if strings.Contains(s.stderr.String(), secret) {
				t.Errorf("the log holds %q", secret)
			}
		}
	})
	return s
}

// notify sends a signed notification.
func (s *service) notify(account, value, secret string) int {
	s.t.Helper()
	body := `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"1","phone_number_id":"` + phoneID + `"},` + value + `}}]}]}`
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	r, err := http.NewRequest("POST", s.url+"/webhook/whatsapp/"+account, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

func TestWhatsAppFromSendToRead(t *testing.T) {
	g := newGraph(t)
	data := filepath.Join(t.TempDir(), "data")
	s := startWhatsApp(t, g, data)
	a, err := s.send("sendText", text(10, "hello"))
	if err != nil || a.Status != 200 || a.Data.MessageID != "wamid.1" {
		t.Fatalf("got %v %v, want 200 with wamid.1", a, err)
	}
	if got := g.received(); len(got) != 1 || got[0]["to"] != number || got[0]["type"] != "text" {
		t.Errorf("the platform got %v, want one text and no typing: nobody has written yet", got)
	}
	state := func(s *service, want string) {
		t.Helper()
		status, body := s.get("/message/status/" + token + "/wamid.1")
		if status != 200 || !bytes.Contains(body, []byte(`"state":"`+want+`"`)) {
			t.Errorf("got state %d %s, want %s", status, body, want)
		}
	}
	state(s, "sent")
	if got := s.notify("default", `"statuses":[{"id":"wamid.1","status":"read","timestamp":"`+fmt.Sprint(time.Now().Unix())+`","recipient_id":"1"}]`, appSecret); got != 200 {
		t.Errorf("a status notification got %d, want 200", got)
	}
	state(s, "read")
	if status, _ := s.get("/message/status/" + token + "/wamid.2"); status != 404 {
		t.Errorf("an unknown message: got %d, want 404", status)
	}
	// After somebody has written, typing is shown, and a restart does not forget.
	inbound := `"messages":[{"from":"` + number + `","id":"wamid.in","timestamp":"` + fmt.Sprint(time.Now().Unix()) + `","type":"text","text":{"body":"hi"}}]`
	if got := s.notify("default", inbound, "wrong-secret"); got != 401 {
		t.Errorf("a wrong signature got %d, want 401", got)
	}
	if got := s.notify("default", inbound, appSecret); got != 200 {
		t.Errorf("an inbound notification got %d, want 200", got)
	}
	if got := s.notify("nobody", inbound, appSecret); got != 404 {
		t.Errorf("a notification for an unknown account got %d, want 404", got)
	}
	s.kill()
	s = startWhatsApp(t, g, data)
	state(s, "read")
	if a, err := s.send("sendText", text(10, "hello again")); err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	got := g.received()
	if len(got) != 3 || got[1]["message_id"] != "wamid.in" || got[1]["typing_indicator"] == nil {
		t.Errorf("the platform got %v, want typing for wamid.in before the second text", got)
	}
}

func TestWhatsAppHandshake(t *testing.T) {
	s := startWhatsApp(t, newGraph(t), filepath.Join(t.TempDir(), "data"))
	for _, c := range []struct {
		name, path string
		want       int
		body       string
	}{
		{"the right word", "/webhook/whatsapp/default?hub.mode=subscribe&hub.verify_token=" + verifyToken + "&hub.challenge=1158201444", 200, "1158201444"},
		{"a wrong word", "/webhook/whatsapp/default?hub.mode=subscribe&hub.verify_token=wrong&hub.challenge=1", 401, ""},
		{"another account", "/webhook/whatsapp/shop?hub.mode=subscribe&hub.verify_token=" + verifyToken + "&hub.challenge=1", 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := s.get(c.path)
			if status != c.want || c.body != "" && string(body) != c.body {
				t.Errorf("got %d %q, want %d %q", status, body, c.want, c.body)
			}
		})
	}
}

func TestWhatsAppRefusals(t *testing.T) {
	g := newGraph(t)
	s := startWhatsApp(t, g, filepath.Join(t.TempDir(), "data"))
	for _, c := range []struct {
		name      string
		status    int
		body      string
		want      int
		code      string
		retryable bool
	}{
		{"outside of 24 hours", 400, `{"error":{"message":"(#131047) Re-engagement message","code":131047}}`, 422, "recipient_unavailable", false},
		{"too fast for one recipient", 400, `{"error":{"message":"(#131056) pair rate","code":131056}}`, 429, "rate_limited", true},
		{"an answer that is no JSON", 502, `<html>bad gateway</html>`, 504, "delivery_unknown", false},
		{"a token that has ended", 401, `{"error":{"message":"Session has expired","code":190,"error_subcode":463}}`, 502, "platform_rejected", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.answer(c.status, c.body)
			a, err := s.send("sendText", text(0, "x"))
			if err != nil || a.Status != c.want || a.Error.Code != c.code || a.Error.Retryable != c.retryable {
				t.Errorf("got %+v %v, want %d %s, retryable %v", a, err, c.want, c.code, c.retryable)
			}
		})
	}
	if status, body := s.get("/readyz"); status != 200 || !bytes.Contains(body, []byte("account default:")) {
		t.Errorf("readyz: got %d %s, want 200 with the token's problem", status, body)
	}
}

func TestWhatsAppMediaByURLIsUploaded(t *testing.T) {
	g := newGraph(t)
	url, host, _ := storage(t, func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(pngHead) })
	env := append(account(), "WHATSAPP_PHONE_NUMBER_ID="+phoneID, "WHATSAPP_ACCESS_TOKEN="+graphToken)
	s := start(t, filepath.Join(t.TempDir(), "data"), env, "-sender", "whatsapp", "-whatsapp-url", g.URL, "-allow-media-from", host)
	if a, err := s.send("sendMedia", mediaURL("image", url)); err != nil || a.Status != 200 {
		t.Fatalf("got %v %v, want 200", a, err)
	}
	got := g.received()
	if image, _ := got[0]["image"].(map[string]any); image["id"] != "4242" || image["link"] != nil {
		t.Errorf("the platform got %v, want an image by its uploaded id", got)
	}
}
