package backfill

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts/testdb"
)

// Who makes a type can make a cast of it, which PostgreSQL then takes for ::text, and an implicit one for a comparison.
func TestRows_CallNoCastOfATypesOwner(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(`CREATE SEQUENCE calls`)
		p.Exec(`CREATE TYPE kind AS ENUM ('b', 'a')`)
		p.Exec(`CREATE FUNCTION steal(kind) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('public.calls'); RETURN 'x'; END $$`)
		p.Exec(`CREATE CAST (kind AS text) WITH FUNCTION steal(kind) AS IMPLICIT`)
		p.Exec(`CREATE TABLE outbox (id kind PRIMARY KEY, payload kind NOT NULL)`)
		p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
		p.Exec(`INSERT INTO outbox VALUES ('a', 'b'), ('b', 'a')`)
		table, err := p.describe("public.outbox", KeyColumns{ID: "id", OrderBy: "payload"})
		require.NoError(t, err)
		conn := p.Rows()
		_, err = beginNow(t.Context(), conn)
		require.NoError(t, err)
		ids, at := read(t, conn, table, nil, 1)
		require.Equal(t, []string{"b"}, ids)
		ids, _ = read(t, conn, table, at, -1)
		require.Equal(t, []string{"a"}, ids)
		ids, _ = read(t, conn, table.selectRows(Selection{IDs: []string{"a"}}), nil, -1)
		require.Equal(t, []string{"a"}, ids)
		var called bool
		require.NoError(t, p.Conn.QueryRow(t.Context(), `SELECT is_called FROM calls`).Scan(&called))
		require.False(t, called)
		p.Exec(`SELECT payload::text FROM outbox`)
		require.NoError(t, p.Conn.QueryRow(t.Context(), `SELECT is_called FROM calls`).Scan(&called))
		require.True(t, called, "the trap is set")
	})
}
