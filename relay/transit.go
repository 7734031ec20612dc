package relay

import (
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"postrider/replication"
	"postrider/sink"
)

// transit is what the pump keeps of the transaction that it is in, for exactly_once. All of it is zero without.
type transit struct {
	storedLSN pglogrepl.LSN // end of the last transaction that readers see; what is not behind it is left out
	stored    bool          // the open transaction is one of those
	rows      int           // messages of the open transaction
	bounded   bool          // there is a boundary that the sink does not know of
	boundary  sink.Position
	complete  int // messages in out that stand before it
	// For dedup.
	sourceHeader []byte
}

func (s *session) begin(e *replication.Event) {
	s.rows = 0
	// The stored position is the end of a commit record, and the commit LSN is where one begins. A message outside of a transaction has only an end.
	s.stored = e.LSN < s.storedLSN || e.XID == 0 && e.LSN == s.storedLSN
}

// commit notes what readers may see together, and tells whether they have to before the transaction is delivered.
func (s *session) commit(e *replication.Event) (hold bool) {
	if s.transactional == nil || s.rows == 0 {
		return false
	}
	s.bounded, s.complete = true, len(s.out)
	s.boundary = sink.Position{Source: s.source, LSN: e.LSN, CommitTime: e.Time}
	return true
}

// committed is the sink's Committed.
func (s *session) committed(end pglogrepl.LSN, err error) {
	if err != nil {
		_, reason := Classify(err, false)
		s.metrics.PublishErrors.WithLabelValues(reason).Inc()
		s.failed.Store(true)
		s.fail(err)
		return
	}
	now := time.Now()
	s.moved.Store(now.UnixNano())
	now = now.Add(s.clockSkew())
	s.window.visible(end, func(commitTime time.Time) { s.metrics.CommitToAck.Observe(max(0, now.Sub(commitTime)).Seconds()) })
}

// goOnBehind takes the position that the sink has stored, as far as the server's history leads through it.
func (s *session) goOnBehind(p sink.Position) error {
	if p == (sink.Position{}) {
		return nil
	}
	id := s.stream.Identity()
	descent, fork := id.Continues(replication.Place{SystemID: p.Source.SystemID, Timeline: p.Source.Timeline, LSN: p.LSN})
	switch {
	case descent == replication.Continued:
		s.storedLSN = p.LSN
	case descent == replication.Forked && fork != 0:
		// What was committed behind the fork is new, whatever its position, and everything before it is published.
		s.storedLSN = fork
		s.log.Error().Stringer("lsn", fork).Stringer("end_lsn", p.LSN).Int32("timeline", id.Timeline).Int32("timeline_before", p.Source.Timeline).
			Msg("server was promoted without all that was published: consumers have messages of transactions that are not in the database any more")
	default:
		return &StoredPositionError{Stored: p, Server: id, Descent: descent}
	}
	return nil
}

// StoredPositionError says that the server's history does not lead through the position that readers have seen. errors.Is sees
// replication.ErrIdentityChanged.
type StoredPositionError struct {
	Stored  sink.Position
	Server  replication.Identity
	Descent replication.Descent
}

func (e *StoredPositionError) Error() string {
	return fmt.Sprintf("the position topic says that all is published up to %s of timeline %d of system %s, and the history of this server, which is at %s of "+
		"timeline %d of system %s, does not lead there (%s): %v", e.Stored.LSN, e.Stored.Source.Timeline, e.Stored.Source.SystemID,
		e.Server.WrittenLSN, e.Server.Timeline, e.Server.SystemID, e.Descent, replication.ErrIdentityChanged)
}

func (e *StoredPositionError) Unwrap() error { return replication.ErrIdentityChanged }

// Advice says what that means for the WAL, and what to type next.
func (e *StoredPositionError) Advice() (wal, fix string) {
	return "nothing is confirmed; the slot keeps what comes after its confirmed position",
		"make sure that postgres.url leads to the right server. If it does, and was restored on purpose, give your consent:\npostrider slot adopt " + e.Stored.Source.Slot
}
