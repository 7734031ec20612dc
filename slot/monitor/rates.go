package monitor

import (
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
)

// shortestSpan is how long something has to be watched before it has a rate.
const shortestSpan = 30 * time.Second

// reading is where the positions stood at a moment.
type reading struct {
	at                      time.Time
	wal, confirmed, restart pglogrepl.LSN // zero: not known
	pages                   *int64        // see changedPages
}

// readings are those of the last hour, the oldest first.
type readings []reading

// add forgets everything when the WAL went backwards, which it does not on one and the same
// server.
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

// since is the first reading of the window that ends with the last one; ok is false if that is too
// short a time.
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

// rate is bytes per second over the window, or over what has been watched of it. A position that
// went back, as after a crash of the server, has not moved.
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

// pageRate begins after the last reset of the statistics.
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

// pagesSince is what changedPages grew by since a moment, if a reading is within an interval of
// it.
func (rs readings) pagesSince(t time.Time, interval time.Duration) *int64 {
	if len(rs) == 0 || rs[len(rs)-1].pages == nil {
		return nil
	}
	last := *rs[len(rs)-1].pages
	for i, r := range rs {
		if r.at.Before(t) {
			continue
		}
		if r.at.Sub(t) > interval || r.pages == nil || *r.pages > last || i == 0 &&
			r.at.Sub(t) > interval {
			return nil
		}
		return new(last - *r.pages)
	}
	return nil
}
