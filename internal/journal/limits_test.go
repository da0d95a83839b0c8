package journal

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"messagesender/internal/appendlog/disktest"
	"messagesender/internal/message"
)

func TestKeysExpireAfterTheWindowAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		o := Options{Window: time.Hour, MaxKeys: 100, SegmentSize: 1000}
		j := mustOpen(t, d, o)
		var count atomic.Int64
		for i := range 100 {
			if a := j.Do(t.Context(), request(fmt.Sprint(i), "r"), sends(&count, "1", nil)); a.Err != nil {
				t.Fatal(a.Err)
			}
			time.Sleep(time.Minute / 10) // all in 10 minutes
		}
		time.Sleep(50*time.Minute - time.Second) // the first is 59:59 old
		for _, restarted := range []bool{false, true} {
			if restarted {
				d.LosePower()
				j = mustOpen(t, d, o)
			}
			if a := j.Do(t.Context(), request("new", "r"), never(t)); reason(a) != message.Unavailable {
				t.Errorf("one key too many: got %+v, want %s", a, message.Unavailable)
			}
			if a := j.Do(t.Context(), request("0", "r"), never(t)); !a.Replayed {
				t.Errorf("within the window: got %+v, want the first answer", a)
			}
		}
		size := j.log.Size()
		time.Sleep(2 * time.Second) // the first is over the window, the second is not
		if _, _, ok, _ := j.Outcome(KeyOf("a", "0")); ok {
			t.Errorf("after the window the key is still known")
		}
		if a := j.Do(t.Context(), request("new", "r"), sends(&count, "2", nil)); a.MessageID != "2" {
			t.Errorf("a key in place of the expired one: got %+v, want it sent", a)
		}
		if a := j.Do(t.Context(), request("1", "r"), never(t)); !a.Replayed {
			t.Errorf("the second key: got %+v, want the first answer", a)
		}
		time.Sleep(30 * time.Minute)
		j.Do(t.Context(), request("newer", "r"), sends(&count, "3", nil))
		if got := j.log.Size(); j.Len() != 2 || got > size/4 {
			t.Errorf("after the window: got %d keys and %d bytes, want 2 and much less than %d", j.Len(), got, size)
		}
		d.LosePower()
		j = mustOpen(t, d, o)
		if a := j.Do(t.Context(), request("new", "r"), never(t)); a.MessageID != "2" || j.Len() != 2 {
			t.Errorf("after a restart: got %+v and %d keys, want 2", a, j.Len())
		}
	})
}

func TestUnknownKeyExpiresToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := disktest.New(1)
		j := mustOpen(t, d, Options{})
		j.Do(t.Context(), request("k", "first"), func(begin func() error) (string, error) {
			err := begin()
			d.Kill()
			return "1", err
		})
		j = mustOpen(t, d, Options{})
		time.Sleep(24 * time.Hour)
		if a := j.Do(t.Context(), request("k", "again"), never(t)); reason(a) != message.DeliveryUnknown {
			t.Errorf("within the window: got %+v", a)
		}
		time.Sleep(time.Second)
		var count atomic.Int64
		if a := j.Do(t.Context(), request("k", "again"), sends(&count, "2", nil)); a.MessageID != "2" {
			t.Errorf("after the window: got %+v, want it sent", a)
		}
	})
}

func TestDiskThatFails(t *testing.T) {
	for _, test := range []struct {
		name     string
		harm     func(*disktest.Disk)
		want     error
		recovers bool
	}{
		{"failed sync", func(d *disktest.Disk) { d.FailSync(1) }, disktest.ErrSync, false},
		{"full disk", func(d *disktest.Disk) { d.SetRoom(30) }, syscall.ENOSPC, true},
	} {
		t.Run(test.name+" at begin", func(t *testing.T) {
			d := disktest.New(1)
			j := mustOpen(t, d, Options{})
			var count atomic.Int64
			j.Do(t.Context(), request("old", "r"), sends(&count, "1", nil))
			test.harm(d)
			for range 2 {
				a := j.Do(t.Context(), request("k", "r"), sends(&count, "2", nil))
				if reason(a) != message.Unavailable || !errors.Is(a.Err, test.want) {
					t.Errorf("got %+v, want %s because of %v", a, message.Unavailable, test.want)
				}
			}
			if a := j.Do(t.Context(), request("old", "r"), never(t)); a.MessageID != "1" {
				t.Errorf("a key that has an answer: got %+v", a)
			}
			d.SetRoom(-1)
			a := j.Do(t.Context(), request("k", "r"), sends(&count, "2", nil))
			if sent := a.MessageID == "2"; sent != test.recovers || (j.Err() == nil) != test.recovers {
				t.Errorf("when the disk is well again: got %+v, want sent %v", a, test.recovers)
			}
		})
		t.Run(test.name+" at end", func(t *testing.T) {
			d := disktest.New(1)
			j := mustOpen(t, d, Options{})
			first := j.Do(t.Context(), request("k", "r"), func(begin func() error) (string, error) {
				err := begin()
				test.harm(d)
				return "1", err
			})
			if first.MessageID != "1" || first.Err != nil {
				t.Errorf("got %+v, want the truth", first)
			}
			if a := j.Do(t.Context(), request("k", "r2"), never(t)); a.MessageID != "1" || a.RequestID != "r" {
				t.Errorf("again: got %+v, want the first answer", a)
			}
			d.SetRoom(-1)
			d.LosePower()
			j = mustOpen(t, d, Options{})
			a := j.Do(t.Context(), request("k", "r3"), never(t))
			if a.MessageID != "1" && reason(a) != message.DeliveryUnknown {
				t.Errorf("after a restart: got %+v, want the first answer or unknown", a)
			}
		})
	}
}
