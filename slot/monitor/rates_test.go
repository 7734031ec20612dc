package monitor

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

// watch adds a reading every 5 s, each a step on from the last, for as long as timedAnswer.
func (rs readings) watch(d time.Duration, wal, confirmed, restart pglogrepl.LSN, pages int64) readings {
	last := reading{at: time.Unix(1_000_000, 0), wal: 1 << 30, confirmed: 1 << 29, restart: 1 << 28, pages: new(int64(100))}
	if len(rs) == 0 {
		rs = rs.add(last)
	} else {
		last = rs[len(rs)-1]
	}
	for end := last.at.Add(d); last.at.Before(end); {
		last = reading{
			at: last.at.Add(5 * time.Second), wal: last.wal + 5*wal, confirmed: last.confirmed + 5*confirmed, restart: last.restart + 5*restart,
			pages: new(*last.pages + 5*pages),
		}
		rs = rs.add(last)
	}
	return rs
}

func TestRates_NeedHalfAMinute(t *testing.T) {
	require.Equal(t, Rates{}, readings(nil).rates())
	require.Equal(t, Rates{}, readings{}.watch(25*time.Second, 100, 50, 20, 3).rates())
	rates := readings{}.watch(30*time.Second, 100, 50, 20, 3).rates()
	require.Equal(t, Rates{
		WAL1m: new(100.0), WAL5m: new(100.0), WAL1h: new(100.0), Drain5m: new(50.0), Drain1h: new(50.0), Pages5m: new(3.0),
	}, rates)
}

func TestRates_AreOfTheirWindow(t *testing.T) {
	rs := readings{}.watch(2*time.Hour, 100, 100, 100, 1)
	require.LessOrEqual(t, len(rs), 721, "an hour is kept")
	rs = rs.watch(time.Minute, 1000, 0, 0, 10)
	rates := rs.rates()
	require.InDelta(t, 1000, *rates.WAL1m, 0.1)
	require.InDelta(t, (4*100+1000)/5, *rates.WAL5m, 0.1)
	require.InDelta(t, (59*100+1000)/60, *rates.WAL1h, 0.1)
	require.InDelta(t, 80, *rates.Drain5m, 0.1)
	require.InDelta(t, 98.33, *rates.Drain1h, 0.1)
	require.InDelta(t, 2.8, *rates.Pages5m, 0.1)
}

func TestRates_StartOver(t *testing.T) {
	rs := readings{}.watch(10*time.Minute, 100, 100, 100, 1)
	last := rs[len(rs)-1]
	other := rs.add(reading{at: last.at.Add(5 * time.Second), wal: last.wal - 1, confirmed: last.confirmed, restart: last.restart})
	require.Len(t, other, 1, "WAL does not go backwards on one server")
	require.Equal(t, Rates{}, other.rates())

	rs = readings{}.watch(10*time.Minute, 100, 100, 100, 1)
	rs = rs.add(reading{at: last.at.Add(5 * time.Second), wal: last.wal, confirmed: 1, restart: 1, pages: new(int64(3))})
	rates := rs.rates()
	require.Zero(t, *rates.Drain5m, "a position that goes back, as after a crash, has not moved")
	require.Positive(t, *rates.WAL5m)
	require.Nil(t, rates.Pages5m, "somebody reset the statistics")
	require.InDelta(t, 7, *rs.watch(30*time.Second, 0, 0, 0, 7).rates().Pages5m, 0.1)
}

func TestReadings_KnowSinceWhenThereIsWALBeyondAPosition(t *testing.T) {
	rs := readings{}.watch(time.Minute, 100, 100, 100, 0)
	end := rs[len(rs)-1].wal
	require.Zero(t, rs.beyond(end))
	require.Zero(t, rs.beyond(end-1), "written since the last reading")
	require.EqualValues(t, 5, rs.beyond(end-501), "of two readings")
	require.EqualValues(t, 20, rs.beyond(end-2001))
	require.EqualValues(t, 60, rs.beyond(0))
	rs = rs.watch(30*time.Second, 0, 0, 0, 0)
	require.EqualValues(t, 30, rs.beyond(end-1), "nothing is written, and that is not confirmed either")
	require.Zero(t, rs.beyond(end))
	require.Zero(t, readings(nil).beyond(0))
}

