package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// look looks at slot and publication, and at the server if that is due. problem ends the session
// that streams. With an err nothing was learned, and the last Status stays as it is.
func (m *Monitor) look(ctx context.Context, conn *pgx.Conn) (problem, err error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	status, err := m.status(ctx, conn)
	if errors.Is(err, slot.ErrNotFound) {
		return m.gone(), nil
	}
	if err != nil {
		return nil, err
	}
	if m.Assigner != nil && !onStandby(conn) {
		if err := m.Assigner.LookIfDue(ctx, conn); err != nil {
			return nil, err
		}
	}
	problem = m.publicationProblem(ctx, conn, status)
	broken, isBroken := errors.AsType[*slot.PublicationError](problem)
	switch {
	// a table is locked, so nothing can be inserted into it either
	case postgres.SQLState(problem) == "55P03":
		last := m.Status()
		status.PublicationOK, problem = last.PublicationOK, nil
		status.PublicationProblem, status.PublicationFix = last.PublicationProblem, last.PublicationFix
	case isBroken:
		status.PublicationOK, status.PublicationProblem = new(false), broken.Error()
		_, status.PublicationFix = broken.Advice()
	case problem != nil:
		return nil, problem
	default:
		status.PublicationOK = new(true)
	}
	if status.Lost() {
		problem = slot.Verify(status.Slot, status.Database)
	}
	m.publish(status, problem)
	return problem, nil
}

// stale is postgres.ErrStaleConnection when two looks in a row, this one and one that began then,
// have found that no session streams: a relay that still waits has a connection that the server
// has closed, which the network may report late or never. One look alone may come between the end
// of a stream and the report of it.
func (m *Monitor) stale(began time.Time) (then time.Time, err error) {
	now := m.Status()
	then, m.idleSince = m.idleSince, began
	// the copy on a standby is never read; the stream is from the primary
	if now.Active || now.Synced {
		m.idleSince = time.Time{}
		return time.Time{}, nil
	}
	if then.IsZero() {
		return time.Time{}, nil
	}
	return then, fmt.Errorf("slot %q has no walsender: %w", now.Name, postgres.ErrStaleConnection)
}

// status reads the slot: alone, or with all else that is known of the server.
func (m *Monitor) status(ctx context.Context, conn *pgx.Conn) (slot.Status, error) {
	if m.untilObserved() <= 0 {
		status, err := m.observe(ctx, conn)
		switch {
		case err == nil, errors.Is(err, slot.ErrNotFound), conn.IsClosed(), ctx.Err() != nil:
			return status, err
		}
		m.observed = time.Now() // not at once again
		m.annotate(Note{"monitor", "the server could not be observed beyond slot and publication: " +
			err.Error()})
	}
	status, err := slot.Get(ctx, conn, m.need.Slot.Name)
	if err != nil {
		return slot.Status{}, err
	}
	if status.Unfinished() {
		return slot.Status{}, slot.NotFound(m.need.Slot.Name)
	}
	m.noticeNewSlot(status, nil)
	return status, nil
}

// The codes of events by which a slot is not the one that was there before.
const (
	slotCreated   = "slot_created"
	slotRecreated = "slot_recreated"
)

// noticeNewSlot notices a slot that is not the one of the last Status, but another of the same
// name. d is what decoding has cost; nil: not known.
func (m *Monitor) noticeNewSlot(now slot.Status, d *Decoding) {
	before := m.Observation()
	position := fmt.Sprintf(", confirmed up to %s: what was committed before it was made is not in "+
		"it", now.ConfirmedFlushLSN)
	switch {
	case m.missing:
		m.record(slotCreated, fmt.Sprintf("slot %q is there again", now.Name)+position)
	case before.Slot.Lost() && !now.Lost(), !m.unreachable && d.restarted(before.Decoding):
		m.record(slotRecreated, fmt.Sprintf("slot %q was dropped and recreated", now.Name)+position)
	default:
		return
	}
	m.missing = false
	m.readings = nil // positions of another slot
}

