package slot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// publicationProblem is what is wrong with the publication, or was since the last look, or an error of reading it. before was read before. Between two looks a
// change can come and go, and rows written meanwhile are not sent: it is said for as long as the process lives, since nobody else knows once the
// slot is beyond.
func (m *Monitor) publicationProblem(ctx context.Context, conn *pgx.Conn, before Status) error {
	m.looking.Lock()
	defer m.looking.Unlock()
	p, err := read(ctx, conn, m.need.Publication, m.need.Tables)
	if err != nil {
		return fmt.Errorf("read publication %q: %w", m.need.Publication, postgres.Error(err))
	}
	problem := p.problem()
	if problem == nil {
		problem = m.changed(ctx, conn, p)
	}
	if broken := new(PublicationError); errors.As(problem, &broken) && m.brought != nil {
		broken.From, broken.FromXmin = m.boundaries.settled.lsn, uint32(m.boundaries.settled.xmin)
	}
	if problem == nil {
		m.remember(p, before.CurrentWALLSN)
	}
	return problem
}

func (m *Monitor) remember(p *Publication, before pglogrepl.LSN) {
	m.brought = p.evidence
	m.boundaries.passed(before, p.evidence)
}

// Begin is the first look at the publication, for a process that is about to stream for the first time. It warns of what is younger than the slot's horizon: that may have
// been otherwise for rows that the slot does not send. It has to be before anybody streams, which moves the horizon. It may be called while Run runs,
// and does nothing when it is called again.
func (m *Monitor) Begin(ctx context.Context, conn *pgx.Conn) error {
	m.looking.Lock()
	defer m.looking.Unlock()
	if m.begun {
		return nil
	}
	s, err := Get(ctx, conn, m.need.Slot.Name)
	if err != nil {
		return err
	}
	p, err := read(ctx, conn, m.need.Publication, m.need.Tables)
	if err != nil {
		return fmt.Errorf("read publication %q: %w", m.need.Publication, postgres.Error(err))
	}
	newer, err := p.newerThan(ctx, conn, s.Slot)
	if err != nil {
		return err
	}
	if len(newer.what) > 0 {
		event := m.log.Warn()
		if newer.unused {
			event = m.log.Info()
		}
		event.Str("slot", s.Name).Str("publication", p.Name).Strs("relation", newer.what).Stringer("restart_lsn", s.RestartLSN).
			Stringer("current_wal_lsn", p.evidence.end).Str("next", newer.find()).
			Msg("publication or table may have changed after the position of the slot: rows inserted before the change may be missing from the topics")
	}
	if m.brought == nil && p.problem() == nil {
		m.remember(p, s.CurrentWALLSN)
	}
	m.begun = true
	return nil
}

// changed compares with the last look that found nothing wrong.
func (m *Monitor) changed(ctx context.Context, conn *pgx.Conn, p *Publication) error {
	if m.brought == nil {
		return nil
	}
	for i, t := range p.Tables {
		if what := p.evidence.changedSince(m.brought, i+1); what != "" {
			problem := &PublicationError{Publication: p.Name, Table: t.Name, Problem: what, To: p.evidence.end, Elsewhere: what == renamedBack}
			if filtered(p.evidence.of(i + 1)) {
				problem.SQL = resetSQL(p, t)
			}
			return problem
		}
	}
	found, err := p.evidence.rewrittenSince(ctx, conn, m.brought)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return &PublicationError{
			Publication: p.Name, Table: p.Tables[found[0].n-1].Name, To: p.evidence.end,
			Problem: "the storage of " + listed(found) + " was replaced, and no column was changed, as by SET UNLOGGED and SET LOGGED",
		}
	}
	m.tellStorage(p)
	return nil
}

// tellStorage tells of what loses no row, or of what only rarely does and cannot be told from what does not.
func (m *Monitor) tellStorage(p *Publication) {
	tell := func(table, msg string) {
		m.log.Info().Str("publication", p.Name).Str("relation", table).Stringer("from_lsn", m.boundaries.settled.lsn).Stringer("to_lsn", p.evidence.end).Msg(msg)
	}
	for _, is := range p.evidence.Tables {
		if was := m.brought.table(is.N); was.OID == is.OID && was.ReplicaIdentity != is.ReplicaIdentity {
			tell(p.Tables[is.N-1].Name, "replica identity changed: inserted rows come as before")
		}
		if p.evidence.schemaAltered(m.brought, is.N) {
			tell(p.Tables[is.N-1].Name, "schema of the table altered, and its owner and rights are the same: if it had another name for a moment, "+
				"rows inserted then into another table of this name are not sent")
		}
	}
	for oid, is := range p.evidence.storage {
		was, known := m.brought.storage[oid]
		if !known || was.file == is.file {
			continue
		}
		if is.toast == 0 || was.toast != is.toast && p.evidence.reshaped(m.brought, is.n) {
			tell(p.Tables[is.n-1].Name, "files of the table replaced, as by VACUUM FULL, CLUSTER or TRUNCATE, or by a change of its columns: if it was unlogged for a moment, rows inserted then are not sent")
		}
	}
}

func filtered(entries []entry) bool {
	for _, e := range entries {
		if e.Level == 0 && e.Filtered {
			return true
		}
	}
	return false
}

func listed(found []rewritten) string {
	names := make([]string, len(found))
	for i, r := range found {
		names[i] = r.name
	}
	if len(names) > othersLimit {
		names = append(names[:othersLimit], fmt.Sprintf("%d more", len(found)-othersLimit))
	}
	return strings.Join(names, ", ")
}
