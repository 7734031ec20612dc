package replication

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/jackc/pglogrepl"
)

// Assignment is an entry of Config.Partitions: to which outbox table the rows of a relation
// belong. The operator decides that for a relation of which PostgreSQL no longer reports whether
// it was a partition.
type Assignment struct {
	Relation string        // schema-qualified, as it was when the rows were written
	OID      uint32        // of the relation
	UpTo     pglogrepl.LSN // commit LSN of the last transaction that it is for; zero: all
	Table    string        // outbox table; empty: none, the rows are no events
}

// noTable is the text of an empty Assignment.Table.
const noTable = "none"

var assignmentText = regexp.MustCompile(
	`^(.+?)@([0-9]+)(?:<=([0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}))?\s*=\s*(.+)$`)

// parseAssignment reads "schema.name@OID = schema.table", or "= none"; "<=LSN" may follow the OID.
func parseAssignment(s string) (Assignment, error) {
	m := assignmentText.FindStringSubmatch(s)
	if m == nil {
		return Assignment{}, fmt.Errorf(
			`%q is not of the form "schema.name@OID = schema.table" or "schema.name@OID = none"`, s)
	}
	oid, err := strconv.ParseUint(m[2], 10, 32)
	if err != nil || oid == 0 {
		return Assignment{}, fmt.Errorf("%q: %s is not an OID", s, m[2])
	}
	a := Assignment{Relation: m[1], OID: uint32(oid), Table: m[4]}
	if m[3] != "" {
		if a.UpTo, err = pglogrepl.ParseLSN(m[3]); err != nil {
			return Assignment{}, fmt.Errorf("%q: %s is not an LSN", s, m[3])
		}
	}
	if a.Table == noTable {
		a.Table = ""
	}
	return a, nil
}

// String is the entry as parseAssignment reads it.
func (a Assignment) String() string {
	table, bound := a.Table, ""
	if table == "" {
		table = noTable
	}
	if a.UpTo != 0 {
		bound = "<=" + a.UpTo.String()
	}
	return fmt.Sprintf("%s@%d%s = %s", a.Relation, a.OID, bound, table)
}

// Covers reports whether a is for a row of rel in a transaction that commits at an LSN.
func (a Assignment) Covers(rel *Relation, lsn pglogrepl.LSN) bool {
	return a.OID == rel.OID && a.Relation == rel.String() && (a.UpTo == 0 || lsn <= a.UpTo)
}

// Assignments returns Partitions, of a valid Config.
func (c Config) Assignments() []Assignment {
	var out []Assignment
	for _, s := range c.Partitions {
		if a, err := parseAssignment(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// validatePartitions reports entries that are malformed, name no known table, or repeat another.
func (c Config) validatePartitions() (errs []error) {
	seen := map[Assignment]string{} // by OID and UpTo
	for _, s := range c.Partitions {
		a, err := parseAssignment(s)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("replication.partitions: %w", err))
			continue
		case a.Table != "" && !slices.Contains(c.Tables, a.Table):
			errs = append(errs, fmt.Errorf(
				"replication.partitions: %q: table %s is not in replication.tables", s, a.Table))
		}
		key := Assignment{OID: a.OID, UpTo: a.UpTo}
		if other, twice := seen[key]; twice {
			errs = append(errs, fmt.Errorf(
				"replication.partitions: %q and %q are about the same rows", other, s))
		}
		seen[key] = s
	}
	return errs
}
