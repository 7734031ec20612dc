package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// plan is what is known about a relation: which column is what. It is made once per shape.
type plan struct {
	rel      *replication.Relation
	rule     *rule  // that the relation is routed by; nil: none, or there is an error
	relation string // schema-qualified
	err      error  // a *ShapeError, Home's or Describe's: no row can be routed

	upTo     pglogrepl.LSN // rows behind it are of another plan
	assigned *Assigned

	id, key, payload, route *column
	timestamp, version      *column // nil: none
	partition               *column // the last one placed; nil: none
	headersColumn, tracing  *column // nil: none
	headers                 []placedColumn
	envelope                []placedColumn
	enveloped               bool // the value is an envelope, even if all its columns are missing
	headerCount             int  // of a row, unless members of a column become headers
	schemas                 map[schemaKey][]*schema
	primaryKey              []*column
	lookup                  func(index int) (*column, error)
	updated                 bool // a dropped update was told of
}

type placedColumn struct {
	*column
	alias string
}

// shape finds columns of one relation by name.
type shape struct {
	rule     string // for errors
	cfg      *Config
	relation string
	names    []string
	present  []string                         // the columns that the table has now; nil: not known
	renamed  []string                         // the same if they are those of names, by their present names
	lookup   func(index int) (*column, error) // makes the column; an unsupportedTypeError if its type has no mapping
	key      []*column                        // the primary key
}

func (s *shape) problem(column, key, hint, format string, args ...any) *ShapeError {
	return &ShapeError{
		Relation: s.relation, Column: column, Rule: s.rule, Key: key, Existing: s.names, Problem: fmt.Sprintf(format, args...),
		Hint: strings.ReplaceAll(hint, "router.", s.rule+"."),
	}
}

// named gives the column of that name. It is an error if there is none, or none that has a mapping.
func (s *shape) named(name, key string) (*column, error) {
	i := slices.Index(s.names, name)
	if i < 0 {
		i = slices.Index(s.renamed, name)
	}
	if i < 0 && slices.Contains(s.present, name) {
		return nil, s.problem(fmt.Sprintf("%q", name), key, "if it was renamed while rows waited, add an empty column of the old name for as long as they are "+
			"relayed: docs/OUTBOX-TABLES.md, Changing the table", "is in the table, but not in this row, which was written before")
	}
	if i < 0 {
		return nil, s.problem(fmt.Sprintf("%q", name), key, "set router."+key+" to the column that is meant", "does not exist")
	}
	c, err := s.lookup(i)
	if unsupported := (*unsupportedTypeError)(nil); errors.As(err, &unsupported) {
		return nil, s.problem(fmt.Sprintf("%q", name), key, "choose another column, or set router.include.unknown.datatypes to true to have it as bytes",
			"is of type %s, which has no mapping", unsupported.name)
	}
	return c, err
}

// oneOf gives the configured column or, if none is configured, the one of two candidates that exists.
func (s *shape) oneOf(configured, key, ours, debeziums string) (*column, error) {
	if configured != "" {
		return s.named(configured, key)
	}
	hasOurs, hasTheirs := slices.Contains(s.names, ours), slices.Contains(s.names, debeziums)
	both := fmt.Sprintf("%q or %q", ours, debeziums)
	switch {
	case hasOurs && hasTheirs:
		return nil, s.problem(both, key, "set router."+key+" to one of them", "is ambiguous: both exist")
	case hasOurs:
		return s.named(ours, key)
	case hasTheirs:
		return s.named(debeziums, key)
	}
	return nil, s.problem(both, key, "set router."+key+" to the column that is meant", "does not exist")
}

