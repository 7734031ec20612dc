package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"
)

const (
	// requestOverhead is what the clients keep free below their largest request.
	requestOverhead = 10 << 10

	// retries bounds what one request may try. It is not the limit that counts, delivery_timeout is; and it must not be
	// "infinite", because sarama allocates 32 bytes per possible retry and partition.
	retries    = 200
	maxBackoff = 2 * time.Second

	// lookupRetries: asking whether a topic exists has to tell soon, but not fall over one lost connection.
	lookupRetries = 3
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
