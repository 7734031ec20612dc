package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/sink"
)

// clusterAnswer bounds what a broker may send when it is asked for brokers alone: thousands of
// names.
const clusterAnswer = 1 << 20

// Reach asks every configured broker at once and returns the first that answers, completely
// authenticated. One of those that it names has to be reachable under its advertised address: with
// these everything else is done. It does not retry: the errors wrap sink.ErrUnreachable, ErrTLS,
// ErrAuthentication or ErrPermission and say what was tried.
func (c *Config) Reach(ctx context.Context) (alive string, err error) {
	d := NewDialer(c)
	defer d.Cut(sink.ErrClosed)
	alive, brokers, err := c.answering(ctx, d)
	if err != nil {
		return "", err
	}
	if err = d.reachAdvertised(ctx, alive, brokers); ctx.Err() != nil {
		return "", c.interrupted(ctx)
	}
	return alive, err
}

func (c *Config) interrupted(ctx context.Context) error {
	return fmt.Errorf("connect to Kafka at %s: %w", c.bootstrap(), context.Cause(ctx))
}

// answering is Reach without a look at the brokers that the first names.
func (c *Config) answering(ctx context.Context,
	d *Dialer) (alive string, brokers []kmsg.MetadataResponseBroker, err error) {
	if _, err := c.SASL.mechanism(); err != nil { // no broker's matter
		return "", nil, err
	}
	type answer struct {
		addr    string
		brokers []kmsg.MetadataResponseBroker
		err     error
	}
	answers := make(chan answer, len(c.Brokers))
	for _, addr := range c.Brokers {
		go func() { // ended by its time-outs, ctx or d.Cut; never blocks on the channel
			brokers, err := c.probe(ctx, addr, d)
			answers <- answer{addr, brokers, err}
		}()
	}
	var failed []error
	for range c.Brokers {
		a := <-answers
		if a.err == nil {
			return a.addr, a.brokers, nil
		}
		failed = append(failed, a.err)
	}
	if ctx.Err() != nil {
		return "", nil, c.interrupted(ctx)
	}
	return "", nil, c.unreachable(failed)
}

// prober is a client of one broker, which says nothing for dial_timeout at most. It does not
// connect again to one that has not answered, as clients do at once.
type prober struct {
	*Client
	mu       sync.Mutex
	answered bool  // the broker has sent something
	failed   error // of the last connection
}

func (c *Config) prober(addr string, d *Dialer) (*prober, error) {
	p := &prober{}
	quick := *c
	quick.Brokers = []string{addr}
	var err error
	p.Client, err = quick.NewClient(d, zerolog.Nop(),
		kgo.RequestTimeoutOverhead(max(c.DialTimeout, 100*time.Millisecond)),
		kgo.BrokerMaxReadBytes(clusterAnswer), kgo.FetchMaxBytes(clusterAnswer),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if err := p.came(0, nil); err != nil {
				return nil, err
			}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, p.came(0, err)
			}
			return &probeConn{conn, p}, nil
		}))
	return p, err
}

// came notes what came of a connection, and returns why there is no other.
func (p *prober) came(bytes int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = p.answered || bytes > 0
	if err != nil {
		p.failed = err
	}
	if p.answered {
		return err
	}
	return p.failed
}

func (p *prober) hasAnswered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered
}

// probeConn shows the end of a connection as it is.
type probeConn struct {
	net.Conn
	prober *prober
}

func (c *probeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, syscall.ECONNRESET) { // after which the client would try others at once
		err = io.EOF
	}
	return n, c.prober.came(n, err)
}

