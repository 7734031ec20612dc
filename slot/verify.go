package slot

import (
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// Verify reports whether the relay can read from a slot, in a database.
func Verify(s Slot, database string) error {
	refuse := func(problem, fix string) error {
		return &Error{
			Err: &diagnosis{fmt.Sprintf("slot %q %s", s.Name, problem),
				[]error{replication.ErrSlotUnusable}},
			WAL: "it keeps WAL until somebody drops it",
			Fix: fix,
		}
	}
	own := ownName(s.Name)
	another := fmt.Sprintf("give the relay a slot of its own:\nslot.name = %q\npostrider slot "+
		"create %s", own, own)
	switch {
	case s.Lost():
		return s.lostError()
	case s.Plugin == "":
		return refuse("is a physical slot", another)
	case s.Plugin != Plugin:
		return refuse(fmt.Sprintf("has the output plugin %s, not %s", s.Plugin, Plugin), another)
	case s.Database != database:
		return refuse(fmt.Sprintf("belongs to database %q, not %q", s.Database, database), another)
	case s.Temporary:
		return refuse("is temporary", another)
	case s.TwoPhase:
		return refuse("decodes transactions when they are prepared, maybe to be rolled back later "+
			"(two_phase)",
			another)
	case s.ConfirmedFlushLSN == 0:
		return &Error{
			Err: &diagnosis{fmt.Sprintf("slot %q has no confirmed position: its creation is not finished",
				s.Name), []error{replication.ErrSlotInUse}},
			Fix: "wait: the server ends or removes it once the transactions it waits for have ended",
		}
	}
	return nil
}

// ownName is another name for a slot, no longer than names of slots may be.
func ownName(name string) string {
	const suffix = "_own"
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

// maxName is the length of PostgreSQL's names.
const maxName = 63

// reasonDisappeared is the reason of a LostError for a slot that was there.
const reasonDisappeared = "it does not exist any more: it was dropped"

// Disappeared is the error of a slot that was there and is not any more. confirmed is where its
// gap begins, zero if that is not known.
func Disappeared(name string, confirmed pglogrepl.LSN) error {
	return &LostError{Name: name, Reason: reasonDisappeared, ConfirmedFlushLSN: confirmed, Gone: true}
}

func IsMissing(err error) bool { return errors.Is(err, ErrNotFound) }

// lostError is for a slot that is lost.
func (s Slot) lostError() error {
	reason := s.InvalidationReason
	if reason == "" && s.Conflicting {
		reason = "conflict with recovery"
	}
	return &LostError{
		Name: s.Name, Reason: reason, ConfirmedFlushLSN: s.ConfirmedFlushLSN, CatalogXmin: s.CatalogXmin,
		InactiveSince: s.InactiveSince,
	}
}
