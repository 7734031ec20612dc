package replication_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/test/parts"
)

// sent is one message as another reader of the slot saw it.
type sent struct {
	lsn pglogrepl.LSN
	xid uint32
	typ byte
	end pglogrepl.LSN // of a Commit
}

// peek returns what the slot would send, as the server's own function returns it.
func (x *table) peek() (messages []sent) {
	x.t.Helper()
	rows, err := x.conn.Query(x.t.Context(), `SELECT lsn::text, xid::text::bigint, data FROM pg_logical_slot_peek_binary_changes(
		$1, NULL, NULL, 'proto_version', '1', 'publication_names', 'postrider', 'messages', 'true')`, x.slot)
	require.NoError(x.t, err)
	var text string
	var xid int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&text, &xid, &data}, func() error {
		lsn, err := pglogrepl.ParseLSN(text)
		m := sent{lsn: lsn, xid: uint32(xid), typ: data[0]}
		if m.typ == 'C' {
			m.end = pglogrepl.LSN(binary.BigEndian.Uint64(data[10:]))
		}
		messages = append(messages, m)
		return err
	})
	require.NoError(x.t, err)
	return messages
}

// after is the LastEvent of one message.
func after(m sent, count int64) replication.LastEvent {
	return replication.LastEvent{Type: m.typ, XID: m.xid, LSN: m.lsn, Count: count, BeginCounts: true}
}

func ofType(messages []sent, typ byte) (found []sent) {
	for _, m := range messages {
		if m.typ == typ {
			found = append(found, m)
		}
	}
	return found
}

func (x *table) handover(last replication.LastEvent) (replication.Handover, error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), parts.Patience)
	defer cancel()
	return replication.FindHandover(ctx, x.pg(), x.cfg, x.slot, last, func(ev *replication.Event) bool {
		return ev.Kind == replication.Message && ev.Prefix == "outbox" || ev.Kind == replication.Insert && ev.Relation.Name == "outbox"
	}, zerolog.Nop())
}

// wide has a publication of all tables and all operations, as Debezium makes it by default.
func wide(t *testing.T, version string) *table {
	x := newTable(t, version)
	x.exec(`CREATE TABLE business (n bigint PRIMARY KEY)`)
	x.exec(`ALTER TABLE outbox ADD PRIMARY KEY (n)`)
	x.exec(`DROP PUBLICATION postrider`)
	x.exec(`CREATE PUBLICATION postrider FOR ALL TABLES`)
	x.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, x.slot)
	return x
}

func TestFindHandover_EndsBehindTheTransactionOfTheLastRow(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			x := wide(t, version)
			start := x.confirmed()
			x.exec(`INSERT INTO outbox VALUES (1, '')`)
			x.exec(`WITH a AS (INSERT INTO outbox VALUES (2, ''), (3, '') RETURNING n) SELECT * FROM a`)
			x.exec(`BEGIN; INSERT INTO outbox VALUES (4, ''); INSERT INTO business VALUES (4); DELETE FROM outbox WHERE n = 4; COMMIT`)
			x.exec(`INSERT INTO outbox VALUES (5, '')`)
			messages := x.peek()
			inserts, commits := ofType(messages, 'I'), ofType(messages, 'C')
			require.Len(t, inserts, 6)
			if version == "14" { // which sends empty transactions too
				commits = commits[len(commits)-4:]
			}

			got, err := x.handover(after(inserts[2], 1)) // row 3, the last of its transaction
			require.NoError(t, err)
			require.Equal(t, replication.Handover{Confirmed: start, LSN: commits[1].end, Published: 3}, got)

			got, err = x.handover(after(inserts[1], 1)) // row 2: row 3 was not published
			require.NoError(t, err)
			require.Equal(t, replication.Handover{Confirmed: start, LSN: commits[0].end, Published: 1, Again: 1}, got)

			got, err = x.handover(after(inserts[3], 1)) // row 4: the rest of its transaction is nothing to publish
			require.NoError(t, err)
			require.Equal(t, replication.Handover{Confirmed: start, LSN: commits[2].end, Published: 4}, got)

			got, err = x.handover(after(ofType(messages, 'D')[0], 1))
			require.NoError(t, err)
			require.Equal(t, commits[2].end, got.LSN)

			got, err = x.handover(replication.LastEvent{Type: 'C', XID: commits[2].xid, LSN: commits[2].end})
			require.NoError(t, err)
			require.Equal(t, replication.Handover{Confirmed: start, LSN: commits[2].end, Published: 4}, got)

			begin := ofType(messages, 'B')
			got, err = x.handover(after(begin[len(begin)-3], 0)) // that of rows 2 and 3
			require.NoError(t, err)
			require.Equal(t, replication.Handover{Confirmed: start, LSN: commits[0].end, Published: 1}, got)
			require.Equal(t, start, x.confirmed(), "to look moves nothing")
		})
	}
}