// countedSince is SQL for when the server's counters may have begun again. A crash discards all of
// them, also where the postmaster survives; of those, pg_stat_bgwriter has a date.
const countedSince = `(SELECT GREATEST(pg_catalog.pg_postmaster_start_time(), b.stats_reset) FROM
	pg_catalog.pg_stat_bgwriter b)`

// restarted reports whether the counters are those of another slot: they were smaller at a later
// time, they were not reset, and the server went on counting all the time.
func (d *Decoding) restarted(before *Decoding) bool {
	return d != nil && before != nil && d.TotalTransactions < before.TotalTransactions &&
		!d.ResetAt.After(before.ResetAt) &&
		d.countedSince.Equal(before.countedSince)
}

// gone is for a slot that is not there. One that was never seen may not have been made yet.
func (m *Monitor) gone() error {
	last := m.Status()
	lost := slot.Disappeared(m.need.Slot.Name, last.ConfirmedFlushLSN)
	if last.ObservedAt.IsZero() {
		m.note(slot.NotFound(m.need.Slot.Name))
		return lost
	}
	if !m.missing {
		m.missing = true
		m.record("slot_missing", fmt.Sprintf(
			"slot %q does not exist any more: it was dropped or renamed", last.Name))
	}
	last.Active, last.ActivePID, last.WALStatus, last.ObservedAt = false, 0, "lost", time.Now()
	last.RetainedBytes, last.SafeWALSize = nil, nil
	m.publish(last, lost)
	return lost
}

// publish makes s the last Status. problem is what was found; nil: nothing.
func (m *Monitor) publish(s slot.Status, problem error) {
	s.Error = ""
	m.mu.Lock()
	before := m.last
	switch {
	case s.Active:
		s.InactiveSince = time.Time{}
	case !s.InactiveSince.IsZero(): // from 17 on
	case !before.Active && !before.InactiveSince.IsZero():
		s.InactiveSince = before.InactiveSince
	default:
		s.InactiveSince = s.ObservedAt.Add(m.ClockSkew()) // by the server's clock
	}
	m.last = s
	if problem != nil {
		m.last.Error = problem.Error()
	}
	o := m.observation
	m.mu.Unlock()
	m.logChanges(before, s)
	o.Slot = s
	m.export(o)
}

func (m *Monitor) logChanges(before, s slot.Status) {
	if m.unreachable {
		m.unreachable = false
		m.record("connection_back", "the server answers again")
	}
	if before.ObservedAt.IsZero() {
		return
	}
	if before.WALStatus != s.WALStatus {
		event := m.log.Info()
		if !slices.Contains([]string{"reserved", "extended"}, s.WALStatus) {
			event = m.log.Warn()
		}
		event.Str("wal_status", s.WALStatus).Str("reason", s.InvalidationReason).
			Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
			Msg("slot changed its WAL status")
	}
	if s.Lost() && !before.Lost() && !m.missing {
		m.record("slot_invalidated",
			fmt.Sprintf("slot %q was invalidated: %s", s.Name,
				cmp.Or(s.InvalidationReason, "WAL that it needs was removed")))
	}
	switch {
	case before.PublicationOK == nil || s.PublicationOK == nil ||
		*before.PublicationOK == *s.PublicationOK:
	case *s.PublicationOK:
		m.record("publication_repaired",
			"the publication brings every table again; rows inserted meanwhile are not sent")
	default:
		m.record("publication_broken",
			"the publication does not bring every table, or did not for a while")
	}
}

// note keeps the positions, with the reason why they are old.
func (m *Monitor) note(err error) {
	m.mu.Lock()
	m.last.Error = err.Error()
	known := !m.last.ObservedAt.IsZero()
	m.mu.Unlock()
	if known && !m.unreachable {
		m.unreachable = true
		m.record("connection_lost", "the server cannot be queried: "+err.Error())
	}
	m.export(m.Observation())
}
