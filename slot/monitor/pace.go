package monitor

import (
	"fmt"
	"math"
	"time"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/slot"
)

// Pace is the limit of what the relay publishes, and what it means in WAL.
type Pace struct {
	MaxRate  ratelimit.Rate `json:"max_rate"`           // relay.max_rate
	Limiting string         `json:"limiting,omitempty"` // see ratelimit.State
	Limit    ratelimit.Rate `json:"limit,omitzero"`     // of Limiting
	// bytes of WAL that were confirmed for each row, and for each byte of rows, that was published
	// over the last 5 minutes; nil: not known
	WALPerRow  *float64 `json:"wal_per_row,omitempty"`
	WALPerByte *float64 `json:"wal_per_byte,omitempty"`
}

// pace returns the Pace of a limiter.
func (rs readings) pace(limited ratelimit.State) *Pace {
	if limited == (ratelimit.State{}) {
		return nil
	}
	p := &Pace{MaxRate: limited.MaxRate, Limiting: limited.Limiting, Limit: limited.Limit}
	for i := len(rs) - 1; i > 0; i-- { // without limits nothing is counted
		if was := rs[i-1].limited; was == (ratelimit.State{}) ||
			was.Messages > rs[i].limited.Messages {
			rs = rs[i:]
			break
		}
	}
	first, last, ok := rs.since(5 * time.Minute)
	if !ok || first.confirmed == 0 || last.confirmed <= first.confirmed ||
		last.limited.Messages <= first.limited.Messages {
		return p
	}
	wal := float64(last.confirmed - first.confirmed)
	p.WALPerRow = new(wal / float64(last.limited.Messages-first.limited.Messages))
	p.WALPerByte = new(wal / float64(max(1, last.limited.Bytes-first.limited.Bytes)))
	return p
}

// limits reports whether a limit holds the relay back.
func (p *Pace) limits() bool { return p != nil && p.Limiting != "" }

// drain returns how fast confirmed_flush_lsn moves at relay.max_rate, in bytes per second, and
// text, which describes a rate of WAL in the unit of that limit. false: it is not what limits, or
// WALPerRow is not known.
func (p *Pace) drain() (bytesPerSecond float64, text func(wal float64) string, known bool) {
	if p.Limiting != "relay.max_rate" || p.WALPerRow == nil {
		return 0, nil, false
	}
	rows, bytes := math.Inf(1), math.Inf(1)
	if p.Limit.Rows > 0 {
		rows = float64(p.Limit.Rows) * *p.WALPerRow
	}
	if p.Limit.Bytes > 0 {
		bytes = float64(p.Limit.Bytes) * *p.WALPerByte
	}
	if rows <= bytes {
		return rows, func(wal float64) string {
			return fmt.Sprintf("%.0f rows/s", wal / *p.WALPerRow)
		}, true
	}
	return bytes, func(wal float64) string { return slot.Size(wal / *p.WALPerByte) + "/s" }, true
}

// String describes the limit that holds the relay back.
func (p *Pace) String() string { return fmt.Sprintf("%s is %s", p.Limiting, p.Limit) }

// catchUpLimited estimates when a relay that a limit holds back has published its backlog.
func catchUpLimited(o Observation, lag float64) Estimate {
	wal, _ := walRate(o.Rates)
	through := o.Pace.Limit.String()
	drain, text, known := o.Pace.drain()
	if !known {
		if drain = *o.Rates.Drain5m; drain == 0 { // a large transaction is confirmed at its end
			return never("not known yet: nothing was confirmed over the last 5 minutes, while %s holds "+
				"rows back", o.Pace.Limiting)
		}
		text = func(wal float64) string { return slot.Size(wal) + "/s of WAL" }
		through = text(drain)
	}
	in := fmt.Sprintf("about %s come in, by %s", text(wal.best), wal.window)
	if drain <= wal.best {
		return never("never at this rate: %s lets %s through, and %s", o.Pace.Limiting, through, in)
	}
	waits := slot.Size(lag) + " of WAL"
	if o.Pace.WALPerRow != nil {
		waits = fmt.Sprintf("about %.0f rows", lag / *o.Pace.WALPerRow)
	}
	return estimate(lag/(drain-wal.best), lag/drain, math.Inf(1),
		"%s wait, %s lets %s through, and %s", waits, o.Pace.Limiting, through, in)
}
