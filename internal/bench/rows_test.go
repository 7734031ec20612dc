package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// The backlog is made by SQL, the steady load in Go, and both are compared with what Go expects.
func TestRows_AreTheSameFromSQLAndFromGo(t *testing.T) {
	db := parts.Postgres(t, parts.AnyVersion)
	db.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text,
		aggregate_id text, event_type text, payload jsonb)`)
	conn := db.Connect(t)
	for _, size := range []int{MinSize, 200, 1000} {
		rows := newRows(size)
		db.Exec(t, "TRUNCATE outbox")
		_, err := conn.Exec(t.Context(), insertRange("outbox"), 9_990, 10_100, size)
		require.NoError(t, err)
		one := int64(123_456)
		_, err = conn.Exec(t.Context(), insertOne("outbox"), string(rows.appendID(nil, one)),
			aggregateOf(one), rows.key(one), string(rows.appendPayload(nil, one)))
		require.NoError(t, err)

		found, err := conn.Query(t.Context(),
			`SELECT replace(id::text, '-', ''), aggregate_type,
			aggregate_id, payload::text FROM outbox ORDER BY id`)
		require.NoError(t, err)
		var id, aggregate, key, payload string
		var scratch []byte
		count := int64(0)
		for found.Next() {
			require.NoError(t, found.Scan(&id, &aggregate, &key, &payload))
			n, ok := rows.find([]byte(key), []byte(payload), &scratch)
			require.True(t, ok, "%s of key %s", payload, key)
			require.Len(t, payload, size)
			require.Equal(t, string(rows.appendID(nil, n)), id)
			require.Equal(t, aggregateOf(n), aggregate)
			count++
		}
		require.NoError(t, found.Err())
		require.Equal(t, int64(112), count)
	}
}

func TestRows_FindOnlyWholeOnes(t *testing.T) {
	rows := newRows(100)
	var scratch []byte
	value := rows.appendPayload(nil, 20_007)
	n, ok := rows.find([]byte("key-7"), value, &scratch)
	require.True(t, ok)
	require.Equal(t, int64(20_007), n)
	require.Equal(t, uint64(3), rows.number(n))
	for name, record := range map[string][2]string{
		"another key": {"key-8", string(value)}, "cut": {"key-7", string(value[:99])},
		"no number": {"key-7", `{"n": x, "pad": ""}`},
		"negative":  {"key-7", `{"n": -1, "pad": ""}`}, "empty": {"key-7", ""},
		"other padding": {"key-7", string(value[:90]) + "zzzzzzzz\"}"},
	} {
		_, ok := rows.find([]byte(record[0]), []byte(record[1]), &scratch)
		require.False(t, ok, name)
	}
}

// A relay that drops, repeats or swaps rows fails the bench.
func TestReader_TellsWhatARelayDidWrong(t *testing.T) {
	const total = 3*keyCount + 5
	for name, relay := range map[string]struct {
		deliver func(deliver func(n int64))
		want    audit.Verdict
	}{
		"exact": {func(deliver func(int64)) {},
			audit.Verdict{Written: total, Delivered: total}},
		"drops": {nil, audit.Verdict{Written: total, Delivered: total - 1, Lost: 1}},
		"repeats": {func(deliver func(int64)) { deliver(total - 1) },
			audit.Verdict{Written: total, Delivered: total, Duplicated: 1}},
		"invents": {func(deliver func(int64)) { deliver(total) },
			audit.Verdict{Written: total, Delivered: total + 1, Phantom: 1}},
		"torn way": {func(deliver func(int64)) { deliver(4) },
			audit.Verdict{Written: total, Delivered: total, Duplicated: 1}},
	} {
		rows := newRows(MinSize)
		r := newReader(rows, total)
		deliver := func(n int64) {
			r.take(&sink.Message{Key: []byte(rows.key(n)), Value: rows.appendPayload(nil, n)},
				time.Now())
		}
		for n := range int64(total) {
			r.tally.Wrote(rows.key(n), rows.number(n))
			if relay.deliver != nil || n != total-1 {
				deliver(n)
			}
		}
		if relay.deliver != nil {
			relay.deliver(deliver)
		}
		require.NoError(t, r.err)
		verdict := r.tally.Verdict()
		require.Equal(t, relay.want, verdict, name)
		report := &Report{Workloads: []Measured{{Result: Result{Verdict: verdict}}}}
		require.Equal(t, name == "exact", report.Clean(), name)
	}
}
