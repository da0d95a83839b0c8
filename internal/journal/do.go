package journal

import (
	"container/list"
	"context"
	"errors"
	"time"

	"messagesender/internal/appendlog"
	"messagesender/internal/message"
)

// Send carries a request out. It calls begin right before the message is handed
// to the platform, and hands it over only if begin returned nil; otherwise it
// returns begin's error. begin may be called again, which changes nothing.
//
// An error that is a *message.Error says what became of the message. Any other
// means that it was not sent if begin was not called, and is unknown if it was.
type Send func(begin func() error) (messageID string, err error)

// Do answers a request: with what send returns, or with the answer that its key
// already has. At most one send of a key runs at a time.
//
//   - A key that has an answer gives it again, marked as replayed.
//   - While a send of the key runs, Do waits and gives the same answer. If ctx of
//     that one ends before begin, nothing was sent, and the next that waits sends.
//     Waiting ends with ctx, and with StopWaiting: in_progress.
//   - The key of another request is idempotency_key_reused.
//   - A key is free again after a send that ended before begin, and after an
//     answer that is retryable. All other answers are kept.
//   - When there are too many keys, or nothing can be written, a new key is
//     unavailable and nothing is sent. If only the answer cannot be written, it is
//     given all the same; after a restart the key is unknown.
//
// The answer's Err is ctx's cause if that ended the waiting.
func (j *Journal) Do(ctx context.Context, r Request, send Send) Answer {
	for {
		f, w, e, err := j.enter(r)
		switch {
		case err != nil:
			return Answer{RequestID: r.ID, Err: err}
		case w != nil:
			return j.wait(ctx, f, w, r, send)
		case f != nil:
			return j.lead(ctx, f, r, send)
		}
		first, err := j.read(r.Key, e)
		switch {
		case errors.Is(err, appendlog.ErrDropped):
			continue // it has expired meanwhile
		case err != nil:
			return Answer{RequestID: r.ID, Err: unavailable("the answer to this key cannot be read at present", err)}
		case first.request != r.Digest:
			return Answer{RequestID: r.ID, Err: reused()}
		}
		a := first.answer()
		a.Replayed = true
		return a
	}
}

// flight is a send that runs.
type flight struct {
	key     Key
	request [32]byte
	waiting list.List     // of *waiter, in the order in which they came
	done    chan struct{} // closed when answer is there
	answer  Answer
}

type waiter struct {
	place *list.Element // nil: it is this one's turn to send
	turn  chan struct{} // closed then
}

// enter finds out how a request is to be answered: f and w to wait, f alone to
// send, neither to replay e.
func (j *Journal) enter(r Request) (f *flight, w *waiter, e entry, err error) {
	now := time.Now().UnixMilli()
	j.mu.Lock()
	defer j.mu.Unlock()
	if f := j.running[r.Key]; f != nil {
		if f.request != r.Digest {
			return nil, nil, entry{}, reused()
		}
		select {
		case <-j.stopped:
			return nil, nil, entry{}, inProgress()
		default:
		}
		w := &waiter{turn: make(chan struct{})}
		w.place = f.waiting.PushBack(w)
		return f, w, entry{}, nil
	}
	if e, ok := j.keys.get(r.Key, now); ok {
		return nil, nil, e, nil
	}
	if err := j.log.Err(); err != nil {
		return nil, nil, entry{}, unwritable(err)
	}
	j.keys.forget(now, func(k Key) { delete(j.unwritten, k) })
	if len(j.keys.entries)+len(j.running) >= j.maxKeys {
		return nil, nil, entry{}, unavailable("too many idempotency keys are in use", nil)
	}
	f = &flight{key: r.Key, request: r.Digest, done: make(chan struct{})}
	j.running[r.Key] = f
	return f, nil, entry{}, nil
}

func (j *Journal) wait(ctx context.Context, f *flight, w *waiter, r Request, send Send) Answer {
	select {
	case <-f.done:
		a := f.answer
		a.Replayed = true
		return a
	case <-w.turn:
		return j.lead(ctx, f, r, send)
	case <-ctx.Done():
		j.leave(f, w)
		return Answer{RequestID: r.ID, Err: context.Cause(ctx)}
	case <-j.stopped:
		j.leave(f, w)
		return Answer{RequestID: r.ID, Err: inProgress()}
	}
}

