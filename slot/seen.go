package slot

import "fmt"

// seen is what must stay the same while a process relays a table: between two looks a change can come and go, and rows written
// meanwhile are not sent.
type seen struct {
	publication uint32 // OID
	membership  uint32 // OID of the table's entry in it
	table       uint32 // OID
	rowFilter   string
}

// sameTables notices a publication or table that was dropped, created anew and put together again between two looks, and a row
// filter that was set. A publication of all tables holds a new table from its first row on.
func (m *Monitor) sameTables(p *Publication) error {
	for _, t := range p.Tables {
		now := seen{publication: p.OID, membership: t.Membership, table: t.OID, rowFilter: t.RowFilter}
		if p.AllTables {
			now.table = 0
		}
		before, known := m.tables[t.Name]
		m.tables[t.Name] = now
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
