package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// Rows of a prepared transaction come when it is committed, also if it was prepared before the relay started and the slot was
// confirmed behind that place meanwhile.
func TestPrepared_RowsArePublishedOnceTheyAreCommitted(t *testing.T) {
	t.Parallel()
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Params: map[string]string{"max_prepared_transactions": "3"}})
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := shopOf(t, parts.NewDatabase(t, server.DSN()), c, routeTo(topic, ""))
	r, ledger := s.run(t), newLedger()
	prepare := func(name string, keys ...string) *draft {
		tx, d := s.begin(t), ledger.draft()
		write(t, tx, d, "outbox", keys...)
		_, err := tx.Exec(t.Context(), "PREPARE TRANSACTION '"+name+"'")
		require.NoError(t, err)
		return d
	}
	commit := func(keys ...string) {
		tx, d := s.begin(t), ledger.draft()
		write(t, tx, d, "outbox", keys...)
		require.NoError(t, tx.Commit(t.Context()))
		d.committed()
	}
	early := prepare("early", "a", "a", "b")
	prepare("undone", "undone", "undone")
	commit("c")
	s.awaitConfirmed(t, r)
	require.Equal(t, 1, s.count(t, topic), "what is only prepared is published")

	r.Stop(t)
	late := prepare("late", "d", "e")
	commit("c")
	r = s.run(t)
	s.awaitConfirmed(t, r)
	require.Equal(t, 2, s.count(t, topic), "what is only prepared is published")

	s.do(t, "ROLLBACK PREPARED 'undone'", "COMMIT PREPARED 'late'")
	late.committed()
	commit("c")
	s.do(t, "COMMIT PREPARED 'early'")
	early.committed()
	s.awaitConfirmed(t, r)
	r.Stop(t)
	ledger.received(t, s.All(t, topic))
	ledger.requireExact(t, 8)
}