func TestStandbys_ThatAreBehindBlock(t *testing.T) {
	rs := readings{}.watch(2*time.Minute, 1<<20, 1<<20, 1<<20, 0)
	last := rs[len(rs)-1]
	own := slot.Slot{Failover: true}
	at := func(name string, restart pglogrepl.LSN) slot.Status {
		return slot.NewStatus(slot.Slot{Name: name, Active: true, RestartLSN: restart}, last.wal, last.at)
	}
	all := []slot.Status{at("near", last.wal-20<<20), at("far", last.wal-40<<20), at("unlisted", 1), at("well", last.wal-1), at("new", 0)}
	listed := func(wait string) timedAnswer {
		var a timedAnswer
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"synchronized_standby_slots": "near, far, well, new", "stream": {"wait_event": %q}}`, wait), &a.answer))
		return a
	}
	calm := []StandbySlot{{Name: "near", Exists: true, Active: true}, {Name: "far", Exists: true, Active: true},
		{Name: "well", Exists: true, Active: true}, {Name: "new", Exists: true, Active: true}}
	const waits = "WaitForStandbyConfirmation"
	want := slices.Clone(calm)
	want[1].Blocks, want[1].Behind, want[1].BehindBytes = true, 35, new(int64(40<<20))
	want[3].Blocks, want[3].Behind = true, 120 // it has confirmed nothing at all
	require.Equal(t, want, listed(waits).standbys(own, all, rs))
	require.Equal(t, calm, listed("WalSenderWriteData").standbys(own, all, rs), "the relay reads no faster")
	require.Equal(t, calm, timedAnswer{answer: answer{Standbys: "near, far, well, new"}}.standbys(own, all, rs), "no session streams")
	require.Equal(t, calm, listed(waits).standbys(own, all, rs[len(rs)-1:]), "the first look does not know")
	require.Empty(t, listed(waits).standbys(slot.Slot{}, all, rs))
}

func TestReadings_CountPagesSinceACheckpoint(t *testing.T) {
	rs := readings{}.watch(time.Minute, 100, 100, 100, 2)
	last := rs[len(rs)-1].at
	require.EqualValues(t, 60, *rs.pagesSince(last.Add(-30*time.Second), 5*time.Second))
	require.EqualValues(t, 60, *rs.pagesSince(last.Add(-31*time.Second), 5*time.Second), "the reading after it")
	require.Nil(t, rs.pagesSince(last.Add(-2*time.Minute), 5*time.Second), "nobody counted then")
	require.Nil(t, readings(nil).pagesSince(last, 5*time.Second))
}

// The time that the server takes for its work is not the clocks' difference.
func TestClock_LeavesTheWorkOut(t *testing.T) {
	start := time.Now()
	a := timedAnswer{before: start, after: start.Add(10 * time.Millisecond)}
	a.Now, a.End = start.Add(time.Hour+time.Millisecond), start.Add(time.Hour+7*time.Millisecond)
	c := a.clock()
	require.InDelta(t, 3600-0.001, float64(c.Skew), 1e-6)
	require.InDelta(t, 0.002, float64(c.Error), 1e-6)
}

func TestClock_KeepsTheBetterMeasurementForAWhile(t *testing.T) {
	start := time.Now()
	var m Monitor
	look := func(after, skew, way time.Duration) *Clock {
		a := timedAnswer{before: start.Add(after), after: start.Add(after + 2*way)}
		a.Now, a.End = a.before.Add(way+skew), a.before.Add(way+skew)
		m.observation.Clock = m.clock(m.observation.Clock, a)
		return m.observation.Clock
	}
	require.InDelta(t, 1, float64(look(0, time.Second, time.Millisecond).Skew), 1e-6)
	require.Equal(t, time.Second, m.ClockSkew().Round(time.Microsecond))
	require.InDelta(t, 1, float64(look(5*time.Second, time.Second+2*time.Millisecond, 2*time.Millisecond).Skew), 1e-6, "a worse one")
	require.InDelta(t, 3, float64(look(10*time.Second, 3*time.Second, time.Millisecond/2).Skew), 1e-6, "a better one")
	require.InDelta(t, 4, float64(look(2*time.Minute, 4*time.Second, 2*time.Millisecond).Skew), 1e-6, "the old one is too old")
	look(4*time.Minute, time.Millisecond, 2*time.Millisecond)
	require.Zero(t, m.ClockSkew(), "clocks that cannot be told apart are the same")
}

// After a clock was set, the times of both are compared by what the difference is now.
func TestClock_DropsAMeasurementFromBeforeAStep(t *testing.T) {
	start := time.Now()
	for _, step := range []time.Duration{20 * time.Minute, -20 * time.Minute, 5 * time.Millisecond} {
		var m Monitor
		look := func(after, skew, way time.Duration) time.Duration {
			a := timedAnswer{before: start.Add(after), after: start.Add(after + 2*way)}
			a.Now, a.End = a.before.Add(way+skew), a.before.Add(way+skew)
			m.observation.Clock = m.clock(m.observation.Clock, a)
			require.Equal(t, m.observation.Clock.skew(), m.ClockSkew())
			return m.observation.Clock.Skew.Duration().Round(time.Microsecond)
		}
		require.Equal(t, time.Second, look(0, time.Second, time.Millisecond))
		require.Equal(t, time.Second+step, look(5*time.Second, time.Second+step, 3*time.Millisecond), "a worse one, that contradicts")
		// It can differ from the next one by what neither could measure.
		require.Equal(t, time.Second+step, look(10*time.Second, time.Second+step+6*time.Millisecond, 4*time.Millisecond))
	}
}

// Between a step of our clock and the next measurement, the server's clock is what it was.
func TestClock_CountsOnFromTheMeasurement(t *testing.T) {
	start := time.Now()
	a := timedAnswer{before: start, after: start}
	a.Now, a.End = start.Add(time.Second), start.Add(time.Second)
	c := a.clock()
	want := start.Add(6 * time.Second)
	now := start.Add(5 * time.Second)
	require.WithinDuration(t, want, c.ServerTime(now), time.Microsecond)
	for _, step := range []time.Duration{20 * time.Minute, -20 * time.Minute} {
		set := afterStep(t, now, step)
		require.WithinDuration(t, want.Round(0), c.ServerTime(set).Round(0), time.Microsecond)
	}
	require.Equal(t, now.Add(time.Second), (&Clock{Skew: 1}).ServerTime(now), "one that was read from JSON")
	require.Equal(t, now, (*Clock)(nil).ServerTime(now))
}

// afterStep is now as time.Now returns it after the clock was set, by which only the wall clock
// reading changes. A time.Time begins with it: the seconds above 30 bits of nanoseconds.
func afterStep(t *testing.T, now time.Time, step time.Duration) time.Time {
	set := now
	*(*uint64)(unsafe.Pointer(&set)) += uint64(int64(step/time.Second) << 30)
	require.Zero(t, set.Sub(now), "the monotonic clock reading")
	require.Equal(t, step, set.Round(0).Sub(now.Round(0)))
	return set
}

// How long a checkpoint took is known only if the observation before its end is recent.
func TestLastCheckpoint_KeepsItsDurationAfterAnOutage(t *testing.T) {
	start := time.Now()
	m := Monitor{cfg: Config{Interval: 5 * time.Second}}
	took := func(at, began time.Duration) Seconds {
		a := timedAnswer{after: start.Add(at)}
		a.Now = a.after
		document := fmt.Sprintf(`{"time": %q}`, start.Add(began).Format(time.RFC3339Nano))
		require.NoError(t, json.Unmarshal([]byte(document), &a.Checkpoint))
		return m.lastCheckpoint(a, &Clock{}).Took
	}
	require.Zero(t, took(0, -time.Minute), "nobody saw its end")
	require.InDelta(t, 2.5, float64(took(5*time.Second, 0)), 1e-6)
	require.InDelta(t, 2.5, float64(took(10*time.Second, 0)), 1e-6)
	require.InDelta(t, 2.5, float64(took(70*time.Second, 15*time.Second)), 1e-6, "it may have ended long ago")
	require.InDelta(t, 1.5, float64(took(75*time.Second, 71*time.Second)), 1e-6)
}
