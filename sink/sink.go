// Package sink is the contract of a broker: what must hold before a position may be confirmed to
// PostgreSQL.
//
// A sink takes messages in order and reports each of them exactly once: durable, or failed.
// It never retries by sending a message again behind later ones of the same partition.
// The contract is a test suite in sink/sinktest; every sink passes it.
//
//   - sink.go is the contract; syncpublisher.go publishes chunks and waits for each.
package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
)

// ByKey is the Partition of a message whose partition follows from its key.
const ByKey int32 = -1

// Message is what goes to the broker. The sink owns it from Publish until Done and never writes
// its slices. After Done with nil it reads neither the message nor the bytes of key, value and
// headers any more: the caller writes other rows there.
type Message struct {
	Topic     string
	Key       []byte // nil: no key at all; empty: a key of zero bytes
	Value     []byte // nil: a tombstone; empty: a value of zero bytes
	Headers   []Header
	Partition int32     // explicit partition, or ByKey
	Timestamp time.Time // record time; zero: the producer's clock

	// Origin is for errors, logs and the caller of Publish: the sink returns it untouched.
	Origin Origin
}

// Origin is the event a message was made of.
type Origin struct {
	LSN         pglogrepl.LSN // commit LSN of its transaction
	Index       uint32        // of the event in its transaction
	Transaction uint64        // the window's number of the transaction
	Generation  uint32        // of the window, in which the message was added
	OID         uint32        // of the relation; zero: not known, or a logical message has none
	CommitTime  time.Time     // by the server's clock
	HandedOver  time.Time     // to the sink, by our clock
	Relation    string        // schema-qualified table, or "message:<prefix>"
	EventID     string        // text of the id column
	HeldBytes   int           // of memory, what is not published included, against the caller's limit
	Memory      Memory        // in which its bytes lie; nil: it is not reused
}

// Memory is the buffer with the bytes of a message. It is not written while it is retained. Only
// the caller of Publish calls it.
type Memory interface {
	Retain()
	Release()
}

// Header is one record header. Keys may repeat; order is kept.
type Header struct {
	Key   string
	Value []byte // nil: a null value
}

