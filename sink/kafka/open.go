package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// Open connects to the cluster and returns a sink that is ready to publish, until ctx ends. It does not retry: the errors
// wrap sink.ErrUnreachable, ErrTLS, ErrAuthentication or ErrPermission and say what was tried, or are those of Validate.
// done is called from goroutines of the sink. The caller closes the sink.
func Open(ctx context.Context, cfg Config, log zerolog.Logger, done sink.Done) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.raiseLimits()
	silence()
	alive, err := cfg.reach(ctx)
	if err != nil {
		return nil, err
	}
	cfg.warn(log)

	d := newDialer(&cfg)
	stop := context.AfterFunc(ctx, func() { d.cut(context.Cause(ctx)) })
	s, err := open(ctx, cfg, alive, d, log, done)
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

// warn tells what is configured and not safe, in each session.
func (c *Config) warn(log zerolog.Logger) {
	if c.TLS.InsecureSkipVerify {
		log.Warn().Str("reason", "sink.kafka.tls.insecure_skip_verify is true").Msg("broker certificates were not verified")
	}
	if c.SASL.Mechanism == sarama.SASLTypePlaintext && !c.TLS.Enabled {
		log.Warn().Str("reason", "sink.kafka.sasl.mechanism is PLAIN and sink.kafka.tls.enabled is false").Msg("password was sent in the clear")
	}
}

func open(ctx context.Context, cfg Config, alive string, d *dialer, log zerolog.Logger, done sink.Done) (*Sink, error) {
	lookup, err := cfg.lookup(d)
	if err != nil {
		return nil, err
	}
	asking, err := sarama.NewClient(cfg.Brokers, lookup)
	if err != nil {
		return nil, translate(err)
	}
	s := newSink(cfg, d, log, done)
	client, err := s.cfg.identified(ctx, alive, d, s)
	if err != nil {
		_ = asking.Close()
		return nil, err
	}
	s.start(client, asking)
	return s, nil
}

// identified makes the client of s, and has it ask for its producer id. It asks one broker, and is given one that answers; for later, when
// brokers come and go, it gets the whole list.
func (c *Config) identified(ctx context.Context, alive string, d *dialer, s *Sink) (*kgo.Client, error) {
	first := *c
	first.Brokers = []string{alive}
	client, err := first.idempotent(d, placed{&s.lanes}, s)
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, c.ReadTimeout)
	defer cancel()
	if err = identify(asking, client); err == nil {
		err = client.UpdateSeedBrokers(c.Brokers...)
	}
	if err == nil {
		return client, nil
	}
	d.cut(sink.ErrClosed)
	client.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	err = translateProducing(err)
	if errors.Is(err, sink.ErrPermission) {
		err = advise(err, "%s", AllowCommand(*c, "--producer --topic '*'"))
	}
	return nil, err
}

// reach asks every configured broker at once and returns the first that answers, completely authenticated. One of those that it
// names has to be reachable under its advertised address: with these everything else is done.
func (c *Config) reach(ctx context.Context) (string, error) {
	d := newDialer(c)
	defer d.cut(sink.ErrClosed)
	defer context.AfterFunc(ctx, func() { d.cut(context.Cause(ctx)) })()
	alive, err := c.answering(ctx, d)
	if err != nil {
		return "", err
	}
	advertised := c.advertised(ctx, d, alive)
	if err = d.reachAdvertised(alive, advertised); ctx.Err() != nil {
		return "", fmt.Errorf("connect to Kafka at %s: %w", c.bootstrap(), context.Cause(ctx))
	}
	return alive, err
}

