package relay

import (
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// resume skips the transactions that consumers have already, up to the stored position. It only
// decides; session.go changes the window.
type resume struct {
	stored     sink.Position // of the last transaction that consumers see; zero: none
	unverified bool          // the transaction at stored has not come yet
	skipping   bool          // the open transaction is skipped
	// skipped: the window has one open transaction for all skipped ones, so that none is confirmed
	// before the transaction at stored is verified.
	skipped bool

	server replication.Identity
	events string // Events of the source
}

// begin reports whether the window opens a transaction for e.
func (r *resume) begin(e *replication.Event) (opens bool, err error) {
	// stored.LSN is the end of a commit record, e.LSN the start of one. Of a message outside of a
	// transaction e.LSN is the end.
	r.skipping = e.LSN < r.stored.LSN || e.XID == 0 && e.LSN == r.stored.LSN
	if !r.skipping {
		return true, r.passedStored()
	}
	opens = !r.skipped
	r.skipped = r.unverified
	return opens, nil
}

// commit reports whether the window closes its open transaction at e.
func (r *resume) commit(e *replication.Event) (closes bool, err error) {
	if r.skipped {
		if e.LSN != r.stored.LSN {
			return false, nil
		}
		err = r.verifyStored(e)
	}
	return err == nil, err
}

// idle reports whether the window takes the position of e: not while skipped is set.
func (r *resume) idle(e *replication.Event) (takes bool, err error) {
	if e.LSN > r.stored.LSN {
		err = r.passedStored()
	}
	return !r.skipped, err
}

// verifyStored is called with the transaction that ends at stored. It is of the same history if
// the commit times are equal. A message outside of a transaction has no commit time.
func (r *resume) verifyStored(e *replication.Event) error {
	if e.XID != 0 && !e.Time.Equal(r.stored.CommitTime) {
		return r.passedStored()
	}
	r.unverified, r.skipped = false, false
	return nil
}

// passedStored is called with an event after stored. If transactions were skipped and that at
// stored has not come, the server was restored to an earlier state.
func (r *resume) passedStored() error {
	if r.skipped {
		return &StoredPositionError{r.stored, r.server, replication.Diverged, r.events}
	}
	r.unverified = false
	return nil
}

// resumeFrom returns the resume for the stored position p, if it is in the server's history.
// confirmed is the slot's position. forkedAt is where the history left that of p, if a server was
// promoted that had not received all WAL before p, else zero.
func resumeFrom(p sink.Position, source sink.Source, server replication.Identity,
	confirmed pglogrepl.LSN) (r resume, forkedAt pglogrepl.LSN, err error) {
	r.server, r.events = server, source.Events
	if p == (sink.Position{}) {
		return r, 0, nil
	}
	descent, fork := server.Continues(replication.Place{
		SystemID: p.Source.SystemID, Timeline: p.Source.Timeline, LSN: p.LSN,
	})
	switch {
	case descent == replication.Continued:
		r.stored, r.unverified = p, !p.CommitTime.IsZero() && p.LSN > confirmed
	case descent == replication.Forked && fork != 0:
		// Commits before the fork are published; later ones are new.
		r.stored, forkedAt = sink.Position{Source: source, LSN: fork}, fork
	default:
		err = &StoredPositionError{p, server, descent, ""}
	}
	return r, forkedAt, err
}

// StoredPositionError is the error of a server whose history does not have the stored position. It
// wraps replication.ErrIdentityChanged.
type StoredPositionError struct {
	Stored  sink.Position
	Server  replication.Identity
	Descent replication.Descent
	Events  string // of this session's source; empty: not the cause
}

func (e *StoredPositionError) Error() string {
	return fmt.Sprintf("position topic: published up to %s of timeline %d of system %s, which is "+
		"not in the history of this server (at %s of timeline %d of system %s): %s: %v",
		e.Stored.LSN, e.Stored.Source.Timeline, e.Stored.Source.SystemID, e.Server.WrittenLSN,
		e.Server.Timeline, e.Server.SystemID, e.Descent, replication.ErrIdentityChanged)
}

func (e *StoredPositionError) Unwrap() error { return replication.ErrIdentityChanged }

// Advice returns what the error means for the WAL, and what to do next.
func (e *StoredPositionError) Advice() (wal, fix string) {
	wal = "nothing is confirmed; the slot keeps what comes after its confirmed position"
	adopt := "make sure that postgres.url leads to the right server. If it does, and was " +
		"restored on purpose, give your consent:\npostrider slot adopt " +
		e.Stored.Source.Slot
	was := publication(e.Stored.Source.Events)
	if was != "" && e.Events != "" && was != publication(e.Events) {
		return wal, fmt.Sprintf("the position was stored with another publication, and the "+
			"present one may leave out transactions that it had. Set\n"+
			"replication.publication = %q\nagain, start the relay, stop it with SIGTERM, and "+
			"change it then. If that ends in the same way: %s", was, adopt)
	}
	return wal, adopt
}

// publication returns the publication in sink.Source.Events.
func publication(events string) string { return strings.TrimSuffix(events, "+messages") }
