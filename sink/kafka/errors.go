package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
)

// classes is the one table from the client's errors, and Kafka's, to the sentinels of package
// sink. What is not listed keeps its own name, and so counts as something that a new session may
// heal: sequence and epoch errors among them.
var classes = []struct {
	is error
	of []error
}{
	{sink.ErrTooLarge, []error{kerr.MessageTooLarge, kerr.RecordListTooLarge}},
	{sink.ErrInvalidRecord, []error{kerr.InvalidTimestamp, kerr.InvalidRecord,
		kerr.InvalidPartitions}},
	{sink.ErrInvalidTopic, []error{kerr.InvalidTopicException}},
	{sink.ErrUnknownTopic, []error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID}},
	{sink.ErrPermission, []error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed}},
	{sink.ErrAuthentication, []error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState, errHangUp}},
	{sink.ErrClosed, []error{kgo.ErrClientClosed, kgo.ErrAborting}},
	{sink.ErrUnreachable, []error{kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition,
		kerr.BrokerNotAvailable, kerr.NetworkException, kerr.KafkaStorageError,
		kgo.ErrRecordTimeout, kgo.ErrRecordRetries, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		context.DeadlineExceeded}},
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
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
	for _, class := range classes {
		if isAny(err, class.of...) {
			return class.is
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
	return isAny(err, sink.ErrTooLarge, sink.ErrInvalidRecord, sink.ErrInvalidTopic,
		sink.ErrUnknownTopic, sink.ErrPermission)
}

// connectError is a failed TCP connection, or TLS handshake on top of it.
type connectError struct {
	addr string
	tls  bool
	err  error
}

func (e *connectError) Error() string {
	var notTLS tls.RecordHeaderError
	var name *net.DNSError
	late := errors.Is(e.err, context.DeadlineExceeded)
	text := withoutPorts{e.err}.Error()
	switch {
	case errors.As(e.err, &notTLS):
		text = "the listener does not speak TLS; use its TLS port, or set " +
			"sink.kafka.tls.enabled = false"
	case e.tls && late:
		text = "no answer within dial_timeout; is it a listener with TLS?"
	case e.tls:
	case errors.Is(e.err, syscall.ECONNREFUSED):
		text = "connection refused"
	case late:
		text = "no answer within dial_timeout"
	case errors.As(e.err, &name) && name.IsNotFound:
		text = "host name not found"
	case name != nil:
		text = "host name not found: " + name.Err
	}
	if e.tls {
		text = "TLS handshake: " + text
	}
	return e.addr + ": " + text
}

func (e *connectError) Unwrap() error { return e.err }

func (e *connectError) class() error {
	switch {
	case refusedByPeer(e.err):
		return sink.ErrAuthentication
	case e.tls && !isAny(e.err, context.DeadlineExceeded, net.ErrClosed, sink.ErrClosed):
		return sink.ErrTLS // else the connection was lost during the handshake
	}
	return sink.ErrUnreachable
}

// withoutPorts is an error of the network without the addresses of its connection. Our own has
// another port each time: two attempts that fail for one cause have one text.
type withoutPorts struct{ err error }

func (e withoutPorts) Error() string {
	text := e.err.Error()
	var op *net.OpError
	for err := e.err; errors.As(err, &op); err = op.Err { // one may wrap another
		if op.Source != nil {
			text = strings.ReplaceAll(text, op.Error(), op.Err.Error())
		}
	}
	return text
}

func (e withoutPorts) Unwrap() error { return e.err }

// refusedByPeer reports whether the broker sent a TLS alert. Brokers send one when they refuse or
// miss the client's certificate; with TLS 1.3 it comes after the handshake.
func refusedByPeer(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// advised is an error with what to do about it, also at the end of its text.
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

// Advice is what the user needs besides the text. The consequence for the WAL is not known here.
func (e *advised) Advice() (wal, fix string) { return "", e.fix }
