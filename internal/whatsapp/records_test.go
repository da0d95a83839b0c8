package whatsapp

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func openTestRecords(t *testing.T, dir string) *Records {
	t.Helper()
	r, err := OpenRecords(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestStatesInAnyOrderAndMoreThanOnce(t *testing.T) {
	begin := time.UnixMilli(1_750_000_000_000).UTC()
	failed := Status{Failed, begin.Add(time.Second), &StatusError{131026, "undeliverable"}}
	all := []Status{{Sent, begin, nil}, {Sent, begin.Add(time.Second), nil}, failed, {Delivered, begin.Add(2 * time.Second), nil}, {Read, begin.Add(3 * time.Second), nil}}
	for _, c := range []struct {
		name string
		came []Status
		want Status
	}{
		{"sent", all[:1], all[0]},
		{"sent twice keeps the first moment", all[:2], all[0]},
		{"failed", all[:3], failed},
		{"delivered", all[:4], all[3]},
		{"read", all, all[4]},
		{"read without delivered", []Status{all[0], all[4]}, all[4]},
		{"delivered before sent", []Status{all[3]}, all[3]},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openTestRecords(t, t.TempDir())
			for i := range 20 {
				id := fmt.Sprint("wamid.", i)
				for range 3 {
					for _, j := range rand.Perm(len(c.came)) {
						if err := r.statuses.put("shop", id, c.came[j]); err != nil {
							t.Fatal(err)
						}
					}
				}
				got, ok := r.statuses.get("shop", id)
				if !ok || got.State != c.want.State || !got.UpdatedAt.Equal(c.want.UpdatedAt) {
					t.Errorf("got %+v, %t; want %+v", got, ok, c.want)
				}
				if (got.Error == nil) != (c.want.Error == nil) || got.Error != nil && *got.Error != *c.want.Error {
					t.Errorf("got error %+v, want %+v", got.Error, c.want.Error)
				}
			}
			if _, ok := r.statuses.get("other", "wamid.0"); ok {
				t.Error("another account sees it")
			}
			if _, ok := r.statuses.get("shop", "wamid.unknown"); ok {
				t.Error("an unknown id has a state")
			}
		})
	}
}

func TestRecordsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	r := openTestRecords(t, dir)
	now := time.Now()
	failed := Status{Failed, now, &StatusError{-1, "Grund"}}
	for _, err := range []error{
		r.statuses.put("shop", "wamid.1", Status{State: Sent, UpdatedAt: now}),
		r.statuses.put("shop", "wamid.1", Status{State: Read, UpdatedAt: now}),
		r.statuses.put("shop", "wamid.2", failed),
		r.inbound.put("shop", "491701234567", "wamid.a", now.Add(-time.Hour)),
		r.inbound.put("shop", "491701234567", "wamid.b", now),
		r.inbound.put("shop", "491701234567", "wamid.c", now.Add(-time.Minute)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // Close may be called twice
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r = openTestRecords(t, dir)
	if got, ok := r.statuses.get("shop", "wamid.1"); !ok || got.State != Read {
		t.Errorf("got %+v, %t; want %s", got, ok, Read)
	}
	if got, ok := r.statuses.get("shop", "wamid.2"); !ok || got.State != Failed || *got.Error != *failed.Error {
		t.Errorf("got %+v, %t; want %+v", got, ok, failed)
	}
	if id, ok := r.inbound.get("shop", "491701234567", now); !ok || id != "wamid.b" {
		t.Errorf("got %q, %t; want the newest received", id, ok)
	}
	if _, ok := r.inbound.get("other", "491701234567", now); ok {
		t.Error("another account sees it")
	}
}

func TestDamagedRecordsAreRefused(t *testing.T) {
	dir := t.TempDir()
	r := openTestRecords(t, dir)
	for i := range 100 {
		if err := r.statuses.put("shop", fmt.Sprint(i), Status{State: Sent, UpdatedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "status", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := OpenRecords(dir, slog.New(slog.DiscardHandler)); err == nil {
		_ = r.Close()
		t.Error("damage in the middle is not noticed")
	}
}

func TestReceivedMessagesAgeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openTestRecords(t, t.TempDir())
		if err := r.inbound.put("shop", "1", "wamid.a", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(inboundLife - time.Second)
		if _, ok := r.inbound.get("shop", "1", time.Now()); !ok {
			t.Error("forgotten before its time")
		}
		time.Sleep(time.Second)
		if _, ok := r.inbound.get("shop", "1", time.Now()); ok {
			t.Error("answered after 24 hours")
		}
		for range r.inbound.live() {
			t.Error("kept on disk after 24 hours")
		}
	})
}

func TestTheNewestStatesAreKept(t *testing.T) {
	const limit, ids = 100, 1000
	dir := t.TempDir()
	open := func() *statuses {
		s, err := openStatuses(dir, limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.close() })
		return s
	}
	s := open()
	for i := range ids {
		for _, state := range []Status{{State: Sent}, {State: Failed, Error: &StatusError{Code: i}}} {
			state.UpdatedAt = time.UnixMilli(int64(i + 1))
			if err := s.put("shop", fmt.Sprint(i), state); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(s *statuses) {
		t.Helper()
		for i := range ids {
			got, ok := s.get("shop", fmt.Sprint(i))
			if want := i >= ids-limit; ok != want || ok && got.Error.Code != i {
				t.Fatalf("id %d: got %+v, %t; want it kept: %t", i, got, ok, want)
			}
		}
		if len(s.entries) != limit || len(s.failures) != limit || len(s.ring) != limit {
			t.Errorf("%d entries, %d failures, %d in the ring; want %d of each", len(s.entries), len(s.failures), len(s.ring), limit)
		}
	}
	check(s)
	if err := s.store.rewrite(s.live()); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	check(open())
}

func TestTheNewestCorrespondentsAreKept(t *testing.T) {
	const limit = 100
	s, err := openInbound(t.TempDir(), limit)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	now := time.Now()
	for i := range 1000 {
		if err := s.put("shop", fmt.Sprint(i), "wamid", now.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if len(s.entries) > limit {
			t.Fatalf("%d entries, want at most %d", len(s.entries), limit)
		}
	}
	for i := 950; i < 1000; i++ {
		if _, ok := s.get("shop", fmt.Sprint(i), now); !ok {
			t.Errorf("correspondent %d of 1000 is forgotten", i)
		}
	}
}

// TestLogsStayBounded writes far more than is kept.
func TestLogsStayBounded(t *testing.T) {
	s, err := openStatuses(t.TempDir(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	text := string(make([]byte, 16<<10))
	for i := range 5000 {
		err := s.put("shop", fmt.Sprint(i), Status{Failed, time.UnixMilli(int64(i + 1)), &StatusError{1, text}})
		if err != nil {
			t.Fatal(err)
		}
	}
	live := int64(1000 * len(text))
	if got, limit := s.store.log.Size(), 3*(live+segmentSize); got > limit {
		t.Errorf("the log has %d bytes for %d live ones, want at most %d", got, live, limit)
	}
}

func TestFailingDiskIsLoggedOnce(t *testing.T) {
	logs := &logBuffer{}
	r, err := OpenRecords(t.TempDir(), slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r.sent("shop", fmt.Sprint(i))
	}
	if _, ok := r.statuses.get("shop", "4"); !ok {
		t.Error("a state that could not be written is not known either")
	}
	if got := countLines(logs.String(), "cannot be written"); got != 1 {
		t.Errorf("logged %d times, want once:\n%s", got, logs)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendStatus(nil, digest{1}, statusEntry{2, 3}, StatusError{4, "text"}))
	f.Add(appendInbound(nil, digest{1}, inboundEntry{2, "wamid"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, e, failed, err := parseStatus(b); err == nil && string(appendStatus(nil, key, e, failed)) != string(b) {
			t.Errorf("status record %x is not written as it was read", b)
		}
		if key, e, err := parseInbound(b); err == nil && string(appendInbound(nil, key, e)) != string(b) {
			t.Errorf("inbound record %x is not written as it was read", b)
		}
	})
}
