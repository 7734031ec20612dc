package router

import (
	"errors"
	"fmt"
	"slices"
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
	lookup                  func(index int) (*connect.Column, error)
	updated                 bool // a dropped update was reported
}

type placedColumn struct {
	*connect.Column
	alias string
}

// shape finds columns of one relation by name.
type shape struct {
	rule     string // for errors
	cfg      *Config
	relation string
	names    []string
	// the columns that the table has now; nil: not known
	present []string
	// the same if they are those of names, by their present names
	renamed []string
	// makes the column; an unsupportedTypeError if its type has no mapping
	lookup func(index int) (*connect.Column, error)
	key    []*connect.Column // the primary key
}

func (s *shape) problem(column, key, hint, format string, args ...any) *ShapeError {
	return &ShapeError{
		Relation: s.relation, Column: column, Rule: s.rule, Key: key, Existing: s.names,
		Problem: fmt.Sprintf(format, args...),
		Hint:    strings.ReplaceAll(hint, "router.", s.rule+"."),
	}
}

// named gives the column of that name. It is an error if there is none, or none that has a
// mapping.
func (s *shape) named(name, key string) (*connect.Column, error) {
	i := slices.Index(s.names, name)
	if i < 0 {
		i = slices.Index(s.renamed, name)
	}
	if i < 0 && slices.Contains(s.present, name) {
		return nil, s.problem(fmt.Sprintf("%q", name), key,
			"if it was renamed while rows waited, add an empty column of the old name for as "+
				"long as they are "+
				"relayed: docs/OUTBOX-TABLES.md, Changing the table",
			"is in the table, but not in this row, which was written before")
	}
	if i < 0 {
		return nil, s.problem(fmt.Sprintf("%q", name), key,
			"set router."+key+" to the column that is meant", "does not exist")
	}
	c, err := s.lookup(i)
	if unsupported := (*connect.UnsupportedTypeError)(nil); errors.As(err, &unsupported) {
		return nil, s.problem(fmt.Sprintf("%q", name), key,
			"choose another column, or set router.include.unknown.datatypes to true to have it "+
				"as bytes",
			"is of type %s, which has no mapping", unsupported.Name)
	}
	return c, err
}

// oneOf gives the configured column or, if none is configured, the one of two candidates that
// exists.
func (s *shape) oneOf(configured, key, ours, debeziums string) (*connect.Column, error) {
	if configured != "" {
		return s.named(configured, key)
	}
	hasOurs, hasTheirs := slices.Contains(s.names, ours), slices.Contains(s.names, debeziums)
	both := fmt.Sprintf("%q or %q", ours, debeziums)
	switch {
	case hasOurs && hasTheirs:
		return nil, s.problem(both, key, "set router."+key+" to one of them",
			"is ambiguous: both exist")
	case hasOurs:
		return s.named(ours, key)
	case hasTheirs:
		return s.named(debeziums, key)
	}
	return nil, s.problem(both, key, "set router."+key+" to the column that is meant",
		"does not exist")
}