// answering is reach without a look at what the broker names.
func (c *Config) answering(ctx context.Context, d *dialer) (alive string, err error) {
	base, err := c.lookup(d)
	if err != nil {
		return "", err
	}
	// One that accepts connections and then says nothing counts as one that does not accept them.
	base.Net.ReadTimeout = c.DialTimeout

	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(c.Brokers))
	for _, addr := range c.Brokers {
		go func() { // ended by its time-outs or d.cut; never blocks on the channel
			answers <- answer{addr, probe(addr, base)}
		}()
	}
	var failed []error
	for range c.Brokers {
		a := <-answers
		if a.err == nil {
			return a.addr, nil
		}
		failed = append(failed, a.err)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("connect to Kafka at %s: %w", c.bootstrap(), context.Cause(ctx))
	}
	return "", c.unreachable(failed)
}

// probe connects to one broker, authenticates, and closes the connection again. It asks for the cluster
// only to see that the broker answers: one before Kafka 2.8 answers that it does not know the question.
func probe(addr string, conf *sarama.Config) error {
	b := sarama.NewBroker(addr)
	if err := b.Open(conf); err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	defer func() { _ = b.Close() }()
	_, err := b.Connected()
	if conf.Net.SASL.Enable && closedByPeer(err) && answersWithoutSASL(addr, *conf) {
		// Kafka answers with an error code; brokers before 1.0 and other implementations just hang up.
		return fmt.Errorf("%s: %w %s", addr, errHangUp, conf.Net.SASL.Mechanism)
	}
	if err == nil {
		_, err = b.DescribeCluster(&sarama.DescribeClusterRequest{})
		var code sarama.KError
		if err == nil || errors.As(err, &code) || errors.Is(err, sarama.ErrUnsupportedVersion) {
			return nil // it answered
		}
	}
	var failed *connectError
	if errors.As(err, &failed) {
		return err // names the address itself
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%s: connected, and got no answer within dial_timeout: %w", addr, err)
	}
	if closedByPeer(err) {
		return fmt.Errorf("%s: the broker closed the connection: %w", addr, err)
	}
	return fmt.Errorf("%s: %w", addr, err)
}

var errHangUp = errors.New("connection closed by the broker during SASL")

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// answersWithoutSASL tells whether the broker talks up to the point where it wants authentication.
func answersWithoutSASL(addr string, conf sarama.Config) bool {
	conf.Net.SASL.Enable, conf.Net.SASL.User, conf.Net.SASL.Password = false, "", ""
	b := sarama.NewBroker(addr)
	if b.Open(&conf) != nil {
		return false
	}
	defer func() { _ = b.Close() }()
	ok, err := b.Connected()
	return ok && err == nil
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
	var hint string
	switch {
	case errors.Is(class, sink.ErrAuthentication):
		hint = "check sink.kafka.sasl.mechanism, username and password"
		if refusedByPeer(told) {
			hint = "the broker refused our certificate: check sink.kafka.tls.cert_file and key_file"
		}
	case errors.Is(class, sink.ErrTLS):
		hint = "check sink.kafka.tls.ca_file and server_name against the broker's certificate: openssl s_client -connect " + c.Brokers[0] + " -showcerts"
	default:
		hint = "check sink.kafka.brokers, and that a broker listens there: kafka-broker-api-versions.sh --bootstrap-server " + c.bootstrap()
		var handshake *connectError
		switch {
		case !c.TLS.Enabled && closedByPeer(all):
			hint = "a listener with TLS or SASL does that to a client without: check sink.kafka.tls.enabled and sink.kafka.sasl"
		case errors.As(all, &handshake) && handshake.tls:
			hint = "name a listener with TLS in sink.kafka.brokers, or set sink.kafka.tls.enabled = false: openssl s_client -connect " + c.Brokers[0]
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

// Advice is what the user needs besides the text. What it means for the WAL is not known here.
func (e *OpenError) Advice() (wal, fix string) { return "", e.Hint }

func (e *OpenError) Unwrap() []error {
	if errors.Is(e.Class, sink.ErrUnreachable) {
		return []error{sink.ErrNoBroker, e.Err}
	}
	return []error{e.Class, e.Err}
}
