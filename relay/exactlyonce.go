package relay

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// boundary is the end of the newest whole transaction in session.out. Readers see it with it.
type boundary struct {
	pending  bool // the sink has not received it
	position sink.Position
	complete int // messages of session.out before it
	held     int // transactions held since the last boundary that the sink received
}

// beginExactlyOnce shuts out other producers and continues behind the stored position.
func (s *session) beginExactlyOnce(ctx context.Context) (err error) {
	if s.transactional == nil {
		return nil
	}
	stored, err := s.transactional.Begin(ctx, s.source)
	if err != nil {
		return err
	}
	id := s.stream.Identity()
	var lost pglogrepl.LSN
	if s.resume, lost, err = resumeFrom(stored, s.source, id, s.stream.SeedLSN()); lost != 0 {
		s.log.Error().Stringer("lsn", lost).Stringer("end_lsn", stored.LSN).
			Int32("timeline", id.Timeline).Int32("timeline_before", stored.Source.Timeline).
			Msg("server was promoted without all that was published: consumers have messages of " +
				"transactions that are not in the database any more")
	}
	return err
}

// commitHeld closes a transaction whose messages readers do not see yet: the window holds it.
func (s *session) commitHeld(e *replication.Event) {
	s.window.commit(e.LSN, true)
	s.boundary.pending, s.boundary.complete = true, len(s.out)
	s.boundary.held++
	s.boundary.position = sink.Position{Source: s.source, LSN: e.LSN, CommitTime: e.Time}
}

// publishBoundary hands over what is complete, then its boundary, then the rest.
func (s *session) publishBoundary(ctx context.Context) error {
	complete, rest := s.out[:s.boundary.complete], s.out[s.boundary.complete:]
	s.boundary.pending = false
	err := s.handOver(ctx, complete)
	if err == nil && s.deadLetters != nil { // which may have parked a key meanwhile
		err = s.followUp(rest)
	}
	if err != nil {
		s.abandoned += len(rest)
		return err
	}
	s.transactional.Boundary(s.boundary.position)
	s.boundary.held = 0
	return s.handOver(ctx, rest)
}

// committed is the sink's Committed.
func (s *session) committed(end pglogrepl.LSN, err error) {
	if err != nil {
		s.sinkFailed(err, err)
		return
	}
	now := time.Now()
	s.moved.Store(now.UnixNano())
	now = now.Add(s.clockSkew())
	s.window.visible(end, func(commitTime time.Time) {
		s.metrics.CommitToAck.Observe(max(0, now.Sub(commitTime)).Seconds())
	})
}
