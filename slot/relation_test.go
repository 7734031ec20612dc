package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
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
