package router

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
)

// plan is what is known about a relation: which column is what. It is made once per shape.
type plan struct {
	rel      *replication.Relation
	rule     *rule  // that the relation is routed by; nil: none, or there is an error
	relation string // schema-qualified
	err      error  // a *ShapeError, ParentTable's or Describe's: no row can be routed

	upTo     pglogrepl.LSN // rows behind it are of another plan
	assigned *Assigned

	id, key, payload, route *connect.Column
	timestamp, version      *connect.Column // nil: none
	partition               *connect.Column // the last one placed; nil: none
	headersColumn, tracing  *connect.Column // nil: none
	headers                 []placedColumn
	envelope                []placedColumn
	enveloped               bool // the value is an envelope, even if all its columns are missing
	headerCount             int  // of a row, unless members of a column become headers
	schemas                 map[schemaKey][]*connect.Schema
	primaryKey              []*connect.Column
	event                   *eventPlan // nil: no CloudEvents
	lookup                  func(index int) (*connect.Column, error)
	updated                 bool // a dropped update was reported
}

type placedColumn struct {
	*connect.Column
	alias string
}

// shape finds columns of one relation by name. After an error, which is in err, it finds none.
type shape struct {
	rule     string // for errors
	cfg      *Config
	relation string
	names    []string
	present  []string // the columns that the table has now; nil: not known
	renamed  []string // the same if they are those of names, by their present names
	// makes the column; an UnsupportedTypeError if its type has no mapping
	lookup func(index int) (*connect.Column, error)
	key    []*connect.Column // the primary key
	events *cloudEvents      // nil: none
	values *connect.Encoder
	err    error
}

// fail notes what is wrong with a column, unless something else is.
func (s *shape) fail(column, key, hint, format string, args ...any) *connect.Column {
	if s.err == nil {
		s.err = &ShapeError{
			Relation: s.relation, Column: column, Rule: s.rule, Key: key, Existing: s.names,
			Problem: fmt.Sprintf(format, args...),
			Hint:    strings.ReplaceAll(hint, "router.", s.rule+"."),
		}
	}
	return nil
}

// named gives the column of that name. It is an error if there is none, or none that has a
// mapping.
func (s *shape) named(name, key string) *connect.Column {
	i := slices.Index(s.names, name)
	if i < 0 {
		i = slices.Index(s.renamed, name)
	}
	switch {
	case i < 0 && slices.Contains(s.present, name):
		return s.fail(strconv.Quote(name), key, "if it was renamed while rows waited, add an empty "+
			"column of the old name for as long as they are relayed: docs/OUTBOX-TABLES.md, "+
			"Changing the table", "is in the table, but not in this row, which was written before")
	case i < 0:
		return s.fail(strconv.Quote(name), key, "set router."+key+" to the column that is meant",
			"does not exist")
	}
	c, err := s.lookup(i)
	if unsupported := (*connect.UnsupportedTypeError)(nil); errors.As(err, &unsupported) {
		return s.fail(strconv.Quote(name), key, "choose another column, or set "+
			"router.include.unknown.datatypes to true to have it as bytes",
			"is of type %s, which has no mapping", unsupported.Name)
	}
	if s.err == nil {
		s.err = err
	}
	return c
}

// optional is named for an option that may be empty.
func (s *shape) optional(name, key string) *connect.Column {
	if name == "" {
		return nil
	}
	return s.named(name, key)
}

// oneOf gives the configured column or, if none is configured, the one of two candidates that
// exists.
func (s *shape) oneOf(configured, key, ours, debeziums string) *connect.Column {
	hasOurs, hasTheirs := slices.Contains(s.names, ours), slices.Contains(s.names, debeziums)
	both := func() string { return fmt.Sprintf("%q or %q", ours, debeziums) }
	switch {
	case configured != "":
		return s.named(configured, key)
	case hasOurs && hasTheirs:
		return s.fail(both(), key, "set router."+key+" to one of them", "is ambiguous: both exist")
	case hasOurs:
		return s.named(ours, key)
	case hasTheirs:
		return s.named(debeziums, key)
	}
	return s.fail(both(), key, "set router."+key+" to the column that is meant", "does not exist")
}

