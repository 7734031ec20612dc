package slot_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// diagnosed is what Diagnose says of a place, and its advice.
func diagnosed(t *testing.T, p *checktest.DB) (wal, fix string, err error) {
	t.Helper()
	_, err = slot.Diagnose(t.Context(), p.Conn, p.Need())
	var advised interface{ Advice() (wal, fix string) }
	if errors.As(err, &advised) {
		wal, fix = advised.Advice()
	}
	return wal, fix, err
}

// A temporary slot is refused with the code that a lost slot has.
func TestDiagnose_TellsTheWALLevelAndAStandbyFromALostSlot(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, s := checktest.Own(t, version, map[string]string{"wal_level": "replica"})
		p.Outbox()
		wal, fix, err := diagnosed(t, p)
		require.EqualError(t, err, "wal_level is replica, and a logical slot needs logical")
		require.ErrorIs(t, err, slot.ErrServer)
		require.Contains(t, wal, "there is no slot")
		require.Contains(t, fix, "ALTER SYSTEM SET wal_level = logical;")

		pg, parseErr := postgres.ReplicationConfig(p.Postgres)
		require.NoError(t, parseErr)
		_, refused := replication.OpenTemporary(t.Context(), pg, replication.DefaultConfig(), "postrider_tail", zerolog.Nop())
		refused = slot.RefusedStream(t.Context(), p.Postgres, "postrider_tail", refused)
		require.NotErrorIs(t, refused, replication.ErrSlotLost)
		require.EqualError(t, refused, `create slot "postrider_tail": `+err.Error())

		weak := p.Role("weak_" + p.Name)
		pg, parseErr = postgres.ReplicationConfig(weak)
		require.NoError(t, parseErr)
		_, refused = replication.OpenTemporary(t.Context(), pg, replication.DefaultConfig(), "postrider_tail", zerolog.Nop())
		refused = slot.RefusedStream(t.Context(), weak, "postrider_tail", refused)
		require.ErrorIs(t, refused, postgres.ErrPermission)
		require.EqualError(t, refused, "role weak_"+p.Name+" may not replicate")

		require.NoError(t, s.Stop(t.Context()))
		require.NoError(t, os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o666))
		require.NoError(t, s.Start(t.Context()))
		p.Conn = parts.Connect(t, p.DSN)
		_, _, err = diagnosed(t, p)
		require.EqualError(t, err, "the server is a standby, and rows are relayed from the primary")
		require.ErrorIs(t, err, postgres.ErrNotWritable)
		p.Exec("SELECT pg_promote()") // or the database of the test could not be dropped
	})
}

// The server refuses to stream from a slot that has been lost meanwhile, and from the copy that a standby has, with one code.
func TestRefusedStream_TakesNoCopyOnAStandbyForALostSlot(t *testing.T) {
	t.Parallel()
	p, s := checktest.Own(t, "17", nil)
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	refusal := &pgconn.PgError{Code: "55000", Message: "cannot use replication slot"}
	err = slot.RefusedStream(t.Context(), p.Postgres, p.Name, refusal)
	require.NotErrorIs(t, err, replication.ErrSlotLost, "the slot is well")
	require.NotErrorIs(t, err, postgres.ErrNotWritable)

	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o666))
	require.NoError(t, s.Start(t.Context()))
	err = slot.RefusedStream(t.Context(), p.Postgres, p.Name, refusal)
	require.ErrorIs(t, err, postgres.ErrNotWritable)
	require.NotErrorIs(t, err, replication.ErrSlotLost)
	p.Conn = parts.Connect(t, p.DSN)
	p.Exec("SELECT pg_promote()") // or the database of the test could not be dropped
}

// What is to be typed can be typed: no publication is made of a table that does not exist, and no slot keeps what nobody has made.
func TestDiagnose_AdvisesWhatWorksOnAnEmptyDatabase(t *testing.T) {
	p := checktest.Shared(t, "17")
	wal, fix, err := diagnosed(t, p)
	require.EqualError(t, err, "table public.outbox does not exist")
	require.Contains(t, fix, "postrider init")
	require.Equal(t, "there is no slot, so nothing is kept: rows committed before it exists are not published", wal)

	p.Exec("CREATE TABLE outbox (id int PRIMARY KEY, payload text)")
	_, fix, err = diagnosed(t, p)
	require.EqualError(t, err, `publication "postrider" does not exist`)
	p.Exec(fix)
	_, _, err = diagnosed(t, p)
	require.NoError(t, err)

	_, createErr := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, createErr)
	p.Exec("ALTER PUBLICATION postrider DROP TABLE outbox")
	wal, _, err = diagnosed(t, p)
	require.EqualError(t, err, `table public.outbox is not in publication "postrider"`)
	require.Contains(t, wal, "the slot keeps WAL")
	p.Exec("DROP TABLE outbox")
	_, fix, err = diagnosed(t, p)
	require.EqualError(t, err, "table public.outbox does not exist")
	require.Contains(t, fix, "postrider init")
}