// plan finds all columns that the configuration needs.
func (s *shape) plan(placements []placement) (*plan, error) {
	p := &plan{relation: s.relation, primaryKey: s.key, lookup: s.lookup,
		schemas: map[schemaKey][]*connect.Schema{}}
	var err error
	if p.payload, err = s.named(s.cfg.FieldPayload, "table.field.event.payload"); err != nil {
		return nil, err
	}
	if s.cfg.FieldTimestamp != "" {
		if p.timestamp, err = s.named(s.cfg.FieldTimestamp,
			"table.field.event.timestamp"); err != nil {
			return nil, err
		}
		if !timestampUsable(p.timestamp, s.cfg.StrictTypes) {
			return nil, s.problem(fmt.Sprintf("%q", p.timestamp.Name),
				"table.field.event.timestamp", timestampHint(s.cfg.StrictTypes),
				"is of type %s, which is no time of a record", p.timestamp.Type.Describe())
		}
	}
	if p.id, err = s.named(s.cfg.FieldID, "table.field.event.id"); err != nil {
		return nil, err
	}
	if err := s.place(p, placements); err != nil {
		return nil, err
	}
	if p.key, err = s.oneOf(s.cfg.FieldKey, "table.field.event.key", "aggregate_id",
		"aggregateid"); err != nil {
		return nil, err
	}
	if p.route, err = s.oneOf(s.cfg.RouteByField, "route.by.field", "aggregate_type",
		"aggregatetype"); err != nil {
		return nil, err
	}
	if p.route.Schema.Kind != connect.KindString {
		return nil, s.problem(fmt.Sprintf("%q", p.route.Name), "route.by.field",
			"set router.route.by.field to a column of text, varchar, uuid or an enum",
			"is of type %s, which is no text", p.route.Type.Describe())
	}
	if s.cfg.HeadersColumn != "" {
		if p.headersColumn, err = s.named(s.cfg.HeadersColumn, "headers_column"); err != nil {
			return nil, err
		}
		if p.headersColumn.Schema.Kind != connect.KindString {
			return nil, s.problem(fmt.Sprintf("%q", p.headersColumn.Name), "headers_column",
				"set router.headers_column to a column of type json, jsonb or text",
				"is of type %s, which holds no JSON", p.headersColumn.Type.Describe())
		}
	}
	if s.cfg.TracingHeaders && slices.Contains(s.names, s.cfg.TracingField) {
		if p.tracing, err = s.named(s.cfg.TracingField, "tracing.span.context.field"); err != nil {
			return nil, err
		}
		if p.tracing.Schema.Kind != connect.KindString {
			return nil, s.problem(fmt.Sprintf("%q", p.tracing.Name), "tracing.span.context.field",
				"set router.tracing.span.context.field to a column of type text or varchar",
				"is of type %s, which holds no span context", p.tracing.Type.Describe())
		}
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
	return p, nil
}

// place finds the additional columns.
func (s *shape) place(p *plan, placements []placement) error {
	const key = "table.fields.additional.placement"
	for _, a := range placements {
		if a.to == toEnvelope {
			p.enveloped = true
		}
		c, err := s.named(a.column, key)
		if missing := (*ShapeError)(nil); errors.As(err, &missing) &&
			s.cfg.AdditionalMissing == "ignore" {
			continue
		}
		if err != nil {
			return err
		}
		switch a.to {
		case toHeader:
			p.headers = append(p.headers, placedColumn{c, a.alias})
		case toEnvelope:
			p.envelope = append(p.envelope, placedColumn{c, a.alias})
		case toPartition:
			if !partitionUsable(c, s.cfg.StrictTypes) {
				return s.problem(fmt.Sprintf("%q", c.Name), key, partitionHint(s.cfg.StrictTypes),
					"is of type %s, which is no partition", c.Type.Describe())
			}
			p.partition = c
		}
	}
	if !p.enveloped || s.cfg.FieldSchemaVersion == "" {
		return nil
	}
	var err error
	if p.version, err = s.named(s.cfg.FieldSchemaVersion,
		"table.field.event.schema.version"); err != nil {
		return err
	}
	if p.version.Schema.Kind != connect.KindInt32 {
		return s.problem(fmt.Sprintf("%q", p.version.Name), "table.field.event.schema.version",
			"a schema version is a column of type integer",
			"is of type %s, which is no version", p.version.Type.Describe())
	}
	return nil
}

func partitionHint(strict bool) string {
	if strict {
		return "place a column of type integer as partition"
	}
	return "place a column of type integer, smallint or bigint as partition"
}

func partitionUsable(c *connect.Column, strict bool) bool {
	k := c.Schema.Kind
	if strict { // a date too
		return k == connect.KindInt32
	}
	return c.Number && (k == connect.KindInt16 || k == connect.KindInt32 || k == connect.KindInt64)
}

// noValue is what Debezium makes of a value that it cannot read: nothing, or the empty text where
// there has to be one.
func noValue(notNull bool) any {
	if notNull {
		return connect.Text{}
	}
	return nil
}

// relationShape makes the columns of a table: from the relation message, and from the catalog if
// Describe reads it.
func (r *rule) relationShape(rel *replication.Relation, xid uint32) (*shape, error) {
	var table *Table
	if r.opts.Describe != nil {
		t, err := r.opts.Describe(rel.OID, xid)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", rel, err)
		}
		table = t
	}
	s := &shape{rule: r.name, cfg: &r.cfg, relation: rel.String(), key: r.primaryKey(rel, table)}
	for _, c := range rel.Columns {
		s.names = append(s.names, c.Name)
	}
	if table != nil {
		for _, c := range table.Columns {
			s.present = append(s.present, c.Name)
		}
		if sameShape(rel, table) {
			s.renamed = s.present
		}
	}
	s.lookup = func(i int) (*connect.Column, error) { return r.tableColumn(rel, i, table) }
	return s, nil
}

// sameShape reports whether the columns of a row are those that the table has now, in this order,
// though maybe by other names. Columns are added at the end only and keep their places. So if none
// was ever dropped and the row has them all, none was added since.
func sameShape(rel *replication.Relation, table *Table) bool {
	return !table.Dropped && len(rel.Columns) == len(table.Columns)
}

// tableColumn makes one column. The catalog is of now, and the row may be older.
func (r *rule) tableColumn(rel *replication.Relation, i int, table *Table) (*connect.Column,
	error) {
	c := rel.Columns[i]
	var described *TableColumn
	if table != nil && sameShape(rel, table) {
		described = &table.Columns[i]
	} else if table != nil {
		if at := slices.IndexFunc(table.Columns,
			func(t TableColumn) bool { return t.Name == c.Name }); at >= 0 {
			described = &table.Columns[at]
		}
	}
	var t *connect.Type
	switch {
	// else the type changed after this row was written
	case described != nil && described.Type.OID == c.TypeOID:
		own := described.Type
		own.Mod = c.TypeMod
		t = &own
	default:
		// unknown here: its text is all that is known
		if t = connect.Builtin(c.TypeOID, c.TypeMod); t == nil {
			t = &connect.Type{OID: c.TypeOID, Name: "text", Kind: "b", Mod: -1}
		}
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
