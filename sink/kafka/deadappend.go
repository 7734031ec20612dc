package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// Append writes messages, to whatever topics, and returns when they are durable. With transactions readers of committed records see all or none; else a
// leading part may be written when it fails. An error is a *sink.MessageError if one message is the reason, by its Origin.
func (d *DeadLetters) Append(ctx context.Context, ms []*sink.Message) error {
	for _, m := range ms {
		if size := RecordSize(m); size > d.cfg.MaxMessageBytes {
			return &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true,
				Err: fmt.Errorf("%w: %d bytes with overhead, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, size, d.cfg.MaxMessageBytes)}
		}
	}
	err := d.within(ctx, func() error {
		if d.transactional != "" {
			return d.appendTogether(ctx, ms)
		}
		return d.appendPlain(ms)
	})
	if err != nil {
		return fmt.Errorf("write %d records, to topic %q and where they belong: %w", len(ms), d.topic, err)
	}
	return nil
}

// begin shuts out every other producer with the id, and has what it left open aborted.
func (d *DeadLetters) begin(ctx context.Context) error {
	var err error
	if d.producing, err = d.cfg.transactional(d.dialer, d.transactional); err != nil {
		return err
	}
	if err = identify(ctx, d.producing); err != nil {
		return d.cfg.explainTransactional(err, d.transactional)
	}
	return nil
}

func (d *DeadLetters) appendTogether(ctx context.Context, ms []*sink.Message) error {
	for _, m := range ms { // the client would wait for a topic that is not there
		if err := d.topics.ensure(ctx, m.Topic); err != nil {
			return &sink.MessageError{Topic: m.Topic, Origin: m.Origin, Untaken: true, Err: err}
		}
	}
	if err := d.producing.BeginTransaction(); err != nil {
		return d.cfg.explainTransactional(err, d.transactional)
	}
	records := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		records[i] = kafkaRecord(m)
	}
	results := d.producing.ProduceSync(ctx, records...) // in any order
	err := d.firstRefused(records, ms, results)
	if err == nil {
		err = d.commit(ctx, records)
	}
	if err != nil {
		ended := d.producing.AbortBufferedRecords(ctx)
		if ended == nil {
			ended = d.producing.EndTransaction(ctx, kgo.TryAbort)
		}
		if ended != nil { // whoever begins next has the broker abort it
			d.producing.Close()
			return errors.Join(err, d.begin(ctx))
		}
	}
	return err
}

// commit ends the transaction, but only if it is still the producer that has written everything: the client makes itself a new identity after some errors.
func (d *DeadLetters) commit(ctx context.Context, records []*kgo.Record) error {
	id, epoch, err := d.producing.ProducerID(ctx)
	if err != nil {
		return d.cfg.explainTransactional(err, d.transactional)
	}
	for _, r := range records {
		if r.ProducerID != id || r.ProducerEpoch != epoch {
			return errProducerChanged
		}
	}
	if err := d.producing.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit, which is written or not: %w", d.cfg.explainTransactional(err, d.transactional))
	}
	return nil
}

// firstRefused is the reason why a batch failed, and not what followed from it.
func (d *DeadLetters) firstRefused(records []*kgo.Record, ms []*sink.Message, results kgo.ProduceResults) error {
	of := map[*kgo.Record]error{}
	for _, result := range results {
		if result.Err != nil {
			of[result.Record] = d.cfg.explainTransactional(result.Err, d.transactional)
		}
	}
	first := -1
	for i, r := range records {
		if of[r] != nil && (first < 0 || isVerdict(of[r]) && !isVerdict(of[records[first]])) {
			first = i
		}
	}
	if first < 0 {
		return nil
	}
	return &sink.MessageError{Topic: ms[first].Topic, Origin: ms[first].Origin, Err: of[records[first]]}
}

func kafkaRecord(m *sink.Message) *kgo.Record {
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Partition: m.Partition, Timestamp: m.Timestamp}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

func (d *DeadLetters) appendPlain(ms []*sink.Message) error {
	if d.plain == nil {
		conf, err := d.cfg.produce(d.dialer)
		if err != nil {
			return err
		}
		if d.plain, err = sarama.NewSyncProducer(d.cfg.Brokers, conf); err != nil {
			return translate(err)
		}
	}
	records := make([]*sarama.ProducerMessage, len(ms))
	for i, m := range ms {
		records[i] = saramaMessage(m)
	}
	err := d.plain.SendMessages(records)
	if err != nil { // a producer that has failed may not go on with its sequence
		_ = d.plain.Close()
		d.plain = nil
	}
	return translate(err)
}

func saramaMessage(m *sink.Message) *sarama.ProducerMessage {
	r := &sarama.ProducerMessage{Topic: m.Topic, Partition: m.Partition, Timestamp: m.Timestamp}
	if m.Key != nil {
		r.Key = sarama.ByteEncoder(m.Key)
	}
	if m.Value != nil {
		r.Value = sarama.ByteEncoder(m.Value)
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return r
}