// Size is what is published, in bytes: key, value and headers.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// Clone returns a copy that shares no bytes with m's row, and has no Memory: it stays as it is
// when m is reused.
func (m *Message) Clone() Message {
	c := *m
	c.Key, c.Value = bytes.Clone(m.Key), bytes.Clone(m.Value)
	c.Headers = slices.Clone(m.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	c.Origin.EventID, c.Origin.Memory = strings.Clone(m.Origin.EventID), nil
	return c
}

// Done is called once for every message that Publish took: with nil when the broker has
// acknowledged it with the configured durability, else with the reason. It is called from the
// sink's goroutines, possibly before Publish returned; it must not block. The acknowledgements of
// one partition come in order.
//
// After the first failure a sink writes nothing more: messages queued behind the failed one would
// overtake it, since it will come again. So no acknowledgement follows a failure in the same
// partition, but for those that Close makes: it fails what is queued while it waits for what is
// under way. The failures that follow from it are ErrClosed, or ErrUnreachable if the first one
// was, in any order. The sink may still read failed messages.
type Done func(m *Message, err error)

// Sink hands messages to a broker.
type Sink interface {
	// Publish takes messages in order, for one goroutine. It may block, until ctx ends, for room in
	// its queue and until the topic is known to exist. On an error none or a leading part of ms
	// was taken: Done is still called for each of those, at the latest by Close, and the caller must
	// close the sink, unless the error is a *MessageError with Untaken. A *MessageError names the
	// first message that was not taken, or the one that failed before; ErrClosed means that the sink
	// is closed.
	Publish(ctx context.Context, ms []*Message) error
	// Topic returns nil if the topic exists, creating it if that is configured, else an error like
	// Publish's. ErrUnknownTopic means that the whole cluster agrees. The goroutine of Publish calls
	// it.
	Topic(ctx context.Context, topic string) error
	// Close ends the sink and waits for its goroutines, at most until ctx ends. It reports messages
	// in flight to Done as failed, though the broker may have them: wait for Done first. It may be
	// called while Publish blocks, which then returns, and again, which only waits. When it returns
	// nil, Done is not called any more.
	Close(ctx context.Context) error
}

// Open makes a sink for one session, connected and ready to publish. The caller closes it.
type Open func(ctx context.Context, done Done) (Sink, error)

// What a broker can answer. Sinks wrap these; relay/classify.go turns them into a decision.
var (
	// no broker answers, or too few replicas do
	ErrUnreachable = errors.New("broker unreachable")
	// SASL or client certificate refused
	ErrAuthentication = errors.New("broker authentication failed")
	ErrTLS            = errors.New("broker TLS handshake failed")
	ErrPermission     = errors.New("not permitted by the broker") // an ACL is missing
	ErrUnknownTopic   = errors.New("topic does not exist")
	ErrInvalidTopic   = errors.New("invalid topic name")
	ErrTooLarge       = errors.New("message too large")
	// timestamp out of range, partition out of range, ...
	ErrInvalidRecord = errors.New("record refused by the broker")
	ErrClosed        = errors.New("sink closed")

	// ErrNoBroker is ErrUnreachable of a sink that cannot be opened, because no broker answers.
	ErrNoBroker = fmt.Errorf("%w: none of the brokers answers", ErrUnreachable)
)

// UnknownTopic is ErrUnknownTopic with the name of the topic.
func UnknownTopic(topic string) error { return unknownTopic(topic) }

type unknownTopic string

func (t unknownTopic) Error() string { return fmt.Sprintf("topic %q does not exist", string(t)) }
func (t unknownTopic) Unwrap() error { return ErrUnknownTopic }

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// longestTopic is in bytes: Topic.MAX_NAME_LENGTH of Kafka. As a repetition it would make the
// pattern 249 states long, which takes a millisecond of every start to compile.
const longestTopic = 249

// ValidTopic reports whether Kafka takes a name for a topic: 1 to 249 of a-z A-Z 0-9 . _ -, and
// not one or two dots alone.
func ValidTopic(name string) bool {
	return len(name) <= longestTopic && topicName.MatchString(name) && name != "." && name != ".."
}

// Source identifies one history of positions: those of two sources must never be compared, since
// LSNs are used again after a restore, a failover or in another cluster.
type Source struct {
	SystemID string // of the database cluster
	Timeline int32
	Database string
	Slot     string
	// what the index of an event counts: the publication, and whether logical messages are read
	Events string
}

// Header names the source in records. Events is part of it: the same row has another index where
// other events are counted.
func (s Source) Header() string {
	return fmt.Sprintf("%s/%d/%s/%s", s.SystemID, s.Timeline, s.Slot, s.Events)
}

// Signature is the value of HeaderSource for the messages of one transaction: Header, and the
// commit time, by which it differs from that of a copy of the database with the same source and
// positions.
func (s Source) Signature(commitTime time.Time) []byte {
	return AppendSignature(nil, s.Header(), commitTime)
}

// AppendSignature is Source.Signature for a Header, appended to dst.
func AppendSignature(dst []byte, header string, commitTime time.Time) []byte {
	dst = append(append(dst, header...), '@')
	return strconv.AppendInt(dst, commitTime.UnixMicro(), 10)
}

// ParseSignature takes a Signature apart, and returns false for any other text. The header is a
// part of signature.
func ParseSignature(signature []byte) (header []byte, commitTime time.Time, ok bool) {
	at := bytes.LastIndexByte(signature, '@')
	if at < 0 {
		return nil, time.Time{}, false
	}
	micros, err := strconv.ParseInt(string(signature[at+1:]), 10, 64)
	return signature[:at], time.UnixMicro(micros), err == nil
}

// HeaderSource names the header with Source.Signature: with the position headers a later session
// recognises by it what is published.
const HeaderSource = "postrider.source"

// HeaderRedriven names the header of a redriven message: the ID of the dead letter that it was.
const HeaderRedriven = "postrider.redriven"

// Position is how far everything is published: all transactions that end at or before LSN are.
type Position struct {
	Source     Source
	LSN        pglogrepl.LSN // commit end
	CommitTime time.Time     // of the transaction that ends there; zero: none in particular does
}

// Stalled are the partitions that have acknowledged nothing for StalledAfter, though messages wait
// for them.
type Stalled struct {
	Partitions int       `json:"partitions"`
	Messages   int       `json:"messages"` // that wait for them
	Topic      string    `json:"topic"`    // of the partition that has been stalled for the longest
	Partition  int32     `json:"partition"`
	Leaderless bool      `json:"leaderless"`      // it has no leader
	Throttled  bool      `json:"throttled"`       // its leader throttles the relay by a quota
	Since      time.Time `json:"since"`           // when its oldest message was sent
	Error      string    `json:"error,omitempty"` // why brokers cannot be reached
	Next       string    `json:"next"`            // what to do, or a command that shows why
}

// StalledAfter is long for a broker, which acknowledges within milliseconds. A garbage collection
// or an election takes up to three seconds.
const StalledAfter = 3 * time.Second

// Staller is a Sink that knows which partitions are stalled.
type Staller interface {
	Sink
	// Stalled returns them; zero: none is. Safe for concurrent use.
	Stalled() Stalled
}

// Deduplicator is a Sink that finds what an earlier session has published.
type Deduplicator interface {
	Sink
	// Published reports whether m is in its topic already and needs not be published again; false if
	// that is not certain. After false for a message it must be published, and so must those of its
	// key that follow. It blocks while the ends of the partitions of a topic are read, and is called
	// in the order of positions by the goroutine of Publish, before it. Errors are like Publish's.
	Published(ctx context.Context, source Source, m *Message) (bool, error)
}

// Transactional is a Sink whose messages readers see only together with a position.
// Done(m, nil) means that the broker has written m; what readers see, Committed reports.
type Transactional interface {
	Sink
	// Begin shuts out every other producer of the source, aborts what it left open, and returns
	// the position that the last commit stored, of whatever timeline; the zero Position if there
	// is none. Called once, before the first Publish, when the slot is held.
	Begin(ctx context.Context, source Source) (Position, error)
	// Boundary marks the messages so far as whole transactions, up to p. Readers will see them
	// together with p, perhaps with later boundaries too; then Committed is called with p.LSN or a
	// later one. It does not block, and is for the goroutine of Publish.
	Boundary(p Position)
}

// Committed is called when everything up to end can be seen by readers and the position is stored;
// or with why the sink failed. It is called from the sink's goroutines and must not block.
type Committed func(end pglogrepl.LSN, err error)

// MessageError is the failure of one message: which one, and why. errors.Is sees through to the
// sentinel.
type MessageError struct {
	Topic  string
	Origin Origin
	// Untaken: Publish has refused the message before anything of it was sent. Those
	// before it were taken, and the sink takes those behind it if the caller publishes them.
	Untaken bool
	Err     error
}

func (e *MessageError) Error() string {
	cause, to := e.Err.Error(), fmt.Sprintf(" to topic %q", e.Topic)
	if strings.Contains(cause, strings.TrimPrefix(to, " to ")) { // names the topic itself
		to = ""
	}
	if e.Origin == (Origin{}) {
		return "publish" + to + ": " + cause
	}
	return fmt.Sprintf("publish event %q of %s at %s index %d%s: %s", e.Origin.EventID,
		e.Origin.Relation, e.Origin.LSN, e.Origin.Index, to, cause)
}

func (e *MessageError) Unwrap() error { return e.Err }
