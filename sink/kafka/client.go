package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/postrider/postrider/sink"
)

// producing is what the clients of both sinks have in common. Why franz-go: docs/decisions/0015 and 0016.
func (c *Config) producing(d *dialer) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.WithLogger(clientLog{}),
		kgo.Dialer(func(_ context.Context, network, addr string) (net.Conn, error) { // speaks TLS, and is cut as a whole
			conn, err := d.Dial(network, addr)
			if err != nil {
				return nil, err
			}
			return &producingConn{conn, c.WriteTimeout}, nil
		}),
		kgo.RequestTimeoutOverhead(max(c.ReadTimeout-c.ProduceTimeout, 100*time.Millisecond)), // its least
		kgo.DisableClientMetrics(),
		kgo.WithHooks(requests{c.Requested}),
		kgo.ConnIdleTimeout(idleConnection),
		kgo.MetadataMinAge(250 * time.Millisecond), // a leader that has moved is found soon
		kgo.MetadataMaxAge(5 * time.Minute),
		kgo.RequestRetries(math.MaxInt32),                                      // delivery_timeout is the limit
		kgo.RequiredAcks(kgo.AllISRAcks()),                                     // a position is confirmed on the strength of this
		kgo.ProduceRequestTimeout(max(c.ProduceTimeout, 100*time.Millisecond)), // the same
		kgo.BrokerMaxWriteBytes(c.largestRequest()),
		kgo.BrokerMaxReadBytes(producerAnswer),
		kgo.FetchMaxBytes(producerAnswer), // may not be more; nothing is fetched
		kgo.ProducerBatchCompression(codecs[c.Compression]),
	}
	if c.Version != "" {
		if versions := kversion.FromString(c.Version); versions != nil {
			options = append(options, kgo.MaxVersions(versions))
		}
	}
	if c.SASL.Mechanism != "" {
		password, err := c.SASL.Password.Reveal()
		if err != nil {
			return nil, fmt.Errorf("sink.kafka.sasl.password: %w", err)
		}
		options = append(options, kgo.SASL(mechanism(c.SASL.Mechanism, c.SASL.Username, password)))
	}
	return options, nil
}

// producerAnswer bounds what a broker may say to a producer: acknowledgements, and where some hundred thousand partitions are.
const producerAnswer = 16 << 20

const (
	// idleConnection is how long a connection may be unused: less than Kafka allows by default, and as long as with Java's clients, so that a
	// message after a pause does not wait for handshakes.
	idleConnection = 9 * time.Minute
	// producerPause is the longest pause before a retry, unless retry_backoff is longer: consumers
	// wait for the return of a leader.
	producerPause = 500 * time.Millisecond
	// waking is how long the client waits with a batch that nobody wakes it for: the first of a topic, whose leader it has to look up,
	// and one that is repeated. All others are sent when the round that brings them is complete (round.go).
	waking = 2 * time.Millisecond
	// unknownRetries is how often brokers may say that they do not know a topic which was there, before its messages fail: about half a minute.
	unknownRetries = metadataRetries
)

func (c *Config) longestPause() time.Duration { return max(producerPause, c.RetryBackoff) }

// idempotent is the client of the at-least-once sink: never loses, never reorders, gives up late. hooks hears of each record.
func (c *Config) idempotent(d *dialer, partitioner kgo.Partitioner, hooks kgo.Hook) (*kgo.Client, error) {
	options, err := c.producing(d)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(options,
		kgo.RetryBackoffFn(func(tries int) time.Duration {
			return exponential(context.Background(), c.RetryBackoff, c.longestPause())(tries, 0) // not d's: the client retries until it is closed
		}),
		kgo.RetryTimeout(c.DeliveryTimeout),
		kgo.UnknownTopicRetries(unknownRetries),
		kgo.StopProducerOnDataLossDetected(), // it would go on under another identity, as if nothing had happened
		kgo.RecordPartitioner(partitioner),
		kgo.WithHooks(hooks),
		kgo.ProducerLinger(waking),
		kgo.ProducerBatchMaxBytes(c.largestBatch()),
		kgo.MaxBufferedRecords(math.MaxInt32), // what is in flight is bounded in front of us, by the relay
	)...)
}

