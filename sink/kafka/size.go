package kafka

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// requestLimit is the largest request with the broker's default socket.request.max.bytes, and so the most that max_message_bytes can be without
// changing that. The client wants a batch below it before compressing it, too.
const requestLimit = 100 << 20

// answerLimit is the largest answer that is read, if max_message_bytes needs no more. A client makes room for as much as the first bytes of an answer say before it
// reads the rest, whoever may have sent them.
const answerLimit = 48 << 20

func init() { sarama.MaxResponseSize = answerLimit }

// raising guards sarama's limits, which are global to the process.
var raising sync.Mutex

// raiseLimits has sarama, with which the topics are read, take batches of max_message_bytes. Its limits stay where they are for all who do not
// set it higher than brokers take by default.
func (c *Config) raiseLimits() {
	raising.Lock()
	defer raising.Unlock()
	limit := c.largestAnswer()
	if limit > sarama.MaxResponseSize {
		sarama.MaxResponseSize = limit
	}
	if limit > sarama.MaxRequestSize {
		sarama.MaxRequestSize = limit
	}
}

// largestAnswer is the most that a broker may say at once.
func (c *Config) largestAnswer() int32 {
	return max(answerLimit, int32(c.MaxMessageBytes)+2*requestOverhead) //nolint:gosec // validated
}

// fits tells whether the broker would take a record, by the limit that it applies: to the batch as it is sent, compressed. What could be
// too large is compressed to find out, and travels in a batch of its own (lanes.next): then it takes no others with it, and what the broker says is about it alone.
func (s *Sink) fits(r *record) error {
	limit, size := s.cfg.MaxMessageBytes, batchHeader+r.size
	if size <= limit {
		return nil
	}
	topic := r.message.Topic
	if s.cfg.Compression == "none" {
		return s.tooLarge(topic, size, fmt.Sprintf("%d bytes with overhead", size))
	}
	if most := int(s.cfg.largestBatch()) - requestOverhead; size > most {
		return advise(fmt.Errorf("%w: %d bytes before compression, and at most %d can be sent with sink.kafka.max_message_bytes at %d",
			sink.ErrTooLarge, size, most, limit), "set sink.kafka.max_message_bytes = %d", size+2*requestOverhead)
	}
	compressed, err := s.compressed(r)
	if err != nil {
		return fmt.Errorf("compress a record of %d bytes: %w", size, err)
	}
	if compressed > limit {
		return s.tooLarge(topic, compressed, fmt.Sprintf("%d bytes, %d of them left by %s", size, compressed, s.cfg.Compression))
	}
	return nil
}

// compressed is what a batch with only this record takes on the wire, give or take a few bytes. Nothing of it is kept.
func (s *Sink) compressed(r *record) (int, error) {
	if s.compressor == nil {
		var err error
		if s.compressor, err = kgo.DefaultCompressor(codecs[s.cfg.Compression]); err != nil {
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
	return len(left) + batchHeader, nil
}
