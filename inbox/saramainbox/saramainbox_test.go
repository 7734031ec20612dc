package saramainbox_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/inbox/saramainbox"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// meters is a goroutine of the metrics library of sarama. It has no end.
const meters = "github.com/rcrowley/go-metrics.(*meterArbiter).tick"

func TestMain(m *testing.M) { parts.Main(m, goleak.IgnoreAnyFunction(meters)) }

func TestRun_ProcessesEachEventOnce(t *testing.T) {
	inboxtest.Middleware(t, func(ctx context.Context, m inboxtest.Member) error {
		config := sarama.NewConfig()
		config.Version = sarama.V3_6_0_0
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Offsets.AutoCommit.Interval = 50 * time.Millisecond
		config.Consumer.MaxWaitTime = 50 * time.Millisecond
		group, err := sarama.NewConsumerGroup(m.Brokers, m.Group, config)
		if err != nil {
			return err
		}
		err = saramainbox.Run(ctx, m.Consumer, func(ctx context.Context, tx pgx.Tx, message *sarama.ConsumerMessage) error {
			return m.Handle(ctx, tx, message.Value)
		}, group, m.Topic)
		return errors.Join(err, group.Close())
	})
}

func TestExampleRun(t *testing.T) {
	db := parts.Postgres(t, parts.AnyVersion)
	script, err := sql.Inbox("public", "inbox", 8)
	require.NoError(t, err)
	db.Exec(t, script+"; CREATE TABLE invoices (id text, total numeric)")
	broker := parts.RealKafka(t)
	const topic = "outbox.event.order" // the name in the example
	broker.CreateTopic(t, topic, 1, nil)
	defer broker.DeleteTopic(t, topic)
	for range 2 {
		require.NoError(t, broker.Client(t).ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(`{"id": "order-17", "total": 12.50}`),
			Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("e1")}}}).FirstErr())
	}
	t.Setenv("DATABASE_URL", db.DSN())
	t.Setenv("KAFKA_BROKERS", broker.Brokers()[0])
	ended := make(chan struct{})
	go func() { defer close(ended); ExampleRun() }()
	conn := db.Connect(t)
	invoices := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM invoices").Scan(&n))
		return n
	}
	parts.Await(t, "the invoice", func() (bool, error) { return invoices() > 0, nil })
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGINT))
	<-ended
	require.Equal(t, 1, invoices())
}
