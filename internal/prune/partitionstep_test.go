package prune

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStep_ContinuesRangesAndNames(t *testing.T) {
	for _, c := range []struct {
		name, keyType, partition, bound string
		next, nextBound                 string
	}{
		{"day", "timestamptz", "outbox_20260131", "FROM ('2026-01-31 00:00:00+00') TO ('2026-02-01 00:00:00+00')", "outbox_20260201", "2026-02-02 00:00:00+00"},
		{"week", "date", "outbox_p2026_01_05", "FROM ('2026-01-05') TO ('2026-01-12')", "outbox_p2026_01_12", "2026-01-19"},
		{"month", "timestamptz", "outbox_2026_01", "FROM ('2026-01-01 00:00:00+00') TO ('2026-02-01 00:00:00+00')", "outbox_2026_02", "2026-03-01 00:00:00+00"},
		{"month of December", "timestamp", "outbox_202512", "FROM ('2025-12-01 00:00:00') TO ('2026-01-01 00:00:00')", "outbox_202601", "2026-02-01 00:00:00"},
		{"quarter", "date", "outbox_2026q1", "FROM ('2026-01-01') TO ('2026-04-01')", "outbox_20260401", "2026-07-01"},
		{"year", "date", "outbox_2026", "FROM ('2026-01-01') TO ('2027-01-01')", "outbox_2027", "2028-01-01"},
		{"hour", "timestamptz", "outbox_20260101_230000", "FROM ('2026-01-01 23:00:00+00') TO ('2026-01-02 00:00:00+00')", "outbox_20260102_000000", "2026-01-02 01:00:00+00"},
		{"month in Berlin", "timestamptz", "outbox_2026_02", "FROM ('2026-01-31 23:00:00+00') TO ('2026-02-28 23:00:00+00')", "outbox_2026_03", "2026-03-31 23:00:00+00"},
		{"month in Berlin, with the begin of summer time", "timestamptz", "outbox_2026_03", "FROM ('2026-02-28 23:00:00+00') TO ('2026-03-31 22:00:00+00')", "outbox_2026_04", "2026-04-30 22:00:00+00"},
		{"month in New York", "timestamptz", "outbox_2026_01", "FROM ('2026-01-01 05:00:00+00') TO ('2026-02-01 05:00:00+00')", "outbox_2026_02", "2026-03-01 05:00:00+00"},
		{"name without a date", "timestamptz", "current", "FROM ('2026-01-31 00:00:00+00') TO ('2026-02-01 00:00:00+00')", "outbox_20260201", "2026-02-02 00:00:00+00"},
		{"ids", "int8", "outbox_p1000", "FROM ('1000') TO ('2000')", "outbox_p2000", "3000"},
		{"ids from zero", "int4", "outbox_first", "FROM (0) TO (1000)", "outbox_1000", "2000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &partitionedTable{Name: "outbox", KeyType: c.keyType, kind: keyKindOf(c.keyType)}
			p := partition{Name: c.partition}
			var ok bool
			p.span, ok = parseSpan(table.kind, "FOR VALUES "+c.bound)
			require.True(t, ok)
			next, why := (&partitionRun{table: table}).following(p, stepOf(table.kind, p.span))
			require.Empty(t, why)
			require.Equal(t, c.next, next.Name)
			require.Equal(t, p.span.to, next.span.from)
			require.Equal(t, c.nextBound, next.span.to.text)
		})
	}
}

func TestStep_SkipsWhatIsPast(t *testing.T) {
	table := &partitionedTable{Name: "outbox", KeyType: "date", kind: keyLocal, Now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	p := partition{Name: "outbox_20260101"}
	p.span, _ = parseSpan(table.kind, "FOR VALUES FROM ('2026-01-01') TO ('2026-01-02')")
	next, why := (&partitionRun{table: table}).following(p, step{days: 1})
	require.Empty(t, why)
	require.Equal(t, "outbox_20260301", next.Name)
}

func TestSpan_IsReadOrRefused(t *testing.T) {
	for expr, want := range map[string]bool{
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO ('2026-02-01 00:00:00+00')":              true,
		"FOR VALUES FROM ('2026-01-01 00:00:00.5+00') TO ('2026-02-01 00:00:00+00')":            true,
		"FOR VALUES FROM (MINVALUE) TO ('2026-02-01 00:00:00+00')":                              true,
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO (MAXVALUE)":                              true,
		"FOR VALUES FROM ('-infinity') TO ('2026-02-01 00:00:00+00')":                           false,
		"FOR VALUES FROM ('0044-03-15 00:00:00+00 BC') TO ('2026-02-01 00:00:00+00')":           false,
		"FOR VALUES FROM ('2026-01-01 00:00:00+00', 5) TO ('2026-02-01 00:00:00+00', MINVALUE)": false,
		"FOR VALUES IN ('2026-01-01 00:00:00+00')":                                              false,
		"FOR VALUES WITH (modulus 4, remainder 0)":                                              false,
		"DEFAULT": false,
		"":        false,
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO ('2026-02-01 00:00:00+00') -- and": false,
	} {
		_, ok := parseSpan(keyTime, expr)
		require.Equal(t, want, ok, expr)
	}
}

func TestSpan_IsOldInEveryTimeZone(t *testing.T) {
	cutoff := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for expr, want := range map[string][2]bool{ // with and without a time zone
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO ('2026-02-01 00:00:00+00')": {true, false},
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO ('2026-01-31 12:00:00+00')": {true, true},
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO ('2026-02-01 00:00:01+00')": {false, false},
		"FOR VALUES FROM ('2026-01-01 00:00:00+00') TO (MAXVALUE)":                 {false, false},
	} {
		for i, kind := range []keyKind{keyTime, keyLocal} {
			s, ok := parseSpan(kind, expr)
			require.True(t, ok)
			require.Equal(t, want[i], s.before(kind, cutoff), expr)
		}
	}
}
