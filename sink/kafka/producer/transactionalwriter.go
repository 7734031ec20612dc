package producer

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	// A Kafka transaction of transactionMessages or transactionBytes is committed before queued
	// transactions of PostgreSQL are added. One transaction of PostgreSQL is never divided.
	transactionMessages = 10_000
	transactionBytes    = 16 << 20
)

// transactionWriter owns the producer from Begin to Close: it alone begins, fills and ends
// transactions. It commits when there is a boundary and the last commit has ended. A commit covers
// all boundaries that were added meanwhile, so under load it covers many.
type transactionWriter struct {
	sink     *TransactionalSink
	inClient sync.WaitGroup // records

	open     bool // a transaction is open; the next three fields are its own
	began    time.Time
	messages int
	bytes    int

	mu       sync.Mutex       // guards what follows
	identity producerIdentity // of the transaction's records; zero: none is acknowledged yet
	broken   bool             // a record of the transaction failed: it can only be aborted
	// unstored are the topics written to whose partitions the client may not have stored yet, each
	// with a partition that has a record. awaitStored clears it.
	unstored map[string]int32
	stored   map[string]bool // topics whose partitions the client has stored
}

func newTransactionWriter(s *TransactionalSink) *transactionWriter {
	return &transactionWriter{sink: s, unstored: map[string]int32{}, stored: map[string]bool{}}
}

// run writes until the sink is stopped. Only run calls committed.
func (w *transactionWriter) run() {
	for {
		select {
		case <-w.sink.acceptCtx.Done():
			w.finish()
			return
		case <-w.sink.queue.filled:
			w.write(w.sink.queue.take())
		}
	}
}

// finish aborts an open transaction, or passes the failure of the sink to committed.
func (w *transactionWriter) finish() {
	s := w.sink
	if s.failed.Load() {
		s.committed(0, s.cause())
		return
	}
	if !w.open {
		return
	}
	if err := abort(s.requestCtx, s.client); err != nil {
		s.log.Debug().Err(err).Msg("transaction not aborted; the next session does it")
	}
}

// write produces the messages of entries. It commits at the last boundary, and at an earlier one
// if the transaction is large.
func (w *transactionWriter) write(entries []entry) {
	last := -1
	for i, e := range entries {
		if e.message == nil {
			last = i
		}
	}
	for i, e := range entries {
		switch {
		case w.sink.stopped():
			w.failEntries(entries[i:])
			return
		case e.message != nil:
			w.produce(e.message)
		case i == last || w.messages >= transactionMessages || w.bytes >= transactionBytes:
			w.commit(e.position)
		}
	}
}

// failEntries reports the messages of entries, which were not produced, as failed.
func (w *transactionWriter) failEntries(entries []entry) {
	for _, e := range entries {
		if e.message != nil {
			w.sink.report(e.message, sink.ErrClosed)
		}
	}
}

func (w *transactionWriter) begin() bool {
	if w.open {
		return true
	}
	if err := w.sink.client.BeginTransaction(); err != nil {
		w.sink.fail(fmt.Errorf("begin a Kafka transaction: %w", explain(&w.sink.cfg, err, w.sink.id)))
		return false
	}
	w.open, w.began = true, time.Now()
	w.mu.Lock()
	w.identity, w.broken = producerIdentity{}, false
	w.mu.Unlock()
	return true
}

func (w *transactionWriter) produce(m *sink.Message) {
	if !w.begin() {
		w.failEntries([]entry{{message: m}})
		return
	}
	w.messages++
	w.bytes += m.Size()
	w.inClient.Add(1)
	// called by one goroutine at a time, in the order of each partition
	w.sink.client.Produce(w.sink.requestCtx, kafkaRecord(m), func(r *kgo.Record, err error) {
		defer w.inClient.Done()
		w.sink.report(m, w.checkIdentity(r, err))
	})
}

// checkIdentity returns the error of a record, or one if its producer identity is not that of the
// transaction's earlier records.
func (w *transactionWriter) checkIdentity(r *kgo.Record, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.broken = true
		return w.explainTimeout(err)
	}
	now := identityOf(r)
	if !w.identity.known {
		w.identity = now
	}
	if w.identity != now {
		w.broken = true
		return errProducerChanged
	}
	if !w.stored[r.Topic] {
		w.unstored[r.Topic] = r.Partition
	}
	return nil
}

// awaitStored returns when the client has stored the partitions of all topics written to. The
// client sends to a topic before it stores them (franz-go 1.22.2, storePartitionsUpdate), and the
// end of a transaction resets the sequence numbers only of stored ones: the next record of another
// would be out of sequence. The wait takes microseconds, once for each topic.
func (w *transactionWriter) awaitStored() {
	w.mu.Lock()
	defer w.mu.Unlock() // blocks no callback: all records are reported
	for topic, partition := range w.unstored {
		// The client has had a leader, and keeps it. An error counts only if it lasts: it may be that
		// of an earlier load of a new topic.
		for began := time.Now(); w.sink.requestCtx.Err() == nil; {
			leader, _, err := w.sink.client.PartitionLeader(topic, partition)
			if leader >= 0 || err != nil && time.Since(began) > time.Second {
				break
			}
			time.Sleep(min(100*time.Microsecond+time.Since(began)/4, kafka.ReadPause))
		}
		w.stored[topic] = true
	}
	clear(w.unstored)
}

// explainTimeout adds to err that the transaction was open for too long, if it was.
func (w *transactionWriter) explainTimeout(err error) error {
	if open := time.Since(w.began); w.open && open >= w.sink.cfg.TransactionTimeout {
		return kafka.Advise(fmt.Errorf("the transaction was open for %s, longer than "+
			"sink.kafka.transaction_timeout: %w", open.Round(time.Second), err),
			"raise sink.kafka.transaction_timeout above the time that the largest transaction takes, %s "+
				"now", w.sink.cfg.TransactionTimeout)
	}
	return err
}

// commit writes the position to the transaction and commits it.
func (w *transactionWriter) commit(p sink.Position) {
	s := w.sink
	s.committing.Store(true)
	defer s.committing.Store(false)
	began := time.Now()
	if !w.begin() {
		return
	}
	position := &kgo.Record{Topic: s.positionTopic, Partition: onlyPartition,
		Key: []byte(positionKey(p.Source)), Value: encodePosition(p)}
	w.inClient.Add(1)
	s.client.Produce(s.requestCtx, position, func(r *kgo.Record, err error) {
		defer w.inClient.Done()
		if err = w.checkIdentity(r, err); err != nil {
			s.fail(fmt.Errorf("write the position to topic %q: %w", r.Topic, explain(&s.cfg, err, s.id)))
		}
	})
	if err := s.client.Flush(s.requestCtx); err != nil || s.failed.Load() {
		return
	}
	w.awaitStored()
	w.mu.Lock()
	writer, broken := w.identity, w.broken
	w.mu.Unlock()
	if broken { // while the sink is being closed this is no failure of the sink
		return
	}
	if err := commit(s.requestCtx, s.client, writer); err != nil {
		s.fail(fmt.Errorf("commit a Kafka transaction of %d messages up to %s, with unknown "+
			"outcome: %w", w.messages, p.LSN, explain(&s.cfg, w.explainTimeout(err), s.id)))
		return
	}
	s.commits.Add(1)
	s.log.Debug().Stringer("end_lsn", p.LSN).Int("messages", w.messages).Float64("duration",
		time.Since(began).Seconds()).Msg("transaction committed")
	w.open = false
	w.messages, w.bytes = 0, 0
	s.committed(p.LSN, nil)
}
