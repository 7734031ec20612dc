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
	// What makes a Kafka transaction large enough not to wait for more transactions of PostgreSQL
	// that are there already. One transaction of PostgreSQL is never divided.
	transactionMessages = 10_000
	transactionBytes    = 16 << 20
)

// transactionWriter owns the producer from Begin to Close: it alone begins, fills and ends
// transactions. A commit begins when there is a boundary and the last commit is through, and
// covers all boundaries that have come meanwhile: under load one commit covers many.
type transactionWriter struct {
	sink *TransactionalSink
	left sync.WaitGroup // records that the client has

	open     bool // a transaction is open
	began    time.Time
	messages int
	bytes    int

	mu       sync.Mutex
	producer producerIdentity // of the records of this transaction; zero: none is acknowledged yet
	// topics that were written to for the first time, with a partition of each
	written map[string]int32
	placed  map[string]bool // topics that the client has stored the partitions of
}

func newTransactionWriter(s *TransactionalSink) *transactionWriter {
	return &transactionWriter{sink: s, written: map[string]int32{}, placed: map[string]bool{}}
}

// run writes until the sink is stopped. It is the only one who calls committed.
func (w *transactionWriter) run() {
	for {
		select {
		case <-w.sink.taking.Done():
			w.finish()
			return
		case <-w.sink.queue.filled:
			w.write(w.sink.queue.take())
		}
	}
}

// finish leaves no transaction open, if the producer is sound.
func (w *transactionWriter) finish() {
	s := w.sink
	if s.failed.Load() {
		s.committed(0, s.cause())
		return
	}
	if !w.open {
		return
	}
	if err := abort(s.life, s.client); err != nil {
		s.log.Debug().Err(err).Msg("transaction not aborted; the next session does it")
	}
}

// write produces what was taken from the queue, and commits at the last boundary in it, or earlier
// when the transaction is large.
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
			w.giveUp(entries[i:])
			return
		case e.message != nil:
			w.produce(e.message)
		case i == last || w.messages >= transactionMessages || w.bytes >= transactionBytes:
			w.commit(e.position)
		}
	}
}

// giveUp reports messages that were never produced.
func (w *transactionWriter) giveUp(entries []entry) {
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
	w.producer = producerIdentity{}
	w.mu.Unlock()
	return true
}

func (w *transactionWriter) produce(m *sink.Message) {
	if !w.begin() {
		w.giveUp([]entry{{message: m}})
		return
	}
	w.messages++
	w.bytes += m.Size()
	w.left.Add(1)
	// called by one goroutine at a time, in the order of each partition
	w.sink.client.Produce(w.sink.life, kafkaRecord(m), func(r *kgo.Record, err error) {
		defer w.left.Done()
		w.sink.report(m, w.acknowledged(r, err))
	})
}

// acknowledged compares who has written a record with who has written those before it in the
// transaction.
func (w *transactionWriter) acknowledged(r *kgo.Record, err error) error {
	if err != nil {
		return w.late(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := identityOf(r)
	if !w.producer.known {
		w.producer = now
	}
	if w.producer != now {
		return errProducerChanged
	}
	if !w.placed[r.Topic] {
		w.written[r.Topic] = r.Partition
	}
	return nil
}

// place returns when the client has stored the partitions of all topics that were written to. It
// sends to a topic before it stores them (franz-go 1.22.2, storePartitionsUpdate), and the end of a
// transaction begins the sequences anew only of those that are stored: the next record of another
// would be out of sequence. It takes microseconds, once for each topic.
func (w *transactionWriter) place() {
	w.mu.Lock()
	defer w.mu.Unlock() // nothing is out
	for topic, partition := range w.written {
		// A leader was known, and the client keeps it. An error may be that of an earlier load of a
		// new topic, until the partitions are stored: it counts only when it stays.
		for began := time.Now(); w.sink.life.Err() == nil; {
			leader, _, err := w.sink.client.PartitionLeader(topic, partition)
			if leader >= 0 || err != nil && time.Since(began) > time.Second {
				break
			}
			// more rarely, the longer it takes
			time.Sleep(min(100*time.Microsecond+time.Since(began)/4, kafka.ReadPause))
		}
		w.placed[topic] = true
	}
	clear(w.written)
}

// late says that a transaction may have been refused because it was open for too long.
func (w *transactionWriter) late(err error) error {
	if open := time.Since(w.began); w.open && open >= w.sink.cfg.TransactionTimeout {
		return kafka.Advise(fmt.Errorf("the transaction was open for %s, longer than "+
			"sink.kafka.transaction_timeout: %w", open.Round(time.Second), err),
			"raise sink.kafka.transaction_timeout above the time that the largest transaction takes, %s "+
				"now", w.sink.cfg.TransactionTimeout)
	}
	return err
}

// commit ends the transaction together with the position behind it.
func (w *transactionWriter) commit(p sink.Position) {
	s := w.sink
	s.busy.Store(true)
	defer s.busy.Store(false)
	began := time.Now()
	if !w.begin() {
		return
	}
	position := &kgo.Record{Topic: s.positionTopic, Partition: onlyPartition,
		Key: []byte(positionKey(p.Source)), Value: encodePosition(p)}
	w.left.Add(1)
	s.client.Produce(s.life, position, func(r *kgo.Record, err error) {
		defer w.left.Done()
		if err = w.acknowledged(r, err); err != nil {
			s.fail(fmt.Errorf("write the position to topic %q: %w", r.Topic, explain(&s.cfg, err, s.id)))
		}
	})
	_ = s.client.Flush(s.life) // fails only with life
	if s.failed.Load() {
		return
	}
	w.place()
	w.mu.Lock()
	writer := w.producer
	w.mu.Unlock()
	if err := commit(s.life, s.client, writer); err != nil {
		s.fail(fmt.Errorf("commit a Kafka transaction of %d messages up to %s, which may be written "+
			"or not: %w", w.messages, p.LSN, explain(&s.cfg, w.late(err), s.id)))
		return
	}
	s.commits.Add(1)
	s.log.Debug().Stringer("end_lsn", p.LSN).Int("messages", w.messages).Float64("duration",
		time.Since(began).Seconds()).Msg("transaction committed")
	w.open = false
	w.messages, w.bytes = 0, 0
	s.committed(p.LSN, nil)
}
