package monitor

import "math"

// schedule predicts the server's checkpoints at a steady rate of WAL, by the server's rules
// (docs/decisions/0013-forecast-of-loss.md). Times are seconds from the observation on, positions
// bytes from the beginning of the present segment; the past is negative.
type schedule struct {
	rate     float64 // bytes of WAL per second, not negative
	position float64 // where the server writes now
	segment  float64 // bytes
	segments float64 // so many from redo's own on are filled: a checkpoint is asked for
	timeout  float64 // no later than this after the beginning of one, the next begins
	spread   float64 // over so long the writing of pages is spread, if they are enough
	takes    func(begins, wal float64) float64
}

// checkpoint is one that was, is or will be.
type checkpoint struct {
	begins float64
	ends   float64
	redo   float64 // position at which it begins
}

const (
	// writeDelay is the server's nap after each page that it writes ahead of its schedule
	// (CheckpointWriteDelay). So few pages make a short checkpoint, however long it may take.
	writeDelay = 0.1
	// seenLate is how late a checkpoint may be seen to end: pg_control is read once an interval, and
	// syncing files takes a while.
	seenLate = 15.0
	pageSize = 8192 // only a server that was built so has another
	// farAhead is how many checkpoints are gone through one by one. Beyond, the phase of the last one
	// means nothing.
	farAhead = 20
)

// newSchedule takes what the server is set to and how fast it writes. takes is left to the caller:
// how long a checkpoint lasts that begins then, after so many bytes of WAL since the one before.
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

// seconds is how long it takes to write so many bytes; for ever if nothing is written.
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

// position is an LSN as the schedule counts.
func position(o Observation, lsn uint64) float64 {
	segment := uint64(segmentSize(o))
	return float64(int64(lsn - uint64(o.Slot.CurrentWALLSN)/segment*segment))
}

// next is the checkpoint after c.
func (s schedule) next(c checkpoint) checkpoint {
	full := (math.Floor(c.redo/s.segment) + s.segments) * s.segment
	filled := s.seconds(full - s.position)
	begins := max(c.ends, min(c.begins+s.timeout, filled))
	n := checkpoint{begins: begins, redo: max(c.redo, s.position+s.rate*begins)}
	if begins >= filled {
		n.redo = max(n.redo, full) // in the segment that was begun, however the division was rounded
	}
	n.ends = begins + s.takes(begins, n.redo-c.redo)
	return n
}

// upcoming is the first checkpoint that has not ended: the one in progress, if one should be, or
// the next. last is what pg_control tells.
func (s schedule) upcoming(last checkpoint) checkpoint {
	// While nothing is written checkpoints are left out, and their clock goes on. One that should
	// have ended long ago was left out too.
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
		c.ends = 0 // it ends, or has ended unseen
	case c.begins+s.spread > 0:
		c.ends = c.begins + s.spread // it has more to write than was thought
	default:
		c.ends = -c.begins / 10 // the disk is too slow for it
	}
	return c
}

// first is the first checkpoint from c on that ends at or after the time and begins in a later
// segment than behind: the end of a checkpoint removes no WAL that is newer than its beginning.
func (s schedule) first(c checkpoint, after, behind float64) checkpoint {
	for range 100 * farAhead {
		if c.ends >= after && math.Floor(c.redo/s.segment) > math.Floor(behind/s.segment) {
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
