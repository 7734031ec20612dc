package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postrider/postrider/sink"
)

const (
	// idleConnection is shorter than Kafka's own limit, and as long as with Java's clients: a
	// message after a pause does not wait for handshakes.
	idleConnection = 9 * time.Minute
	// longestRetry is the longest pause before a retry, unless retry_backoff is longer: consumers
	// wait for the return of a leader.
	longestRetry = 500 * time.Millisecond
	// lookupPatience is how long a question is repeated that fails: it has to end soon, but must
	// not fall over one lost connection.
	lookupPatience = time.Second
)

// leastTimeout is the shortest time-out that the client takes.
const leastTimeout = 100 * time.Millisecond

// Client is one set of connections to a cluster, with which the relay requests, reads and writes.
// All calls end with their contexts. Why franz-go: docs/decisions/0016 and 0029.
type Client struct {
	*kgo.Client
	Config *Config
	dialer *Dialer

	first atomic.Int64 // index of the seed broker that is requested first
	// brokers, as the last answer names them
	cluster atomic.Pointer[[]kmsg.MetadataResponseBroker]
}

// NewClient makes a client; it connects when it is used. options add to those that all have. The
// caller closes it.
func (c *Config) NewClient(d *Dialer, log zerolog.Logger, options ...kgo.Opt) (*Client, error) {
	// The client takes a connection that ends before its first answer for one to a listener with
	// TLS or SASL, and fails all records of it. Reach has shown that the listener fits.
	all := append([]kgo.Opt{kgo.AlwaysRetryEOF()}, options...)
	client, err := c.newClient(log, c.dialFor(d), all...)
	if err != nil {
		return nil, err
	}
	made := &Client{Client: client, Config: c, dialer: d}
	made.cluster.Store(new([]kmsg.MetadataResponseBroker))
	return made, nil
}

// Failure returns why brokers cannot be reached, as an error of Reach; nil: there are none.
func (c *Client) Failure() *OpenError { return c.dialer.Failure() }

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialFor returns how a client dials. To the client a failed TLS handshake is an error of dialing:
// it then requests metadata, or the coordinator of a transaction, from another broker, and records
// wait for theirs. For another error it would fail the records of all brokers.
func (c *Config) dialFor(d *Dialer) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		failed := new(connectError)
		switch {
		case err == nil:
			return &clientConn{conn, c.WriteTimeout}, nil
		case errors.As(err, &failed) && !errors.Is(failed.class(), sink.ErrUnreachable):
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return nil, err
	}
}

func (c *Config) newClient(log zerolog.Logger, dial dialFunc,
	options ...kgo.Opt) (*kgo.Client, error) {
	compressor, err := c.Compressor()
	if err != nil {
		return nil, err
	}
	all := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.WithLogger(clientLog{log}),
		kgo.Dialer(dial),
		kgo.RequestTimeoutOverhead(max(c.ReadTimeout-c.ProduceTimeout, leastTimeout)),
		kgo.DisableClientMetrics(),
		kgo.ConnIdleTimeout(idleConnection),
		kgo.MetadataMinAge(250 * time.Millisecond), // a leader that has moved is found soon
		kgo.MetadataMaxAge(5 * time.Minute),
		kgo.RetryBackoffFn(c.Backoff(c.RetryBackoff)),
		kgo.RequestRetries(math.MaxInt32), // the time is the limit
		kgo.RetryTimeoutFn(c.RetryTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()), // a position is confirmed on the strength of this
		kgo.ProduceRequestTimeout(max(c.ProduceTimeout, leastTimeout)),
		kgo.ProducerBatchCompression(kgo.NoCompression()), // without a compressor
		kgo.WithCompressor(compressor),
		kgo.BrokerMaxWriteBytes(c.LargestRequest()),
		kgo.BrokerMaxReadBytes(c.LargestAnswer()),
		kgo.FetchMaxBytes(c.LargestAnswer()), // may not be more
		kgo.MaxDecompressBatchBytes(int(c.LargestPlainBatch())),
	}
	if c.Version != "" {
		all = append(all, kgo.MaxVersions(kversion.FromString(c.Version)))
	}
	switch mechanism, err := c.mechanism(log); {
	case err != nil:
		return nil, err
	case mechanism != nil:
		all = append(all, kgo.SASL(mechanism))
	}
	return kgo.NewClient(append(all, options...)...)
}

// Connect reaches a broker, and opens a client with connections of its own. Errors are those of
// Reach.
func Connect(ctx context.Context, cfg Config, log zerolog.Logger,
	options ...kgo.Opt) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	alive, err := cfg.Reach(ctx)
	if err != nil {
		return nil, err
	}
	d := NewDialer(&cfg)
	client, err := cfg.NewClient(d, log, options...)
	if err != nil {
		d.Cut(sink.ErrClosed)
		return nil, err
	}
	client.Prefer(alive)
	return client, nil
}

// Prefer makes one of the configured brokers the first of which metadata is requested, until it
// fails: brokers that are silent cost dial_timeout.
func (c *Client) Prefer(broker string) {
	c.first.Store(int64(slices.Index(c.Config.Brokers, broker)))
}

// Close ends the connections, and every call. It may be called from any goroutine.
func (c *Client) Close() {
	c.dialer.Cut(sink.ErrClosed)
	c.Client.Close()
}

// RetryTimeout is how long a request is repeated. That of a record is the sink's matter. The
// client may repeat one at a coordinator that is down: only the next session looks for another.
func (c *Config) RetryTimeout(key int16) time.Duration {
	switch kmsg.Key(key) {
	case kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.FindCoordinator:
		return min(c.DeliveryTimeout, c.ReadTimeout)
	}
	return max(lookupPatience, 2*c.RetryBackoff)
}

// Backoff doubles from first to half a second, or to retry_backoff if that is longer, with a tenth
// of jitter so that partitions do not come back in step.
func (c *Config) Backoff(first time.Duration) func(tries int) time.Duration {
	last := max(longestRetry, c.RetryBackoff)
	return func(tries int) time.Duration {
		d := first
		for i := 1; i < tries && d < last; i++ {
			d *= 2
		}
		d = min(d, last)
		return d + rand.N(d/10+1)
	}
}

// clientConn has write_timeout in place of the client's own, which follows from read_timeout.
type clientConn struct {
	net.Conn
	writeTimeout time.Duration
}

func (c *clientConn) SetWriteDeadline(t time.Time) error {
	if now := time.Now(); t.After(now) {
		t = now.Add(c.writeTimeout)
	}
	return c.Conn.SetWriteDeadline(t)
}

// clientLog sends what franz-go reports to the log, at debug.
type clientLog struct{ log zerolog.Logger }

// Level leaves out what the client reports about each request.
func (l clientLog) Level() kgo.LogLevel {
	if l.log.Debug().Enabled() {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

func (l clientLog) Log(_ kgo.LogLevel, text string, pairs ...any) {
	for i := 0; i+1 < len(pairs); i += 2 {
		text += fmt.Sprintf("; %v: %v", pairs[i], pairs[i+1])
	}
	l.log.Debug().Str("reason", text).Msg("message of the Kafka client")
}
