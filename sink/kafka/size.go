package kafka

import (
	"fmt"
	"io"
	"sync"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"postrider/sink"
)

// requestLimit is the largest request with the broker's default socket.request.max.bytes, and so the most that max_message_bytes can be without
// changing that. Sarama encodes a batch before compressing it, and wants it below this limit as well.
const requestLimit = 100 << 20

// raising guards sarama's limits, which are global to the process.
var raising sync.Mutex

// raiseLimits has sarama send and read batches of max_message_bytes. Its own limits stay where they are for all who do not set it higher than
// brokers take by default: a request of many batches stays below them too.
func (c *Config) raiseLimits() {
	raising.Lock()
	defer raising.Unlock()
	if limit := int32(c.MaxMessageBytes) + 2*requestOverhead; c.MaxMessageBytes >= requestLimit-2*requestOverhead && limit > sarama.MaxRequestSize { //nolint:gosec // validated
		sarama.MaxRequestSize, sarama.MaxResponseSize = limit, limit
	}
}

// fits tells whether the broker would take a record, by the limit that it applies: to the batch as it is sent, compressed. What could be
// too large is compressed to find out, and travels in a batch of its own: then it takes no others with it, and what the broker says is about it alone.
func (s *Sink) fits(r *record) error {
	limit := s.cfg.MaxMessageBytes
	if r.size <= limit {
		return nil
	}
	topic := r.message.Topic
	raise := func(to int64) string {
		return fmt.Sprintf("raise it together with the topic's limit: kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config max.message.bytes=%d",
			s.cfg.bootstrap(), topic, to+1024)
	}
	if s.cfg.Compression == "none" {
		return advise(fmt.Errorf("%w: %d bytes with overhead, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, r.size, limit), "%s", raise(int64(r.size)))
	}
	if most := max(requestLimit, limit) - 2*requestOverhead; r.size > most {
		return advise(fmt.Errorf("%w: %d bytes before compression, and at most %d can be sent with sink.kafka.max_message_bytes at %d",
			sink.ErrTooLarge, r.size, most, limit), "set sink.kafka.max_message_bytes = %d", r.size+2*requestOverhead)
	}
	size, err := s.cfg.compressed(r)
	switch {
	case err != nil:
		return fmt.Errorf("compress a record of %d bytes: %w", r.size, err)
	case size > int64(limit):
		return advise(fmt.Errorf("%w: %d bytes, %d of them left by %s, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, r.size, size, s.cfg.Compression, limit),
			"%s", raise(size))
	}
	if !r.travelAlone(limit) {
		return advise(fmt.Errorf("%w: headers of %d bytes, sink.kafka.max_message_bytes is %d", sink.ErrTooLarge, r.size, limit), "%s", raise(int64(r.size)))
	}
	return nil
}

// travelAlone has sarama take the record for exactly as large as a batch may be before compression: it then begins a new batch with it, and,
// since it counts what is in a batch by the bytes themselves, another one behind it. Sarama has no other way to say so.
func (r *record) travelAlone(limit int) bool {
	part := &r.value
	if r.producer.Value == nil {
		if part = &r.key; r.producer.Key == nil {
			return false
		}
	}
	part.claimed += limit - r.size
	return true
}

// compressed is what a batch with only this record takes on the wire, give or take a few bytes. Nothing of it is kept.
func (c *Config) compressed(r *record) (int64, error) {
	var n counter
	w, err := c.compressor(&n)
	if err != nil {
		return 0, err
	}
	for _, h := range r.headers {
		_, _ = w.Write(h.Key) // a counter takes everything
		_, _ = w.Write(h.Value)
	}
	_, _ = w.Write(r.key.bytes)
	_, err = w.Write(r.value.bytes)
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return int64(n) + batchOverhead, err
}

// batchOverhead is what a batch takes beside its records.
const batchOverhead = 61

// compressor is set up as sarama's is.
func (c *Config) compressor(to io.Writer) (io.WriteCloser, error) {
	switch compressions[c.Compression] {
	case sarama.CompressionGZIP:
		return gzip.NewWriter(to), nil
	case sarama.CompressionSnappy:
		return snappy.NewBufferedWriter(to), nil
	case sarama.CompressionLZ4:
		w := lz4.NewWriter(to)
		return w, w.Apply(lz4.BlockSizeOption(lz4.Block64Kb))
	case sarama.CompressionZSTD:
		return zstd.NewWriter(to, zstd.WithEncoderConcurrency(1))
	}
	return nil, fmt.Errorf("no compression %q", c.Compression)
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
