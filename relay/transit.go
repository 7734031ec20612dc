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

// goOnBehind takes the position that the sink has stored, if it is one of this history.
func (s *session) goOnBehind(p sink.Position) error {
	switch {
	case p == (sink.Position{}):
	case p.Source.Timeline != s.source.Timeline:
		return fmt.Errorf("position %s in the topic is of timeline %d, the server is on timeline %d: %w", p.LSN, p.Source.Timeline, s.source.Timeline, replication.ErrIdentityChanged)
	case p.LSN > s.stream.WrittenLSN():
		return fmt.Errorf("position %s in the topic is not yet written by the server, which is at %s: it was restored to an earlier time: %w", p.LSN, s.stream.WrittenLSN(), replication.ErrIdentityChanged)
	}
	s.storedLSN = p.LSN
	return nil
}
