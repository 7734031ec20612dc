package topicreader

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Transactions judges records by the marker of their own transaction: a reader of committed
// records would stop at the open one of a killed relay until transaction_timeout.
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
		var key kmsg.ControlRecordKey
		switch err := key.ReadFrom(r.Key); {
		case err == nil && key.Type == kmsg.ControlRecordKeyTypeCommit:
			decided = t.Open[writer]
			delete(t.Open, writer)
		case err == nil && key.Type == kmsg.ControlRecordKeyTypeAbort:
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
