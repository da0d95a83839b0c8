package appendlog

import "io"

// windowSize is how much of a segment is read at once.
const windowSize = 1 << 20

// fault is the first thing in a segment that does not verify.
type fault struct {
	offset int64
	what   string
	torn   bool // it is what an interrupted write leaves behind
}

// summary is what the intact part of a segment says.
type summary struct {
	previous int64 // size of the segment before
	durable  int64 // the offset up to which the segment is known to be on the disk
}

// scan calls found for every record of a segment, in order, up to the first
// fault. The payload is only valid during the call. An error is of reading, or
// of found; a fault is none.
func scan(r io.ReaderAt, size, number int64, found func(Position, []byte) error) (s summary, f *fault, err error) {
	w := window{r: r, size: size}
	defer func() {
		if f != nil && f.torn && err == nil {
			err = w.disprove(f, number)
		}
	}()
	if size < headerSize {
		return s, &fault{0, "the segment's header is incomplete", true}, nil
	}
	b, err := w.bytes(0, headerSize)
	if err != nil {
		return s, nil, err
	}
	var wrong string
	if s.previous, wrong = parseHeader(b, number); wrong != "" {
		torn, err := w.anyBlank(0, headerSize)
		return s, &fault{0, wrong, torn}, err
	}
	for at := (Position{number, headerSize}); at.Offset < size; {
		h, f, err := w.record(at, found)
		if f != nil || err != nil {
			return s, f, err
		}
		s.durable = max(s.durable, h.durable)
		at.Offset += recordSize + int64(h.length)
	}
	return s, nil, nil
}

// record verifies the record at a place and hands its payload to found.
func (w *window) record(at Position, found func(Position, []byte) error) (h recordHeader, f *fault, err error) {
	if w.size-at.Offset < recordSize {
		return h, &fault{at.Offset, "a record's header is incomplete", true}, nil
	}
	b, err := w.bytes(at.Offset, recordSize)
	if err != nil {
		return h, nil, err
	}
	h, ok := parseRecord(b, at)
	if !ok {
		torn, err := w.anyBlank(at.Offset, at.Offset+recordSize)
		return h, &fault{at.Offset, "a record's header does not verify", torn}, err
	}
	start := at.Offset + recordSize
	end := start + int64(h.length)
	if end > w.size {
		return h, &fault{at.Offset, "a record is incomplete", true}, nil
	}
	payload, err := w.bytes(start, h.length)
	if err != nil {
		return h, nil, err
	}
	if !h.verifies(payload) {
		torn, err := w.anyBlank(at.Offset, end)
		return h, &fault{at.Offset, "a record's payload does not verify", torn && h.kind == kindPlain}, err
	}
	return h, nil, found(at, payload)
}

// disprove looks behind a fault for a record that was written when the place of
// the fault had been synced already: then nothing was torn there.
func (w *window) disprove(f *fault, number int64) error {
	for at := (Position{number, f.offset + 1}); at.Offset+recordSize <= w.size; at.Offset++ {
		b, err := w.bytes(at.Offset, recordSize)
		if err != nil {
			return err
		}
		if h, ok := parseRecord(b, at); ok && h.durable > f.offset {
			f.torn = false
			f.what += ", though it was synced"
			return nil
		}
	}
	return nil
}

// window reads a segment front to back through one buffer, which never grows
// beyond a record of the largest size.
type window struct {
	r     io.ReaderAt
	size  int64
	start int64 // offset of buf
	buf   []byte
}

// bytes returns n bytes at an offset; they must lie inside the segment and stay
// valid until the next call.
func (w *window) bytes(offset int64, n int) ([]byte, error) {
	if offset < w.start || offset+int64(n) > w.start+int64(len(w.buf)) {
		fill := int(min(w.size-offset, int64(max(n, windowSize))))
		if fill > cap(w.buf) {
			w.buf = make([]byte, fill)
		}
		w.start, w.buf = offset, w.buf[:fill]
		if _, err := w.r.ReadAt(w.buf, offset); err != nil && err != io.EOF {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[offset-w.start:][:n:n], nil
}

// anyBlank reports whether a sector that overlaps the bytes from start to end
// has nothing but zeros from start on, as far as the segment goes.
func (w *window) anyBlank(start, end int64) (bool, error) {
	for from := start; from < min(end, w.size); {
		to := min(from-from%sectorSize+sectorSize, w.size)
		b, err := w.bytes(from, int(to-from))
		if err != nil {
			return false, err
		}
		if blank(b) {
			return true, nil
		}
		from = to
	}
	return false, nil
}
