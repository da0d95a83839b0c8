package whatsapp

import (
	"crypto/sha256"
	"iter"

	"messagesender/internal/appendlog"
)

const (
	segmentSize = 4 << 20
	// rewriteSize is how large a log may grow, in bytes, before it is written anew
	// from what it still holds; and then at least twice as large as that.
	rewriteSize = 16 << 20
	batchSize   = 256 << 10
)

// digest stands for an account and one of its ids or numbers: fixed in size, and
// nothing that could be read off a disk.
type digest [16]byte

func digestOf(account, name string) digest {
	sum := sha256.Sum256([]byte(account + "\x00" + name)) // an account's name holds no NUL
	return digest(sum[:16])
}

// store keeps the changes of a bounded table on disk. The table's own lock
// guards it.
type store struct {
	log       *appendlog.Log
	rewriteAt int64
}

func openStore(dir string, replay func(record []byte) error) (*store, error) {
	log, _, err := appendlog.Open(dir, appendlog.Options{SegmentSize: segmentSize}, func(_ appendlog.Position, record []byte) error {
		return replay(record)
	})
	if err != nil {
		return nil, err
	}
	return &store{log: log, rewriteAt: rewriteSize}, nil
}

// add appends one record. Where the log has grown well beyond what it holds, it
// is written anew with all live records, in their order.
func (s *store) add(record []byte, live iter.Seq[[]byte]) error {
	if _, err := s.log.Append(record); err != nil {
		return err
	}
	if s.log.Size() < s.rewriteAt {
		return nil
	}
	return s.rewrite(live)
}

// rewrite appends everything that is live and then drops the segments before
// it. Interrupted anywhere, what is read back is the same: merging a record that
// is already known changes nothing.
func (s *store) rewrite(live iter.Seq[[]byte]) error {
	var (
		first *appendlog.Position
		batch [][]byte
		size  int
	)
	flush := func() error {
		positions, err := s.log.Append(batch...)
		if err == nil && first == nil && len(positions) > 0 {
			first = &positions[0]
		}
		batch, size = batch[:0], 0
		return err
	}
	for record := range live {
		batch = append(batch, record)
		if size += len(record); size >= batchSize {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	if first != nil {
		if err := s.log.Drop(*first); err != nil {
			return err
		}
	}
	s.rewriteAt = max(rewriteSize, 2*s.log.Size())
	return nil
}

func (s *store) close() error { return s.log.Close() }
