package topics

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// following is a follower at work, and what it has read.
type following struct {
	*Follower
	records chan *Followed
}

func follow(t *testing.T, cfg kafka.Config, pattern, exclude string) *following {
	t.Helper()
	expression := (*regexp.Regexp)(nil)
	if pattern != "" {
		expression = regexp.MustCompile("^(?:" + pattern + ")$")
	}
	f, err := Follow(parts.Within(t, 3*parts.Patience), cfg, expression, exclude, zerolog.Nop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	out := &following{Follower: f, records: make(chan *Followed, 1000)}
	go func() { ended <- f.Run(ctx, func(r *Followed) { out.records <- r }) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		f.Close()
	})
	return out
}

// next returns the values of the next n records.
func (f *following) next(t *testing.T, n int) []string {
	t.Helper()
	var values []string
	for range n {
		select {
		case r := <-f.records:
			values = append(values, string(r.Message.Value))
		case <-time.After(time.Minute):
			require.FailNow(t, "no record", "after %v", values)
		}
	}
	return values
}

func produce(t *testing.T, b *parts.Broker, topic string, partition int32, values ...string) {
	t.Helper()
	client := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
}

func TestFollower_ReadsFromTheMomentItWasOpenedOn(t *testing.T) {
	t.Parallel()
	b := parts.RealKafka(t)
	prefix := parts.Unique("follow") + "."
	first, later, wanted, other := prefix+"first", prefix+"later", parts.Unique("wanted"), parts.Unique("other")
	shadow := "shadow." + first
	for _, topic := range []string{first, wanted, other, shadow} {
		b.CreateTopic(t, topic, 2, nil)
		produce(t, b, topic, 0, "before")
	}
	f := follow(t, real(b), ".*"+regexp.QuoteMeta(prefix)+".*", "shadow.")
	produce(t, b, other, 0, "of a topic nobody asked for")
	produce(t, b, shadow, 0, "of our own")
	produce(t, b, wanted, 0, "after, and not yet wanted")
	produce(t, b, first, 1, "1", "2")
	require.Equal(t, []string{"1", "2"}, f.next(t, 2))

	f.Add(wanted)
	require.Equal(t, []string{"after, and not yet wanted"}, f.next(t, 1))

	b.CreateTopic(t, later, 1, nil)
	produce(t, b, later, 0, "3")
	require.Equal(t, []string{"3"}, f.next(t, 1))

	_, err := kadm.NewClient(b.Client(t)).CreatePartitions(t.Context(), 1, later)
	require.NoError(t, err)
	parts.Await(t, "the second partition", func() (bool, error) { return b.Partitions(t, later) == 2, nil })
	produce(t, b, later, 1, "of a partition that was added")
	require.Equal(t, []string{"of a partition that was added"}, f.next(t, 1))
	require.ElementsMatch(t, []string{first, later, wanted}, f.Topics())
}

func TestFollower_GivesRecordsAsTheyAre(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 1)
	f := follow(t, real(b), topic, "")
	at := time.UnixMilli(1772611200123)
	for _, r := range []*kgo.Record{
		{Topic: topic, Timestamp: at},
		{Topic: topic, Key: []byte{}, Value: []byte{},
			Headers: []kgo.RecordHeader{{Key: "a"}, {Key: "a", Value: []byte{}},
				{Key: "b", Value: []byte{0, 255}}}},
	} {
		require.NoError(t, b.Client(t).ProduceSync(t.Context(), r).FirstErr())
	}
	empty, filled := <-f.records, <-f.records
	require.Nil(t, empty.Message.Key)
	require.Nil(t, empty.Message.Value)
	require.Empty(t, empty.Message.Headers)
	require.True(t, at.Equal(empty.Message.Timestamp))
	require.Equal(t, int64(0), empty.Offset)
	require.NotNil(t, filled.Message.Key)
	require.NotNil(t, filled.Message.Value)
	require.Empty(t, filled.Message.Key)
	require.Empty(t, filled.Message.Value)
	require.Equal(t, []sink.Header{{Key: "a"}, {Key: "a", Value: []byte{}},
		{Key: "b", Value: []byte{0, 255}}}, filled.Message.Headers)
	require.Equal(t, int64(1), filled.Offset)
}

