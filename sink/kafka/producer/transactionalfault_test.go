package producer

import (
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// commits collects what a transactional sink reports.
type commits struct {
	ends chan pglogrepl.LSN
	err  chan error
}

func newCommits() *commits {
	return &commits{ends: make(chan pglogrepl.LSN, 10_000), err: make(chan error, 10)}
}

func (c *commits) committed(end pglogrepl.LSN, err error) {
	if err != nil {
		c.err <- err
		return
	}
	c.ends <- end
}

func (c *commits) wait() (pglogrepl.LSN, error) {
	select {
	case end := <-c.ends:
		return end, nil
	case err := <-c.err:
		return 0, err
	}
}

// begun opens a sink and begins, without patience for a failure.
func begun(t testing.TB, cfg kafka.Config, source sink.Source,
	c *commits) (*TransactionalSink, sink.Position, error) {
	t.Helper()
	s, err := OpenTransactional(parts.Within(t, patience), cfg, positionTopic, zerolog.Nop(),
		func(*sink.Message, error) {}, c.committed)
	if err != nil {
		return nil, sink.Position{}, err
	}
	t.Cleanup(func() { _ = s.Close(parts.Within(t, patience)) })
	p, err := s.Begin(parts.Within(t, patience), source)
	return s, p, err
}

// publishAll publishes transactions of three messages in as many sessions as it takes, each going
// on behind the stored position, and returns how many it took. With patience it waits for each
// commit, so that there are as many as there can be.
func publishAll(t *testing.T, cfg kafka.Config, ms []*sink.Message, patient bool) (sessions int) {
	t.Helper()
	const size = 3
	for {
		sessions++
		c := newCommits()
		s, p, err := begun(t, cfg, someSource, c)
		if s == nil {
			continue // the connection was cut just then
		}
		for n := int(p.LSN); err == nil && n < len(ms); n += size { //nolint:gosec // a number of the test
			if err = s.Publish(parts.Within(t, patience), ms[n:n+size]); err == nil {
				s.Boundary(sink.Position{Source: someSource, LSN: pglogrepl.LSN(n + size)}) //nolint:gosec // the same
			}
			if patient && err == nil {
				_, err = c.wait()
			}
		}
		for last := p.LSN; err == nil && int(last) < len(ms) && !patient; { //nolint:gosec // the same
			last, err = c.wait()
		}
		require.NoError(t, s.Close(parts.Within(t, patience)))
		if err == nil {
			return sessions
		}
		require.Less(t, sessions, 500, "no progress: %v", err)
	}
}

// requireCommitted requires the numbered messages in order, once each, as readers of committed
// records see them.
func requireCommitted(t *testing.T, c *kfake.Cluster, n int) {
	t.Helper()
	requireInOrder(t, read(t, c, "orders", n, kgo.FetchIsolationLevel(kgo.ReadCommitted())), n)
}

func TestTransactional_EachErrorEndsTheSessionAndTheNextGoesOn(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.EndTxn, kmsg.Produce} {
		for _, fault := range []*kerr.Error{
			kerr.UnknownServerError, kerr.InvalidProducerEpoch, kerr.ProducerFenced, kerr.InvalidTxnState,
			kerr.TransactionAbortable,
			kerr.InvalidProducerIDMapping, kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID,
		} {
			t.Run(fmt.Sprint(key.Name(), " ", fault.Message), func(t *testing.T) {
				c := parts.Cluster(t, kfake.SeedTopics(3, "orders"))
				struck := c.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: fault})
				require.Greater(t, publishAll(t, quick(c.ListenAddrs()...), numbered("orders", 300), false), 1)
				require.Positive(t, struck.Hits())
				requireCommitted(t, c, 300)
			})
		}
	}
}

// The client forgets to begin the sequences of a topic anew that it stores too late (place). It
// does so once in some hundred topics, and more often on a busy machine.
func TestTransactional_GoesOnBehindTheFirstTransactionOfATopic(t *testing.T) {
	const topics = 100
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("orders-%d", i)
	}
	got := newCommits()
	s, _, err := begun(t, unhurried(parts.Cluster(t, kfake.SeedTopics(1, names...)).ListenAddrs()...),
		someSource, got)
	require.NoError(t, err)
	for i := range 2 * topics {
		end := pglogrepl.LSN(i + 1) //nolint:gosec // a number of the test
		require.NoError(t, s.Publish(parts.Within(t, patience), numbered(names[i/2], 1)))
		s.Boundary(sink.Position{Source: someSource, LSN: end})
		committed, err := got.wait()
		require.NoError(t, err, "transaction %d of topic %s", i%2+1, names[i/2])
		require.Equal(t, end, committed)
		require.True(t, s.writer.stored[names[i/2]], "stored before the end of the first transaction")
	}
}