// plan finds all columns that the configuration needs.
func (s *shape) plan(placements []placement) (*plan, error) {
	p := &plan{relation: s.relation, primaryKey: s.key, lookup: s.lookup, schemas: map[schemaKey][]*schema{}}
	var err error
	if p.payload, err = s.named(s.cfg.FieldPayload, "table.field.event.payload"); err != nil {
		return nil, err
	}
	if s.cfg.FieldTimestamp != "" {
		if p.timestamp, err = s.named(s.cfg.FieldTimestamp, "table.field.event.timestamp"); err != nil {
			return nil, err
		}
		if !timestampUsable(p.timestamp, s.cfg.StrictTypes) {
			return nil, s.problem(fmt.Sprintf("%q", p.timestamp.name), "table.field.event.timestamp", timestampHint(s.cfg.StrictTypes),
				"is of type %s, which is no time of a record", p.timestamp.typ.describe())
		}
	}
	if p.id, err = s.named(s.cfg.FieldID, "table.field.event.id"); err != nil {
		return nil, err
	}
	if err := s.place(p, placements); err != nil {
		return nil, err
	}
	if p.key, err = s.oneOf(s.cfg.FieldKey, "table.field.event.key", "aggregate_id", "aggregateid"); err != nil {
		return nil, err
	}
	if p.route, err = s.oneOf(s.cfg.RouteByField, "route.by.field", "aggregate_type", "aggregatetype"); err != nil {
		return nil, err
	}
	if p.route.schema.kind != kindString {
		return nil, s.problem(fmt.Sprintf("%q", p.route.name), "route.by.field", "set router.route.by.field to a column of text, varchar, uuid or an enum",
			"is of type %s, which is no text", p.route.typ.describe())
	}
	if s.cfg.HeadersColumn != "" {
		if p.headersColumn, err = s.named(s.cfg.HeadersColumn, "headers_column"); err != nil {
			return nil, err
		}
		if p.headersColumn.schema.kind != kindString {
			return nil, s.problem(fmt.Sprintf("%q", p.headersColumn.name), "headers_column", "set router.headers_column to a column of type json, jsonb or text",
				"is of type %s, which holds no JSON", p.headersColumn.typ.describe())
		}
	}
	if s.cfg.TracingHeaders && slices.Contains(s.names, s.cfg.TracingField) {
		if p.tracing, err = s.named(s.cfg.TracingField, "tracing.span.context.field"); err != nil {
			return nil, err
		}
		if p.tracing.schema.kind != kindString {
			return nil, s.problem(fmt.Sprintf("%q", p.tracing.name), "tracing.span.context.field", "set router.tracing.span.context.field to a column of type text or varchar",
				"is of type %s, which holds no span context", p.tracing.typ.describe())
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
		if missing := (*ShapeError)(nil); errors.As(err, &missing) && s.cfg.AdditionalMissing == "ignore" {
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
				return s.problem(fmt.Sprintf("%q", c.name), key, partitionHint(s.cfg.StrictTypes), "is of type %s, which is no partition", c.typ.describe())
			}
			p.partition = c
		}
	}
	if !p.enveloped || s.cfg.FieldSchemaVersion == "" {
		return nil
	}
	var err error
	if p.version, err = s.named(s.cfg.FieldSchemaVersion, "table.field.event.schema.version"); err != nil {
		return err
	}
	if p.version.schema.kind != kindInt32 {
		return s.problem(fmt.Sprintf("%q", p.version.name), "table.field.event.schema.version", "a schema version is a column of type integer",
			"is of type %s, which is no version", p.version.typ.describe())
	}
	return nil
}

func partitionHint(strict bool) string {
	if strict {
		return "place a column of type integer as partition"
	}
	return "place a column of type integer, smallint or bigint as partition"
}

func partitionUsable(c *column, strict bool) bool {
	k := c.schema.kind
	if strict { // a date too
		return k == kindInt32
	}
	return c.number && (k == kindInt16 || k == kindInt32 || k == kindInt64)
}

// noValue is what Debezium makes of a value that it cannot read: nothing, or the empty text where there has to be one.
func noValue(notNull bool) any {
	if notNull {
		return text{}
	}
	return nil
}

// root is the type that a domain is made of, or the type itself.
func (t *Type) root() *Type {
	for t.Kind == "d" && t.Base != nil {
		t = t.Base
	}
	return t
}

// describe names a type for people.
func (t *Type) describe() string {
	if t == nil {
		return "unknown"
	}
	return t.Name
}

// relationShape makes the columns of a table: from the relation message, and from the catalogue where that was asked.
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
	s.lookup = func(i int) (*column, error) { return r.tableColumn(rel, i, table) }
	return s, nil
}

// sameShape tells whether the columns of a row are those that the table has now, in this order, though maybe by other names. Columns are
// added at the end only and keep their places. So if none was ever dropped and the row has them all, none was added since.
func sameShape(rel *replication.Relation, table *Table) bool {
	return !table.Dropped && len(rel.Columns) == len(table.Columns)
}

// tableColumn makes one column. What the catalogue says is of now, and the row may be older.
func (r *rule) tableColumn(rel *replication.Relation, i int, table *Table) (*column, error) {
	c := rel.Columns[i]
	var described *TableColumn
	if table != nil && sameShape(rel, table) {
		described = &table.Columns[i]
	} else if table != nil {
		if at := slices.IndexFunc(table.Columns, func(t TableColumn) bool { return t.Name == c.Name }); at >= 0 {
			described = &table.Columns[at]
		}
	}
	var t *Type
	switch {
	case described != nil && described.Type.OID == c.TypeOID: // else the type changed after this row was written
		own := described.Type
		own.Mod = c.TypeMod
		t = &own
	default:
		if t = builtin(c.TypeOID, c.TypeMod); t == nil { // unknown here: its text is all that is known
			t = &Type{OID: c.TypeOID, Name: "text", Kind: "b", Mod: -1}
		}
	}
	code, err := codecOf(t, &r.cfg)
	if err != nil {
		return nil, err
	}
	sch := code.schema
	sch.optional = !c.Key
	out := &column{index: i, name: c.Name, read: code.read, number: code.number, typ: t}
	if t.root().Name == "name" && r.cfg.StrictTypes && !r.cfg.IncludeUnknown {
		notNull := c.Key || described != nil && described.NotNull
		out.read = func([]byte) (any, error) { return noValue(notNull), nil }
	}
	if described != nil {
		sch.optional = !described.NotNull
		sch.def = defaultValue(described.Default, t, &code)
		if r.cfg.NullDefaults {
			out.def = sch.def
		}
	}
	out.schema = &sch
	out.prefix = schemaPrefix(&sch, plainJSON)
	return out, nil
}
