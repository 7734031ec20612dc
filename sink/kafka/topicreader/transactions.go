package topicreader

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The types of control records, as Kafka numbers them.
const (
	markerAbort  = 0
	markerCommit = 1
)

// Transactions judges records by the marker of their own transaction. A reader of committed
// records stops in front of one that is open: that of a relay which was killed may stay open until
// its transaction_timeout, and what stands behind it is there.
type Transactions[T any] struct {
	// Open holds what is in transactions of which neither commit nor abort was read.
	Open map[Writer][]T
}

// Writer is a producer, which has one transaction of a partition at a time.
type Writer struct {
	Producer  int64
	Partition int32
}

// Add takes the next record of a partition, and returns what is decided by it: kept itself, or, at
// the end of a transaction, all that was kept of it.
func (t *Transactions[T]) Add(r *kgo.Record, kept T) (decided []T) {
	writer := Writer{r.ProducerID, r.Partition}
	switch {
	case r.Attrs.IsControl():
		switch marker(r) {
		case markerCommit:
			decided = t.Open[writer]
			delete(t.Open, writer)
		case markerAbort:
			delete(t.Open, writer)
		}
		return decided
	case r.Attrs.IsTransactional():
		if t.Open == nil {
			t.Open = map[Writer][]T{}
		}
		t.Open[writer] = append(t.Open[writer], kept)
		return nil
	}
	return []T{kept}
}

// marker is the type of a control record: its key is a version and the type. -1: neither of both.
func marker(r *kgo.Record) int {
	if len(r.Key) < 4 {
		return -1
	}
	return int(binary.BigEndian.Uint16(r.Key[2:]))
}