// Whether a commit was carried out whose answer is lost, only the next session can find out.
func TestTransactional_LostConnectionsRepeatNothing(t *testing.T) {
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.SeedTopics(3, "orders"), kfake.ListenFn(gate.Listen))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	requests := 0
	var through atomic.Bool
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) { // called by one goroutine
		c.KeepControl()
		if requests++; requests > 50 && !through.Load() && random.IntN(40) == 0 {
			gate.Cut()
		}
		return nil, nil, false
	})
	sessions := publishAll(t, quick(c.ListenAddrs()...), numbered("orders", 900), true)
	through.Store(true) // who reads what has come of it is left alone
	t.Logf("%d sessions", sessions)
	require.Greater(t, sessions, 2)
	requireCommitted(t, c, 900)
}

func TestTransactional_NoticesAnotherIdentityWithinATransaction(t *testing.T) {
	s := &TransactionalSink{}
	s.cfg = kafka.DefaultConfig()
	w := newTransactionWriter(s)
	require.NoError(t, w.checkIdentity(&kgo.Record{ProducerID: 7, ProducerEpoch: 3}, nil))
	require.NoError(t, w.checkIdentity(&kgo.Record{ProducerID: 7, ProducerEpoch: 3}, nil))
	require.ErrorIs(t, w.checkIdentity(&kgo.Record{ProducerID: 7, ProducerEpoch: 4}, nil),
		errProducerChanged)
}

// The client makes itself a new identity after some errors, and the broker has aborted what the
// former one has written.
func TestTransactional_CommitsNothingUnderAnotherIdentityThanItsRecords(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	written := make(chan error, 1)
	s, err := OpenTransactional(parts.Within(t, patience), quick(c.ListenAddrs()...), positionTopic,
		zerolog.Nop(),
		func(_ *sink.Message, err error) { written <- err }, newCommits().committed)
	require.NoError(t, err)
	defer s.Close(parts.Within(t, patience)) //nolint:errcheck // nothing is out
	_, err = s.Begin(parts.Within(t, patience), someSource)
	require.NoError(t, err)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	require.NoError(t, <-written) // the writer waits for more, or for a boundary

	before, epoch, err := s.client.ProducerID(parts.Within(t, patience))
	require.NoError(t, err)
	require.NoError(t, s.client.EndTransaction(parts.Within(t, patience), kgo.TryAbort))
	after, next, err := s.client.ProducerID(parts.Within(t, patience))
	require.NoError(t, err)
	require.NotEqual(t, []any{before, epoch}, []any{after, next})
	require.NoError(t, s.client.BeginTransaction())
	require.ErrorIs(t, commit(t.Context(), s.client, s.writer.identity), errProducerChanged)
}

// A record was refused, and others of its transaction are written: the position behind them must
// not become visible. Not even if the requests of the failed sink, which end with it, would still
// go out.
func TestTransactional_CommitsNothingOfWhichARecordFailed(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := quick(c.ListenAddrs()...)
	written, commits := make(chan error, 1), newCommits()
	s, err := OpenTransactional(parts.Within(t, patience), cfg, positionTopic, zerolog.Nop(),
		func(_ *sink.Message, err error) { written <- err }, commits.committed)
	require.NoError(t, err)
	_, err = s.Begin(parts.Within(t, patience), someSource)
	require.NoError(t, err)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 1)))
	require.NoError(t, <-written) // the writer waits for more, or for a boundary

	s.failed.Store(true)
	s.writer.commit(sink.Position{Source: someSource, LSN: 7})
	require.Empty(t, commits.ends)
	require.NoError(t, s.Close(parts.Within(t, patience)))
	stored, err := ReadPosition(parts.Within(t, patience), cfg, positionTopic, someSource)
	require.NoError(t, err)
	require.Zero(t, stored)
}

