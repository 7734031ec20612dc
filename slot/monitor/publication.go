package monitor

import (
	"context"
	"errors"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/slot"
)

// publicationProblem returns what is wrong with the publication, or was since the last look, or
// the error of reading it. before is the slot's status, read before the publication. A change that
// was undone is reported for as long as the process lives: rows written meanwhile are not sent,
// and no other process has the evidence.
func (m *Monitor) publicationProblem(ctx context.Context, conn *pgx.Conn,
	before slot.Status) error {
	m.publicationMu.Lock()
	defer m.publicationMu.Unlock()
	p, err := slot.ReadPublication(ctx, conn, m.need.Publication, m.need.Tables)
	if err != nil {
		return err
	}
	problem := p.Problem()
	if problem == nil && m.lastGood != nil {
		if problem = p.ChangedSince(ctx, conn, m.lastGood); problem == nil {
			m.logAlterations(p)
		}
	}
	if broken := new(slot.PublicationError); errors.As(problem, &broken) && m.lastGood != nil {
		broken.From, broken.FromXmin = m.boundaries.settled.lsn, uint32(m.boundaries.settled.xmin)
	}
	if problem == nil {
		m.remember(p, before.CurrentWALLSN)
	}
	return problem
}

func (m *Monitor) remember(p *slot.Publication, before pglogrepl.LSN) {
	m.lastGood = p
	xmin, xmax := p.Transactions()
	m.boundaries.add(before, xmin, xmax)
}

// logAlterations logs changes that lose no row, or that rarely do and cannot be distinguished from
// those.
func (m *Monitor) logAlterations(p *slot.Publication) {
	for _, a := range p.AlteredSince(m.lastGood) {
		m.log.Info().Str("publication", p.Name).Str("relation", a.Table).
			Stringer("from_lsn", m.boundaries.settled.lsn).Stringer("to_lsn", p.ReadLSN()).Msg(a.Text)
	}
}

// Begin looks at the publication before the process streams for the first time, which moves the
// slot's catalog_xmin. It warns of a publication or table that is newer than that: rows before the
// change may not be sent. It may be called while Run runs; further calls do nothing.
func (m *Monitor) Begin(ctx context.Context, conn *pgx.Conn) error {
	m.publicationMu.Lock()
	defer m.publicationMu.Unlock()
	if m.begun {
		return nil
	}
	s, err := slot.Get(ctx, conn, m.need.Slot.Name)
	if err != nil {
		return err
	}
	p, err := slot.ReadPublication(ctx, conn, m.need.Publication, m.need.Tables)
	if err != nil {
		return err
	}
	newer, err := p.NewerThan(ctx, conn, s.Slot)
	if err != nil {
		return err
	}
	if len(newer.What) > 0 {
		event := m.log.Warn()
		if newer.Unused {
			event = m.log.Info()
		}
		event.Str("slot", s.Name).Str("publication", p.Name).Strs("relation", newer.What).
			Stringer("restart_lsn", s.RestartLSN).
			Stringer("current_wal_lsn", p.ReadLSN()).Str("next", m.Hint(newer.Find())).
			Msg("publication or table may have changed after the position of the slot: rows inserted " +
				"before the change may be missing from the topics")
	}
	if m.lastGood == nil && p.Problem() == nil {
		m.remember(p, s.CurrentWALLSN)
	}
	m.begun = true
	return nil
}

// boundary is a position and the transactions at that time.
type boundary struct {
	lsn  pglogrepl.LSN
	xmin uint64 // transactions before xmin had ended
	next uint64 // transactions from next on had not begun: all that they write is after lsn
}

// boundaries has a position before every change that the last look did not see. The position of
// the look itself may be too late: a commit that waits for a synchronous standby is in the WAL,
// and the look does not see it yet.
type boundaries struct {
	settled   boundary // every transaction that had begun by then has ended; zero: none is known
	candidate boundary // becomes settled when its transactions have ended
}

// add records a look that found no problem: lsn was read before its snapshot.
func (b *boundaries) add(lsn pglogrepl.LSN, xmin, xmax uint64) {
	now := boundary{lsn: lsn, xmin: xmin, next: xmax}
	switch {
	case b.settled.lsn == 0, xmin >= now.next:
		b.settled, b.candidate = now, now
	case xmin >= b.candidate.next:
		b.settled, b.candidate = b.candidate, now
	}
}
