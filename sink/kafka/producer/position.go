package producer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// storedPosition is the value of a record in relay.position_topic; its key is positionKey. A relay
// reads it in TransactionalSink.Begin and stores it with each transaction, in
// transactionalwriter.go.
type storedPosition struct {
	LSN        string    `json:"lsn"`         // commit end, in PostgreSQL's text form
	CommitTime time.Time `json:"commit_time"` // of the last transaction
	Timeline   int32     `json:"timeline"`
	SystemID   string    `json:"system_id"`
	Database   string    `json:"database"`
	Slot       string    `json:"slot"`
	Events     string    `json:"events,omitempty"` // sink.Source.Events
}

// positionKey returns the key of a source, without its timeline: after a failover the relay finds
// the record of the old primary, and its timeline in it.
func positionKey(s sink.Source) string { return s.SystemID + "/" + s.Database + "/" + s.Slot }

func encodePosition(p sink.Position) []byte {
	s := p.Source
	value, err := json.Marshal(storedPosition{p.LSN.String(), p.CommitTime.UTC(), s.Timeline,
		s.SystemID, s.Database, s.Slot, s.Events})
	if err != nil {
		panic(err) // only strings, numbers and a time of PostgreSQL: none can fail
	}
	return value
}

func decodePosition(value []byte) (sink.Position, error) {
	var v storedPosition
	err := json.Unmarshal(value, &v)
	lsn, lsnErr := pglogrepl.ParseLSN(v.LSN)
	if err = cmp.Or(err, lsnErr); err != nil {
		return sink.Position{}, err
	}
	source := sink.Source{SystemID: v.SystemID, Timeline: v.Timeline, Database: v.Database,
		Slot: v.Slot, Events: v.Events}
	return sink.Position{Source: source, LSN: lsn, CommitTime: v.CommitTime}, nil
}

// ReadPosition returns the position that exactly_once has stored for a source; zero: none. It
// fences no relay. Errors are those of kafka.Connect, or sink.ErrUnknownTopic.
func ReadPosition(ctx context.Context, cfg kafka.Config, topic string,
	source sink.Source) (sink.Position, error) {
	client, err := kafka.Connect(ctx, cfg, zerolog.Nop())
	if err != nil {
		return sink.Position{}, err
	}
	defer client.Close()
	var found positions
	if _, err = client.Partitions(ctx, topic); err == nil {
		found, err = readPositions(ctx, client, topic)
	}
	if err != nil {
		return sink.Position{}, fmt.Errorf("read relay.position_topic %q: %w", topic, err)
	}
	return found.forSource(topic, source)
}

// storeTimeout bounds StorePosition.
const storeTimeout = time.Minute

// StorePosition stores a position as a relay with exactly_once does, which fences a producer that
// still publishes for its source. It blocks until the broker has taken it, a minute at most.
// Errors are those of OpenTransactional and Begin.
func StorePosition(ctx context.Context, cfg kafka.Config, topic string, p sink.Position,
	log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	stored := make(chan error, 1)
	s, err := OpenTransactional(ctx, cfg, topic, log, func(*sink.Message, error) {},
		func(_ pglogrepl.LSN, err error) {
			select {
			case stored <- err:
			default:
			}
		})
	if err != nil {
		return err
	}
	defer func() { _ = closeIdle(ctx, s) }()
	if _, err := s.Begin(ctx, p.Source); err != nil {
		return err
	}
	s.Boundary(p)
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return fmt.Errorf("store the position in topic %q: %w", topic, context.Cause(ctx))
	}
}

// AbortTransaction aborts the open transaction of a relay with exactly_once, if there is one, and
// fences its producer. Errors are those of OpenTransactional, Begin and Close.
func AbortTransaction(ctx context.Context, cfg kafka.Config, topic string, source sink.Source,
	log zerolog.Logger) error {
	s, err := OpenTransactional(ctx, cfg, topic, log, func(*sink.Message, error) {},
		func(pglogrepl.LSN, error) {})
	if err != nil {
		return err
	}
	_, err = s.Begin(ctx, source)
	return errors.Join(err, closeIdle(ctx, s))
}

// closeIdle closes a sink that has nothing in flight.
func closeIdle(ctx context.Context, s *TransactionalSink) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return s.Close(ctx)
}

// onlyPartition is the partition that is used of a compacted topic.
const onlyPartition = 0

// positions has the newest value of each key in a topic.
type positions struct {
	committed    map[string][]byte
	transactions topicreader.Transactions[*kgo.Record]
}

// readPositions reads the topic to its end, also past the open transactions of other relays.
func readPositions(ctx context.Context, client *kafka.Client, topic string) (positions, error) {
	found := positions{committed: map[string][]byte{}}
	reader := topicreader.New(client, false)
	ends, err := reader.Ends(ctx, topic)
	if err == nil && len(ends[topic]) == 0 {
		err = inconsistentTopic(topic)
	}
	if err != nil {
		return found, err
	}
	all := topicreader.Span{Topic: topic, Partition: onlyPartition, End: ends[topic][onlyPartition]}
	return found, reader.Scan(ctx, all, 0, found.add)
}

// inconsistentTopic returns the error for a topic that existed a moment ago. Without it the relay
// would begin as if nothing was stored.
func inconsistentTopic(topic string) error {
	return fmt.Errorf("%w: the brokers do not agree whether topic %q exists", sink.ErrUnreachable,
		topic)
}

// add adds a record, of a transaction or not: an operator may write without, with Kafka's tools.
func (f *positions) add(r *kgo.Record) error {
	for _, decided := range f.transactions.Add(r, r) {
		f.committed[string(decided.Key)] = decided.Value
	}
	return nil
}

// forSource returns the committed position of a source, or the zero Position.
func (f *positions) forSource(topic string, source sink.Source) (sink.Position, error) {
	value := f.committed[positionKey(source)]
	if value == nil {
		return sink.Position{}, nil // none, or a tombstone
	}
	p, err := decodePosition(value)
	if err != nil {
		return sink.Position{}, kafka.Advise(fmt.Errorf("position of %s in topic %q cannot be read: %w",
			positionKey(source), topic, err),
			"look at the record: kafka-console-consumer.sh --topic %s --from-beginning --property "+
				"print.key=true", topic)
	}
	return p, nil
}

var errOpenTransaction = errors.New("a transaction of this relay is still open in it, though " +
	"its producer was fenced")

// forFencedSource is forSource once all other producers of the source are fenced: a transaction of
// the source that is still open is then an error.
func (f *positions) forFencedSource(topic string, source sink.Source) (sink.Position, error) {
	for _, open := range f.transactions.Open {
		for _, r := range open {
			if string(r.Key) == positionKey(source) {
				return sink.Position{}, fmt.Errorf("topic %q: %w", topic, errOpenTransaction)
			}
		}
	}
	return f.forSource(topic, source)
}

// otherSystems returns the keys of the same database and slot on other systems.
func (f *positions) otherSystems(source sink.Source) []string {
	var keys []string
	for key := range f.committed {
		if strings.HasSuffix(key, "/"+source.Database+"/"+source.Slot) && key != positionKey(source) {
			keys = append(keys, key)
		}
	}
	return keys
}