// Close waits for the commit under way. What the broker refuses meanwhile is no failure of the sink, which has stopped: neither
// the records beside it nor a position may become visible.
func TestTransactional_CommitsNothingThatIsRefusedWhileItCloses(t *testing.T) {
	for _, refused := range []string{"orders", positionTopic} {
		t.Run(refused, func(t *testing.T) {
			c := parts.Cluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
			cfg := quick(c.ListenAddrs()...)
			got, commits := newOutcomes(), newCommits()
			s, err := OpenTransactional(parts.Within(t, patience), cfg, positionTopic, zerolog.Nop(), got.done, commits.committed)
			require.NoError(t, err)
			_, err = s.Begin(parts.Within(t, patience), someSource)
			require.NoError(t, err)
			ms := numbered("orders", 2)
			ms[0].Partition, ms[1].Partition = 0, 1
			require.NoError(t, s.Publish(parts.Within(t, patience), ms[:1]))
			require.NoError(t, got.wait(t, 1)[0].err)

			id := c.TopicInfo(refused).TopicID
			committed := false
			c.ControlKey(int16(kmsg.EndTxn), func(request kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				committed = committed || request.(*kmsg.EndTxnRequest).Commit
				return nil, nil, false
			})
			waits, refuse := make(chan struct{}), make(chan struct{})
			c.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				produce := request.(*kmsg.ProduceRequest)
				of := produce.Topics[0]
				if of.Topic != refused && of.TopicID != id {
					return nil, nil, false
				}
				close(waits)
				c.SleepControl(func() { <-refuse })
				response := produce.ResponseKind().(*kmsg.ProduceResponse)
				topic, partition := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
				topic.Topic, topic.TopicID = of.Topic, of.TopicID
				partition.Partition, partition.ErrorCode = of.Partitions[0].Partition, kerr.InvalidRecord.Code
				topic.Partitions = append(topic.Partitions, partition)
				response.Topics = append(response.Topics, topic)
				return response, nil, true
			})
			if refused == "orders" {
				require.NoError(t, s.Publish(parts.Within(t, patience), ms[1:]))
			}
			s.Boundary(sink.Position{Source: someSource, LSN: 2, CommitTime: time.Unix(1, 0)})
			<-waits
			parts.Await(t, "the commit", func() (bool, error) { return s.committing.Load(), nil })
			closed := make(chan error, 1)
			go func() { closed <- s.Close(parts.Within(t, patience)) }()
			parts.Await(t, "the sink to stop", func() (bool, error) { return s.stopped(), nil })
			close(refuse)
			require.NoError(t, <-closed)
			require.Empty(t, commits.ends)
			stored, err := ReadPosition(parts.Within(t, patience), cfg, positionTopic, someSource)
			require.NoError(t, err)
			require.Zero(t, stored)
			c.Close() // ends what writes committed
			require.False(t, committed)
		})
	}
}

func TestTransactional_SaysWhatToDoAboutTheTimeout(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.InvalidTransactionTimeout,
		Count: -1})
	_, _, err := begun(t, quick(c.ListenAddrs()...), someSource, newCommits())
	require.ErrorContains(t, err,
		"sink.kafka.transaction_timeout is 5m0s, and the broker's transaction.max.timeout.ms is less")
	requireAdvice(t, err)
}

// A coordinator cannot end a transaction in a partition without a leader, and assigns no producer id
// until then.
func TestTransactional_DoesNotWaitForAFormerTransactionForever(t *testing.T) {
	t.Parallel()
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ConcurrentTransactions, Count: -1})
	cfg := quick(c.ListenAddrs()...)
	cfg.DeliveryTimeout = cfg.ReadTimeout + time.Millisecond
	_, _, err := begun(t, cfg, someSource, newCommits())
	require.ErrorIs(t, err, sink.ErrUnreachable)
	require.ErrorContains(t, err, "the former transaction has not ended in all partitions")
	require.ErrorContains(t, err, "--unavailable-partitions")
	requireAdvice(t, err)
}

func TestTransactional_SaysWhichRightIsMissing(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID},
		Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	_, _, err := begun(t, quick(c.ListenAddrs()...), someSource, newCommits())
	require.ErrorIs(t, err, sink.ErrPermission)

	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator},
		Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	report, inspectErr := kafka.InspectTransactions(parts.Within(t, patience),
		quick(c.ListenAddrs()...))
	require.NoError(t, inspectErr)
	require.ErrorIs(t, report.IDErr, sink.ErrPermission)
	require.ErrorContains(t, err, "--transactional-id 'postrider.7301234567890123456.shop.relay'")
	requireAdvice(t, err)
}

