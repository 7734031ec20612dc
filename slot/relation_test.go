package slot_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// A view that somebody puts in the place of the table would run with the rights of whoever reads it.
func TestRelation_IsATable(t *testing.T) {
	p := checktest.Shared(t, "")
	p.Outbox()
	_, err := slot.Relation(t.Context(), p.Conn, "public.outbox")
	require.NoError(t, err)
	p.Exec(`ALTER TABLE outbox RENAME TO hidden`)
	p.Exec(`CREATE VIEW outbox AS SELECT * FROM hidden`)
	_, err = slot.Relation(t.Context(), p.Conn, "public.outbox")
	require.ErrorContains(t, err, "does not exist")
	rows, err := postgres.ConnectRows(t.Context(), p.Postgres)
	require.NoError(t, err)
	defer postgres.Close(rows)
	_, err = rows.Exec(t.Context(), `SELECT * FROM public.outbox`)
	require.Error(t, err, "nor is it read where it is swapped in later")
}

// Rows and records have to have one clock.
func TestRecordsSince_IsATimeOnlyIfRecordsCannotBeOlderThanTheirRows(t *testing.T) {
	since := time.Unix(1_700_000_000, 0)
	zoned := replication.Column{Name: "created_at", TypeOID: pgtype.TimestamptzOID}
	zoneless := replication.Column{Name: "created_at", TypeOID: pgtype.TimestampOID}
	require.Equal(t, since, slot.RecordsSince(since, zoned, ""))
	require.Equal(t, since, slot.RecordsSince(since, zoned, "created_at"))
	require.Equal(t, since.Add(-24*time.Hour), slot.RecordsSince(since, zoneless, ""))
	require.Zero(t, slot.RecordsSince(since, zoned, "occurred_at"))
	require.Zero(t, slot.RecordsSince(time.Time{}, zoneless, "created_at"))
}
