package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// meaning is the one table from the client's errors, and Kafka's, to the sentinels of package
// sink. What is not listed keeps its own name, and so counts as something that a new session may
// heal: sequence and epoch errors among them.
var meaning = []struct {
	err error
	is  error
}{
	{kerr.MessageTooLarge, sink.ErrTooLarge},
	{kerr.RecordListTooLarge, sink.ErrTooLarge},
	{kerr.InvalidTimestamp, sink.ErrInvalidRecord},
	{kerr.InvalidRecord, sink.ErrInvalidRecord},
	{kerr.InvalidPartitions, sink.ErrInvalidRecord},
	{kerr.InvalidTopicException, sink.ErrInvalidTopic},
	{kerr.UnknownTopicOrPartition, sink.ErrUnknownTopic},
	{kerr.TopicAuthorizationFailed, sink.ErrPermission},
	{kerr.ClusterAuthorizationFailed, sink.ErrPermission},
	{kerr.TransactionalIDAuthorizationFailed, sink.ErrPermission},
	{kerr.SaslAuthenticationFailed, sink.ErrAuthentication},
	{kerr.UnsupportedSaslMechanism, sink.ErrAuthentication},
	{kerr.IllegalSaslState, sink.ErrAuthentication},
	{errHangUp, sink.ErrAuthentication},
	{kgo.ErrClientClosed, sink.ErrClosed},
	{kgo.ErrAborting, sink.ErrClosed},
	{kerr.NotEnoughReplicas, sink.ErrUnreachable},
	{kerr.NotEnoughReplicasAfterAppend, sink.ErrUnreachable},
	{kerr.RequestTimedOut, sink.ErrUnreachable},
	{kerr.LeaderNotAvailable, sink.ErrUnreachable},
	{kerr.NotLeaderForPartition, sink.ErrUnreachable},
	{kerr.BrokerNotAvailable, sink.ErrUnreachable},
	{kerr.NetworkException, sink.ErrUnreachable},
	{kerr.KafkaStorageError, sink.ErrUnreachable},
	{kgo.ErrRecordTimeout, sink.ErrUnreachable},
	{kgo.ErrRecordRetries, sink.ErrUnreachable},
	{io.EOF, sink.ErrUnreachable},
	{io.ErrUnexpectedEOF, sink.ErrUnreachable},
	{net.ErrClosed, sink.ErrUnreachable},
	{context.DeadlineExceeded, sink.ErrUnreachable},
}

// Class is the sentinel of package sink that err stands for; nil: none.
func Class(err error) error {
	var failed *connectError
	var code *kerr.Error
	var network net.Error
	switch {
	case errors.As(err, &failed):
		return failed.class()
	case errors.As(err, &code): // whatever else it wraps
		err = code
	}
	for _, m := range meaning {
		if errors.Is(err, m.err) {
			return m.is
		}
	}
	switch {
	case refusedByPeer(err):
		return sink.ErrAuthentication
	case errors.As(err, &network), code == nil && kgo.IsRetryableBrokerErr(err):
		return sink.ErrUnreachable
	}
	return nil
}

// Translate adds the sentinel that err stands for. It keeps err in the chain.
func Translate(err error) error {
	class := Class(err)
	if class == nil || errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

// Failed is why a request has failed: the end of its context, or what Translate makes of err.
func Failed(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return Translate(err)
}

// IsVerdict reports whether err is what a broker found about the message itself, and not what
// happened on the way.
func IsVerdict(err error) bool {
	for _, m := range []error{sink.ErrTooLarge, sink.ErrInvalidRecord, sink.ErrInvalidTopic,
		sink.ErrUnknownTopic, sink.ErrPermission} {
		if errors.Is(err, m) {
			return true
		}
	}
	return false
}

// connectError is a connection that did not come about: the TCP connection, or the TLS handshake
// on top of it.
type connectError struct {
	addr string
	tls  bool
	err  error
}

func (e *connectError) Error() string {
	var notTLS tls.RecordHeaderError
	switch {
	case errors.As(e.err, &notTLS):
		return e.addr + ": TLS handshake: the listener does not speak TLS; use its TLS port, or set " +
			"sink.kafka.tls.enabled = false"
	case e.tls && errors.Is(e.err, context.DeadlineExceeded):
		return e.addr + ": TLS handshake: no answer within dial_timeout; is it a listener with TLS?"
	case e.tls:
		return fmt.Sprintf("%s: TLS handshake: %v", e.addr, e.err)
	case errors.Is(e.err, syscall.ECONNREFUSED):
		return e.addr + ": connection refused"
	case errors.Is(e.err, context.DeadlineExceeded):
		return e.addr + ": no answer within dial_timeout"
	}
	var name *net.DNSError
	if errors.As(e.err, &name) {
		return e.addr + ": host name not found" + dnsDetail(name)
	}
	return fmt.Sprintf("%s: %v", e.addr, e.err)
}

func dnsDetail(e *net.DNSError) string {
	if e.IsNotFound {
		return ""
	}
	return ": " + e.Err
}

func (e *connectError) Unwrap() error { return e.err }

func (e *connectError) class() error {
	switch {
	case refusedByPeer(e.err):
		return sink.ErrAuthentication
	case e.tls && !e.lost():
		return sink.ErrTLS
	default:
		return sink.ErrUnreachable
	}
}

// lost tells a connection that broke during the handshake from a handshake that was refused.
func (e *connectError) lost() bool {
	return errors.Is(e.err, context.DeadlineExceeded) || errors.Is(e.err, net.ErrClosed) ||
		errors.Is(e.err, sink.ErrClosed)
}

// refusedByPeer recognises a TLS alert that the broker sent. Brokers send one when they refuse the
// client's certificate or miss it; with TLS 1.3 it arrives only with the first response, after the
// handshake.
func refusedByPeer(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// advised is an error with what to do about it, which stands at the end of the text too.
type advised struct {
	err error
	fix string
}

// Advise adds to an error what to do about it.
func Advise(err error, format string, args ...any) error {
	return &advised{err, fmt.Sprintf(format, args...)}
}

func (e *advised) Error() string {
	return e.err.Error() + "; " + strings.ReplaceAll(e.fix, "\n", "; ")
}

func (e *advised) Unwrap() error { return e.err }

// Advice is what the user needs besides the text. What it means for the WAL is not known here.
func (e *advised) Advice() (wal, fix string) { return "", e.fix }
