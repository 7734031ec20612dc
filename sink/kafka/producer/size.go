package producer

import (
	"bytes"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

// sizeMargin is what is kept free below the largest batch.
const sizeMargin = 10 << 10

// fits reports whether the broker would take a record: its limit is for the compressed batch. One
// that could be too large is compressed to find out, and is sent in a batch of its own
// (queues.next).
func (s *Sink) fits(r *record) error {
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
	compressed, err := s.compressed(r)
	if err != nil {
		return fmt.Errorf("compress a record of %d bytes: %w", size, err)
	}
	if compressed > limit {
		return s.tooLarge(topic, compressed, fmt.Sprintf("%d bytes, %d of them left by %s", size,
			compressed, s.cfg.Compression))
	}
	return nil
}

// compressed is what a batch with only this record takes on the wire, give or take a few bytes.
// Nothing of it is kept.
func (s *Sink) compressed(r *record) (int, error) {
	if s.compressor == nil {
		var err error
		if s.compressor, err = kgo.DefaultCompressor(s.cfg.Codec()); err != nil {
			return 0, err
		}
	}
	plain := make([]byte, 0, r.size)
	for _, h := range r.producer.Headers {
		plain = append(append(plain, h.Key...), h.Value...)
	}
	plain = append(append(plain, r.producer.Key...), r.producer.Value...)
	var to bytes.Buffer
	left, codec := s.compressor.Compress(&to, plain)
	if codec < 0 {
		return 0, fmt.Errorf("%s does not take it", s.cfg.Compression)
	}
	return len(left) + kafka.BatchHeader, nil
}
