package monitor

import (
	"fmt"
	"math"
)

// outlook finds the checkpoint whose end invalidates the slot.
type outlook struct {
	Observation
	restart float64 // restart_lsn, as a position of the schedule
}

// checkpointAfter returns the first checkpoint that ends at after or later, at the rate of WAL.
// takes, if not nil, is how long checkpoints last. An end at infinity means that there is none.
func (l outlook) checkpointAfter(rate, after float64,
	takes func(begins, wal float64) float64) checkpoint {
	if math.IsInf(after, 1) {
		return checkpoint{begins: after, ends: after}
	}
	s := newSchedule(l.Observation, rate)
	if !l.checkpointsKnown() {
		if takes != nil {
			return checkpoint{begins: after, ends: after + s.timeout + s.spread}
		}
		return checkpoint{begins: after, ends: after + min(s.timeout, s.seconds(s.segments*s.segment))/2}
	}
	last := l.lastCheckpoint()
	s.takes = takes
	if takes == nil {
		s.takes = l.checkpointTakes(s)
	}
	return s.first(s.upcoming(last), after, l.restart)
}

// latest returns the latest time at which the checkpoint of checkpointAfter ends, over the
// shortest and the longest checkpoints. after gets a margin: if it is late, it may miss the end of
// one.
func (l outlook) latest(rate, after float64) float64 {
	if after > 0 {
		after += seenLate
	}
	longest := newSchedule(l.Observation, rate).spread * (1 + unsteady)
	latest := 0.0
	for _, takes := range []float64{0, longest} {
		fixed := func(_, _ float64) float64 { return takes }
		latest = max(latest, l.checkpointAfter(rate, after, fixed).ends)
	}
	return latest + seenLate
}

// checkpointsKnown is false on a standby: its restartpoints follow the primary's checkpoints.
func (l outlook) checkpointsKnown() bool { return l.Limit.Checkpoint != nil && !l.Server.Standby }

func (l outlook) lastCheckpoint() checkpoint {
	c, now := l.Limit.Checkpoint, serverNow(l.Observation)
	last := checkpoint{begins: c.StartedAt.Sub(now).Seconds(),
		redo: position(l.Observation, uint64(c.RedoLSN))}
	last.ends = last.begins + float64(c.Took)
	since := l.Server.StartedAt.Sub(now).Seconds()
	if !l.Server.StartedAt.IsZero() && since > last.begins {
		last.begins, last.ends = since, since // the clock of checkpoint_timeout began again
	}
	return last
}

// checkpointTakes returns a function for how long a checkpoint lasts, by its number of pages.
func (l outlook) checkpointTakes(s schedule) func(begins, wal float64) float64 {
	c, r := l.Limit.Checkpoint, l.Rates
	longest := s.spread
	scheduled := float64(l.Limit.CheckpointTimeout) * l.Limit.CheckpointTarget
	if took := float64(c.Took); took > scheduled+seenLate {
		longest = took // the disk does not keep to the server's schedule
	}
	if r.Pages5m == nil || r.WAL5m == nil || *r.WAL5m <= 0 {
		if c.Took > 0 {
			longest = min(longest, float64(c.Took))
		}
		return func(_, _ float64) float64 { return longest }
	}
	most := math.Inf(1)
	if l.Limit.SharedBuffers > 0 {
		most = float64(l.Limit.SharedBuffers) / pageSize
	}
	pending := c.Pages
	return func(begins, wal float64) float64 {
		pages := *r.Pages5m / *r.WAL5m * wal
		if pending != nil {
			pages, pending = float64(*pending)+*r.Pages5m*begins, nil // only for the first call
		}
		taken := writeDelay * min(max(0, pages), most)
		if taken >= s.spread {
			return longest
		}
		return taken
	}
}

func (l outlook) endText(c checkpoint, passed, latest float64) string {
	unlessIdle := ""
	if wal, known := walRate(l.Rates); known && wal.best <= 0 {
		unlessIdle = ", if anything is written until then"
	}
	switch {
	case l.Server.Standby:
		return fmt.Sprintf("a restartpoint ends after that, about %s from now at the latest, if the "+
			"primary has the same settings", span(latest))
	case l.Limit.Checkpoint == nil:
		return fmt.Sprintf("the checkpoint that follows ends, %s from now at the latest: when the "+
			"last one began is not known", span(latest))
	case passed > 0:
		return fmt.Sprintf("the checkpoint that follows ends, about %s from now%s", span(c.ends),
			unlessIdle)
	case c.begins > 0:
		return fmt.Sprintf("the checkpoint that begins in %s ends, about %s from now%s", span(c.begins),
			span(c.ends), unlessIdle)
	}
	return fmt.Sprintf("the checkpoint that is running ends, about %s from now", span(c.ends))
}
