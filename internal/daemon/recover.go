package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/sink/kafka/topicreader"
)

// Recover publishes the rows that a lost slot did not deliver, or reports which ones it would. say
// shows the user what is being done, in the form of fmt.Printf. Errors are those of
// backfill.Recovery and of the database and the broker.
func Recover(ctx context.Context, env Environment, cfg config.Config, sel backfill.Selection,
	publish bool, say func(format string, args ...any), log zerolog.Logger,
) (*backfill.Report, error) {
	p := Unmeasured(env, cfg, log)
	if err := p.prepareTables(ctx); err != nil { // what the router needs to know
		return nil, err
	}
	parts := backfill.RecoveryParts{
		Parts: p.backfillParts("recovery"),
		OpenTopics: func(ctx context.Context) (backfill.Topics, error) {
			reader, err := topicreader.Open(ctx, cfg.Sink.Kafka, true) // committed records only
			if err != nil {
				return nil, err // not reader: an interface with a nil pointer is not nil
			}
			return topicReader{reader}, nil
		},
		OpenSink: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
			s, err := producer.Open(ctx, cfg.Sink.Kafka, p.Component("sink"), done)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Router: p.NewRouter,
		DeadLetters: func(ctx context.Context) (backfill.DeadLetters, error) {
			return p.deadRows(ctx, say)
		},
		Say: say,
	}
	r, err := backfill.NewRecovery(ctx, parts, sel)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !publish {
		return r.Plan(ctx)
	}
	if cfg.Relay.ExactlyOnce {
		// An open transaction of a relay that hangs could commit after its rows were published from
		// the tables. Once it is aborted, what an earlier attempt published behind it can be read.
		source, err := Source(ctx, cfg)
		if err != nil {
			return nil, err
		}
		err = producer.AbortTransaction(ctx, cfg.Sink.Kafka, cfg.Relay.PositionTopic, source, log)
		if err != nil {
			return nil, err
		}
	}
	return r.Publish(ctx)
}

// Source identifies server, database and slot. Its Events are empty.
func Source(ctx context.Context, cfg config.Config) (sink.Source, error) {
	id, err := postgres.IdentifySystem(ctx, cfg.Postgres)
	if err != nil {
		return sink.Source{}, err
	}
	return sink.Source{SystemID: id.SystemID, Timeline: id.Timeline, Database: id.DBName,
		Slot: cfg.Slot.Name}, nil
}

// systemIdentifier is postgres.SystemIdentifier over a connection of its own.
func systemIdentifier(ctx context.Context, cfg postgres.Config) (string, error) {
	conn, err := postgres.Connect(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer postgres.Close(conn)
	return postgres.SystemIdentifier(ctx, conn)
}

// deadRows reads which rows have a dead letter of this relay, and which keys are parked.
func (p *Pipeline) deadRows(ctx context.Context,
	say func(format string, args ...any)) (found backfill.DeadLetters, err error) {
	index, err := p.letters(ctx)
	if err != nil || index == nil {
		return found, err
	}
	if n := len(index.Unknown); n > 0 {
		say("%d records of topic %s are no dead letters that this build can read; rows count as "+
			"missing if one of these is theirs: %v", n, p.Config.DeadLetter.Topic, index.Unknown[0])
	}
	system, err := systemIdentifier(ctx, p.Config.Postgres)
	if err != nil {
		return found, err
	}
	for _, e := range index.List(deadletter.Filter{All: true}) {
		if e.EventID != "" && !ofAnotherRelay([]byte(e.Source), system, p.Config.Slot.Name) {
			found.Rows = append(found.Rows, backfill.DeadRow{Relation: e.Relation, ID: e.EventID})
		}
	}
	found.Parks = index.Parks()
	return found, nil
}

// openTransactionWait bounds the wait for open transactions in a topic. Those of a relay that runs
// take less, one of a producer that was killed up to its transaction timeout.
const openTransactionWait = 10 * time.Second

// topicReader is a topicreader.Reader as backfill.Topics.
type topicReader struct{ *topicreader.Reader }

func (t topicReader) Read(ctx context.Context, topic string, since time.Time,
	each func(*sink.Message)) (of backfill.Extent, err error) {
	of.Whole, err = t.Whole(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		return backfill.Extent{Whole: true}, nil
	}
	if err == nil {
		of.Open, err = t.AwaitDecided(ctx, topic, openTransactionWait)
	}
	if err != nil {
		return of, err
	}
	spans, err := t.Spans(ctx, topic, since)
	if err != nil {
		return of, err
	}
	return of, t.Reader.Read(ctx, spans, func(m *sink.Message, _ int64) error {
		each(m)
		return nil
	})
}
