package monitor

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/ratelimit"
)

// limitedTo is a relay that a limit holds back. A row is 1 KiB of WAL, and has 512 bytes.
func limitedTo(limit ratelimit.Rate) func(*Observation) {
	return func(o *Observation) {
		o.Pace = &Pace{MaxRate: limit, Limiting: "relay.max_rate", Limit: limit, WALPerRow: new(1024.0), WALPerByte: new(2.0)}
	}
}

func byTopic(o *Observation) { o.Pace.Limiting = "relay.rate[2]" }

func TestForecast_CatchUpAtALimit(t *testing.T) {
	for _, w := range []wanted{
		{"rows", both(readingAt(2), limitedTo(ratelimit.Rate{Rows: 3072})), 36,
			"about 73728 rows wait, relay.max_rate lets 3072 rows/s through, and about 1024 rows/s come in, by the rate of the last 5 minutes"},
		{"a change counts at once", both(readingAt(0.5), limitedTo(ratelimit.Rate{Rows: 3072})), 36, "3072 rows/s through"},
		{"bytes", both(readingAt(2), limitedTo(ratelimit.Rate{Bytes: 1536 << 10})), 36, "lets 1536KiB/s through, and about 512 KiB/s come in"},
		{"the lower of both", both(readingAt(2), limitedTo(ratelimit.Rate{Rows: 3072, Bytes: 100 << 20})), 36, "lets 3072 rows/s, 100MiB/s through, and about 1024 rows/s"},
		{"never", both(readingAt(0.5), limitedTo(ratelimit.Rate{Rows: 512})), none,
			"never at this rate: relay.max_rate lets 512 rows/s through, and about 1024 rows/s come in"},
		{"not known for a topic", both(readingAt(3), limitedTo(ratelimit.Rate{Rows: 1}), byTopic), 36, "relay.rate[2] lets 3 MiB/s of WAL through, and about 1 MiB/s of WAL come in"},
		{"never for a topic", both(readingAt(0.5), limitedTo(ratelimit.Rate{Rows: 1}), byTopic), none, "never at this rate: relay.rate[2] lets 512 KiB/s of WAL"},
		{"before anything was confirmed", both(readingAt(3), limitedTo(ratelimit.Rate{Rows: 1}), func(o *Observation) { o.Pace.WALPerRow = nil }), 36, "72 MiB of WAL wait"},
		{"in a transaction that takes long", both(readingAt(0), limitedTo(ratelimit.Rate{Rows: 1}), func(o *Observation) { o.Pace.WALPerRow = nil }), none,
			"not known yet: nothing was confirmed over the last 5 minutes, while relay.max_rate holds rows back"},
		{"a limit that holds nothing back", both(readingAt(3), limitedTo(ratelimit.Rate{Rows: 1}), func(o *Observation) { o.Pace.Limiting = "" }), 36, "3 MiB/s are confirmed"},
	} {
		t.Run(w.name, func(t *testing.T) { w.holds(t, func(f Forecast) Estimate { return f.CatchUp }) })
	}
}

// A limit below what comes in does not end by itself, as a COPY does: 200 MiB are left, and
// a quarter of a MiB of each second is kept: that is 800 s, more than eight times as long as it has lasted.
func TestForecast_ALimitLastsUntilItIsRaised(t *testing.T) {
	growing := both(readingAt(0.75), func(o *Observation) { o.Distance.LagGrowing = 60 })
	for _, w := range []wanted{
		{"without a limit it may end", growing, none, "not known: the reader has fallen behind"},
		{"with one", both(growing, limitedTo(ratelimit.Rate{Rows: 768})), 846, "the reader has fallen behind by 256 KiB/s for 1m0s, since relay.max_rate is 768 rows/s"},
		{"with one that is enough", both(readingAt(2), limitedTo(ratelimit.Rate{Rows: 2048})), none, "no loss in sight"},
	} {
		t.Run(w.name, func(t *testing.T) { w.holds(t, func(f Forecast) Estimate { return f.Loss }) })
	}
}

// limitedReadings has a reading every 10 s, with so many bytes confirmed and rows of 10 bytes published since the one before.
func limitedReadings(n int, confirmed pglogrepl.LSN, rows uint64) (rs readings) {
	r := reading{at: time.Unix(1_000_000, 0), wal: 1 << 30, confirmed: 1 << 20, limited: ratelimit.State{MaxRate: ratelimit.Rate{Rows: 7}}}
	for range n {
		rs = rs.add(r)
		r.at, r.confirmed = r.at.Add(10*time.Second), r.confirmed+confirmed
		r.limited.Messages, r.limited.Bytes = r.limited.Messages+rows, r.limited.Bytes+10*rows
	}
	return rs
}

func TestPace_IsMeasured(t *testing.T) {
	limit := ratelimit.State{MaxRate: ratelimit.Rate{Rows: 7}, Limiting: "relay.max_rate", Limit: ratelimit.Rate{Rows: 7}}
	require.Nil(t, limitedReadings(10, 100, 1).pace(ratelimit.State{}), "no limit")
	unknown := &Pace{MaxRate: limit.MaxRate, Limiting: limit.Limiting, Limit: limit.Limit}
	known := *unknown
	known.WALPerRow, known.WALPerByte = new(20.0), new(2.0)
	require.Equal(t, unknown, readings(nil).pace(limit))
	require.Equal(t, unknown, limitedReadings(3, 100, 5).pace(limit), "20 s")
	require.Equal(t, &known, limitedReadings(4, 100, 5).pace(limit))
	require.Equal(t, &known, limitedReadings(100, 100, 5).pace(limit))
	require.Equal(t, unknown, limitedReadings(100, 0, 5).pace(limit), "one large transaction")
	require.Equal(t, unknown, limitedReadings(100, 100, 0).pace(limit))

	rs := limitedReadings(100, 100, 5)
	rs[97].limited = ratelimit.State{} // counted from there on
	require.Equal(t, unknown, rs.pace(limit))
	rs = limitedReadings(100, 100, 5)
	for i := range rs[:90] {
		rs[i].limited.Messages += 1000 // of limits before
	}
	require.Equal(t, &known, rs.pace(limit))
}
