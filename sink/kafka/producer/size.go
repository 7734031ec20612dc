package producer

import (
	"bytes"
	"fmt"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// sizeMargin is left free below the largest batch.
const sizeMargin = 10 << 10

// checkSize returns an error if the broker would refuse a record for its size. The limit is for
// the compressed batch: a record that may exceed it is compressed to find out, and is sent in a
// batch of its own (queues.next).
func (s *Sink) checkSize(r *record) error {
	limit, size := s.cfg.MaxMessageBytes, kafka.BatchHeader+r.size
	if size <= limit {
		return nil
	}
	topic := r.message.Topic
	if s.cfg.Compression == "none" {
		return s.tooLarge(topic, size, fmt.Sprintf("%d bytes with overhead", size))
	}
	if most := int(s.cfg.LargestBatch()) - sizeMargin; size > most {
		return kafka.Advise(fmt.Errorf("%w: %d bytes before compression, and at most %d can be sent "+
			"with sink.kafka.max_message_bytes at %d",
			sink.ErrTooLarge, size, most, limit), "set sink.kafka.max_message_bytes = %d", size+
			2*sizeMargin)
	}
	compressed, err := s.compressedSize(r)
	if err != nil {
		return fmt.Errorf("compress a record of %d bytes: %w", size, err)
	}
	if compressed > limit {
		return s.tooLarge(topic, compressed, fmt.Sprintf("%d bytes, %d after %s compression", size,
			compressed, s.cfg.Compression))
	}
	return nil
}

// compressedSize returns the size of a compressed batch with only this record, to within a few
// bytes.
func (s *Sink) compressedSize(r *record) (int, error) {
	if s.compressor == nil {
		var err error
		if s.compressor, err = s.cfg.Compressor(); err != nil {
			return 0, err
		}
	}
	plain := make([]byte, 0, r.size)
	for _, h := range r.kgo.Headers {
		plain = append(append(plain, h.Key...), h.Value...)
	}
	plain = append(append(plain, r.kgo.Key...), r.kgo.Value...)
	var to bytes.Buffer
	out, codec := s.compressor.Compress(&to, plain)
	if codec < 0 {
		return 0, fmt.Errorf("%s failed", s.cfg.Compression)
	}
	return len(out) + kafka.BatchHeader, nil
}
