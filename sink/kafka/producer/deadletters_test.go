package producer

import (
	"bytes"
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/topicreader"
	"github.com/postrider/postrider/test/parts"
)

func openDeadLetters(t testing.TB, broker *parts.Broker, topic, transactional string,
	with func(*kafka.Config)) *DeadLetters {
	t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = broker.Brokers()
	if with != nil {
		with(&cfg)
	}
	d, err := OpenDeadLetters(t.Context(), cfg, topic, transactional, zerolog.Nop())
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

func readLetters(t testing.TB, d *DeadLetters, wait time.Duration) (values []string, at []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, d.Read(ctx, wait, func(m *sink.Message, offset int64) {
		values, at = append(values, string(m.Value)), append(at, offset)
	}))
	return values, at
}

// What fails in a transaction leaves nothing behind, and the store can be used again at once.
func TestDeadLetters_AppendAllOrNothing(t *testing.T) {
	broker := parts.RealKafka(t)
	topic, small := parts.Unique("letters"), parts.Unique("small")
	broker.CreateTopic(t, topic, 1, nil)
	broker.CreateTopic(t, small, 1, map[string]string{"max.message.bytes": "2000"})
	d := openDeadLetters(t, broker, topic, parts.Unique("id"),
		func(c *kafka.Config) { c.MaxMessageBytes = 50_000 })
	letter := func(topic string, n int, value string) *sink.Message {
		return &sink.Message{Topic: topic, Partition: 0, Value: []byte(value),
			Origin: sink.Origin{Index: uint32(n)}}
	}
	for _, size := range []int{10_000, 60_000} { // refused by the broker, and by us
		began := time.Now()
		err := d.Append(t.Context(), []*sink.Message{letter(topic, 1, "before"),
			letter(small, 2, string(bytes.Repeat([]byte("x"), size))), letter(topic, 3, "behind")})
		require.ErrorIs(t, err, sink.ErrTooLarge)
		failed := new(sink.MessageError)
		require.ErrorAs(t, err, &failed)
		require.EqualValues(t, 2, failed.Origin.Index)
		require.Less(t, time.Since(began), 20*time.Second)
	}
	require.NoError(t, d.Append(t.Context(),
		[]*sink.Message{letter(topic, 1, "a"), letter(small, 2, "b")}))
	values, at := readLetters(t, d, time.Second)
	require.Equal(t, []string{"a"}, values)
	m, err := d.Get(t.Context(), 0, at[0])
	require.NoError(t, err)
	require.Equal(t, "a", string(m.Value))
	values, _ = readLetters(t, d, 0)
	require.Empty(t, values)
	require.Len(t, broker.All(t, small), 1)
}

// A command that is typed next sees what this one has done.
func TestDeadLetters_AreReadAsSoonAsTheyAreAppended(t *testing.T) {
	broker, topic := parts.RealKafka(t), parts.Unique("letters")
	broker.CreateTopic(t, topic, 1, nil)
	d := openDeadLetters(t, broker, topic, parts.Unique("id"), nil)
	reader := openDeadLetters(t, broker, topic, "", nil)
	for n := range 100 {
		value := strconv.Itoa(n)
		require.NoError(t, d.Append(t.Context(), []*sink.Message{{Topic: topic, Value: []byte(value)}}))
		values, _ := readLetters(t, reader, 0)
		require.Equal(t, []string{value}, values)
	}
}

// The store that is opened last fences the others, and none of them fences it in return.
func TestDeadLetters_OneThatWasFencedStaysSo(t *testing.T) {
	for kind, start := range map[string]func(testing.TB) *parts.Broker{
		"real": func(t testing.TB) *parts.Broker { return parts.RealKafka(t) },
		"fake": func(t testing.TB) *parts.Broker { b, _ := parts.FakeKafka(t, embedded.KafkaConfig{}); return b },
	} {
		t.Run(kind, func(t *testing.T) {
			broker := start(t)
			topic, id := parts.Unique("letters"), parts.Unique("id")
			broker.CreateTopic(t, topic, 1, nil)
			letter := []*sink.Message{{Topic: topic, Partition: 0, Value: []byte("x")}}
			first := openDeadLetters(t, broker, topic, id, nil)
			require.NoError(t, first.Append(t.Context(), letter))
			second := openDeadLetters(t, broker, topic, id, nil)
			for range 2 {
				require.Error(t, first.Append(t.Context(), letter))
				require.NoError(t, second.Append(t.Context(), letter))
			}
		})
	}
}

