package monitor

import (
	"slices"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/ratelimit"
)

// shortestSpan is the shortest time over which a rate is computed.
const shortestSpan = 30 * time.Second

// reading has the positions at a moment.
type reading struct {
	at                      time.Time
	wal, confirmed, restart pglogrepl.LSN // zero: not known
	pages                   *int64        // see changedPages
	limited                 ratelimit.State
}

// readings are those of the last hour, the oldest first.
type readings []reading

// add appends r, and removes what is older than an hour. It removes all others if the WAL went
// backwards: the server is another one.
func (rs readings) add(r reading) readings {
	if n := len(rs); n > 0 && r.wal < rs[n-1].wal {
		rs = rs[:0]
	}
	old := slices.IndexFunc(rs, func(o reading) bool { return r.at.Sub(o.at) <= time.Hour })
	if old < 0 {
		old = len(rs)
	}
	return append(slices.Delete(rs, 0, old), r)
}

// since returns the first and the last reading of the window that ends with the last one; ok is
// false if they are less than shortestSpan apart.
func (rs readings) since(window time.Duration) (first, last reading, ok bool) {
	if len(rs) == 0 {
		return reading{}, reading{}, false
	}
	last = rs[len(rs)-1]
	for _, r := range rs {
		if last.at.Sub(r.at) <= window {
			return r, last, last.at.Sub(r.at) >= shortestSpan
		}
	}
	return reading{}, last, false
}

// rate returns bytes per second over the window, or over its readings. A position that went back,
// as after a crash of the server, has not moved.
func (rs readings) rate(window time.Duration, of func(reading) pglogrepl.LSN) *float64 {
	first, last, ok := rs.since(window)
	if !ok || of(first) == 0 || of(last) == 0 {
		return nil
	}
	moved := 0.0
	if of(last) > of(first) {
		moved = float64(of(last) - of(first))
	}
	return new(moved / last.at.Sub(first.at).Seconds())
}

func (rs readings) rates() Rates {
	wal := func(r reading) pglogrepl.LSN { return r.wal }
	confirmed := func(r reading) pglogrepl.LSN { return r.confirmed }
	return Rates{
		WAL1m: rs.rate(time.Minute, wal), WAL5m: rs.rate(5*time.Minute, wal),
		WAL1h:   rs.rate(time.Hour, wal),
		Drain5m: rs.rate(5*time.Minute, confirmed), Drain1h: rs.rate(time.Hour, confirmed),
		Pages5m: rs.pageRate(5 * time.Minute),
	}
}

// pageRate returns pages per second over the part of the window after a reset of the statistics.
func (rs readings) pageRate(window time.Duration) *float64 {
	for i := len(rs) - 1; i > 0; i-- {
		if rs[i].pages == nil || rs[i-1].pages == nil || *rs[i].pages < *rs[i-1].pages {
			rs = rs[i:]
			break
		}
	}
	first, last, ok := rs.since(window)
	if !ok || first.pages == nil || last.pages == nil {
		return nil
	}
	return new(float64(*last.pages-*first.pages) / last.at.Sub(first.at).Seconds())
}

// pagesSince returns the growth of changedPages since t; nil unless a reading follows t within the
// interval.
func (rs readings) pagesSince(t time.Time, interval time.Duration) *int64 {
	if len(rs) == 0 || rs[len(rs)-1].pages == nil {
		return nil
	}
	last := *rs[len(rs)-1].pages
	for _, r := range rs {
		if r.at.Before(t) {
			continue
		}
		if r.at.Sub(t) > interval || r.pages == nil || *r.pages > last {
			return nil
		}
		return new(last - *r.pages)
	}
	return nil
}

// beyond returns for how long there has been WAL beyond a position, at most an hour.
func (rs readings) beyond(position pglogrepl.LSN) Seconds {
	first := slices.IndexFunc(rs, func(r reading) bool { return r.wal > position })
	if first < 0 {
		return 0
	}
	return Seconds(rs[len(rs)-1].at.Sub(rs[first].at).Seconds())
}

