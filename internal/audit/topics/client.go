package topics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
)

const (
	// protocol is the newest version that sarama implements completely.
	protocol = "2.8.0"
	// metadataTries is how often a metadata or admin request is repeated.
	metadataTries = 3
	// fetchWait is how long a broker waits for new records.
	fetchWait = 500 * time.Millisecond
	// leaderPause is the pause before a partition without a leader is tried again.
	leaderPause = time.Second
)

// client is the common part of Reader and Follower. Calls of sarama take no context: when that of
// within ends, within cuts the connections, and the client cannot be used any more.
type client struct {
	sarama.Client
	cfg    kafka.Config
	dialer *kafka.Dialer
	admin  sarama.ClusterAdmin // not closed: that would close Client
}

// connect opens a client. configure changes the settings, prepare uses the new client. Errors are
// those of kafka.Config.Reach.
func connect(ctx context.Context, cfg kafka.Config, configure func(*sarama.Config),
	prepare func(*client) error) (*client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, err := cfg.Reach(ctx); err != nil {
		return nil, err
	}
	if limit := cfg.LargestAnswer(); limit > sarama.MaxResponseSize {
		sarama.MaxResponseSize = limit // of the process; the dialer applies the limit of this client
	}
	c := &client{cfg: cfg}
	c.dialer = kafka.NewDialer(&c.cfg)
	settings, err := settings(&c.cfg, c.dialer)
	if err == nil {
		configure(settings)
		err = c.within(ctx, func() (err error) {
			if c.Client, err = sarama.NewClient(cfg.Brokers, settings); err != nil {
				return translate(err)
			}
			// The admin client needs the brokers. Leaders may be elected later.
			if err := c.RefreshMetadata(); err != nil && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
				return translate(err)
			}
			if c.admin, err = sarama.NewClusterAdminFromClient(c.Client); err != nil {
				return translate(err)
			}
			return prepare(c)
		})
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("read topics at %s: %w", c.cfg.Brokers, err)
	}
	return c, nil
}

func settings(cfg *kafka.Config, d *kafka.Dialer) (*sarama.Config, error) {
	version, err := sarama.ParseKafkaVersion(cmp.Or(cfg.Version, protocol))
	if err != nil {
		return nil, fmt.Errorf("sink.kafka.version: %w", err)
	}
	s := sarama.NewConfig()
	s.Version = version
	s.ClientID = cfg.ClientID
	s.Net.DialTimeout, s.Net.ReadTimeout, s.Net.WriteTimeout = cfg.DialTimeout, cfg.ReadTimeout,
		cfg.WriteTimeout
	s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, d // with TLS
	s.Metadata.Full = false                          // a cluster may have thousands of topics
	s.Metadata.AllowAutoTopicCreation = false
	s.Metadata.Timeout = cfg.ReadTimeout
	s.Metadata.Retry.Max, s.Metadata.Retry.Backoff = metadataTries, cfg.RetryBackoff
	s.Admin.Timeout = cfg.ProduceTimeout
	s.Admin.Retry.Max, s.Admin.Retry.Backoff = metadataTries, cfg.RetryBackoff
	return s, logIn(s, cfg)
}

// within runs calls of sarama until ctx ends, at most for delivery_timeout.
func (c *client) within(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.DeliveryTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.dialer.Cut(context.Cause(ctx)) })
	err := call()
	if !stop() && err != nil {
		return fmt.Errorf("%w: %w", translate(context.Cause(ctx)), err)
	}
	return err
}

// topics returns the topics of the cluster that are not internal, with their partitions.
func (c *client) topics() (map[string]int32, error) {
	if err := c.RefreshMetadata(); err != nil && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
		return nil, translate(err)
	}
	names, err := c.Topics()
	if err != nil {
		return nil, translate(err)
	}
	found := map[string]int32{}
	for _, topic := range names {
		partitions, err := c.Partitions(topic)
		if err != nil || isInternal(topic) {
			continue // deleted meanwhile
		}
		found[topic] = int32(len(partitions)) //nolint:gosec // Kafka counts partitions in 32 bits
	}
	return found, nil
}

func (c *client) close() {
	if c.Client != nil {
		_ = c.Client.Close()
	}
	c.dialer.Cut(sink.ErrClosed)
}

// translate wraps an error of sarama with its sentinel of package sink.
func translate(err error) error {
	var code sarama.KError
	class := kafka.Class(err)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code):
		class = kafka.Class(kerr.ErrorForCode(int16(code)))
	case errors.Is(err, sarama.ErrOutOfBrokers), errors.Is(err, sarama.ErrBrokerNotFound),
		errors.Is(err, sarama.ErrNotConnected),
		errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		class = sink.ErrUnreachable
	case errors.Is(err, sarama.ErrClosedClient):
		class = sink.ErrClosed
	}
	if class == nil || errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}
