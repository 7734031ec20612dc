package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/tlsfiles"
	"github.com/postrider/postrider/sink"
)

// clusterAnswer bounds an answer that names brokers alone: thousands of names.
const clusterAnswer = 1 << 20

// Reach requests an answer of every configured broker at once and returns the first broker that
// answers, completely authenticated. One of those that it names must be reachable under its
// advertised address: with these everything else is done. Reach does not retry: errors wrap
// sink.ErrUnreachable, ErrTLS, ErrAuthentication or ErrPermission and name each broker.
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

// answering is Reach without the advertised addresses of the brokers that the first names.
func (c *Config) answering(ctx context.Context,
	d *Dialer) (alive string, brokers []kmsg.MetadataResponseBroker, err error) {
	if err := c.canLogIn(ctx); err != nil { // concerns no broker
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

// canLogIn reports what is missing for a login before a broker is asked.
func (c *Config) canLogIn(ctx context.Context) error {
	if _, err := c.mechanism(zerolog.Nop()); err != nil || c.SASL.Mechanism != saslOAuth {
		return err
	}
	token, _, err := c.Token(ctx)
	switch {
	case token != "":
		return nil
	case ctx.Err() != nil:
		return c.interrupted(ctx)
	}
	return fmt.Errorf("log in to Kafka: %w", &tokenError{err})
}

// probe requests the brokers of the cluster from one broker, as it names them to clients: that
// takes authentication, and no right. A proxy may not rewrite those of DescribeCluster.
func (c *Config) probe(ctx context.Context, addr string,
	d *Dialer) ([]kmsg.MetadataResponseBroker, error) {
	answer, answered, err := c.requestOnce(ctx, addr, d, metadataRequest())
	if closedByPeer(err) && answered { // once may be chance; without SASL it is each time
		// By a client of its own: the first one returns the error before it gives up the connection
		// (franz-go 1.22.2, handleResp), and a request between the two fails with that connection.
		answer, _, err = c.requestOnce(ctx, addr, d, metadataRequest())
	}
	if err == nil {
		return answer.(*kmsg.MetadataResponse).Brokers, nil
	}
	var failed *connectError
	if errors.As(err, &failed) {
		return nil, failed // names the address itself
	}
	err = withoutPorts{err}
	var timeout net.Error
	switch {
	case closedByPeer(err) && c.SASL.Mechanism != "" && c.answersWithoutSASL(ctx, addr, d):
		// Kafka answers with an error code; brokers before 1.0 and other implementations hang up.
		return nil, fmt.Errorf("%s: %w %s", addr, errHangUp, c.SASL.Mechanism)
	case closedByPeer(err):
		if errors.As(err, new(*kgo.ErrFirstReadEOF)) {
			err = io.EOF // without what the client guesses about it
		}
		return nil, fmt.Errorf("%s: the broker closed the connection: %w", addr, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return nil, fmt.Errorf("%s: connected, and got no answer within dial_timeout: %w", addr, err)
	}
	return nil, fmt.Errorf("%s: %w", addr, err)
}

var errHangUp = errors.New("connection closed by the broker during SASL")

func closedByPeer(err error) bool {
	return isAny(err, io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE)
}

// answersWithoutSASL reports whether the broker answers up to the point where it requires
// authentication.
func (c *Config) answersWithoutSASL(ctx context.Context, addr string, d *Dialer) bool {
	open := *c
	open.SASL = SASLConfig{}
	_, _, err := open.requestOnce(ctx, addr, d, kmsg.NewPtrApiVersionsRequest())
	return err == nil
}

// requestOnce sends a request to one broker, by a client of its own that gives up after
// dial_timeout of silence. answered: the broker sent something.
func (c *Config) requestOnce(ctx context.Context, addr string, d *Dialer,
	request kmsg.Request) (answer kmsg.Response, answered bool, err error) {
	p := &prober{dialer: d}
	one := *c
	one.Brokers = []string{addr}
	client, err := one.newClient(zerolog.Nop(), p.dial,
		kgo.RequestTimeoutOverhead(max(c.DialTimeout, leastTimeout)),
		kgo.BrokerMaxReadBytes(clusterAnswer), kgo.FetchMaxBytes(clusterAnswer))
	if err != nil {
		return nil, false, err
	}
	defer client.Close()
	answer, err = client.SeedBrokers()[0].Request(ctx, request)
	p.mu.Lock()
	defer p.mu.Unlock()
	return answer, p.answered, err
}

// prober dials for requestOnce. It does not connect again to a broker that has sent nothing, as
// the client does at once.
type prober struct {
	dialer   *Dialer
	mu       sync.Mutex // guards what follows
	answered bool
	failed   error // of the last connection
}

func (p *prober) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := p.result(0, nil); err != nil {
		return nil, err
	}
	conn, err := p.dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, p.result(0, err)
	}
	return &probeConn{conn, p}, nil
}

// result records the result of a dial or read, and returns why the broker is not to be used.
func (p *prober) result(bytes int, err error) error {
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

type probeConn struct {
	net.Conn
	prober *prober
}

func (c *probeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, syscall.ECONNRESET) { // the client would connect again at once
		err = io.EOF
	}
	return n, c.prober.result(n, err)
}

// unreachable makes one error of the failures of all brokers. Its class is the most specific one:
// a refused password on one broker matters more than another broker being down.
func (c *Config) unreachable(failed []error) *OpenError {
	e := &OpenError{Class: sink.ErrUnreachable, Err: errors.Join(failed...)}
	e.Text = strings.ReplaceAll(e.Err.Error(), "\n", "; ")
	var chosen error
	for _, class := range []error{sink.ErrPermission, sink.ErrTLS, sink.ErrAuthentication} {
		of := func(err error) bool { return errors.Is(Translate(err), class) }
		if i := slices.IndexFunc(failed, of); i >= 0 {
			e.Class, chosen = class, failed[i]
		}
	}
	var connect *connectError
	var advised interface{ Advice() (wal, fix string) }
	if chosen == nil {
		chosen = e.Err
	}
	addr := c.Brokers[0]
	if errors.As(chosen, &connect) {
		addr = connect.addr
	}
	switch {
	case errors.As(chosen, &advised):
		_, e.Hint = advised.Advice()
		e.Text = strings.ReplaceAll(e.Text, "; "+e.Hint, "")
	case errors.Is(e.Class, sink.ErrAuthentication) && refusedByPeer(chosen):
		e.Hint = "the broker refused our certificate: check sink.kafka.tls.cert_file and key_file"
	case errors.Is(e.Class, sink.ErrAuthentication):
		e.Hint = c.SASL.advice()
	case tlsfiles.Expired(chosen):
		e.Hint = "give the broker a new certificate; if it has not expired, set the clock of the " +
			"relay's machine: openssl s_client -connect " + addr + " -showcerts"
	case errors.Is(e.Class, sink.ErrTLS):
		e.Hint = "check sink.kafka.tls.ca_file and server_name against the broker's certificate: " +
			"openssl s_client -connect " + addr + " -showcerts"
	case !c.TLS.Enabled && (closedByPeer(e.Err) || errors.Is(e.Err, errNoAnswer)):
		e.Hint = "a listener with TLS or SASL does that to a client without: check " +
			"sink.kafka.tls.enabled and sink.kafka.sasl"
	case errors.As(e.Err, &connect) && connect.tls:
		e.Hint = "name a listener with TLS in sink.kafka.brokers, or set sink.kafka.tls.enabled = " +
			"false: openssl s_client -connect " + addr
	default:
		e.Hint = "check sink.kafka.brokers, and that a broker listens there: " +
			Command(*c, "kafka-broker-api-versions.sh", "")
	}
	return e
}

// OpenError is why no broker could be used. errors.Is sees the class and each broker's error.
type OpenError struct {
	Class error  // sink.ErrUnreachable, sink.ErrTLS, sink.ErrAuthentication or sink.ErrPermission
	Err   error  // the brokers' errors, joined
	Text  string // the same on one line
	Hint  string // what to do
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("connect to Kafka: %v: %s; %s", e.Class, e.Text, e.Hint)
}

// Advice is what the user needs besides the text. The consequence for the WAL is not known here.
func (e *OpenError) Advice() (wal, fix string) { return "", e.Hint }

// Lasts reports whether a broker refuses us: that does not pass when a broker is back.
func (e *OpenError) Lasts() bool {
	return !errors.Is(e.Class, sink.ErrUnreachable) && !closedByPeer(e.Err)
}

func (e *OpenError) Unwrap() []error {
	if errors.Is(e.Class, sink.ErrUnreachable) {
		return []error{sink.ErrNoBroker, e.Err}
	}
	return []error{e.Class, e.Err}
}
