package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"
)

const (
	// requestOverhead is what sarama keeps free below its largest request.
	requestOverhead = 10 << 10

	// retries bounds what one batch may try. It is not the limit that counts, delivery_timeout is; and it must not be
	// "infinite", because sarama allocates 32 bytes per possible retry and partition.
	retries    = 200
	maxBackoff = 2 * time.Second

	// metadataRetries times up to metadataBackoff is how long a cluster may be without a broker that answers, or a
	// partition without a leader, before its messages fail: about half a minute. A restart of a broker takes 5 to 10 s
	// in our experience, an election less.
	metadataRetries = 30
	metadataBackoff = time.Second

	// lookupRetries: asking whether a topic exists has to tell soon, but not fall over one lost connection.
	lookupRetries = 3

	// channelBuffer is the room between sarama's own goroutines, per topic and per partition.
	channelBuffer = 256
)

// base is what all our connections have in common.
func (c *Config) base(d *dialer) (*sarama.Config, error) {
	s := sarama.NewConfig()

	v, err := c.version()
	if err != nil {
		return nil, fmt.Errorf("sink.kafka.version: %w", err)
	}
	// Sarama takes this as the upper end and lowers each request to what the broker announces (ApiVersionsRequest). 2.8 is
	// the level that sarama covers completely, and all that a producer without transactions gains from.
	s.Version = v
	s.ApiVersionsRequest = true
	s.ClientID = c.ClientID

	s.Net.DialTimeout = c.DialTimeout
	s.Net.ReadTimeout = c.ReadTimeout
	s.Net.WriteTimeout = c.WriteTimeout
	// Our dialer speaks TLS itself (Net.TLS stays off): it reads the files for each connection, tells a refused
	// certificate from a refused connection, and can close everything at once.
	s.Net.Proxy.Enable = true
	s.Net.Proxy.Dialer = d

	if c.SASL.Mechanism != "" {
		password, err := c.SASL.Password.Reveal()
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.sasl.password: %w", err)
		}
		s.Net.SASL.Enable = true
		s.Net.SASL.Handshake = true
		s.Net.SASL.Mechanism = sarama.SASLMechanism(c.SASL.Mechanism)
		s.Net.SASL.User = c.SASL.Username
		s.Net.SASL.Password = password
		s.Net.SASL.SCRAMClientGeneratorFunc = scramClient(c.SASL.Mechanism)
	}

	s.Metadata.Full = false                   // only our topics: a cluster may have thousands
	s.Metadata.AllowAutoTopicCreation = false // a typing error in a route must not become a topic with the broker's defaults
	s.Metadata.RefreshFrequency = 5 * time.Minute

	s.MetricRegistry = noMetrics{} // nobody reads sarama's own; they cost time per request and a goroutine for ever
	return s, nil
}

// lookup is the configuration for asking about topics and creating them: answers soon.
func (c *Config) lookup(d *dialer) (*sarama.Config, error) {
	s, err := c.base(d)
	if err != nil {
		return nil, err
	}
	s.Metadata.Retry.Max = lookupRetries
	s.Metadata.Retry.Backoff = c.RetryBackoff
	s.Metadata.Timeout = c.ReadTimeout
	s.Admin.Timeout = c.ProduceTimeout
	s.Admin.Retry.Max = lookupRetries
	s.Admin.Retry.Backoff = c.RetryBackoff
	return s, nil
}

// produce is the configuration of the producer: never loses, never reorders, gives up late.
func (c *Config) produce(d *dialer) (*sarama.Config, error) {
	s, err := c.base(d)
	if err != nil {
		return nil, err
	}

	// Without idempotence sarama reorders on retries, up to its newest releases. These four belong together.
	s.Producer.Idempotent = true
	s.Producer.RequiredAcks = sarama.WaitForAll // a position is confirmed on the strength of this
	s.Net.MaxOpenRequests = 1                   // what idempotence in sarama asks for; batches grow while a request is out
	s.Producer.Retry.Max = retries

	s.Producer.Retry.Backoff = c.RetryBackoff
	s.Producer.Retry.BackoffFunc = exponential(d.ctx, c.RetryBackoff, maxBackoff)
	s.Producer.Timeout = c.ProduceTimeout

	// A batch whose leader cannot be looked up is failed by sarama whatever Retry.Max says, so this is the patience that
	// counts when brokers are gone. A stalled broker takes read_timeout per attempt: there the time limit applies.
	s.Metadata.Retry.Max = metadataRetries
	s.Metadata.Retry.BackoffFunc = exponential(d.ctx, c.RetryBackoff, metadataBackoff)
	s.Metadata.Timeout = c.DeliveryTimeout
	s.Producer.Transaction.Retry.Max = lookupRetries // of InitProducerID, at open

	// What is in flight is bounded in front of us, in bytes and messages (relay), so the retry buffer needs no limit of
	// its own: reaching one would fail messages in the middle.
	s.Producer.Retry.MaxBufferLength = 0
	s.Producer.Retry.MaxBufferBytes = 0

	s.Producer.Return.Successes = true // each message is accounted for, on one channel or the other
	s.Producer.Return.Errors = true

	s.Producer.MaxMessageBytes = c.MaxMessageBytes // bounds the batch of a partition as well
	s.Producer.Compression = compressions[c.Compression]
	s.Producer.Partitioner = newPartitioner

	// No flush thresholds: a message goes out at once when nothing is in flight, and what comes meanwhile makes the next
	// batch, up to max_message_bytes per partition. Lingering under load is ours (sink.go), because sarama's cannot follow the load.
	s.Producer.Flush.Frequency = 0
	s.Producer.Flush.Messages = 0
	s.Producer.Flush.Bytes = 0
	s.Producer.Flush.MaxMessages = 0

	s.ChannelBufferSize = channelBuffer
	return s, nil
}

// exponential doubles from first to last, with a tenth of jitter so that partitions do not come back in step. Once ctx has
// ended the connections are cut and no retry can succeed: then the rest of them is run through without a pause.
func exponential(ctx context.Context, first, last time.Duration) func(retry, limit int) time.Duration {
	return func(retry, _ int) time.Duration {
		if ctx.Err() != nil {
			return 0
		}
		d := first
		for i := 1; i < retry && d < last; i++ {
			d *= 2
		}
		d = min(d, last)
		return d + rand.N(d/10+1)
	}
}