// leave ends the waiting of w. A turn that has just been given is passed on.
func (j *Journal) leave(f *flight, w *waiter) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if w.place != nil {
		f.waiting.Remove(w.place)
		return
	}
	j.pass(f)
}

// pass gives the turn to the next that waits, or the key free. The lock is held.
func (j *Journal) pass(f *flight) {
	next := f.waiting.Front()
	if next == nil {
		delete(j.running, f.key)
		return
	}
	w := f.waiting.Remove(next).(*waiter)
	w.place = nil
	close(w.turn)
}

// claim is the right to send. It is used by one goroutine.
type claim struct {
	journal *Journal
	ctx     context.Context
	record  record             // the begin
	at      appendlog.Position // of the begin
	begun   bool
}

func (c *claim) begin() error {
	if c.begun {
		return nil
	}
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	c.record.at = time.Now().UnixMilli()
	at, err := c.journal.write(c.record)
	if err != nil {
		return unwritable(err)
	}
	c.at, c.begun = at, true
	return nil
}

// lead sends, as the only one for its key.
func (j *Journal) lead(ctx context.Context, f *flight, r Request, send Send) Answer {
	c := &claim{journal: j, ctx: ctx, record: record{kind: begin, key: r.Key, request: f.request, requestID: r.ID}}
	returned := false
	defer func() {
		if !returned { // send panicked: what it did is not known
			j.conclude(f, c, Answer{RequestID: r.ID, Err: unknown(errors.New("the delivery panicked"))})
		}
	}()
	id, err := send(c.begin)
	returned = true
	if !c.begun && ctx.Err() != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.pass(f)
		return Answer{RequestID: r.ID, MessageID: id, Err: err}
	}
	return j.conclude(f, c, Answer{RequestID: r.ID, MessageID: id, Err: err})
}

// conclude records the answer if it is one to keep, and gives it to all who wait.
func (j *Journal) conclude(f *flight, c *claim, a Answer) Answer {
	keep := false
	r, at := c.record, c.at
	var writing error
	if c.begun {
		r, keep = a.record(c.record)
		if r.failure != nil {
			a.Err = r.failure
		}
		written, err := j.write(r)
		if writing = err; err == nil {
			at = written
		} else {
			j.logger.Error("what became of a message could not be written to the journal", "requestId", a.RequestID, "error", err)
		}
	}
	j.mu.Lock()
	if keep {
		j.keys.put(r, at)
		delete(j.unwritten, f.key)
		if writing != nil {
			j.unwritten[f.key] = r
		}
	} else {
		delete(j.keys.entries, f.key) // an expired one of the same key
	}
	delete(j.running, f.key)
	f.answer = a
	close(f.done)
	j.mu.Unlock()
	j.drop()
	return a
}

// record returns what is written after a begin, and whether the answer is kept.
func (a Answer) record(begun record) (r record, keep bool) {
	r = begun
	r.at = time.Now().UnixMilli()
	if a.Err == nil {
		r.kind, r.messageID = end, a.MessageID
		return r, true
	}
	failure, explained := errors.AsType[*message.Error](a.Err)
	if !explained {
		failure = unknown(a.Err)
	}
	r.failure = failure
	if failure.Retryable {
		r.kind = notSent
		return r, false
	}
	r.kind = end
	return r, true
}

const (
	inProgressRetry  = time.Second
	unavailableRetry = 30 * time.Second
)

func reused() error {
	return message.NewError(message.KeyReused, "this Idempotency-Key belongs to another request")
}

func inProgress() error {
	return message.NewError(message.InProgress, "the first request with this Idempotency-Key is still running").After(inProgressRetry)
}

func unwritable(cause error) error {
	return unavailable("requests with an Idempotency-Key cannot be taken at present", cause)
}

func unavailable(text string, cause error) error {
	return message.NewError(message.Unavailable, text).After(unavailableRetry).Because(cause)
}

func unknown(cause error) *message.Error {
	return message.NewError(message.DeliveryUnknown, "whether the message was sent is not known").Because(cause)
}
