package daemon

import (
	"bytes"
	"context"
	"errors"
	"sync"
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
		Say:    say,
	}
	switch letters, err := p.letters(ctx); {
	case err != nil:
		return nil, err
	case letters != nil:
		if err := p.countDeadLetters(ctx, &parts); err != nil {
			return nil, err
		}
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

// countDeadLetters has rows with a dead letter count as delivered.
func (p *Pipeline) countDeadLetters(ctx context.Context, parts *backfill.RecoveryParts) error {
	system, err := systemIdentifier(ctx, p.Config.Postgres)
	if err != nil {
		return err
	}
	index := deadletter.NewIndex()
	parts.DeadLetters = p.Config.DeadLetter.Topic
	parts.DeadLetter = func(m *sink.Message) (relation, id string) {
		own := *m
		own.Key = bytes.Clone(m.Key) // the reader overwrites m
		index.Take(&own, 0)          // a key is in one partition, which is read in order
		return rowOfLetter(m, system, p.Config.Slot.Name)
	}
	parks := sync.OnceValue(index.Parks)
	parts.Parked = func(m *sink.Message) bool { return parks()(m) }
	return nil
}

// rowOfLetter returns the row of a dead letter, and nothing for other records and for a letter of
// another relay that shares the topic: its tables and ids may have the same names. system is empty
// if it is not known.
func rowOfLetter(m *sink.Message, system, slot string) (relation, id string) {
	for _, h := range m.Headers {
		switch h.Key {
		case deadletter.HeaderSource:
			if ofAnotherRelay(h.Value, system, slot) {
				return "", ""
			}
		case deadletter.HeaderRelation:
			relation = string(h.Value)
		case deadletter.HeaderEventID:
			id = string(h.Value)
		}
	}
	return relation, id
}

// topicReader is a topicreader.Reader as backfill.Topics.
type topicReader struct{ *topicreader.Reader }

func (t topicReader) Read(ctx context.Context, topic string, since time.Time,
	each func(*sink.Message)) (whole bool, err error) {
	whole, err = t.Whole(ctx, topic)
	if errors.Is(err, sink.ErrUnknownTopic) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	spans, err := t.Spans(ctx, topic, since)
	if err != nil {
		return false, err
	}
	return whole, t.Reader.Read(ctx, spans, func(m *sink.Message, _ int64) error {
		each(m)
		return nil
	})
}
