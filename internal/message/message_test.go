package message

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"messagesender/internal/media"
)

func pointer[T any](v T) *T { return &v }

// Two requests have the same digest exactly when they ask for the same message.
func TestDigest(t *testing.T) {
	spool, err := media.OpenSpool(t.TempDir(), media.Limits{Blob: 100, Total: 1000, Memory: 1000})
	if err != nil {
		t.Fatal(err)
	}
	blob := func(content string) media.Source {
		w := spool.NewWriter()
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		b, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return media.Source{Blob: b}
	}
	different := []Message{
		{Number: "15550001234", Content: Text{Body: "x"}},
		{Number: "15550001235", Content: Text{Body: "x"}},
		{Number: "15550001234", Content: Text{Body: "y"}},
		{Number: "15550001234", Content: Text{Body: "x", LinkPreview: pointer(false)}},
		{Number: "15550001234", Content: Text{Body: "x", LinkPreview: pointer(true)}},
		{Number: "15550001234", Content: Text{Body: "x"}, Delay: time.Millisecond},
		{Number: "15550001234", Content: Text{Body: "x"}, Presence: Composing},
		{Number: "15550001234", Content: File{Kind: media.Image, Source: blob("1")}},
		{Number: "15550001234", Content: File{Kind: media.Image, Source: blob("2")}},
		{Number: "15550001234", Content: File{Kind: media.Document, Source: blob("1")}},
		{Number: "15550001234", Content: File{Kind: media.Document, Name: "ab", Caption: "c", Source: blob("1")}},
		{Number: "15550001234", Content: File{Kind: media.Document, Name: "a", Caption: "bc", Source: blob("1")}},
		{Number: "15550001234", Content: File{Kind: media.Image, Source: media.Source{URL: "https://example.org/1"}}},
		{Number: "15550001234", Content: Voice{Source: blob("1")}},
		{Number: "15550001234", Content: Voice{Source: blob("1"), Encode: true}},
	}
	seen := map[[32]byte]int{}
	for i, m := range different {
		d := m.Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("messages %d and %d have the same digest", other, i)
		}
		seen[d] = i
	}
	// Neither who asks nor when makes it another request.
	a := Message{Number: "15550001234", Content: File{Kind: media.Image, Source: blob("1")}, RequestID: "r", Account: "a", RequestedAt: time.Now()}
	if a.Digest() != different[7].Digest() {
		t.Error("equal media spooled twice has different digests")
	}
}

func TestNumbersAndErrorsKeepQuiet(t *testing.T) {
	const number Number = "15550001234"
	var log strings.Builder
	cause := errors.New("cause")
	e := FieldError(InvalidRequest, "number", "must not be "+string(number)).Because(cause)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "number", number, "error", e)
	if got := log.String(); strings.Contains(got, string(number)) || !strings.Contains(got, "…1234") || !strings.Contains(got, "cause") {
		t.Errorf("got %q, want the masked number and the cause only", got)
	}
	if Number("123").Masked() == "…123" {
		t.Error("a short number is shown whole")
	}
	if !errors.Is(fmt.Errorf("more: %w", e), cause) {
		t.Error("the cause cannot be found")
	}
}

func TestEveryReasonHasItsStatus(t *testing.T) {
	for reason, row := range reasons {
		if row.status < 400 || row.status > 599 || reason.Status() != row.status || NewError(reason, "").Retryable != row.retryable {
			t.Errorf("%s: status %d", reason, reason.Status())
		}
	}
	if got := Reason("nonsense").Status(); got != 500 {
		t.Errorf("an unknown reason: got %d, want 500", got)
	}
}
