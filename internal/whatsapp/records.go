package whatsapp

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"
)

// Records is what is remembered of all accounts: received messages, which make
// presence possible, and the states of sent ones. It survives a restart; what
// the last moments before a loss of power brought may be lost. It is safe for concurrent use.
type Records struct {
	inbound  *inbound
	statuses *statuses
	log      *slog.Logger
	failing  atomic.Bool // the last write failed; logged once
}

// OpenRecords opens, or makes, the records below dir. Damage in the middle is
// an error and nothing is changed.
func OpenRecords(dir string, log *slog.Logger) (*Records, error) {
	in, err := openInbound(filepath.Join(dir, "inbound"), maxInbound)
	if err != nil {
		return nil, fmt.Errorf("received messages: %w", err)
	}
	st, err := openStatuses(filepath.Join(dir, "status"), maxStatuses)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("message states: %w", err), in.close())
	}
	return &Records{inbound: in, statuses: st, log: log}, nil
}

// Close frees the files. It may be called twice.
func (r *Records) Close() error {
	return errors.Join(r.inbound.close(), r.statuses.close())
}

// sent records the platform's answer to a send.
func (r *Records) sent(account, id string) {
	r.note(r.statuses.put(account, id, Status{State: Sent, UpdatedAt: time.Now()}))
}

// note logs a write that failed, once until one succeeds again. It fails no
// send: what was recorded is known until the next restart.
func (r *Records) note(err error) {
	if failed := err != nil; r.failing.Load() != failed && r.failing.CompareAndSwap(!failed, failed) && failed {
		r.log.Error("records of messages cannot be written", "error", err)
	}
}
