package kgoinbox_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/inbox/kgoinbox"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

func TestRun_ProcessesEachEventOnce(t *testing.T) {
	inboxtest.Middleware(t, func(ctx context.Context, m inboxtest.Member) error {
		return kgoinbox.Run(ctx, m.Consumer, func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
			return m.Handle(ctx, tx, record.Value)
		}, kgo.SeedBrokers(m.Brokers...), kgo.ConsumerGroup(m.Group), kgo.ConsumeTopics(m.Topic))
	})
}

func TestRun_RefusesOptionsThatLoseOffsets(t *testing.T) {
	run := func(opts ...kgo.Opt) error {
		return kgoinbox.Run(t.Context(), &inbox.Consumer[pgx.Tx]{}, func(context.Context, pgx.Tx, *kgo.Record) error { return nil },
			append(opts, kgo.ConsumeTopics("t"))...)
	}
	require.ErrorContains(t, run(), "group was not specified")
	for _, other := range []kgo.Opt{kgo.GreedyAutoCommit(), kgo.DisableAutoCommit()} {
		require.ErrorContains(t, run(kgo.ConsumerGroup("g"), other), "cannot")
	}
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
	var invoices int
	parts.Await(t, "the mark and the invoice", func() (bool, error) {
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM invoices").Scan(&invoices)
		return invoices > 0, err
	})
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGINT))
	<-ended
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM invoices").Scan(&invoices))
	require.Equal(t, 1, invoices)
}