// A transaction of another relay that was killed stays open for a while; nobody else has to wait
// for it.
func TestTransactional_BeginsBesideTheOpenTransactionOfAnother(t *testing.T) {
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"))
	cfg := unhurried(c.ListenAddrs()...)
	publishAll(t, cfg, numbered("orders", 3), false)

	client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...),
		kgo.TransactionalID("postrider.1.other.relay"))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.BeginTransaction())
	other := someSource
	other.SystemID = "1"
	require.NoError(t, client.ProduceSync(parts.Within(t, patience), &kgo.Record{
		Topic: positionTopic, Key: []byte(positionKey(other)), Value: encodePosition(sink.Position{Source: other, LSN: 77})}).FirstErr())
	for end := pglogrepl.LSN(3); end < 6; end++ { // behind it in the topic
		commits := newCommits()
		s, p, err := begun(t, cfg, someSource, commits)
		require.NoError(t, err)
		require.Equal(t, end, p.LSN)
		s.Boundary(sink.Position{Source: someSource, LSN: end + 1})
		require.Equal(t, end+1, <-commits.ends)
		require.NoError(t, s.Close(parts.Within(t, patience)))
	}

	stored, err := ReadPosition(parts.Within(t, patience), cfg, positionTopic, other)
	require.NoError(t, err)
	require.Zero(t, stored, "it is not committed")
	stored, err = ReadPosition(parts.Within(t, patience), cfg, positionTopic, someSource)
	require.NoError(t, err)
	require.EqualValues(t, 6, stored.LSN)
	require.NoError(t, client.EndTransaction(parts.Within(t, patience), kgo.TryAbort))
}

func TestTransactional_AuthenticatesOverTLS(t *testing.T) {
	a := parts.NewAuthority(t)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(a.Server(x509.Certificate{})),
				kfake.EnableSASL(), kfake.Superuser(mechanism, "rider", "s3cret"))
			cfg := unhurried(c.ListenAddrs()...)
			cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
			cfg.SASL = kafka.SASLConfig{Mechanism: mechanism, Username: "rider",
				Password: secret.Of("s3cret")}
			require.Equal(t, 1, publishAll(t, cfg, numbered("orders", 30), false))
		})
	}
}

func TestTransactional_PlacesKeysAsTheOtherSinkDoes(t *testing.T) {
	other := javaPartitioner{kgo.StickyKeyPartitioner(nil)}.ForTopic("orders")
	for i := range 2000 {
		key := fmt.Appendf(nil, "%x", i*i)[:1+i%3]
		m := &sink.Message{Topic: "orders", Key: key, Partition: sink.ByKey}
		require.EqualValues(t, place(12, m),
			other.Partition(&kgo.Record{Key: key, Partition: sink.ByKey}, 12), "key %s", key)
	}
	require.Equal(t, 5, other.Partition(&kgo.Record{Key: []byte("k"), Partition: 5}, 12))
	require.True(t, other.RequiresConsistency(&kgo.Record{Partition: 5}))
	require.False(t, other.RequiresConsistency(&kgo.Record{Partition: sink.ByKey}))
}

func TestTransactional_GivesUpWhenTheBrokerStaysSilent(t *testing.T) {
	t.Parallel()
	gate := &parts.Gate{}
	c := parts.Cluster(t, kfake.SeedTopics(1, "orders"), kfake.ListenFn(gate.Listen))
	cfg := quick(c.ListenAddrs()...)
	cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = 500*time.Millisecond, 1500*time.Millisecond, 3*time.Second
	commits := newCommits()
	s, _, err := begun(t, cfg, someSource, commits)
	require.NoError(t, err)
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 3)))
	s.Boundary(sink.Position{Source: someSource, LSN: 3})
	require.EqualValues(t, 3, <-commits.ends)
	defer gate.Shut()()
	require.NoError(t, s.Publish(parts.Within(t, patience), numbered("orders", 3)))
	s.Boundary(sink.Position{Source: someSource, LSN: 6})
	require.ErrorIs(t, <-commits.err, sink.ErrUnreachable)
	require.NoError(t, s.Close(parts.Within(t, patience)))
}
