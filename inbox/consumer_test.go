package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/inbox"
)

// All events from several goroutines at once, in opposite orders, with transactions that the
// server ends for the sake of others.
func TestConsumer_RepeatsWhatIsToBeSerialized(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	_, err := pool.Exec(t.Context(), "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)")
	require.NoError(t, err)
	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: func(ctx context.Context) (pgx.Tx, error) {
		return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	}}
	const members, events = 3, 20
	var wg sync.WaitGroup
	errs := make(chan error, members)
	for m := range members {
		wg.Go(func() {
			for e := range events {
				if m%2 == 1 {
					e = events - 1 - e
				}
				for { // as a consumer that is delivered the event again
					_, err := consumer.Process(t.Context(), inbox.Event{ID: "e" + strings.Repeat("x", e), Time: time.Now()}, func(ctx context.Context, tx pgx.Tx) error {
						var n int
						if err := tx.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, "UPDATE counter SET n = $1", n+1)
						return err
					})
					if server := new(pgconn.PgError); errors.As(err, &server) && server.Code == "40001" {
						continue
					}
					if err != nil {
						errs <- err
						return
					}
					break
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	require.NoError(t, <-errs)
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n))
	require.Equal(t, events, n)
}

func TestConsumer_TriesATransactionTenTimesAtMost(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: pool.Begin}
	calls := 0
	_, err := consumer.Process(t.Context(), inbox.Event{ID: "e1"}, func(context.Context, pgx.Tx) error {
		calls++
		return &pgconn.PgError{Code: "40P01"}
	})
	require.Error(t, err)
	require.Equal(t, 10, calls)
	_, err = consumer.Process(t.Context(), inbox.Event{ID: "e1"}, func(context.Context, pgx.Tx) error {
		calls++
		return errors.New("of another kind")
	})
	require.EqualError(t, err, "of another kind")
	require.Equal(t, 11, calls)
	require.Zero(t, pool.Stat().AcquiredConns(), "each transaction has ended")
}

func TestConsumer_EveryErrorEndsItsTransaction(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	ctx, cancel := context.WithCancel(t.Context())
	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: pool.Begin}
	for name, test := range map[string]struct {
		id      string
		handler func(context.Context, pgx.Tx) error
	}{
		"no id":  {"", nil},
		"cancel": {"e1", func(ctx context.Context, tx pgx.Tx) error { cancel(); _, err := tx.Exec(ctx, "SELECT 1"); return err }},
		"swallowed": {"e1", func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil // the server rolls back at the commit
		}},
	} {
		done, err := consumer.Process(ctx, inbox.Event{ID: test.id}, test.handler)
		require.Error(t, err, name)
		require.False(t, done)
		require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, time.Minute, time.Millisecond, name)
		ctx, cancel = context.WithCancel(t.Context())
	}
	cancel()
	done, err := consumer.Process(t.Context(), inbox.Event{ID: "e1"}, func(context.Context, pgx.Tx) error { return nil })
	require.NoError(t, err)
	require.True(t, done, "nothing was marked")
}

func TestConsumer_TakesTheIDOfARecord(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	at := time.Now()
	record := func(headers ...string) inbox.Record {
		return inbox.Record{Topic: "orders", Partition: 3, Offset: 17, Time: at, Header: func(name string) ([]byte, bool) {
			for i := 0; i < len(headers); i += 2 {
				if headers[i] == name {
					return []byte(headers[i+1]), true
				}
			}
			return nil, false
		}}
	}
	for _, test := range []struct {
		consumer inbox.Consumer[pgx.Tx]
		record   inbox.Record
		id       string
	}{
		{inbox.Consumer[pgx.Tx]{}, record("x", "e1", "id", "e2", "ce_id", "e3"), "e2"},
		{inbox.Consumer[pgx.Tx]{}, record("ce_id", "e3"), "e3"},
		{inbox.Consumer[pgx.Tx]{IDHeader: "event-id"}, record("id", "e2", "event-id", "e4"), "e4"},
		{inbox.Consumer[pgx.Tx]{PositionIDs: true}, record("id", "e2"), "e2"},
		{inbox.Consumer[pgx.Tx]{NumericIDs: true}, record("id", "2"), "2"},
		{inbox.Consumer[pgx.Tx]{PositionIDs: true}, record(), fmt.Sprintf("orders-3-17-%d", at.UnixMilli())},
	} {
		test.consumer.Name, test.consumer.Begin = t.Name(), pool.Begin
		_, err := test.consumer.ProcessRecord(t.Context(), test.record, func(context.Context, pgx.Tx) error { return nil })
		require.NoError(t, err)
		var marked bool
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) = 2 FROM inbox WHERE event_id = $1", test.id).Scan(&marked))
		require.True(t, marked, test.id)
		_, err = pool.Exec(t.Context(), "DELETE FROM inbox")
		require.NoError(t, err)
	}
	for _, test := range []struct {
		consumer inbox.Consumer[pgx.Tx]
		record   inbox.Record
		message  string
	}{
		{inbox.Consumer[pgx.Tx]{}, record("ID", "e2"), `process orders, partition 3, offset 17: the record has no id in header "id": set IDHeader to the header that has it, or PositionIDs`},
		{inbox.Consumer[pgx.Tx]{IDHeader: "event-id"}, record("id", "e2"), `no id in header "event-id"`},
		{inbox.Consumer[pgx.Tx]{PositionIDs: true}, record("id", ""), "the id of an event is empty"},
		{inbox.Consumer[pgx.Tx]{}, record("id", "-17"), `id "-17": the id is a number`},
		{inbox.Consumer[pgx.Tx]{}, record("id", "17"), `id "17": the id is a number, which is unique in one table only, and until its sequence is restarted: write UUIDs, or set NumericIDs if there is one table`},
		{inbox.Consumer[pgx.Tx]{}, record("id", "\xfe"), "no text of UTF-8"},
	} {
		test.consumer.Name, test.consumer.Begin = t.Name(), pool.Begin
		_, err := test.consumer.ProcessRecord(t.Context(), test.record, func(context.Context, pgx.Tx) error { panic("called") })
		require.ErrorContains(t, err, test.message)
	}
}

// The offsets of a topic that is deleted and created again begin anew.
func TestConsumer_TakesNoRecordOfARecreatedTopicForADuplicate(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: pool.Begin, PositionIDs: true, AnyAge: true}
	before := time.Now()
	for _, test := range []struct {
		at   time.Time
		done bool
	}{{before, true}, {before, false}, {before.Add(time.Millisecond), true}} {
		record := inbox.Record{Topic: "orders", Time: test.at, Header: func(string) ([]byte, bool) { return nil, false }}
		done, err := consumer.ProcessRecord(t.Context(), record, func(context.Context, pgx.Tx) error { return nil })
		require.NoError(t, err)
		require.Equal(t, test.done, done)
	}
}

func TestConsumer_RefusesOldRecordsUnlessTold(t *testing.T) {
	pool := newPool(t, newDatabase(t, "14"))
	record := inbox.Record{Topic: "orders", Time: time.Now().AddDate(-1, 0, 0), Header: func(string) ([]byte, bool) { return []byte("e1"), true }}
	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: pool.Begin}
	process := func() (bool, error) {
		return consumer.ProcessRecord(t.Context(), record, func(context.Context, pgx.Tx) error { return nil })
	}
	_, err := process()
	require.ErrorIs(t, err, inbox.ErrOutsideWindow)
	consumer.AnyAge = true
	done, err := process()
	require.NoError(t, err)
	require.True(t, done)
}
