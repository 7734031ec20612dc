package producer

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/sinktest"
	"github.com/postrider/postrider/test/parts"
)

const positionTopic = "postrider.positions"

var someSource = sink.Source{SystemID: "7301234567890123456", Timeline: 1, Database: "shop",
	Slot: "relay"}

// bounded is a transactional sink as the contract of every sink has it: it puts a boundary
// behind each Publish, as if it were a transaction, and reports messages when readers can see
// them. That the broker has written them is not enough: Close may abort the transaction yet.
type bounded struct {
	*TransactionalSink
	source sink.Source
	report sink.Done

	mu      sync.Mutex
	lsn     pglogrepl.LSN                   // of the last boundary, or the next while Publish runs
	ends    map[*sink.Message]pglogrepl.LSN // of messages that are not written
	written []written                       // and not committed
}

type written struct {
	message *sink.Message
	end     pglogrepl.LSN
}

func (b *bounded) Publish(ctx context.Context, ms []*sink.Message) error {
	b.mu.Lock()
	b.lsn += 8
	for _, m := range ms {
		b.ends[m] = b.lsn
	}
	end := b.lsn
	b.mu.Unlock()
	err := b.TransactionalSink.Publish(ctx, ms)
	if err == nil {
		b.Boundary(sink.Position{Source: b.source, LSN: end})
	}
	return err
}

func (b *bounded) done(m *sink.Message, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.report(m, err)
		return
	}
	b.written = append(b.written, written{m, b.ends[m]})
	delete(b.ends, m)
}

func (b *bounded) committed(end pglogrepl.LSN, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.settle(end, nil)
	}
}

// settle reports what is written up to end.
func (b *bounded) settle(end pglogrepl.LSN, err error) {
	b.written = slices.DeleteFunc(b.written, func(w written) bool {
		if w.end > end {
			return false
		}
		result := err
		if err != nil {
			result = &sink.MessageError{Topic: w.message.Topic, Origin: w.message.Origin, Err: err}
		}
		b.report(w.message, result)
		return true
	})
}

func (b *bounded) Close(ctx context.Context) error {
	err := b.TransactionalSink.Close(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(b.lsn, sink.ErrClosed)
	return err
}

func openBounded(ctx context.Context, cfg kafka.Config, source sink.Source,
	done sink.Done) (sink.Sink, error) {
	b := &bounded{source: source, report: done, ends: map[*sink.Message]pglogrepl.LSN{}}
	var err error
	if b.TransactionalSink, err = OpenTransactional(ctx, cfg, positionTopic, zerolog.Nop(), b.done,
		b.committed); err != nil {
		return nil, err
	}
	p, err := b.Begin(ctx, source)
	if err != nil {
		_ = b.TransactionalSink.Close(ctx)
		return nil, err
	}
	b.lsn = p.LSN
	return b, nil
}

func TestTransactional_FulfilsTheContract(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Subject {
		gate := &parts.Gate{}
		c := parts.Cluster(t, kfake.SeedTopics(4, "orders"), kfake.ListenFn(gate.Listen))
		cfg := unhurried(c.ListenAddrs()...)
		return sinktest.Subject{
			Open: func(ctx context.Context, done sink.Done) (sink.Sink, error) {
				return openBounded(ctx, cfg, someSource, done)
			},
			Topic: "orders", Partitions: 4,
			Read: func(t *testing.T, n int) []sinktest.Record {
				return asRecords(read(t, c, "orders", n, kgo.FetchIsolationLevel(kgo.ReadCommitted())))
			},
			Stall: func(*testing.T) func() { return gate.Shut() },
			Outlives: []string{
				"github.com/twmb/franz-go/pkg/kfake.(*clientConn).read",
				"github.com/twmb/franz-go/pkg/kfake.(*clientConn).write",
			},
		}
	})
}

func TestTransactional_OnARealBroker(t *testing.T) {
	// not parallel: the contract looks for goroutines that are left, of whatever test
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
			}
		})
	})
	t.Run("FulfilsTheContractOfTransactions", func(t *testing.T) {
		sinktest.RunTransactional(t, func(t *testing.T) sinktest.TransactionalSubject {
			topic := b.Topic(t, 4)
			source := someSource
			source.Slot = parts.Unique("slot")
			return sinktest.TransactionalSubject{
				Open: func(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional,
					error) {
					return OpenTransactional(ctx, real(b), positionTopic, zerolog.Nop(), done, committed)
				},
				Source: source, Topic: topic,
				Seen: func(t *testing.T) []sinktest.Record { return asRecords(b.All(t, topic)) },
			}
		})
	})
	t.Run("Inspect", func(t *testing.T) {
		report, err := kafka.InspectTransactions(parts.Within(t, patience), real(b))
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