// usable requires a type of a column that was found; no is what the column is not.
func (s *shape) usable(c *connect.Column, key string, ok func(*connect.Column) bool, hint,
	no string) *connect.Column {
	if s.err != nil || c == nil || ok(c) {
		return c
	}
	return s.fail(strconv.Quote(c.Name), key, hint, "is of type %s, which %s",
		c.Type.Name, no)
}

func isText(c *connect.Column) bool { return c.Schema.Kind == connect.KindString }

func isInt32(c *connect.Column) bool { return c.Schema.Kind == connect.KindInt32 }

// plan finds all columns that the configuration needs. The first that is wrong is reported.
func (s *shape) plan(placements []placement) (*plan, error) {
	p := &plan{relation: s.relation, primaryKey: s.key, lookup: s.lookup,
		schemas: map[schemaKey][]*connect.Schema{}}
	p.payload = s.named(s.cfg.FieldPayload, "table.field.event.payload")
	const timestamp = "table.field.event.timestamp"
	p.timestamp = s.usable(s.optional(s.cfg.FieldTimestamp, timestamp), timestamp,
		func(c *connect.Column) bool { return timestampUsable(c, s.cfg.StrictTypes) },
		timestampHint(s.cfg.StrictTypes), "is no time of a record")
	p.id = s.named(s.cfg.FieldID, "table.field.event.id")
	s.place(p, placements)
	p.key = s.oneOf(s.cfg.FieldKey, "table.field.event.key", "aggregate_id", "aggregateid")
	const route = "route.by.field"
	p.route = s.usable(s.oneOf(s.cfg.RouteByField, route, "aggregate_type", "aggregatetype"), route,
		isText, "set router.route.by.field to a column of text, varchar, uuid or an enum",
		"is no text")
	p.headersColumn = s.usable(s.optional(s.cfg.HeadersColumn, "headers_column"), "headers_column",
		isText, "set router.headers_column to a column of type json, jsonb or text", "holds no JSON")
	if s.cfg.TracingHeaders && slices.Contains(s.names, s.cfg.TracingField) {
		const tracing = "tracing.span.context.field"
		p.tracing = s.usable(s.named(s.cfg.TracingField, tracing), tracing, isText,
			"set router.tracing.span.context.field to a column of type text or varchar",
			"holds no span context")
	}
	p.headerCount = 1 + len(p.headers)
	if s.cfg.ContextHeaders {
		p.headerCount += 4
	}
	if s.cfg.PositionHeaders {
		p.headerCount += 3 // the relay adds the source
	}
	if s.cfg.TracingHeaders {
		p.headerCount += 2
	}
	if s.events != nil && s.err == nil {
		p.event = s.events.plan(s, p)
	}
	return p, s.err
}

// place finds the additional columns.
func (s *shape) place(p *plan, placements []placement) {
	const key = "table.fields.additional.placement"
	for _, a := range placements {
		if s.err != nil {
			return
		}
		p.enveloped = p.enveloped || a.to == toEnvelope && s.events == nil
		c := s.named(a.column, key)
		var missing *ShapeError
		switch {
		case s.cfg.AdditionalMissing == "ignore" && errors.As(s.err, &missing):
			s.err = nil
		case a.to == toHeader:
			p.headers = append(p.headers, placedColumn{c, a.alias})
		case a.to == toEnvelope:
			p.envelope = append(p.envelope, placedColumn{c, a.alias})
		case a.to == toPartition:
			p.partition = s.usable(c, key,
				func(c *connect.Column) bool { return partitionUsable(c, s.cfg.StrictTypes) },
				partitionHint(s.cfg.StrictTypes), "is no partition")
		}
	}
	if p.enveloped {
		const version = "table.field.event.schema.version"
		p.version = s.usable(s.optional(s.cfg.FieldSchemaVersion, version), version, isInt32,
			"a schema version is a column of type integer", "is no version")
	}
}

