package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"

	"postrider/sink"
)

// Open connects to the cluster and returns a sink that is ready to publish, until ctx ends. It does not retry: the errors
// wrap sink.ErrUnreachable, ErrTLS, ErrAuthentication or ErrPermission and say what was tried, or are those of Validate.
// done is called from one goroutine of the sink. The caller closes the sink.
func Open(ctx context.Context, cfg Config, log zerolog.Logger, done sink.Done) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.reach(ctx); err != nil {
		return nil, err
	}

	d := newDialer(&cfg)
	stop := context.AfterFunc(ctx, func() { d.cut(context.Cause(ctx)) })
	s, err := open(cfg, d, log, done)
	if !stop() && err == nil { // cut meanwhile
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DialTimeout)
		defer cancel()
		_ = s.Close(closing)
		err = context.Cause(ctx)
	}
	if err != nil {
		d.cut(sink.ErrClosed)
		return nil, fmt.Errorf("open Kafka producer at %s: %w", cfg.bootstrap(), err)
	}
	return s, nil
}

func open(cfg Config, d *dialer, log zerolog.Logger, done sink.Done) (*Sink, error) {
	lookup, err := cfg.lookup(d)
	if err != nil {
		return nil, err
	}
	produce, err := cfg.produce(d)
	if err != nil {
		return nil, err
	}
	asking, err := sarama.NewClient(cfg.Brokers, lookup)
	if err != nil {
		return nil, translate(err)
	}
	producing, err := sarama.NewClient(cfg.Brokers, produce)
	if err != nil {
		_ = asking.Close()
		return nil, translate(err)
	}
	producer, err := sarama.NewAsyncProducerFromClient(producing) // asks for a producer id
	if err != nil {
		_ = asking.Close()
		_ = producing.Close()
		err = translate(err)
		if errors.Is(err, sink.ErrPermission) {
			err = fmt.Errorf("%w; allow the user to produce: kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s --producer --topic '*'",
				err, cfg.bootstrap(), cfg.SASL.Username)
		}
		return nil, err
	}
	return start(cfg, d, log, done, asking, producing, producer), nil
}

// reach asks every configured broker at once and is content with the first that answers, completely authenticated.
func (c *Config) reach(ctx context.Context) error {
	d := newDialer(c)
	defer d.cut(sink.ErrClosed)
	defer context.AfterFunc(ctx, func() { d.cut(context.Cause(ctx)) })()
	base, err := c.lookup(d)
	if err != nil {
		return err
	}
	// One that accepts connections and then says nothing counts as one that does not accept them.
	base.Net.ReadTimeout = c.DialTimeout

	answers := make(chan error, len(c.Brokers))
	for _, addr := range c.Brokers {
		go func() { answers <- probe(addr, base) }() // ended by its time-outs or d.cut; never blocks on the channel
	}
	var failed []error
	for range c.Brokers {
		err := <-answers
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("connect to Kafka at %s: %w", c.bootstrap(), context.Cause(ctx))
	}
	return c.unreachable(failed)
}

// probe connects to one broker, authenticates and asks for the cluster's brokers, and closes the connection again.
func probe(addr string, conf *sarama.Config) error {
	b := sarama.NewBroker(addr)
	if err := b.Open(conf); err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	defer func() { _ = b.Close() }()
	_, err := b.Connected()
	if err == nil {
		_, err = b.DescribeCluster(&sarama.DescribeClusterRequest{})
		var code sarama.KError
		if errors.As(err, &code) || errors.Is(err, sarama.ErrUnsupportedVersion) {
			err = nil // it answered
		}
	}
	if err == nil {
		return nil
	}
	var failed *connectError
	if errors.As(err, &failed) {
		return err // names the address itself
	}
	return fmt.Errorf("%s: %w", addr, err)
}

// unreachable makes one error of the failures of all brokers. The class is that of the failure that says most: a refused
// password on one broker matters more than another broker being down.
func (c *Config) unreachable(failed []error) error {
	class, text := sink.ErrUnreachable, names(failed)
	var told error
	for _, candidate := range []error{sink.ErrAuthentication, sink.ErrTLS, sink.ErrPermission} {
		for _, err := range failed {
			if told == nil && errors.Is(translate(err), candidate) {
				class, told = candidate, err
			}
		}
	}
	all := errors.Join(failed...)
	hint := ""
	switch class {
	case sink.ErrAuthentication:
		hint = "check sink.kafka.sasl.mechanism, username and password"
		if refusedByPeer(told) {
			hint = "the broker refused our certificate: check sink.kafka.tls.cert_file and key_file"
		}
	case sink.ErrTLS:
		hint = "check sink.kafka.tls.ca_file and server_name against the broker's certificate: openssl s_client -connect " + c.Brokers[0] + " -showcerts"
	default:
		hint = "check sink.kafka.brokers, and that a broker listens there: kafka-broker-api-versions.sh --bootstrap-server " + c.bootstrap()
		if !c.TLS.Enabled && (errors.Is(all, io.EOF) || errors.Is(all, io.ErrUnexpectedEOF)) {
			hint = "it closed the connection: a listener with TLS or SASL does that to a client without; check sink.kafka.tls.enabled and sink.kafka.sasl"
		}
	}
	return &OpenError{Brokers: c.Brokers, Class: class, Err: all, Text: text, Hint: hint}
}

// OpenError says why no broker could be used. errors.Is sees the class and each broker's error.
type OpenError struct {
	Brokers []string
	Class   error  // sink.ErrUnreachable, sink.ErrTLS, sink.ErrAuthentication or sink.ErrPermission
	Err     error  // the brokers' errors, joined
	Text    string // the same on one line
	Hint    string // what to do
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("connect to Kafka: %v: %s; %s", e.Class, e.Text, e.Hint)
}

func (e *OpenError) Unwrap() []error { return []error{e.Class, e.Err} }