// An Append that ends at delivery_timeout closes its client's connections. The store goes on with
// another client: a tracker would else never again learn what was redriven.
func TestDeadLetters_GoOnAfterTheDeliveryTimeout(t *testing.T) {
	for name, id := range map[string]string{"without a transaction": "", "in a transaction": "letters"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := &parts.Gate{}
			c := parts.Cluster(t, kfake.SeedTopics(1, "letters"), kfake.ListenFn(gate.Listen))
			cfg := quick(c.ListenAddrs()...)
			cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = 500*time.Millisecond, time.Second, 2*time.Second
			d, err := OpenDeadLetters(t.Context(), cfg, "letters", id, zerolog.Nop())
			require.NoError(t, err)
			defer d.Close()
			letter := func(value string) []*sink.Message {
				return []*sink.Message{{Topic: "letters", Partition: 0, Value: []byte(value)}}
			}
			require.NoError(t, d.Append(t.Context(), letter("before")))

			open := gate.Shut()
			require.ErrorIs(t, d.Append(t.Context(), letter("lost")), sink.ErrUnreachable)
			open()
			require.NoError(t, d.Append(t.Context(), letter("after")))
			values, _ := readLetters(t, d, time.Second)
			require.Subset(t, values, []string{"before", "after"})
		})
	}
}

// Relays share the topic. One that was killed leaves a transaction open, for as long as its
// timeout. The letters behind it are there, and others do not wait for it.
func TestDeadLetters_ReadsOnBehindTheOpenTransactionOfAnother(t *testing.T) {
	for kind, start := range map[string]func(testing.TB) *parts.Broker{
		"real": func(t testing.TB) *parts.Broker { return parts.RealKafka(t) },
		"fake": func(t testing.TB) *parts.Broker {
			b,
				_ := parts.FakeKafka(t, embedded.KafkaConfig{})
			return b
		},
	} {
		t.Run(kind, func(t *testing.T) {
			broker := start(t)
			topic := parts.Unique("letters")
			broker.CreateTopic(t, topic, 1, nil)
			dead := func(end kgo.TransactionEndTry, values ...string) (decide func()) {
				client := broker.Client(t, kgo.TransactionalID(parts.Unique("dead")),
					kgo.TransactionTimeout(time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
				require.NoError(t, client.BeginTransaction())
				for _, value := range values {
					require.NoError(t, client.ProduceSync(t.Context(),
						&kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
				}
				return func() { require.NoError(t, client.EndTransaction(t.Context(), end)) }
			}
			ours := openDeadLetters(t, broker, topic, "", nil)
			write := func(value string) {
				require.NoError(t, ours.Append(t.Context(),
					[]*sink.Message{{Topic: topic, Partition: 0, Value: []byte(value)}}))
			}
			write("before")
			commit := dead(kgo.TryCommit, "committed 1")
			abort := dead(kgo.TryAbort, "taken back 1", "taken back 2")
			write("behind")
			reader := openDeadLetters(t, broker, topic, "", nil)
			values, at := readLetters(t, reader, 0)
			require.Equal(t, []string{"before", "behind"}, values,
				"nothing of what is open, all of what is not")
			require.True(t, reader.Undecided())
			m, err := reader.Get(t.Context(), 0, at[1])
			require.NoError(t, err)
			require.Equal(t, "behind", string(m.Value))

			// The coordinator answers before its markers are in the topic.
			came := func(want ...string) {
				t.Helper()
				var got []string
				for deadline := time.Now().Add(time.Minute); len(got) < len(want) &&
					time.Now().Before(deadline); {
					values, _ = readLetters(t, reader, time.Second)
					got = append(got, values...)
				}
				require.ElementsMatch(t, want, got)
			}
			abort()
			write("behind the abort")
			came("behind the abort")
			commit()
			write("behind the commit")
			came("committed 1", "behind the commit")
			for reader.Undecided() { // the marker of the abort
				values, _ = readLetters(t, reader, time.Second)
				require.Empty(t, values)
			}

			again := openDeadLetters(t, broker, topic, "", nil)
			values, _ = readLetters(t, again, 0)
			require.ElementsMatch(t, []string{"before", "behind", "behind the abort", "committed 1",
				"behind the commit"}, values, "another reader comes to the same")
		})
	}
}

// The high watermark of a new leader may be behind that of the one before for a moment: a dead
// letter that was read cannot be read again then, and is not deleted.
func TestDeadLetters_AreNotDeletedWhereTheHighWatermarkIsBehind(t *testing.T) {
	broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
	topic := parts.Unique("letters")
	broker.CreateTopic(t, topic, 1, nil)
	client := broker.Client(t, kgo.TransactionalID(parts.Unique("dead")))
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(),
		&kgo.Record{Topic: topic, Value: []byte("committed")}).FirstErr())
	d := openDeadLetters(t, broker, topic, "", nil)
	values, _ := readLetters(t, d, 0)
	require.Empty(t, values)
	require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))

	fake.Cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		again := r.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset == 0
		return emptyAnswer(r), nil, again // to the first one, of the record that is now committed
	})
	var delivered []string
	each := func(m *sink.Message, _ int64) { delivered = append(delivered, string(m.Value)) }
	require.ErrorIs(t, d.Read(parts.Within(t, parts.Patience), time.Second, each),
		sink.ErrUnreachable)
	require.Empty(t, delivered)
	require.NoError(t, d.Read(parts.Within(t, parts.Patience), 0, each))
	require.Equal(t, []string{"committed"}, delivered)
}

