package kafka

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"postrider/sink"
	"postrider/sink/sinktest"
	"postrider/test/parts"
)

const positionTopic = "postrider.positions"

var someSource = sink.Source{SystemID: "7301234567890123456", Timeline: 1, Database: "shop", Slot: "relay"}

// bounded puts a boundary behind each Publish, as if it were a transaction.
type bounded struct {
	*TransactionalSink
	source sink.Source
	lsn    pglogrepl.LSN
}

func (b *bounded) Publish(ctx context.Context, ms []*sink.Message) error {
	err := b.TransactionalSink.Publish(ctx, ms)
	if err == nil {
		b.lsn += 8
		b.Boundary(sink.Position{Source: b.source, LSN: b.lsn})
	}
	return err
}

// openBounded opens a sink as the contract of every sink knows it.
func openBounded(ctx context.Context, cfg Config, source sink.Source, done sink.Done) (sink.Sink, error) {
	s, err := OpenTransactional(ctx, cfg, positionTopic, zerolog.Nop(), done, func(pglogrepl.LSN, error) {})
	if err != nil {
		return nil, err
	}
	p, err := s.Begin(ctx, source)
	if err != nil {
		_ = s.Close(ctx)
		return nil, err
	}
	return &bounded{TransactionalSink: s, source: source, lsn: p.LSN}, nil
}

func TestTransactional_FulfilsTheContract(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Subject {
		gate := &gate{}
		c := cluster(t, kfake.SeedTopics(4, "orders"), kfake.ListenFn(gate.listen))
		cfg := quick(c.ListenAddrs()...)
		return sinktest.Subject{
			Open: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
				return openBounded(ctx, cfg, someSource, done)
			},
			Topic: "orders", Partitions: 4,
			Read: func(t *testing.T, n int) []sinktest.Record {
				return asRecords(read(t, c, "orders", n, kgo.FetchIsolationLevel(kgo.ReadCommitted())))
			},
			Stall: func(*testing.T) func() { return gate.shut() },
			Outlives: []string{
				sleepingBreaker,
				"github.com/twmb/franz-go/pkg/kfake.(*clientConn).read",
				"github.com/twmb/franz-go/pkg/kfake.(*clientConn).write",
			},
		}
	})
}

func TestTransactional_OnARealBroker(t *testing.T) {
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{})
	t.Run("FulfilsTheContract", func(t *testing.T) {
		sinktest.Run(t, func(t *testing.T) sinktest.Subject {
			topic := b.Topic(t, 4)
			source := someSource
			source.Slot = parts.Unique("slot")
			return sinktest.Subject{
				Open: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
					return openBounded(ctx, real(b), source, done)
				},
				Topic: topic, Partitions: 4,
				Read: func(t *testing.T, n int) []sinktest.Record { return asRecords(b.Consume(t, topic, n)) },
				Stall: func(t *testing.T) func() {
					b.Pause(t)
					return func() { b.Resume(t) }
				},
				Outlives: []string{sleepingBreaker},
			}
		})
	})
	t.Run("FulfilsTheContractOfTransactions", func(t *testing.T) {
		sinktest.RunTransactional(t, func(t *testing.T) sinktest.TransactionalSubject {
			topic := b.Topic(t, 4)
			source := someSource
			source.Slot = parts.Unique("slot")
			return sinktest.TransactionalSubject{
				Open: func(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional, error) {
					return OpenTransactional(ctx, real(b), positionTopic, zerolog.Nop(), done, committed)
				},
				Source: source, Topic: topic,
				Seen:     func(t *testing.T) []sinktest.Record { return asRecords(b.All(t, topic)) },
				Outlives: []string{sleepingBreaker},
			}
		})
	})
	t.Run("Inspect", func(t *testing.T) {
		report, err := InspectTransactions(within(t, patience), real(b))
		require.NoError(t, err)
		require.NoError(t, report.IDErr)
		require.True(t, report.Version2)
		require.Equal(t, 15*time.Minute, report.MaxTimeout)

		cfg := real(b)
		cfg.TransactionTimeout = 16 * time.Minute
		_, _, err = begun(t, cfg, someSource, newCommits())
		require.ErrorContains(t, err, "transaction.max.timeout.ms is less")
	})
}
