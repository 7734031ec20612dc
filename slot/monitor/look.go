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

// look looks at slot and publication, and at the server if that is due. problem has to end the
// stream. After an err the Status is unchanged.
func (m *Monitor) look(ctx context.Context, conn *pgx.Conn) (problem, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, err := m.status(ctx, conn)
	missing := errors.Is(err, slot.ErrNotFound)
	if postgres.OnStandby(conn) && (missing || err == nil && status.Lost()) {
		return nil, slot.StandbyError() // the primary has the slot, not the copy that a standby has
	}
	if missing {
		return m.recordMissing(), nil
	}
	if err != nil {
		return nil, err
	}
	if m.Assigner != nil && !postgres.OnStandby(conn) {
		if err := m.Assigner.LookIfDue(ctx, conn); err != nil {
			return nil, err
		}
	}
	problem = m.publicationProblem(ctx, conn, status)
	broken, isBroken := errors.AsType[*slot.PublicationError](problem)
	switch {
	// a table is locked, so no row can be inserted into it
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

// stale returns postgres.ErrStaleConnection if this look and the one before found no walsender,
// and when the one before began. began is when this one began. The server has then closed the
// connection of a relay that still waits; the network may report that late or never. One such look
// is not enough: the relay may be about to notice the end itself.
func (m *Monitor) stale(began time.Time) (then time.Time, err error) {
	now := m.Status()
	then, m.idleSince = m.idleSince, began
	// no session reads the copy of a slot on a standby: the stream is from the primary
	if now.Active || now.Synced {
		m.idleSince = time.Time{}
		return time.Time{}, nil
	}
	if then.IsZero() {
		return time.Time{}, nil
	}
	return then, fmt.Errorf("slot %q has no walsender: %w", now.Name, postgres.ErrStaleConnection)
}

// status reads the slot: with the whole server if that is due, else alone.
func (m *Monitor) status(ctx context.Context, conn *pgx.Conn) (slot.Status, error) {
	if m.untilObserved() <= 0 {
		status, err := m.observe(ctx, conn)
		switch {
		case err == nil, errors.Is(err, slot.ErrNotFound), conn.IsClosed(), ctx.Err() != nil:
			return status, err
		}
		m.observed = time.Now() // no attempt before the next interval
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

// The codes of the events of a new slot.
const (
	slotCreated   = "slot_created"
	slotRecreated = "slot_recreated"
)

// noticeNewSlot records an event if now is a new slot with the name of the last one. d is its
// Decoding; nil: not known.
func (m *Monitor) noticeNewSlot(now slot.Status, d *Decoding) {
	before := m.Observation()
	position := fmt.Sprintf(", confirmed up to %s: it does not have what was committed before it "+
		"was created", now.ConfirmedFlushLSN)
	switch {
	case m.missing:
		m.record(slotCreated, fmt.Sprintf("slot %q exists again", now.Name)+position)
	// PostgreSQL 16 discards the counters of a slot that it invalidates.
	case !now.Lost() && (before.Slot.Lost() || !m.unreachable && d.recreated(before.Decoding)):
		m.record(slotRecreated, fmt.Sprintf("slot %q was dropped and recreated", now.Name)+position)
	default:
		return
	}
	m.missing = false
	m.readings = nil // positions of another slot
}

// countedSince is SQL for the last time at which the server may have lost its counters. A crash
// discards all, even if the postmaster survives it; only pg_stat_bgwriter has the date of that.
const countedSince = `(SELECT GREATEST(pg_catalog.pg_postmaster_start_time(), b.stats_reset) FROM
	pg_catalog.pg_stat_bgwriter b)`

// recreated reports whether the counters are those of another slot: they have become smaller, and
// neither a reset nor the server explains that.
func (d *Decoding) recreated(before *Decoding) bool {
	return d != nil && before != nil && d.TotalTransactions < before.TotalTransactions &&
		!d.ResetAt.After(before.ResetAt) &&
		d.countedSince.Equal(before.countedSince)
}

// recordMissing records that the slot does not exist. A slot that was never seen is no event: it
// may not have been created yet.
func (m *Monitor) recordMissing() error {
	last := m.Status()
	lost := slot.Disappeared(m.need.Slot.Name, last.ConfirmedFlushLSN)
	if last.ObservedAt.IsZero() {
		m.noteFailure(slot.NotFound(m.need.Slot.Name))
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

// publish makes s the last Status, and exports it. problem is what the look found, or nil.
func (m *Monitor) publish(s slot.Status, problem error) {
	s.Error = ""
	m.mu.Lock()
	before := m.last
	switch {
	case s.Active:
		s.InactiveSince = time.Time{}
	case !s.InactiveSince.IsZero(): // PostgreSQL 17 and later
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
			"the publication publishes every table again; rows inserted meanwhile are not sent")
	default:
		m.record("publication_broken",
			"the publication does not publish every table, or did not for some time")
	}
}

// noteFailure sets the error of the last Status, which keeps its positions.
func (m *Monitor) noteFailure(err error) {
	m.mu.Lock()
	m.last.Error = err.Error()
	known := !m.last.ObservedAt.IsZero()
	m.mu.Unlock()
	if known && !m.unreachable {
		m.unreachable = true
		m.record("connection_lost", "the server does not answer any more: "+err.Error())
	}
	m.export(m.Observation())
}
