package replication

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

// Builders of pgoutput messages, after PostgreSQL's documentation of the formats.

func beginMessage(commit pglogrepl.LSN, at time.Time, xid uint32) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(commit))
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMicro()-postgresEpoch))
	return binary.BigEndian.AppendUint32(b, xid)
}

func commitMessage(commit, end pglogrepl.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commit))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	return binary.BigEndian.AppendUint64(b, 0)
}

func relationMessage(oid uint32, namespace, name string, columns ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, oid)
	b = append(append(b, namespace...), 0)
	b = append(append(b, name...), 0, 'd')
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for i, c := range columns {
		key := byte(0)
		if i == 0 {
			key = 1
		}
		b = append(append(append(b, key), c...), 0)
		b = binary.BigEndian.AppendUint32(b, 25)
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	}
	return b
}

func insertMessage(oid uint32, values ...any) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'I'}, oid)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
	for _, v := range values {
		s, ok := v.(string)
		if !ok {
			b = append(b, 'n')
			continue
		}
		b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

// toasted stands for a column that the server leaves out.
type toasted struct{}

func updateMessage(oid uint32, oldKind byte, old, values []any) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'U'}, oid)
	tuple := func(kind byte, values []any) {
		b = binary.BigEndian.AppendUint16(append(b, kind), uint16(len(values)))
		for _, v := range values {
			switch v := v.(type) {
			case string:
				b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v))), v...)
			case toasted:
				b = append(b, 'u')
			default:
				b = append(b, 'n')
			}
		}
	}
	if old != nil {
		tuple(oldKind, old)
	}
	tuple('N', values)
	return b
}

