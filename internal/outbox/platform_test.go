package outbox_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"messagesender/internal/message"
	"messagesender/internal/outbox"
	"messagesender/internal/platformtest"
)

// TestContract: the outbox is a platform like any other.
func TestContract(t *testing.T) {
	platformtest.Run(t, platformtest.Harness{
		Open:     openSubject,
		Failures: []platformtest.Failure{{Fault: "a closed store", Want: message.Unavailable, Retryable: true}},
	})
}

func openSubject(t *testing.T, fault string) platformtest.Subject {
	t.Helper()
	const account, number = "shop", "491701234567"
	var logs bytes.Buffer
	store, err := outbox.Open(outbox.Options{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if fault == "a closed store" {
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return platformtest.Subject{
		Platform: store,
		Account:  account,
		Number:   number,
		Arrived:  func() []platformtest.Arrival { return stored(t, store, account) },
		Logs:     logs.String,
	}
}

// stored is what the outbox's own API says has been sent.
func stored(t *testing.T, store *outbox.Store, account string) (all []platformtest.Arrival) {
	t.Helper()
	w := httptest.NewRecorder()
	if err := store.List(w, httptest.NewRequest(http.MethodGet, "/outbox/messages", nil), account); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Messages []struct {
			Number        message.Number
			Text, Caption string
			Size          int64
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Messages {
		all = append(all, platformtest.Arrival{Number: m.Number, Text: m.Text + m.Caption, Size: m.Size})
	}
	return all
}