func TestFindHandover_CountsRowsThatShareAnLSN(t *testing.T) {
	x := wide(t, parts.AnyVersion)
	copied := func(first int) {
		_, err := x.conn.CopyFrom(t.Context(), pgx.Identifier{"outbox"}, []string{"n", "payload"},
			pgx.CopyFromSlice(5, func(i int) ([]any, error) { return []any{first + i, ""}, nil }))
		require.NoError(t, err)
	}
	copied(1)
	x.exec(`BEGIN`)
	x.exec(`INSERT INTO business VALUES (1)`)
	copied(6)
	x.exec(`COMMIT`)
	messages := x.peek()
	rows, commits, begins := ofType(messages, 'I'), ofType(messages, 'C'), ofType(messages, 'B')
	require.Len(t, rows, 11)
	first, second := rows[0], rows[6]
	require.Equal(t, first.lsn, rows[4].lsn, "a COPY")
	require.Equal(t, first.lsn, begins[len(begins)-2].lsn, "which begins the transaction")
	require.Equal(t, second.lsn, rows[10].lsn)
	require.NotEqual(t, second.lsn, begins[len(begins)-1].lsn)

	// Debezium, when it starts again, takes the Begin at that LSN for one of the rows, and counts on from there.
	for count, again := range map[int64]int{0: 1, 1: 1, 2: 1, 3: 2, 5: 4} {
		got, err := x.handover(after(first, count))
		require.NoError(t, err)
		require.Equal(t, x.confirmed(), got.LSN, "count %d", count)
		require.Equal(t, again, got.Again, "count %d", count)
	}
	got, err := x.handover(after(first, 6))
	require.NoError(t, err)
	require.Equal(t, commits[len(commits)-2].end, got.LSN)
	_, err = x.handover(after(first, 7))
	require.ErrorIs(t, err, replication.ErrEventNotFound, "more than there are")

	got, err = x.handover(after(second, 4))
	require.NoError(t, err)
	require.Equal(t, replication.Handover{Confirmed: x.confirmed(), LSN: commits[len(commits)-2].end, Published: 5, Again: 4}, got)
	got, err = x.handover(after(second, 5))
	require.NoError(t, err)
	require.Equal(t, replication.Handover{Confirmed: x.confirmed(), LSN: commits[len(commits)-1].end, Published: 10}, got)
}

func TestFindHandover_TakesLogicalMessagesIntoAccount(t *testing.T) {
	x := wide(t, parts.AnyVersion)
	x.exec(`SELECT pg_logical_emit_message(false, 'outbox', 'alone')`)
	x.exec(`BEGIN; SELECT pg_logical_emit_message(true, 'outbox', 'one'); SELECT pg_logical_emit_message(true, 'outbox', 'two'); COMMIT`)
	messages := x.peek()
	m := ofType(messages, 'M')
	require.Len(t, m, 3)

	got, err := x.handover(replication.LastEvent{Type: 'M', LSN: m[0].lsn})
	require.NoError(t, err)
	require.Equal(t, 1, got.Published)
	require.Equal(t, m[0].lsn, got.LSN)

	got, err = x.handover(after(m[1], 3)) // which the count leaves out
	require.NoError(t, err)
	require.Equal(t, replication.Handover{Confirmed: x.confirmed(), LSN: m[0].lsn, Published: 1, Again: 1}, got)

	got, err = x.handover(after(m[2], 0))
	require.NoError(t, err)
	commits := ofType(messages, 'C')
	require.Equal(t, replication.Handover{Confirmed: x.confirmed(), LSN: commits[len(commits)-1].end, Published: 3}, got)
}

func TestFindHandover_RefusesWhatIsNotInTheSlot(t *testing.T) {
	x := wide(t, parts.AnyVersion)
	x.exec(`INSERT INTO outbox VALUES (1, '')`)
	row := ofType(x.peek(), 'I')[0]
	for _, wrong := range []sent{
		{lsn: row.lsn, xid: row.xid + 1, typ: 'I'},
		{lsn: row.lsn + 8, xid: row.xid, typ: 'I'},
		{lsn: row.lsn, xid: row.xid, typ: 'D'},
		{lsn: row.lsn + 8, xid: row.xid, typ: 'C'},
	} {
		_, err := x.handover(after(wrong, 1))
		require.ErrorIs(t, err, replication.ErrEventNotFound)
	}

	x.exec(`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, x.slot)
	_, err := x.handover(after(row, 1))
	require.ErrorIs(t, err, replication.ErrEventBehind)

	reader := x.read(nil)
	_, err = x.handover(after(row, 1))
	require.ErrorIs(t, err, replication.ErrSlotInUse)
	reader.stop()
	for range reader.out {
	}
	require.NoError(t, <-reader.ended)
}
