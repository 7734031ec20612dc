package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// seen is what must stay the same while a process relays a table: between two looks a change can come and go, and rows written
// meanwhile are not sent.
type seen struct {
	publication uint32 // OID
	membership  uint32 // OID of the table's entry in it
	table       uint32 // OID
	rowFilter   string
}

// publicationProblem is what is wrong with the publication, or an error of reading it. The statements that read it see what is committed meanwhile,
// so that one change can look like another: a publication that is dropped between them has lost its tables. What is found twice in a row is so.
func (m *Monitor) publicationProblem(ctx context.Context, conn *pgx.Conn) error {
	for found := ""; ; {
		p, problem := VerifyPublication(ctx, conn, m.need.Publication, m.need.Tables)
		whole := problem == nil
		if whole {
			problem = m.sameTables(p)
		}
		if problem == nil || !isPublicationError(problem) || problem.Error() == found {
			if whole {
				m.remember(p)
			}
			return problem
		}
		found = problem.Error()
	}
}

func (m *Monitor) remember(p *Publication) {
	for _, t := range p.Tables {
		m.tables[t.Name] = p.seen(t)
	}
}

// seen is what must stay of a table. A publication of all tables holds a new table from its first row on.
func (p *Publication) seen(t Table) seen {
	s := seen{publication: p.OID, membership: t.Membership, table: t.OID, rowFilter: t.RowFilter}
	if p.AllTables {
		s.table = 0
	}
	return s
}

// sameTables notices a publication or table that was dropped, created anew and put together again between two looks, and a row
// filter that was set.
func (m *Monitor) sameTables(p *Publication) error {
	for _, t := range p.Tables {
		now := p.seen(t)
		before, known := m.tables[t.Name]
		if !known || before == now {
			continue
		}
		var problem string
		fix := "look for rows in the table that were not delivered, then start the relay again"
		switch {
		case before.publication != now.publication:
			problem = "the publication was dropped and created anew: rows inserted in between are not sent"
		case before.table != now.table:
			problem = "the table was dropped and created anew: rows inserted before it was added to the publication again are not sent"
		case before.rowFilter != now.rowFilter:
			problem = fmt.Sprintf("its row filter was changed to %q: rows that do not match are not sent", now.rowFilter)
			fix = "ALTER PUBLICATION " + quoteName(p.Name) + " SET TABLE " + quoteTable(t.Name) + ";   unless the filter is meant; then start the relay again"
		default:
			problem = "the table was taken out of the publication and added again: rows inserted in between are not sent"
		}
		return &PublicationError{Publication: p.Name, Table: t.Name, Problem: problem, SQL: fix}
	}
	return nil
}