// Distance is how the slot's positions follow the end of the WAL. restart_lsn moves in steps: the
// server logs the running transactions every 15 s, and when the reader has confirmed that record,
// restart_lsn moves to the start of the oldest of them.
type Distance struct {
	// ConfirmedStill and RestartStill are how long confirmed_flush_lsn and restart_lsn have not moved
	// while WAL was written. Zero: they move, or nothing is written.
	ConfirmedStill Seconds `json:"confirmed_still_seconds"`
	RestartStill   Seconds `json:"restart_still_seconds"`
	// Others is the same for restart_lsn of the other slots, by name.
	Others map[string]Seconds `json:"others_still_seconds,omitempty"`
	// LagGrowth is how fast confirmed_flush_lsn falls behind, in bytes per second, and LagGrowing how
	// long it has done so. Zero: it keeps up.
	LagGrowth  float64 `json:"lag_growth"`
	LagGrowing Seconds `json:"lag_growing_seconds"`
}

const (
	// growthWindow is the length of a window. The least lags of two windows are compared, since a
	// reader that keeps up catches up at least once in each.
	growthWindow = 20 * time.Second
	// growthWindows is how many windows are compared.
	growthWindows = 15
	// leastBacklog is the least backlog of a reader that falls behind, in seconds of writing.
	leastBacklog = 10
	// growthNoise is the part of the written WAL by which the least lag may grow between two windows
	// of a reader that keeps up.
	growthNoise = 0.02
	// stillNoise is how much WAL may be unconfirmed: an idle server writes some, and sends it late.
	stillNoise = 1 << 20
)

func (rs readings) distance() Distance {
	d := Distance{
		ConfirmedStill: rs.still(func(r reading) pglogrepl.LSN { return r.confirmed }),
		RestartStill:   rs.still(func(r reading) pglogrepl.LSN { return r.restart }),
	}
	d.LagGrowth, d.LagGrowing = rs.lagGrowth()
	return d
}

// still returns for how long a position has not moved while WAL was written.
func (rs readings) still(of func(reading) pglogrepl.LSN) Seconds {
	if len(rs) == 0 || of(rs[len(rs)-1]) == 0 {
		return 0
	}
	last := rs[len(rs)-1]
	first := last
	for i := len(rs) - 1; i >= 0 && of(rs[i]) == of(last); i-- {
		first = rs[i]
	}
	if last.wal < first.wal+stillNoise || last.wal < of(last)+stillNoise {
		return 0
	}
	return Seconds(last.at.Sub(first.at).Seconds())
}

// lagGrowth goes back from the last reading while the least lag of each window is smaller than
// that of the next. It returns the rate and the duration of the growth.
func (rs readings) lagGrowth() (bytesPerSecond float64, lasted Seconds) {
	if len(rs) < 2 {
		return 0, 0
	}
	last := rs[len(rs)-1]
	window := max(growthWindow, 2*last.at.Sub(rs[len(rs)-2].at))
	end := len(rs)      // of the window, exclusive
	var least []float64 // lag of each window, the newest first
	for k := range growthWindows + 1 {
		begins := last.at.Add(-time.Duration(k+1) * window)
		first, lag := end, 0.0
		for first > 0 && rs[first-1].at.After(begins) {
			first--
			if l := lagOf(rs[first]); first == end-1 || l < lag {
				lag = l
			}
		}
		if first == end || rs[first].confirmed == 0 {
			break
		}
		if n := len(least); n > 0 && least[n-1] <= lag+max(stillNoise,
			growthNoise*float64(rs[end].wal-rs[first].wal)) {
			break
		}
		least, end = append(least, lag), first
	}
	n := len(least) - 1
	if n < 2 || least[0] <
		leastBacklog*float64(last.wal-rs[end].wal)/last.at.Sub(rs[end].at).Seconds() {
		return 0, 0
	}
	// It began in the middle of the oldest window.
	return (least[0] - least[n-1]) / (float64(n-1) * window.Seconds()),
		Seconds(float64(n) * window.Seconds())
}

func lagOf(r reading) float64 {
	if r.confirmed >= r.wal {
		return 0
	}
	return float64(r.wal - r.confirmed)
}