// idleAnswers are those of a broker that answers at once and brings nothing of what it reports
// to be there.
var idleAnswers = map[string]func(*kmsg.FetchResponse){
	"nothing": func(answer *kmsg.FetchResponse) {
		p := &answer.Topics[0].Partitions[0]
		p.HighWatermark, p.LastStableOffset = 7, 7
	},
	"out of range": func(answer *kmsg.FetchResponse) {
		answer.Topics[0].Partitions[0].ErrorCode = kerr.OffsetOutOfRange.Code
	},
	"no leader": func(answer *kmsg.FetchResponse) {
		answer.Topics[0].Partitions[0].ErrorCode = kerr.NotLeaderForPartition.Code
	},
	"throttled": func(answer *kmsg.FetchResponse) { answer.Topics, answer.ThrottleMillis = nil, 1 },
}

// emptyAnswer answers a fetch request with partitions without records.
func emptyAnswer(r kmsg.Request) *kmsg.FetchResponse {
	answer := r.ResponseKind().(*kmsg.FetchResponse)
	for _, of := range r.(*kmsg.FetchRequest).Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = of.Topic, of.TopicID
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = []byte{}
		t.Partitions = append(t.Partitions, p)
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

// idly has a broker answer so, and counts its requests.
func idly(t *testing.T, fake *embedded.Kafka, answer func(*kmsg.FetchResponse)) *atomic.Int64 {
	var requests atomic.Int64
	fake.Cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		fake.Cluster.KeepControl()
		requests.Add(1)
		response := emptyAnswer(r)
		answer(response)
		return response, nil, true
	})
	return &requests
}

// A reader of a topic sends such a broker a request now and then, and gives it up after a while.
func TestTurns_ReadsDoNotSpinOnAnswersThatBringNothing(t *testing.T) {
	t.Parallel()
	const patient = 2 * time.Second
	readers := map[string]func(t *testing.T, cfg kafka.Config, topic string) error{
		"dead letters": func(t *testing.T, cfg kafka.Config, topic string) error {
			d, err := OpenDeadLetters(t.Context(), cfg, topic, "", zerolog.Nop())
			require.NoError(t, err)
			defer d.Close()
			return d.Read(t.Context(), 0, func(*sink.Message, int64) {})
		},
		"progress": func(t *testing.T, cfg kafka.Config, topic string) error {
			client, err := kafka.Connect(t.Context(), cfg, zerolog.Nop())
			require.NoError(t, err)
			p := &Progress{topic, client, topicreader.New(client, false), map[string]int{}}
			defer p.Close()
			return p.Read(t.Context(), topic, []int64{0}, func(*sink.Message) {})
		},
		"reader": func(t *testing.T, cfg kafka.Config, topic string) error {
			r, err := topicreader.Open(t.Context(), cfg, false)
			require.NoError(t, err)
			defer r.Close()
			all := []topicreader.Span{{Topic: topic, Partition: 0, From: 0, End: 7}}
			return r.Read(t.Context(), all, func(*sink.Message, int64) error { return nil })
		},
		"tail": func(t *testing.T, cfg kafka.Config, topic string) error {
			s := openSink(t, cfg, newOutcomes().done)
			_, err := s.Published(t.Context(), sink.Source{},
				&sink.Message{Topic: topic, Origin: sink.Origin{LSN: 1}})
			return err
		},
	}
	for name, read := range readers {
		for answered, answer := range idleAnswers {
			t.Run(name+"/"+answered, func(t *testing.T) {
				broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
				topic := parts.Unique("letters")
				broker.CreateTopic(t, topic, 1, nil)
				writer := openDeadLetters(t, broker, topic, "", nil)
				require.NoError(t, writer.Append(t.Context(),
					[]*sink.Message{{Topic: topic, Partition: 0, Value: []byte("x")}}))
				requests := idly(t, fake, answer)
				cfg := kafka.DefaultConfig()
				cfg.Brokers = broker.Brokers()
				cfg.ProduceTimeout, cfg.ReadTimeout, cfg.DeliveryTimeout = patient/4, patient/2, patient
				require.Error(t, read(t, cfg, topic))
				require.LessOrEqual(t, requests.Load(), int64(patient/kafka.ReadPause)+5)
			})
		}
	}
	// A relay reads on and on, and a broker may say at once that there is no more, however long it was to wait.
	t.Run("dead letters/at their end", func(t *testing.T) {
		broker, fake := parts.FakeKafka(t, embedded.KafkaConfig{})
		topic := parts.Unique("letters")
		broker.CreateTopic(t, topic, 1, nil)
		d := openDeadLetters(t, broker, topic, "", nil)
		requests := idly(t, fake, func(*kmsg.FetchResponse) {})
		for began := time.Now(); time.Since(began) < patient; {
			require.NoError(t, d.Read(t.Context(), time.Second, func(*sink.Message, int64) {}))
		}
		require.LessOrEqual(t, requests.Load(), int64(patient/kafka.ReadPause)+5)
	})
}
