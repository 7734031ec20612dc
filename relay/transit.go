package relay

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// transit is what the pump keeps of the transaction that it is in, for exactly_once, dedup and position headers.
type transit struct {
	stored      sink.Position // of the last transaction that readers see; what is not behind it is left out
	doubted     bool          // that transaction has to come first: until then nothing that is left out is confirmed
	waiting     bool          // all that was left out so far is one transaction in the window, which is open until then
	leaving     bool          // the open transaction is left out
	rows        int           // messages of the open transaction
	bounded     bool          // there is a boundary that the sink does not know of
	boundary    sink.Position
	complete    int       // messages in out that stand before it
	untold      int       // transactions that are held in the window until readers see them, and that the sink does not know to be whole
	committedAt time.Time // when the open transaction was
	signature   []byte    // of the open transaction; nil until a message needs it
	signatures  signatures
}

// signatures writes one signature after the other into a chunk, so that a transaction costs no allocation.
type signatures struct {
	header string // of the source
	chunk  []byte
}

func (s *signatures) of(source sink.Source, committed time.Time) []byte {
	const chunk, number = 4096, 20 // bytes; an int64 has 20
	if s.header == "" {
		s.header = source.Header()
	}
	if longest := len(s.header) + 1 + number; cap(s.chunk)-len(s.chunk) < longest {
		s.chunk = make([]byte, 0, max(chunk, longest))
	}
	start := len(s.chunk)
	s.chunk = sink.AppendSignature(s.chunk, s.header, committed)
	return s.chunk[start:len(s.chunk):len(s.chunk)]
}

func (s *session) begin(e *replication.Event) error {
	s.rows = 0
	s.committedAt, s.signature = e.Time, nil
	// The stored position is the end of a commit record, and the commit LSN is where one begins. A message outside of a transaction has only an end.
	s.leaving = e.LSN < s.stored.LSN || e.XID == 0 && e.LSN == s.stored.LSN
	if !s.leaving {
		if err := s.beyondStored(); err != nil {
			return err
		}
	}
	if s.waiting {
		return nil
	}
	s.transaction = s.window.begin(e.Time)
	s.waiting = s.leaving && s.doubted
	return nil
}

// commit closes the open transaction in the window. One that has messages is held there until readers see it.
func (s *session) commit(e *replication.Event) error {
	switch {
	case s.waiting:
		if e.LSN == s.stored.LSN {
			return s.meetStored(e)
		}
	case s.transactional == nil || s.rows == 0:
		s.window.commit(e.LSN, false)
	default:
		s.window.commit(e.LSN, true)
		s.bounded, s.complete = true, len(s.out)
		s.untold++
		s.boundary = sink.Position{Source: s.source, LSN: e.LSN, CommitTime: e.Time}
	}
	return nil
}

// idle is a position without rows.
func (s *session) idle(e *replication.Event) error {
	if e.LSN > s.stored.LSN {
		if err := s.beyondStored(); err != nil {
			return err
		}
	}
	if !s.waiting { // else its transaction covers it
		s.window.idle(e.LSN)
	}
	return nil
}

// meetStored is called with the transaction that ends where the stored one does. If it is that one, the history is the same, and what was left out is
// delivered. A message outside of a transaction has no commit time by which to know it.
func (s *session) meetStored(e *replication.Event) error {
	if e.XID != 0 && !e.Time.Equal(s.stored.CommitTime) {
		return s.beyondStored()
	}
	s.doubted, s.waiting = false, false
	s.window.commit(e.LSN, false)
	return nil
}

// beyondStored is called with what comes behind the stored position. If the transaction that ends there has not come, and others were left out because of it,
// this is a history in which it never was: the server was put back to an earlier state and has gone on from there.
func (s *session) beyondStored() error {
	if s.waiting {
		return &StoredPositionError{Stored: s.stored, Server: s.stream.Identity(), Descent: replication.Diverged, Events: s.source.Events}
	}
	s.doubted = false
	return nil
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
func (s *session) resumeFrom(p sink.Position) error {
	if p == (sink.Position{}) {
		return nil
	}
	id := s.stream.Identity()
	descent, fork := id.Continues(replication.Place{SystemID: p.Source.SystemID, Timeline: p.Source.Timeline, LSN: p.LSN})
	switch {
	case descent == replication.Continued:
		s.stored, s.doubted = p, !p.CommitTime.IsZero() && p.LSN > s.stream.SeedLSN()
	case descent == replication.Forked && fork != 0:
		// What was committed behind the fork is new, whatever its position, and everything before it is published.
		s.stored = sink.Position{Source: s.source, LSN: fork}
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
	Events  string // of this session's source; empty: they do not matter
}

func (e *StoredPositionError) Error() string {
	return fmt.Sprintf("the position topic says that all is published up to %s of timeline %d of system %s, and the history of this server, which is at %s of "+
		"timeline %d of system %s, does not lead there (%s): %v", e.Stored.LSN, e.Stored.Source.Timeline, e.Stored.Source.SystemID,
		e.Server.WrittenLSN, e.Server.Timeline, e.Server.SystemID, e.Descent, replication.ErrIdentityChanged)
}

func (e *StoredPositionError) Unwrap() error { return replication.ErrIdentityChanged }

// Advice says what that means for the WAL, and what to type next.
func (e *StoredPositionError) Advice() (wal, fix string) {
	wal = "nothing is confirmed; the slot keeps what comes after its confirmed position"
	adopt := "make sure that postgres.url leads to the right server. If it does, and was restored on purpose, give your consent:\npostrider slot adopt " +
		e.Stored.Source.Slot
	if was := publication(e.Stored.Source.Events); was != "" && e.Events != "" && was != publication(e.Events) {
		return wal, fmt.Sprintf("the position was stored when another publication was read, of which the server sends what the present one may leave out. Set\n"+
			"replication.publication = %q\nagain, start the relay, stop it with SIGTERM, and change it then. If that ends in the same way: %s", was, adopt)
	}
	return wal, adopt
}

// publication is that of sink.Source.Events.
func publication(events string) string { return strings.TrimSuffix(events, "+messages") }