// probe asks one broker for the brokers of the cluster, as it names them to clients: that takes
// authentication, and no right. A proxy may leave those of DescribeCluster as they are.
func (c *Config) probe(ctx context.Context, addr string,
	d *Dialer) ([]kmsg.MetadataResponseBroker, error) {
	client, err := c.prober(addr, d)
	if err != nil {
		return nil, err
	}
	defer client.Client.Client.Close()
	answer, err := noTopics().RequestWith(ctx, client.SeedBrokers()[0])
	// which may happen once, and does each time where SASL is missing
	if closedByPeer(err) && client.hasAnswered() {
		answer, err = noTopics().RequestWith(ctx, client.SeedBrokers()[0])
	}
	if err == nil {
		return answer.Brokers, nil
	}
	var failed *connectError
	var timeout net.Error
	switch {
	case errors.As(err, &failed):
		return nil, failed // names the address itself
	case closedByPeer(err) && c.SASL.Mechanism != "" && c.answersWithoutSASL(ctx, addr, d):
		// Kafka answers with an error code; brokers before 1.0 and other implementations just hang
		// up.
		return nil, fmt.Errorf("%s: %w %s", addr, errHangUp, c.SASL.Mechanism)
	case closedByPeer(err):
		return nil, fmt.Errorf("%s: the broker closed the connection: %w", addr, endOf(err))
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("%s: connected, and got no answer within dial_timeout: %w", addr, err)
	}
	return nil, fmt.Errorf("%s: %w", addr, err)
}

var errHangUp = errors.New("connection closed by the broker during SASL")

func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET)
}

// endOf leaves out what the client guesses about the end of a connection.
func endOf(err error) error {
	if errors.As(err, new(*kgo.ErrFirstReadEOF)) {
		return io.EOF
	}
	return err
}

// answersWithoutSASL reports whether the broker answers up to the point where it wants
// authentication.
func (c *Config) answersWithoutSASL(ctx context.Context, addr string, d *Dialer) bool {
	open := *c
	open.SASL = SASLConfig{}
	client, err := open.prober(addr, d)
	if err != nil {
		return false
	}
	defer client.Client.Client.Close()
	_, err = kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client.SeedBrokers()[0])
	return err == nil
}

// unreachable makes one error of the failures of all brokers. The class is that of the failure
// that says most: a refused password on one broker matters more than another broker being down.
func (c *Config) unreachable(failed []error) error {
	class, texts := sink.ErrUnreachable, make([]string, len(failed))
	var chosen error
	for i, err := range failed {
		texts[i] = err.Error()
	}
	for _, candidate := range []error{sink.ErrAuthentication, sink.ErrTLS, sink.ErrPermission} {
		for _, err := range failed {
			if chosen == nil && errors.Is(Translate(err), candidate) {
				class, chosen = candidate, err
			}
		}
	}
	all := errors.Join(failed...)
	var hint string
	switch {
	case errors.Is(class, sink.ErrAuthentication):
		hint = "check sink.kafka.sasl.mechanism, username and password"
		if refusedByPeer(chosen) {
			hint = "the broker refused our certificate: check sink.kafka.tls.cert_file and key_file"
		}
	case errors.Is(class, sink.ErrTLS):
		hint = "check sink.kafka.tls.ca_file and server_name against the broker's certificate: " +
			"openssl s_client -connect " +
			c.Brokers[0] + " -showcerts"
	default:
		hint = "check sink.kafka.brokers, and that a broker listens there: " +
			"kafka-broker-api-versions.sh --bootstrap-server " + c.bootstrap()
		var handshake *connectError
		switch {
		case !c.TLS.Enabled && (closedByPeer(all) || errors.Is(all, errNoAnswer)):
			hint = "a listener with TLS or SASL does that to a client without: check " +
				"sink.kafka.tls.enabled and sink.kafka.sasl"
		case errors.As(all, &handshake) && handshake.tls:
			hint = "name a listener with TLS in sink.kafka.brokers, or set sink.kafka.tls.enabled = " +
				"false: openssl s_client -connect " + c.Brokers[0]
		}
	}
	return &OpenError{Brokers: c.Brokers, Class: class, Err: all, Text: strings.Join(texts, "; "),
		Hint: hint}
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