// Where a message of ours would be is where another client than ours puts it.
func TestFollower_KnowsThePartitionOfAKey(t *testing.T) {
	b := parts.RealKafka(t)
	topic := b.Topic(t, 5)
	f := follow(t, real(b), topic, "")
	client := b.Client(t, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	for i := range 20 {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "key %d", i)}
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		at, known := f.Partition(&sink.Message{Topic: topic, Key: r.Key, Partition: sink.ByKey})
		require.True(t, known)
		require.Equal(t, r.Partition, at)
	}
	at, known := f.Partition(&sink.Message{Topic: topic, Key: []byte("key"), Partition: 3})
	require.True(t, known)
	require.Equal(t, int32(3), at)
	for name, m := range map[string]*sink.Message{
		"no key":   {Topic: topic, Partition: sink.ByKey},
		"no topic": {Topic: topic + ".missing", Key: []byte("key"), Partition: sink.ByKey},
	} {
		_, known := f.Partition(m)
		require.False(t, known, name)
	}
}

// It goes on after its broker was away.
func TestFollower_OutlastsARestartOfTheBroker(t *testing.T) {
	t.Parallel()
	b := parts.ExclusiveKafka(t, parts.KafkaConfig{})
	topic := b.Topic(t, 1)
	f := follow(t, real(b), topic, "")
	produce(t, b, topic, 0, "1")
	require.Equal(t, []string{"1"}, f.next(t, 1))
	b.Kill(t)
	b.Restart(t)
	produce(t, b, topic, 0, "2")
	require.Equal(t, []string{"2"}, f.next(t, 1))
}

func TestFollower_ConnectsAsTheSinkDoes(t *testing.T) {
	a := parts.NewAuthority(t)
	broker := parts.Cluster(t, kfake.SeedTopics(2, "orders"), kfake.TLS(a.Server(x509.Certificate{})),
		kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "rider", "s3cret-canary"))
	cfg := unhurried(broker.ListenAddrs()...)
	cfg.TLS = kafka.TLSConfig{Enabled: true, CAFile: a.CAFile()}
	cfg.SASL = kafka.SASLConfig{Mechanism: "SCRAM-SHA-256", Username: "rider",
		Password: secret.Of("s3cret-canary")}
	f := follow(t, cfg, "orders", "")
	options := kgo.SASL(scram.Auth{User: "rider", Pass: "s3cret-canary"}.AsSha256Mechanism())
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(cfg.TLS.CAFile)
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(pem))
	client, err := kgo.NewClient(options, kgo.SeedBrokers(cfg.Brokers...),
		kgo.DialTLSConfig(&tls.Config{RootCAs: pool}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.ProduceSync(t.Context(),
		&kgo.Record{Topic: "orders", Value: []byte("1")}).FirstErr())
	require.Len(t, f.next(t, 1), 1)

	for name, wrong := range map[string]func(*kafka.Config){
		"password":    func(c *kafka.Config) { c.SASL.Password = secret.Of("wr0ng-canary") },
		"certificate": func(c *kafka.Config) { c.TLS.CAFile = "" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			wrong(&cfg)
			_, err := Follow(parts.Within(t, parts.Patience), cfg, nil, "", zerolog.Nop())
			require.ErrorIs(t, err, map[string]error{"password": sink.ErrAuthentication,
				"certificate": sink.ErrTLS}[name])
			require.NotContains(t, err.Error(), "canary")
		})
	}
}

// A follower that was opened and never run can be closed, and so can one whose time is over.
func TestFollow_GivesUpWithItsContext(t *testing.T) {
	broker := parts.Cluster(t)
	f, err := Follow(parts.Within(t, parts.Patience), quick(broker.ListenAddrs()...), nil, "",
		zerolog.Nop())
	require.NoError(t, err)
	f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Follow(ctx, quick(broker.ListenAddrs()...), nil, "", zerolog.Nop())
	require.ErrorIs(t, err, context.Canceled)
}