func texts(values [][]byte) []string {
	if values == nil {
		return nil
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

// sentAt is when the server sent a message, by its own count.
const sentAt = 750_000_000_000_000

func logicalMessage(transactional bool, prefix, content string) []byte {
	b := []byte{'M', 0}
	if transactional {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint64(b, 77)
	b = append(append(b, prefix...), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	return append(b, content...)
}

func decodeAll(t *testing.T, d *decoder, messages ...[]byte) []Event {
	t.Helper()
	b := &Batch{}
	for _, m := range messages {
		require.NoError(t, d.decode(m, 0, sentAt, b))
	}
	return b.Events
}

var commitTime = time.UnixMicro(1_700_000_000_123_456)

func TestDecoder_InsertCarriesTheEventPosition(t *testing.T) {
	events := decodeAll(t, newDecoder(),
		beginMessage(0x100, commitTime, 7),
		relationMessage(16400, "public", "outbox", "id", "payload"),
		insertMessage(16400, "a", "{}"),
		insertMessage(16400, "b", nil),
		insertMessage(16400, "c", ""),
		commitMessage(0x100, 0x130))
	require.Len(t, events, 5)
	require.Equal(t, Event{Kind: Begin, XID: 7, LSN: 0x100, Time: commitTime}, events[0])
	for i, e := range events[1:4] {
		require.Equal(t, Insert, e.Kind)
		require.Equal(t, uint32(i), e.Index)
		require.Equal(t, pglogrepl.LSN(0x100), e.LSN)
		require.Equal(t, commitTime, e.Time)
		require.Equal(t, "public.outbox", e.Relation.String())
	}
	require.Equal(t, [][]byte{[]byte("a"), []byte("{}")}, events[1].Values)
	require.Nil(t, events[2].Values[1], "NULL")
	require.NotNil(t, events[3].Values[1], "the empty string is not NULL")
	require.Empty(t, events[3].Values[1])
	require.Equal(t, Event{Kind: Commit, XID: 7, LSN: 0x130, Time: commitTime}, events[4])
}

func TestDecoder_EmptyTransactionIsAnIdlePosition(t *testing.T) {
	events := decodeAll(t, newDecoder(),
		beginMessage(0x100, commitTime, 7), commitMessage(0x100, 0x130),
		beginMessage(0x200, commitTime, 8), commitMessage(0x200, 0x230))
	require.Equal(t, []Event{{Kind: Idle, LSN: 0x230}}, events)
}

func TestDecoder_DeletesAndTruncationsAreIgnored(t *testing.T) {
	events := decodeAll(t, newDecoder(), beginMessage(0x100, commitTime, 7), []byte("D\x00"), []byte("T\x00"), commitMessage(0x100, 0x130))
	require.Equal(t, []Event{{Kind: Idle, LSN: 0x130}}, events)
}

func TestDecoder_UpdatesCarryTheKeyThatWas(t *testing.T) {
	events := decodeAll(t, newDecoder(),
		beginMessage(0x100, commitTime, 7),
		relationMessage(1, "public", "outbox", "id", "payload"),
		updateMessage(1, 0, nil, []any{"a", "{}"}),
		updateMessage(1, 'K', []any{"a", nil}, []any{"b", toasted{}}),
		updateMessage(1, 'O', []any{"b", "long"}, []any{"c", toasted{}}),
		commitMessage(0x100, 0x130))
	require.Len(t, events, 5)
	for i, want := range []struct{ old, values []string }{
		{nil, []string{"a", "{}"}},
		{[]string{"a", ""}, []string{"b", "__debezium_unavailable_value"}},
		{[]string{"b", "long"}, []string{"c", "long"}}, // the whole old row has what the new one left out
	} {
		e := events[i+1]
		require.Equal(t, Update, e.Kind)
		require.Equal(t, uint32(i), e.Index)
		require.Equal(t, want.values, texts(e.Values))
		require.Equal(t, want.old, texts(e.Old))
	}
}

func TestDecoder_AMessageOutsideOfATransactionIsOneOfItsOwn(t *testing.T) {
	events := decodeAll(t, newDecoder(),
		logicalMessage(false, "outbox", `{"a":1}`),
		beginMessage(0x100, commitTime, 7),
		logicalMessage(true, "outbox", `{"a":3}`),
		commitMessage(0x100, 0x130))
	sent := postgresTime(sentAt)
	require.Equal(t, []Event{
		{Kind: Begin, LSN: 77, Time: sent},
		{Kind: Message, LSN: 77, Time: sent, Prefix: "outbox", Content: []byte(`{"a":1}`)},
		{Kind: Commit, LSN: 77, Time: sent},
	}, events[:3])
	require.Len(t, events, 6)
	require.Equal(t, `{"a":3}`, string(events[4].Content))
}

func TestDecoder_NewShapeIsANewRelation(t *testing.T) {
	events := decodeAll(t, newDecoder(),
		beginMessage(0x100, commitTime, 7),
		relationMessage(1, "public", "outbox", "id"),
		insertMessage(1, "a"),
		relationMessage(1, "public", "outbox", "id", "added"),
		insertMessage(1, "b", "x"),
		insertMessage(1, "c", "y"))
	require.NotSame(t, events[1].Relation, events[2].Relation)
	require.Same(t, events[2].Relation, events[3].Relation)
	require.Len(t, events[1].Relation.Columns, 1)
}

func TestDecoder_RefusesWhatCannotBe(t *testing.T) {
	relation := relationMessage(1, "public", "outbox", "id")
	for name, messages := range map[string][][]byte{
		"empty":                       {{}},
		"unknown type":                {[]byte("?")},
		"commit without begin":        {commitMessage(1, 2)},
		"begin inside a transaction":  {beginMessage(1, commitTime, 1), beginMessage(2, commitTime, 2)},
		"row of an unknown relation":  {beginMessage(1, commitTime, 1), insertMessage(9, "a")},
		"row with too few columns":    {beginMessage(1, commitTime, 1), relation, insertMessage(1)},
		"row outside a transaction":   {relation, insertMessage(1, "a")},
		"relation with huge count":    {append(relationMessage(1, "p", "o")[:len(relationMessage(1, "p", "o"))-2], 0xff, 0xff)},
		"binary column":               {beginMessage(1, commitTime, 1), relation, []byte("I\x00\x00\x00\x01N\x00\x01b\x00\x00\x00\x00")},
		"value longer than the frame": {beginMessage(1, commitTime, 1), relation, []byte("I\x00\x00\x00\x01N\x00\x01t\x7f\xff\xff\xff")},
		"update without a new row":    {beginMessage(1, commitTime, 1), relation, []byte("U\x00\x00\x00\x01K\x00\x01nX")},
		"insert with a value missing": {beginMessage(1, commitTime, 1), relation, []byte("I\x00\x00\x00\x01N\x00\x01u")},
		"prefix without end":          {beginMessage(1, commitTime, 1), []byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x00abc")},
	} {
		t.Run(name, func(t *testing.T) {
			d, b := newDecoder(), &Batch{}
			var err error
			for _, m := range messages {
				if err = d.decode(m, 0, sentAt, b); err != nil {
					break
				}
			}
			require.ErrorIs(t, err, ErrProtocol)
		})
	}
}

func TestDecoder_LeavesOutWhatIsNotTransactionalIfAsked(t *testing.T) {
	d := newDecoder()
	d.transactionalOnly = true
	events := decodeAll(t, d,
		logicalMessage(false, "outbox", "alone"),
		beginMessage(90, commitTime, 1), logicalMessage(false, "outbox", "in between"), commitMessage(90, 95),
		beginMessage(100, commitTime, 2), logicalMessage(true, "outbox", "kept"), logicalMessage(false, "outbox", "in between"), commitMessage(100, 110),
	)
	require.Equal(t, []Event{
		{Kind: Idle, LSN: 95},
		{Kind: Begin, XID: 2, LSN: 100, Time: commitTime},
		{Kind: Message, XID: 2, LSN: 100, Time: commitTime, Prefix: "outbox", Content: []byte("kept")},
		{Kind: Commit, XID: 2, LSN: 110, Time: commitTime},
	}, events, "its position is confirmed all the same")
}

// What is seen of the history is the same, whichever messages are read.
func TestDecoder_WitnessesTheTransactionsOfMessagesThatAreNotRead(t *testing.T) {
	stream := [][]byte{
		logicalMessage(false, "outbox", "alone"),
		beginMessage(90, commitTime, 1), logicalMessage(true, "outbox", "a"), logicalMessage(true, "outbox", "b"), commitMessage(90, 95),
		relationMessage(1, "public", "outbox", "id", "payload"),
		beginMessage(100, commitTime, 2), logicalMessage(true, "outbox", "c"), insertMessage(1, "7", "value"), commitMessage(100, 110),
	}
	skeleton := func(transactionalOnly, unread bool) (kinds []Event, index uint32) {
		d := newDecoder()
		d.witness, d.transactionalOnly, d.unread = true, transactionalOnly, unread
		for _, e := range decodeAll(t, d, stream...) {
			switch e.Kind {
			case Begin, Commit:
				kinds = append(kinds, e)
			case Insert:
				index = e.Index
			default:
				require.False(t, unread, "%v", e)
			}
		}
		return kinds, index
	}
	all, index := skeleton(false, false)
	require.Len(t, all, 6)
	require.EqualValues(t, 1, index)
	only, index := skeleton(true, false)
	require.Equal(t, all, only)
	require.EqualValues(t, 1, index)
	none, index := skeleton(false, true)
	require.Equal(t, all, none)
	require.Zero(t, index, "as without the witness")
}

func TestDecoder_EveryTruncationIsAnError(t *testing.T) {
	for _, whole := range [][]byte{
		beginMessage(1, commitTime, 1), commitMessage(1, 2), relationMessage(1, "public", "outbox", "id", "payload"),
		insertMessage(1, "some", "value"), updateMessage(1, 'K', []any{"a", nil}, []any{"b", "c"}), logicalMessage(true, "prefix", "content"),
	} {
		for n := range len(whole) {
			d, b := newDecoder(), &Batch{}
			d.relations[1] = &Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: make([]Column, 2)}
			d.open = whole[0] != 'B'
			require.ErrorIs(t, d.decode(whole[:n], 0, sentAt, b), ErrProtocol, "%q cut to %d bytes", whole, n)
			require.Empty(t, b.Events)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(beginMessage(1, commitTime, 1))
	f.Add(commitMessage(1, 2))
	f.Add(relationMessage(1, "public", "outbox", "id", "payload"))
	f.Add(insertMessage(1, "a", nil))
	f.Add(updateMessage(1, 'O', []any{"a", "b"}, []any{"b", toasted{}}))
	f.Add(logicalMessage(true, "p", "c"))
	f.Add(logicalMessage(false, "p", "c"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		d, b := newDecoder(), &Batch{}
		d.relations[1] = &Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: make([]Column, 2)}
		for _, open := range []bool{false, true} {
			d.open, d.begun = open, false
			err := d.decode(msg, 0, sentAt, b)
			d.open, d.begun = open, false
			_ = d.decode(msg, 1<<20, sentAt, b)
			for _, e := range b.Events {
				if (e.Kind == Insert || e.Kind == Update) && len(e.Values) != len(e.Relation.Columns) {
					t.Fatalf("row with %d values of %d columns, error %v", len(e.Values), len(e.Relation.Columns), err)
				}
			}
		}
	})
}

func BenchmarkDecode_Insert(b *testing.B) {
	d, batch := newDecoder(), &Batch{}
	require.NoError(b, d.decode(beginMessage(1, commitTime, 1), 0, sentAt, batch))
	require.NoError(b, d.decode(relationMessage(1, "public", "outbox", "id", "aggregatetype", "aggregateid", "type", "payload"), 0, sentAt, batch))
	row := insertMessage(1, "da8d6de6-3b77-45ff-8f44-57db55a7a06c", "User", "10711fa5", "UserCreated", `{"a": 1, "b": "some text of the usual length"}`)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := d.decode(row, 0, sentAt, batch); err != nil {
			b.Fatal(err)
		}
		if n++; n%500 == 0 {
			batch.reset()
		}
	}
}
