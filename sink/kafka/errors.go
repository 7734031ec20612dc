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

	"github.com/IBM/sarama"

	"github.com/postrider/postrider/sink"
)

// meaning is the one table from sarama's errors to the sentinels of package sink. What is not listed keeps its own name,
// and so counts as something that a new session may heal: sequence and epoch errors among them.
var meaning = []struct {
	err error
	is  error
}{
	{sarama.ErrMessageSizeTooLarge, sink.ErrTooLarge},
	{sarama.ErrMessageSetSizeTooLarge, sink.ErrTooLarge},
	{sarama.ErrInvalidTimestamp, sink.ErrInvalidRecord},
	{sarama.ErrInvalidRecord, sink.ErrInvalidRecord},
	{sarama.ErrInvalidPartition, sink.ErrInvalidRecord},
	{sarama.ErrInvalidTopic, sink.ErrInvalidTopic},
	{sarama.ErrUnknownTopicOrPartition, sink.ErrUnknownTopic},
	{sarama.ErrTopicAuthorizationFailed, sink.ErrPermission},
	{sarama.ErrClusterAuthorizationFailed, sink.ErrPermission},
	{sarama.ErrTransactionalIDAuthorizationFailed, sink.ErrPermission},
	{sarama.ErrSASLAuthenticationFailed, sink.ErrAuthentication},
	{sarama.ErrUnsupportedSASLMechanism, sink.ErrAuthentication},
	{sarama.ErrIllegalSASLState, sink.ErrAuthentication},
	{errHangUp, sink.ErrAuthentication},
	{sarama.ErrShuttingDown, sink.ErrClosed},
	{sarama.ErrClosedClient, sink.ErrClosed},
	{sarama.ErrNotEnoughReplicas, sink.ErrUnreachable},
	{sarama.ErrNotEnoughReplicasAfterAppend, sink.ErrUnreachable},
	{sarama.ErrRequestTimedOut, sink.ErrUnreachable},
	{sarama.ErrLeaderNotAvailable, sink.ErrUnreachable},
	{sarama.ErrNotLeaderForPartition, sink.ErrUnreachable},
	{sarama.ErrBrokerNotAvailable, sink.ErrUnreachable},
	{sarama.ErrNetworkException, sink.ErrUnreachable},
	{sarama.ErrKafkaStorageError, sink.ErrUnreachable},
	{sarama.ErrOutOfBrokers, sink.ErrUnreachable},
	{sarama.ErrBrokerNotFound, sink.ErrUnreachable},
	{sarama.ErrNotConnected, sink.ErrUnreachable},
	{io.EOF, sink.ErrUnreachable},
	{io.ErrUnexpectedEOF, sink.ErrUnreachable},
	{net.ErrClosed, sink.ErrUnreachable},
	{context.DeadlineExceeded, sink.ErrUnreachable},
}

// translate adds the sentinel that err stands for. It keeps err in the chain.
func translate(err error) error {
	var failed *connectError
	if errors.As(err, &failed) {
		return fmt.Errorf("%w: %w", failed.class(), err)
	}
	for _, m := range meaning {
		if errors.Is(err, m.err) {
			if errors.Is(err, m.is) {
				return err
			}
			return fmt.Errorf("%w: %w", m.is, err)
		}
	}
	if refusedByPeer(err) {
		return fmt.Errorf("%w: %w", sink.ErrAuthentication, err)
	}
	var network net.Error
	if errors.As(err, &network) {
		return fmt.Errorf("%w: %w", sink.ErrUnreachable, err)
	}
	return err
}

// isVerdict tells what a broker found about the message itself from what happened on the way.
func isVerdict(err error) bool {
	for _, m := range []error{sink.ErrTooLarge, sink.ErrInvalidRecord, sink.ErrInvalidTopic, sink.ErrUnknownTopic, sink.ErrPermission} {
		if errors.Is(err, m) {
			return true
		}
	}
	return false
}

// connectError is a connection that did not come about: the TCP connection, or the TLS handshake on top of it.
type connectError struct {
	addr string
	tls  bool
	err  error
}

func (e *connectError) Error() string {
	var notTLS tls.RecordHeaderError
	switch {
	case errors.As(e.err, &notTLS):
		return e.addr + ": TLS handshake: the listener does not speak TLS; use its TLS port, or set sink.kafka.tls.enabled = false"
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
	return errors.Is(e.err, context.DeadlineExceeded) || errors.Is(e.err, net.ErrClosed) || errors.Is(e.err, sink.ErrClosed)
}

// refusedByPeer recognises a TLS alert that the broker sent. Brokers send one when they refuse the client's certificate or
// miss it; with TLS 1.3 it arrives only with the first response, after the handshake.
func refusedByPeer(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// advised is an error with what to do about it, which stands at the end of the text too.
type advised struct {
	err error
	fix string
}

func advise(err error, format string, args ...any) error {
	return &advised{err, fmt.Sprintf(format, args...)}
}

func (e *advised) Error() string { return e.err.Error() + "; " + strings.ReplaceAll(e.fix, "\n", "; ") }

func (e *advised) Unwrap() error { return e.err }

// Advice is what the user needs besides the text. What it means for the WAL is not known here.
func (e *advised) Advice() (wal, fix string) { return "", e.fix }

// names joins what happened at each broker.
func names(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}
