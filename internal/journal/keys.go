package journal

import (
	"slices"

	"messagesender/internal/appendlog"
)

// entry is what memory holds of a key whose answer is known or lost. The answer,
// and the digest of the request, stay on the disk.
type entry struct {
	at      int64  // of the record, in milliseconds since 1970
	segment uint32 // where the record stands: an end, or a begin that has none
	offset  uint32
}

func (e entry) position() appendlog.Position {
	return appendlog.Position{Segment: int64(e.segment), Offset: int64(e.offset)}
}

// keys are the entries, with what is needed to forget them in time.
type keys struct {
	window   int64 // in milliseconds
	entries  map[Key]entry
	queue    queue
	segments []age
}

// age is when the newest record of a segment was written.
type age struct{ segment, newest int64 }

// put adds or replaces the entry of the record at a place.
func (k *keys) put(r record, at appendlog.Position) {
	k.entries[r.key] = entry{r.at, uint32(at.Segment), uint32(at.Offset)}
	k.queue.push(item{r.key, r.at})
}

// written notes that a record stands in a segment.
func (k *keys) written(r record, at appendlog.Position) {
	// From the back: appends may be noted in another order than they were made.
	i := len(k.segments)
	for i > 0 && k.segments[i-1].segment > at.Segment {
		i--
	}
	if i == 0 || k.segments[i-1].segment < at.Segment {
		k.segments = slices.Insert(k.segments, i, age{at.Segment, r.at})
		return
	}
	k.segments[i-1].newest = max(k.segments[i-1].newest, r.at)
}

// expired tells whether more than the window has passed since at.
func (k *keys) expired(at, now int64) bool { return now-at > k.window }

// get returns an entry that has not expired.
func (k *keys) get(key Key, now int64) (entry, bool) {
	e, ok := k.entries[key]
	return e, ok && !k.expired(e.at, now)
}

// forget removes what has expired, and calls gone for each key. If the clock was
// set back, some is removed later than it could be, none earlier.
func (k *keys) forget(now int64, gone func(Key)) {
	for {
		head, ok := k.queue.head()
		if !ok || !k.expired(head.at, now) {
			return
		}
		k.queue.pop()
		if e, ok := k.entries[head.key]; ok && e.at == head.at {
			delete(k.entries, head.key)
			gone(head.key)
		}
	}
}

// clean takes stale items out of the queue: those of begins that have an end.
func (k *keys) clean() {
	old := k.queue
	k.queue = queue{}
	for _, chunk := range old.chunks {
		for _, i := range chunk {
			if e, ok := k.entries[i.key]; ok && e.at == i.at {
				k.queue.push(i)
			}
		}
	}
}

// droppable returns the first segment that is still needed, and whether one
// before it is not.
func (k *keys) droppable(now int64) (needed int64, ok bool) {
	for len(k.segments) > 1 && k.expired(k.segments[0].newest, now) {
		k.segments = k.segments[1:]
		ok = true
	}
	if !ok {
		return 0, false
	}
	return k.segments[0].segment, true
}

// item is due to be forgotten in its turn. It is stale when its key's entry has
// another time.
type item struct {
	key Key
	at  int64
}

const chunkSize = 1024

// queue is first in, first out, in chunks so that it never moves what it holds.
type queue struct{ chunks [][]item }

func (q *queue) push(i item) {
	n := len(q.chunks)
	if n == 0 || len(q.chunks[n-1]) == cap(q.chunks[n-1]) {
		q.chunks = append(q.chunks, make([]item, 0, chunkSize))
		n++
	}
	q.chunks[n-1] = append(q.chunks[n-1], i)
}

func (q *queue) head() (item, bool) {
	if len(q.chunks) == 0 {
		return item{}, false
	}
	return q.chunks[0][0], true
}

func (q *queue) pop() {
	q.chunks[0] = q.chunks[0][1:]
	if len(q.chunks[0]) == 0 {
		q.chunks = q.chunks[1:]
	}
}
