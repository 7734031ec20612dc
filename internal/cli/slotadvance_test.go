package cli

import (
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/slot"
)

// peeked is the offset that Debezium stores after the nth insert that the slot would send.
func (i *install) peeked(n int) string {
	i.t.Helper()
	var text string
	var xid uint32
	require.NoError(i.t, i.conn.QueryRow(i.t.Context(), `SELECT lsn::text, xid::text::bigint FROM pg_logical_slot_peek_binary_changes(
		$1, NULL, NULL, 'proto_version', '1', 'publication_names', 'postrider') WHERE get_byte(data, 0) = ascii('I') OFFSET $2 LIMIT 1`,
		i.db.Name, n-1).Scan(&text, &xid))
	lsn, err := pglogrepl.ParseLSN(text)
	require.NoError(i.t, err)
	return fmt.Sprintf(`{"offsets":[{"partition":{"server":"shop"},"offset":{"lsn":%d,"txId":%d,"messageType":"INSERT","lsn_events_processed":1}}]}`, uint64(lsn), xid)
}

func TestSlotAdvance_MovesBehindWhatDebeziumPublished(t *testing.T) {
	i := newInstall(t, "17")
	i.ok("init", "--preset", "debezium")
	confirmed := func() pglogrepl.LSN {
		s, err := slot.Get(t.Context(), i.conn, i.db.Name)
		require.NoError(t, err)
		return s.ConfirmedFlushLSN
	}
	start := confirmed()
	row := `('order', '1', 'created', '{}')`
	insert := `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES `
	i.exec(insert + row)
	i.exec(insert + row + ", " + row)
	i.exec(insert + row)
	offsets := "offsets.json"
	advance := []string{"slot", "advance", i.db.Name, "--debezium-offsets", offsets}
	require.NoError(t, os.WriteFile(offsets, []byte(i.peeked(2)), 0o600))

	r := i.ok(append(advance, "--dry-run")...)
	require.Contains(t, r.stdout, "would move from "+start.String())
	require.Contains(t, r.stdout, "the offset covers 2 rows")
	require.Contains(t, r.stdout, "the last 1 are published again")
	require.Equal(t, start, confirmed(), "a dry run")

	require.NoError(t, os.WriteFile(offsets, []byte(i.peeked(3)), 0o600))
	require.Equal(t, exit.Usage, i.run(advance...).code, "nobody typed the slot's name")
	r = i.ok(append(advance, "--yes")...)
	require.Contains(t, r.stdout, "the offset covers 3 rows")
	require.Contains(t, r.stdout, "none of them is published again")
	require.Greater(t, confirmed(), start)

	moved := confirmed()
	require.Contains(t, i.ok(append(advance, "--yes")...).stdout, "nothing to move")
	require.Equal(t, moved, confirmed())
	r = i.typed(i.peeked(1), "slot", "advance", i.db.Name, "--debezium-offsets", "-", "--yes")
	require.Equal(t, exit.OK, r.code, r.stderr)
	require.Greater(t, confirmed(), moved)

	defer i.holdSlot()()
	require.Equal(t, exit.Temporary, i.run(append(advance, "--yes")...).code,
		"somebody reads from it")
}

func TestSlotAdvance_RefusesWhatDoesNotFit(t *testing.T) {
	i := newInstall(t, "17")
	i.ok("init", "--preset", "debezium")
	i.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'created', '{}')`)
	before := i.ok("slot", "show", "--json").stdout
	for text, says := range map[string]string{
		// of another server
		`{"lsn":1099511627776,"txId":7,"messageType":"INSERT"}`:                                "not in what the slot sends",
		`{"lsn":5,"snapshot":"INITIAL","snapshot_completed":true,"last_snapshot_record":true}`: "nothing of the slot's stream was published yet",
		`{"lsn":5}`:      "does not say what the last event was",
		`{"offsets":[]}`: "no offset is stored",
	} {
		r := i.typed(text, "slot", "advance", i.db.Name, "--debezium-offsets", "-", "--yes")
		require.Equal(t, exit.Config, r.code, text)
		require.Contains(t, r.stderr, says)
		require.Contains(t, r.stderr, "the slot stays where it is")
	}
	for _, args := range [][]string{
		{"--debezium-offsets", "missing.json", "--yes"},
		{"--debezium-offsets", "-"},
		{"--debezium-offsets", "-", "--to", "current", "--yes"},
	} {
		require.Equal(t, exit.Usage,
			i.typed("{}", append([]string{"slot", "advance", i.db.Name}, args...)...).code, args)
	}
	after := i.ok("slot", "show", "--json").stdout
	require.Equal(t, confirmedIn(t, before), confirmedIn(t, after))
}

func confirmedIn(t *testing.T, document string) pglogrepl.LSN {
	t.Helper()
	var s slot.Status
	require.NoError(t, s.UnmarshalJSON([]byte(document)))
	return s.ConfirmedFlushLSN
}
