package relay

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// boundary is the end of the newest complete transaction in session.out.
type boundary struct {
	pending  bool // not passed to the sink
	position sink.Position
	complete int // messages of session.out before the boundary
	held     int // transactions held since the last boundary that was passed to the sink
}

// beginExactlyOnce fences other producers, and resumes from the stored position.
func (s *session) beginExactlyOnce(ctx context.Context) (err error) {
	if s.transactional == nil {
		return nil
	}
	stored, err := s.transactional.Begin(ctx, s.source)
	if err != nil {
		return err
	}
	id := s.stream.Identity()
	var fork pglogrepl.LSN
	if s.resume, fork, err = resumeFrom(stored, s.source, id, s.stream.SeedLSN()); fork != 0 {
		s.log.Error().Stringer("lsn", fork).Stringer("end_lsn", stored.LSN).
			Int32("timeline", id.Timeline).Int32("timeline_before", stored.Source.Timeline).
			Msg("server was promoted without all that was published: consumers have messages of " +
				"transactions that are not in the database any more")
	}
	return err
}

// commitHeld closes a transaction in the window, which holds it until consumers see it.
func (s *session) commitHeld(e *replication.Event) {
	s.window.commit(e.LSN, true)
	s.boundary.pending, s.boundary.complete = true, len(s.out)
	s.boundary.held++
	s.boundary.position = sink.Position{Source: s.source, LSN: e.LSN, CommitTime: e.Time}
}

// publishBoundary publishes the complete transactions, then their boundary, then the rest.
func (s *session) publishBoundary(ctx context.Context) error {
	complete, rest := s.out[:s.boundary.complete], s.out[s.boundary.complete:]
	s.boundary.pending = false
	if err := s.handOver(ctx, complete); err != nil {
		s.abandoned += len(rest)
		return err
	}
	s.transactional.Boundary(s.boundary.position)
	s.boundary.held = 0
	if s.deadLetters != nil { // a key may have been parked meanwhile
		if err := s.followUp(rest); err != nil {
			s.abandoned += len(rest)
			return err
		}
	}
	return s.handOver(ctx, rest)
}

// committed is the sink.Committed of the session: consumers see everything up to end.
func (s *session) committed(end pglogrepl.LSN, err error) {
	if err != nil {
		s.sinkFailed(err, err)
		return
	}
	now := time.Now()
	s.lastAck.set(now)
	now = now.Add(s.clockSkew())
	s.window.visible(end, func(commitTime time.Time) {
		s.metrics.CommitToAck.Observe(max(0, now.Sub(commitTime)).Seconds())
	})
}
