package partition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// UnassignedError is for a row whose outbox table is not known.
type UnassignedError struct {
	Relation    string // schema-qualified, as it was when the row was written
	OID         uint32
	LSN         pglogrepl.LSN // of the commit
	XID         uint32
	Index       uint32
	Candidates  []string // outbox tables that it may belong to
	Because     []string // why that is not known, for each of them
	Publication string
	ViaRoot     bool // the publication has publish_via_partition_root now
}

func (e *UnassignedError) Error() string {
	because := slices.Clone(e.Because)
	for i := range because {
		if len(because) > 1 {
			because[i] = e.Candidates[i] + ": " + because[i]
		}
	}
	return fmt.Sprintf("row %d of transaction %d, which commits at %s, is of %s (OID %d): whether "+
		"that was a partition of %s then is not known (%s)",
		e.Index, e.XID, e.LSN, e.Relation, e.OID, strings.Join(e.Candidates, " or "),
		strings.Join(because, "; "))
}

// Unwrap makes it replication.ErrUnassigned, which halts the relay.
func (e *UnassignedError) Unwrap() error { return replication.ErrUnassigned }

// Advice is what that means for the WAL, and what to do.
func (e *UnassignedError) Advice() (wal, fix string) {
	var b strings.Builder
	b.WriteString("set in [replication] which table its rows belong to, then start again:\n")
	line := replication.Assignment{Relation: e.Relation, OID: e.OID}
	for _, line.Table = range e.Candidates {
		fmt.Fprintf(&b, "partitions = [%q]\n", line)
	}
	line.Table = ""
	fmt.Fprintf(&b, "partitions = [%q]   # if it was another table: its rows are left out; "+
		"\"%s@%d<=%s = ...\" is for rows up to this one alone\n", line, e.Relation, e.OID, e.LSN)
	if e.ViaRoot {
		b.WriteString("publish_via_partition_root is on now, so that this ends with the rows from " +
			"before it was turned on")
	} else {
		b.WriteString("so that it does not come to this again, for rows that are written from then on " +
			"(docs/OUTBOX-TABLES.md):\nALTER PUBLICATION " + postgres.QuoteName(e.Publication) +
			" SET (publish_via_partition_root = true);")
	}
	return "everything before the row is delivered and confirmed; the slot keeps the row and what " +
		"comes after it, more with every write", b.String()
}

func (a *Assigner) unassigned(row FirstRow, e *proof, v *verdict) error {
	err := &UnassignedError{
		Relation: row.Relation.String(), OID: row.Relation.OID, LSN: row.LSN, XID: row.XID,
		Index:       row.Index,
		Publication: a.publication, ViaRoot: e.Publication != nil && e.Publication.ViaRoot,
	}
	for i, is := range v.is {
		if is != no {
			err.Candidates = append(err.Candidates, v.tables[i])
			err.Because = append(err.Because, cmp.Or(v.because[i], "it had that name"))
		}
	}
	return err
}
