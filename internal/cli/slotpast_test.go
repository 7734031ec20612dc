package cli

import (
	"context"
	"net/url"
	"regexp"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// inWindows1252 has the install use a database in which a text can stand that the server cannot
// send: chr(129) is no character of Unicode.
func (i *install) inWindows1252() {
	i.t.Helper()
	name := parts.Unique("db")
	i.exec(`CREATE DATABASE ` + name +
		` ENCODING 'WIN1252' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
	u, err := url.Parse(i.db.DSN())
	require.NoError(i.t, err)
	u.Path = "/" + name
	server := i.conn
	i.t.Cleanup(func() {
		_, _ = server.Exec(context.Background(), `SELECT pg_drop_replication_slot($1)`, i.db.Name)
		_, err := server.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`)
		require.NoError(i.t, err)
	})
	i.conn = parts.Connect(i.t, u.String())
	i.env = append(i.env, "POSTRIDER_POSTGRES_URL="+u.String())
}

func TestSlotAdvance_StepsOverATransactionThatTheServerCannotSend(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			i := newInstall(t, version)
			i.inWindows1252()
			i.exec(`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype text NOT NULL, aggregateid text NOT NULL, type text, payload text)`)
			i.ok("init", "--preset", "debezium")
			confirmed := func() pglogrepl.LSN {
				s, err := slot.Get(t.Context(), i.conn, i.db.Name)
				require.NoError(t, err)
				return s.ConfirmedFlushLSN
			}
			start := confirmed()
			insert := `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES `
			i.exec(insert +
				`(gen_random_uuid(), 'order', '1', 'created', 'a'), (gen_random_uuid(), 'order', '2', 'created', 'b')`)
			i.exec(`BEGIN; ` + insert +
				`('00000000-0000-0000-0000-00000000000a', 'order', '3', 'created', 'canary');` +
				insert + `('00000000-0000-0000-0000-00000000000b', 'order', '4', 'created', chr(129)); COMMIT`)
			i.exec(insert + `(gen_random_uuid(), 'order', '5', 'created', 'behind')`)

			// The error names it.
			wrong := i.run("slot", "advance", i.db.Name, "--past", "0/1", "--dry-run")
			require.NotZero(t, wrong.code)
			at := regexp.MustCompile(`in the transaction that commits at ([0-9A-F]+/[0-9A-F]+), behind 1 rows of it`).FindStringSubmatch(wrong.stderr)
			require.NotNil(t, at, wrong.stderr)
			require.Contains(t, wrong.stderr, "the slot stays where it is")

			past := []string{"slot", "advance", i.db.Name, "--past", at[1]}
			dry := i.ok(append(past, "--dry-run")...)
			require.Contains(t, dry.stdout, "the server cannot send all of it")
			require.Contains(t, dry.stdout,
				"before that came rows of the outbox: 1 of public.outbox")
			require.Contains(t, dry.stdout, "public.outbox still has 2 of its rows")
			require.Contains(t, dry.stdout, "00000000-0000-0000-0000-00000000000b")
			require.Contains(t, dry.stdout, "2 rows of 1 transactions before it")
			require.Contains(t, dry.stdout, "would move from "+start.String())
			require.NotContains(t, dry.stdout+dry.stderr, "canary")
			require.Equal(t, start, confirmed(), "a dry run")
			require.Equal(t, exit.Usage, i.run(past...).code, "nobody typed the slot's name")
			require.Equal(t, start, confirmed())

			done := i.ok(append(past, "--yes")...)
			require.Contains(t, done.stderr, "slot was moved past a transaction")
			require.Greater(t, confirmed(), start)

			// What commits behind it is still sent.
			var n int
			require.NoError(t, i.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
				'proto_version', '1', 'publication_names', 'postrider') WHERE get_byte(data, 0) = ascii('I')`, i.db.Name).Scan(&n))
			require.Equal(t, 1, n)
			require.Equal(t, exit.Config, i.run(append(past, "--yes")...).code,
				"it is passed already")
		})
	}
}

func TestSlotAdvance_StepsOverOneTransactionOfMany(t *testing.T) {
	i := newInstall(t, "17")
	i.ok("init", "--preset", "debezium")
	for range 3 {
		i.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'created', '{}')`)
	}
	var commits []string
	rows, err := i.conn.Query(t.Context(), `SELECT upper(to_hex(get_byte(data, 1)::bigint * 16777216 + get_byte(data, 2) * 65536 + get_byte(data, 3) * 256 + get_byte(data, 4))) || '/' ||
		upper(to_hex(get_byte(data, 5)::bigint * 16777216 + get_byte(data, 6) * 65536 + get_byte(data, 7) * 256 + get_byte(data, 8)))
		FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'postrider') WHERE get_byte(data, 0) = ascii('B')`, i.db.Name)
	require.NoError(t, err)
	for rows.Next() {
		var at string
		require.NoError(t, rows.Scan(&at))
		commits = append(commits, at)
	}
	require.NoError(t, rows.Err())
	require.Len(t, commits, 3)

	r := i.ok("slot", "advance", i.db.Name, "--past", commits[0], "--yes")
	require.Contains(t, r.stdout, "rows of the outbox: 1 of public.outbox")
	require.NotContains(t, r.stdout, "before it")
	r = i.ok("slot", "advance", i.db.Name, "--past", commits[2], "--dry-run")
	require.Contains(t, r.stdout, "1 rows of 1 transactions before it")
	defer i.holdSlot()()
	require.Equal(t, exit.Temporary,
		i.run("slot", "advance", i.db.Name, "--past", commits[1], "--yes").code,
		"somebody reads from it")
	for _, wrong := range []string{"x", commits[1] + "x"} {
		require.Equal(t, exit.Usage, i.run("slot", "advance", i.db.Name, "--past", wrong, "--yes").code)
	}
	require.Equal(t, exit.Usage,
		i.run("slot", "advance", i.db.Name, "--past", commits[1], "--to", "current").code)
}
