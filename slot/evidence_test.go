package slot

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// lookedAt is what a look found: a publication that names one table.
func lookedAt(change func(*evidence)) *evidence {
	e := &evidence{
		Publication: &publicationRow{OID: 1, Xmin: 10, Insert: true},
		Tables:      []tableRow{{N: 1, OID: 2}, {N: 2, OID: 3}},
		Entries:     []entry{{N: 1, Relation: 2, OID: 20, Xmin: 11}, {N: 2, Relation: 3, OID: 30, Xmin: 12}},
	}
	change(e)
	return e
}

var (
	named  = entry{N: 1, Relation: 2, OID: 20, Xmin: 11}
	filter = entry{N: 1, Relation: 2, OID: 20, Xmin: 11, Filtered: true}
	schema = entry{N: 1, Schema: "public", Relation: 2, OID: 40, Xmin: 13, Moved: 9}
	below  = entry{N: 1, Level: -1, Relation: 8, OID: 60, Xmin: 14, Filtered: true} // a partition
)

// by has the entries instead of the one that names the table.
func by(entries ...entry) func(*evidence) {
	return func(e *evidence) { e.Entries = append(entries, e.Entries[1]) }
}

func again(e entry) entry { e.OID++; return e }

func TestEvidence_SaysWhatMayHaveKeptRowsBack(t *testing.T) {
	all := func(e *evidence) { e.Publication.AllTables, e.Entries = true, nil }
	moved := schema
	moved.Moved++
	for name, c := range map[string]struct {
		before, now func(*evidence)
		want        string
	}{
		"nothing":                          {by(named), by(named), ""},
		"publication recreated":            {by(named), func(e *evidence) { e.Publication.OID++ }, "the publication was dropped and recreated"},
		"flags":                            {by(named), func(e *evidence) { e.Publication.Insert = false }, "the publication was altered"},
		"flags that were put back":         {by(named), func(e *evidence) { e.Publication.Xmin++ }, "the publication was altered"},
		"table recreated":                  {by(named), func(e *evidence) { e.Tables[0].OID++ }, "the table was dropped and recreated"},
		"table recreated, of all tables":   {all, func(e *evidence) { all(e); e.Tables[0].OID++ }, ""},
		"another table recreated":          {by(named), func(e *evidence) { e.Tables[1].OID++ }, ""},
		"taken out and added again":        {by(named), by(again(named)), "the table was taken out of the publication and added again"},
		"written again":                    {by(named), by(func() entry { n := named; n.Xmin++; return n }()), "the table was taken out of the publication and added again"},
		"another one taken out":            {by(named), func(e *evidence) { e.Entries[1].OID++ }, ""},
		"filter that came":                 {by(named), by(filter), "its row filter or column list was changed"},
		"filter that went":                 {by(filter), by(named), "its row filter or column list was changed"},
		"filter of a partition":            {by(named), by(named, below), "the row filter or column list of a partition was changed"},
		"filter of a partition that went":  {by(named, below), by(named), "the row filter or column list of a partition was changed"},
		"schema that came":                 {by(named), by(named, schema), ""},
		"schema that went":                 {by(named, schema), by(named), ""},
		"schema taken out, table stays":    {by(named, schema), by(named, again(schema)), ""},
		"schema taken out and added again": {by(schema), by(again(schema)), "schema public was taken out of the publication and added again"},
		"moved out of the schema and back": {by(schema), by(moved), "the table was moved to another schema and back"},
		"the table instead of its schema":  {by(schema), by(named), "the table was taken out of the publication and added again"},
		"a filtered one stays":             {by(filter, schema), by(filter, again(schema)), "schema public was taken out of the publication and added again"},
	} {
		require.Equal(t, c.want, lookedAt(c.now).changedSince(lookedAt(c.before), 1), name)
	}
}