func partitionHint(strict bool) string {
	if strict {
		return "place a column of type integer as partition"
	}
	return "place a column of type integer, smallint or bigint as partition"
}

func partitionUsable(c *connect.Column, strict bool) bool {
	return isInt32(c) && strict || // a date too
		!strict && c.Number // of 16, 32 or 64 bits
}

// noValue is what Debezium makes of a value that it cannot read: nothing, or the empty text where
// there has to be one.
func noValue(notNull bool) any {
	if notNull {
		return connect.Text{}
	}
	return nil
}

// relationPlan makes the plan of a table: from the relation message, and from the catalog if
// Describe reads it.
func (r *rule) relationPlan(rel *replication.Relation, xid uint32) (*plan, error) {
	var table *Table
	if r.opts.Describe != nil {
		var err error
		if table, err = r.opts.Describe(rel.OID, xid); err != nil {
			return nil, fmt.Errorf("describe %s: %w", rel, err)
		}
	}
	s := &shape{rule: r.name, cfg: &r.cfg, relation: rel.String(), events: r.events,
		values: &r.values}
	s.lookup = func(i int) (*connect.Column, error) { return r.tableColumn(rel, i, table) }
	s.key = r.primaryKey(rel, table, s.lookup)
	for _, c := range rel.Columns {
		s.names = append(s.names, c.Name)
	}
	if table != nil {
		for _, c := range table.Columns {
			s.present = append(s.present, c.Name)
		}
		if table.sameShape(rel) {
			s.renamed = s.present
		}
	}
	return s.plan(r.placements)
}

// sameShape reports whether the columns of a row are those that the table has now, in this order,
// though maybe by other names. Columns are added at the end only and keep their places. So if none
// was ever dropped and the row has them all, none was added since.
func (t *Table) sameShape(rel *replication.Relation) bool {
	return !t.Dropped && len(rel.Columns) == len(t.Columns)
}

// describe finds what the catalog has about a column of a row; nil if it has nothing.
func (t *Table) describe(rel *replication.Relation, i int) *tableColumn {
	if t == nil {
		return nil
	}
	if !t.sameShape(rel) {
		i = slices.IndexFunc(t.Columns,
			func(c tableColumn) bool { return c.Name == rel.Columns[i].Name })
	}
	if i < 0 {
		return nil
	}
	return &t.Columns[i]
}

// tableColumn makes one column. The catalog is of now, and the row may be older.
func (r *rule) tableColumn(rel *replication.Relation, i int, table *Table) (*connect.Column,
	error) {
	c, described := rel.Columns[i], table.describe(rel, i)
	// unknown here: its text is all that is known
	t := &connect.Type{OID: c.TypeOID, Name: "text", Kind: "b", Mod: -1}
	if described != nil && described.Type.OID == c.TypeOID {
		*t = described.Type
		t.Mod = c.TypeMod
	} else if builtin := connect.Builtin(c.TypeOID, c.TypeMod); builtin != nil {
		t = builtin // without a description, or the type changed after this row was written
	}
	code, err := connect.CodecOf(t, &r.handling)
	if err != nil {
		return nil, err
	}
	sch := code.Schema
	sch.Optional = !c.Key
	out := &connect.Column{Index: i, Name: c.Name, Read: code.Read, Number: code.Number, Type: t}
	if t.Root().Name == "name" && r.cfg.StrictTypes && !r.cfg.IncludeUnknown {
		notNull := c.Key || described != nil && described.NotNull
		out.Read = func([]byte) (any, error) { return noValue(notNull), nil }
	}
	if described != nil {
		sch.Optional = !described.NotNull
		sch.Def = connect.DefaultValue(described.Default, t, &code)
		if r.cfg.NullDefaults {
			out.Def = sch.Def
		}
	}
	out.Schema = &sch
	out.Prefix = connect.SchemaPrefix(&sch, connect.PlainJSON)
	return out, nil
}
