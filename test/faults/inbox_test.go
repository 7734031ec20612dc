package faults

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/kgoinbox"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// asConsumer makes the binary of the tests a consumer with an inbox: DSN, brokers and topic, between spaces.
const asConsumer = "POSTRIDER_TEST_CONSUMER"

func consume(settings string) error {
	var dsn, brokers, topic string
	if _, err := fmt.Sscan(settings, &dsn, &brokers, &topic); err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: pool.Begin}
	return kgoinbox.Run(ctx, consumer, func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
		_, err := tx.Exec(ctx, "INSERT INTO effects SELECT $1, $2, $3", string(record.Headers[0].Value), record.Partition, record.Offset)
		return err
	}, kgo.SeedBrokers(strings.Split(brokers, ",")...), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.InstanceID("consumer")) // the next process takes over from a killed one at once
}

// Relay and consumer deliver at least once, and the database has each effect exactly once.
func TestFault43_KillsOnBothLegsLeaveEachEffectOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	topic := "outbox.event." + r.topic
	script, err := sql.Inbox("public", "inbox", 8)
	require.NoError(t, err)
	execute(t, r.dsn, script+"; CREATE TABLE effects (event text, home int, at bigint)")
	binary, err := os.Executable()
	require.NoError(t, err)
	startConsumer := func() *parts.Relay {
		return parts.StartRelay(t, parts.RelayConfig{Command: []string{binary}, OneLog: true,
			Env: parts.Environment(asConsumer + "=" + strings.Join([]string{r.dsn, strings.Join(r.broker.Direct(), ","), topic}, " "))})
	}
	conn := connect(t, r.dsn)
	defer conn.Close(context.Background())
	ask := func(query string) (n int64) {
		require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
		return n
	}
	effects := func() int64 { return ask("SELECT count(*) FROM effects") }
	admin := kadm.NewClient(r.broker.Client(t))
	// again is how many processed events the group will be delivered once more.
	again := func() (n int64) {
		offsets, err := admin.FetchOffsets(t.Context(), topic)
		require.NoError(t, err)
		committed := make([]int64, partitions)
		offsets.Each(func(o kadm.OffsetResponse) { committed[o.Partition] = o.At })
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM effects WHERE at >= ($1::bigint[])[home + 1]", committed).Scan(&n))
		return n
	}

	l := r.load(t, 30) // transactions a second, with which one consumer keeps up
	when := random(t, 1)
	kills, redelivered := full(t, 3, 100), int64(0)
	relay, consumer := r.started(t), startConsumer()
	killed := 0
	for ; killed < kills || redelivered == 0 && killed < kills+20; killed++ {
		l.more(t, 1+when.Int64N(300))
		relay.Kill(t)
		relay = r.started(t)
		enough := effects() + 1 + when.Int64N(300)
		parts.Await(t, fmt.Sprintf("%d effects", enough), func() (bool, error) { return effects() >= enough, nil })
		require.True(t, consumer.Running(), "it ended by itself")
		consumer.Kill(t)
		redelivered += again()
		consumer = startConsumer()
	}
	l.end(t)
	r.caughtUp(t)
	relay.stop(t)
	rows := ask("SELECT count(*) FROM outbox")
	ends := r.broker.EndOffsets(t, topic)
	atEnd := func() bool {
		offsets, err := admin.FetchOffsets(t.Context(), topic)
		require.NoError(t, err)
		for partition, end := range ends {
			if o, found := offsets.Lookup(topic, partition); end > 0 && (!found || o.At < end) {
				return false
			}
		}
		return true
	}
	for !atEnd() { // however long it takes on a busy machine, as long as it goes on
		before := effects()
		parts.Await(t, "a further effect, or the consumer at the end of the topic", func() (bool, error) {
			if !consumer.Running() {
				return false, fmt.Errorf("it ended: %s", consumer.Log.String())
			}
			return effects() > before || atEnd(), nil
		})
	}

	v := r.judge(t)
	requireNothingLost(t, v)
	require.Positive(t, v.Duplicated, "without duplicates in the topic this shows nothing")
	require.Positive(t, redelivered, "without duplicates of the consumer this shows nothing")
	require.Equal(t, rows, effects())
	require.Zero(t, ask("SELECT count(*) FROM outbox o FULL JOIN effects e ON e.event = o.id::text WHERE o.id IS NULL OR e.event IS NULL"))
	require.Zero(t, ask("SELECT count(*) FROM (SELECT FROM effects GROUP BY event HAVING count(*) > 1) twice"))
	matrix(t, 43, "", fmt.Sprintf("%d kills of each: %d events, %d duplicates in the topic, %d delivered again by the group, %d effects", killed, rows, v.Duplicated, redelivered, effects()))
}
