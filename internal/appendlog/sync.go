package appendlog

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Sync returns when the record at pos, and every record before it, survives a
// loss of power. One fsync serves all who wait at the same time.
//
// An fsync that fails is not repeated, because the second one would succeed
// without having written what the first could not. The log then refuses every
// further Append and Sync; what it holds is known again when it is opened anew.
func (l *Log) Sync(pos Position) error {
	for {
		l.mu.Lock()
		switch {
		case pos.before(l.durable):
			l.mu.Unlock()
			return nil
		case l.broken != nil:
			defer l.mu.Unlock()
			return l.broken
		case l.syncing != nil:
			done := l.syncing
			l.mu.Unlock()
			<-done
		default:
			done := make(chan struct{})
			l.syncing = done
			l.mu.Unlock()
			l.sync()
			l.mu.Lock()
			l.syncing = nil
			l.mu.Unlock()
			close(done)
		}
	}
}

// sync makes everything durable that is in the log when it begins. Only one runs
// at a time.
func (l *Log) sync() {
	// Those whom the last fsync has set free are about to append: let them come along.
	runtime.Gosched()
	s, err := l.last()
	if err != nil {
		l.fail(err)
		return
	}
	end := Position{s.number, s.size}
	begin := time.Now()
	err = s.file.Sync()
	if l.synced != nil {
		l.synced(time.Since(begin), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.durable.before(end):
		// Meanwhile the segment was completed, and its file perhaps dropped and closed.
	case err == nil:
		l.durable = end
		l.syncs++
	case l.broken == nil:
		l.broken = lost(err)
	}
}

// Settle makes durable what Open found. Who relies on Sync calls it after Open:
// the process before may have died before it synced, or because it could not. In
// the second case an fsync alone writes nothing, so that what is not known to be
// on the disk is written again.
func (l *Log) Settle() error {
	l.appending <- struct{}{}
	defer func() { <-l.appending }()
	s, err := l.last()
	if err != nil {
		return err
	}
	offset := int64(0)
	if known := l.known(); known.Segment == s.number {
		offset = known.Offset
	}
	b := make([]byte, min(windowSize, s.size-offset))
	for ; offset < s.size; offset += int64(len(b)) {
		b = b[:min(int64(len(b)), s.size-offset)]
		if err := readFull(s.file, b, offset); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(b, offset); err != nil {
			return err
		}
	}
	if err := errors.Join(s.file.Sync(), l.dir.Sync()); err != nil {
		l.fail(lost(err))
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = Position{s.number, s.size}
	return nil
}

func lost(err error) error { return fmt.Errorf("the log may have lost records: %w", err) }

// fail makes the log refuse everything from now on. The first reason stays.
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// Err is why the log refuses all appends; nil: it does not.
func (l *Log) Err() error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.broken
}

// Syncs is the number of fsyncs that Sync has made.
func (l *Log) Syncs() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.syncs
}