var errNoProducerID = errors.New("the broker gives no producer id, without which it would write a request that is repeated twice, or behind others; " +
	"that takes Kafka 0.11 or later, and a sink.kafka.version that is not below it")

// identify has a client ask for its identity. Where it cannot, the client would go on without one.
func identify(ctx context.Context, client *kgo.Client) error {
	id, _, err := client.ProducerID(ctx)
	if err == nil && id < 0 {
		return errNoProducerID
	}
	return err
}

// largestBatch bounds a batch before compression. The sink itself keeps batches of several records below max_message_bytes.
func (c *Config) largestBatch() int32 {
	if c.Compression == "none" {
		return int32(c.MaxMessageBytes) //nolint:gosec // validated
	}
	return c.largestRequest() - requestOverhead
}

// largestRequest is what the client may write at once.
func (c *Config) largestRequest() int32 {
	return max(requestLimit, int32(c.MaxMessageBytes)+2*requestOverhead) //nolint:gosec // validated
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// learn returns when the client knows a partition that was added to a topic which it may know already.
func learn(client *kgo.Client, topic string, partition int32, stop <-chan struct{}, patience time.Duration) error {
	const again = 10 * time.Millisecond
	for deadline := time.Now().Add(patience); ; {
		if first, _, err := client.PartitionLeader(topic, 0); first < 0 && err == nil {
			return nil // it has never asked, and will ask when it needs the topic
		}
		if leader, _, err := client.PartitionLeader(topic, partition); leader >= 0 || err != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: the producer does not find partition %d of topic %q", sink.ErrUnreachable, partition, topic)
		}
		client.ForceMetadataRefresh()
		select {
		case <-stop:
			return sink.ErrClosed
		case <-time.After(again):
		}
	}
}

// producingConn is a connection of a producer.
type producingConn struct {
	net.Conn
	writeTimeout time.Duration
}

// Read does not let the client take a connection that was closed before the first answer for one to a listener that wants TLS or SASL, and give up
// all records of it: that the listener fits is known since the session was opened.
func (c *producingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// SetWriteDeadline puts write_timeout in the place of what the client thinks of, which comes from read_timeout.
func (c *producingConn) SetWriteDeadline(t time.Time) error {
	if now := time.Now(); t.After(now) {
		t = now.Add(c.writeTimeout)
	}
	return c.Conn.SetWriteDeadline(t)
}

func mechanism(name, user, password string) sasl.Mechanism {
	if name == sarama.SASLTypePlaintext {
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	}
	return scramMechanism{name, user, password}
}

// scramMechanism makes the exchange of scram.go one of franz-go, whose own takes names and passwords only when they are prepared.
type scramMechanism struct{ name, user, password string }

func (m scramMechanism) Name() string { return m.name }

func (m scramMechanism) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	exchange := scramClient(m.name)()
	if err := exchange.Begin(m.user, m.password, ""); err != nil {
		return nil, nil, err
	}
	first, err := exchange.Step("")
	return scramSession{exchange}, []byte(first), err
}

type scramSession struct{ exchange sarama.SCRAMClient }

func (s scramSession) Challenge(challenge []byte) (bool, []byte, error) {
	response, err := s.exchange.Step(string(challenge))
	return s.exchange.Done(), []byte(response), err
}

// translateProducing is translate for the errors of franz-go, whose codes are the protocol's as sarama's are.
func translateProducing(err error) error {
	var code *kerr.Error
	switch {
	case errors.As(err, &code):
		for _, m := range meaning {
			if errors.Is(sarama.KError(code.Code), m.err) {
				return fmt.Errorf("%w: %w", m.is, err)
			}
		}
		return err
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kgo.ErrAborting), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", sink.ErrClosed, err)
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return fmt.Errorf("%w: %w", sink.ErrUnreachable, err)
	}
	return translate(err)
}
