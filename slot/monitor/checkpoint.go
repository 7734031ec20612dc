package monitor

import "math"

// schedule predicts the server's checkpoints at a steady rate of WAL, by the server's rules
// (docs/decisions/0013-forecast-of-loss.md). Times are seconds since the observation, positions
// bytes since the start of the current segment; the past is negative.
type schedule struct {
	rate     float64 // bytes of WAL per second, not negative
	position float64 // where the server writes now
	segment  float64 // bytes
	segments float64 // a checkpoint begins when this many are filled, counted from the one of redo
	timeout  float64 // longest time from the start of a checkpoint to that of the next
	spread   float64 // how long a checkpoint spreads the writing of many pages
	takes    func(begins, wal float64) float64
}

// checkpoint is a checkpoint of the past, the present or the future.
type checkpoint struct {
	begins float64
	ends   float64
	redo   float64 // position at which it begins
}

const (
	// writeDelay is how long the server sleeps after each page while it is ahead of its schedule
	// (CheckpointWriteDelay). So a checkpoint of few pages is short.
	writeDelay = 0.1
	// seenLate is how long after its end a checkpoint may be observed: pg_control is read once an
	// interval, and syncing files takes a while.
	seenLate = 15.0
	pageSize = 8192 // BLCKSZ, unless the server was built with another
	// farAhead is how many checkpoints are computed one by one. Later ones are a period apart.
	farAhead = 20
)

// newSchedule returns a schedule by the server's settings and the rate. The caller sets takes: how
// long a checkpoint lasts that begins at begins, after wal bytes since the one before.
func newSchedule(o Observation, rate float64) schedule {
	l := o.Limit
	s := schedule{rate: rate, segment: float64(segmentSize(o)),
		timeout: max(1, float64(l.CheckpointTimeout))}
	s.position = float64(uint64(o.Slot.CurrentWALLSN) % uint64(s.segment))
	s.segments = max(1, math.Floor(math.Floor(float64(l.MaxWALSize)/s.segment)/(1+
		l.CheckpointTarget)))
	s.spread = l.CheckpointTarget * min(s.timeout, s.seconds(s.segments*s.segment))
	return s
}

// seconds returns how long it takes to write so many bytes; infinity if nothing is written.
func (s schedule) seconds(bytes float64) float64 {
	if s.rate <= 0 {
		return math.Inf(1)
	}
	return bytes / s.rate
}

func segmentSize(o Observation) int64 {
	if o.Limit.SegmentSize <= 0 {
		return 16 << 20
	}
	return o.Limit.SegmentSize
}

// position converts an LSN to a position of the schedule.
func position(o Observation, lsn uint64) float64 {
	segment := uint64(segmentSize(o))
	return float64(int64(lsn - uint64(o.Slot.CurrentWALLSN)/segment*segment))
}

// next returns the checkpoint after c.
func (s schedule) next(c checkpoint) checkpoint {
	full := (math.Floor(c.redo/s.segment) + s.segments) * s.segment
	filled := s.seconds(full - s.position)
	begins := max(c.ends, min(c.begins+s.timeout, filled))
	n := checkpoint{begins: begins, redo: max(c.redo, s.position+s.rate*begins)}
	if begins >= filled {
		n.redo = max(n.redo, full) // not in the segment before, if the division was rounded down
	}
	n.ends = begins + s.takes(begins, n.redo-c.redo)
	return n
}

// upcoming returns the first checkpoint that has not ended: the one that should be running, or the
// next. last is the one in pg_control.
func (s schedule) upcoming(last checkpoint) checkpoint {
	// The server skips checkpoints while nothing is written, and their timeout runs on. One that
	// should have ended long ago was skipped, too.
	written := math.Inf(-1)
	if s.rate > 0 {
		written = (last.redo - s.position) / s.rate
	}
	running := min(0, max(written, -2*s.spread-4*seenLate)) // no checkpoint began before that
	if due := last.begins + s.timeout; due < running {
		last.begins += s.timeout * math.Ceil((running-due)/s.timeout)
	}
	c := s.next(last)
	switch {
	case c.ends >= 0:
	case c.ends > -seenLate:
		c.ends = 0 // it ends now, or its end is not observed yet
	case c.begins+s.spread > 0:
		c.ends = c.begins + s.spread // it has more pages to write than expected
	default:
		c.ends = -c.begins / 10 // the disk is too slow for it
	}
	return c
}

// first returns the first checkpoint from c on that ends at after or later and begins in a later
// segment than restart: the end of a checkpoint removes only WAL from before its start.
func (s schedule) first(c checkpoint, after, restart float64) checkpoint {
	for range 100 * farAhead {
		if c.ends >= after && math.Floor(c.redo/s.segment) > math.Floor(restart/s.segment) {
			break
		}
		n := s.next(c)
		if period := n.begins - c.begins; period > 0 && after-n.ends > farAhead*period {
			leap := period * math.Floor((after-n.ends)/period-farAhead/2)
			n = checkpoint{begins: n.begins + leap, ends: n.ends + leap, redo: n.redo + leap*s.rate}
		}
		c = n
	}
	return c
}
