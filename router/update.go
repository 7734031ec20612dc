package router

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// An updated row is no event, but one whose primary key changed is: to Debezium that is another
// row, which is published with the key that was in a header.

// keyChanged reports whether an update gives the row another primary key. Without the old row it
// does not, nor without such a key. An old row that is known by another index has no primary key
// in it, which Debezium takes for a change.
func (p *plan) keyChanged(ev *replication.Event) bool {
	if len(ev.Old) != len(p.rel.Columns) {
		return false
	}
	return slices.ContainsFunc(p.primaryKey,
		func(c *connect.Column) bool { return !bytes.Equal(ev.Old[c.Index], ev.Values[c.Index]) })
}

// available puts Debezium's placeholder where an update brought no value, in the form that a
// column of that type has.
func (r *rule) available(p *plan, values [][]byte) ([][]byte, error) {
	if !slices.ContainsFunc(values, replication.IsUnchanged) {
		return values, nil
	}
	out := slices.Clone(values)
	for i, v := range values {
		if !replication.IsUnchanged(v) {
			continue
		}
		c, err := p.lookup(i)
		if err != nil { // no option can name it
			continue
		}
		if out[i] = placeholder(c.Type.Root(), r.cfg.Unavailable); out[i] == nil {
			return nil, fault(ReasonUnconvertible,
				"set the table's REPLICA IDENTITY to FULL, or leave the primary keys of its "+
					"rows alone",
				"column %s did not change with the primary key and is stored out of line, so "+
					"that its value is not in the WAL", c.Name)
		}
	}
	return out, nil
}

// placeholder is PostgreSQL's text of a type for what Debezium writes; nil if that has none.
func placeholder(t *connect.Type, value string) []byte {
	quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(value) + `"`
	switch {
	case t.Name == "bytea":
		return []byte(`\x` + hex.EncodeToString([]byte(value)))
	case t.Name == "hstore":
		return []byte(quoted + "=>" + quoted)
	case t.Elem == nil && (t.Name == "text" || t.Name == "varchar" || t.Name == "bpchar" ||
		t.Name == "citext" || t.Name == "json" || t.Name == "jsonb" || t.Name == "xml"):
		return []byte(value)
	case t.Elem == nil:
		return nil
	}
	switch t.Elem.Name {
	case "text", "varchar", "bpchar", "citext", "json", "jsonb", "uuid":
		return []byte("{" + quoted + "}")
	case "int2", "int4", "int8": // the numbers of its bytes
		return []byte("{" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]byte(value))),
			","), "[]") + "}")
	}
	return nil
}

// unexpected handles an update that is no event, by table.op.invalid.behavior.
func (r *rule) unexpected(p *plan, ev *replication.Event) error {
	if r.cfg.OpInvalidBehavior == "fatal" {
		return rowError(ev, p.relation, ev.Values[p.id.Index], fault(ReasonUpdate,
			`keep applications from updating rows of the outbox, take updates out of the publication `+
				`(ALTER PUBLICATION ... SET (publish = 'insert')), or set `+
				`router.table.op.invalid.behavior to "warn"`,
			"the row was updated, and table.op.invalid.behavior is fatal"))
	}
	if !p.updated && r.opts.Updated != nil {
		r.opts.Updated(p.relation, r.cfg.OpInvalidBehavior)
	}
	p.updated = true
	return nil
}

// appendOldKey makes the header with the primary key that the row had.
func (r *rule) appendOldKey(dst []sink.Header, p *plan, ev *replication.Event) ([]sink.Header,
	error) {
	s := &connect.Schema{Kind: connect.KindStruct, Name: r.schemaName(p.relation) + ".Key"}
	key := &connect.Structure{Schema: s}
	for _, c := range p.primaryKey {
		v, err := c.Value(ev.Old[c.Index])
		if err != nil {
			return nil, err
		}
		if v == nil && c.Schema.Kind == connect.KindString {
			v = connect.Text{} // as Debezium has it where the old row is known by another index
		}
		s.Fields = append(s.Fields, &connect.Field{Name: c.Name, Schema: c.Schema})
		key.Values = append(key.Values, v)
	}
	v, err := r.headers.Value(s, nil, key)
	return append(dst, sink.Header{Key: headerOldKey, Value: v}), err
}

// primaryKey finds the columns of a table's primary key in its order. Without the catalog they are
// those of the replica identity, which are all columns if that is full.
func (r *rule) primaryKey(rel *replication.Relation, table *Table,
	lookup func(index int) (*connect.Column, error)) (key []*connect.Column) {
	places := map[int]int{} // column to its place in the key, from 1
	for i, c := range rel.Columns {
		if table == nil && c.Key {
			places[i] = 1 + i
		}
	}
	if table != nil {
		for _, c := range table.Columns {
			i := slices.IndexFunc(rel.Columns, func(r replication.Column) bool { return r.Name == c.Name })
			if i >= 0 && c.Key > 0 {
				places[i] = c.Key
			}
		}
	}
	columns := slices.SortedFunc(maps.Keys(places),
		func(a, b int) int { return places[a] - places[b] })
	for _, i := range columns {
		// one whose type has no mapping is not in Debezium's keys either
		if c, err := lookup(i); err == nil {
			key = append(key, c)
		}
	}
	return key
}
