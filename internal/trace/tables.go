package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot"
)

// table is an outbox table that may have the rows.
type table struct {
	name    string
	rel     *replication.Relation // the columns that are published, or all
	rule    router.Config
	problem string // of the publication with it; empty: none
	fix     string
	filter  string   // rows that do not match are not sent; empty: none
	from    string   // of the SELECT
	names   []string // of the table and its partitions, under which its rows may come
	oids    []uint32 // the same
	updates bool     // by the statistics, rows were updated

	id, key, topic, kind, time int // columns by index; below zero: none
	description                *router.Table
	router                     *router.Router
}

// setTimeout ends statements at a deadline.
func setTimeout(ctx context.Context, conn *pgx.Conn, deadline time.Time) error {
	return postgres.SetTimeout(ctx, conn, "statement_timeout",
		max(time.Until(deadline), time.Millisecond))
}

// describeTables describes the tables that may be read. It is an error if none may.
func (s *search) describeTables(ctx context.Context) error {
	published, err := slot.VerifyPublication(ctx, s.conn, s.cfg.Replication.Publication,
		s.cfg.Replication.Tables)
	if broken := new(slot.PublicationError); err != nil && !errors.As(err, &broken) {
		return err
	}
	var unread error // of the first table that may not be read
	for i := range published.Tables {
		t, err := s.describe(ctx, published, published.Tables[i])
		if errors.As(err, new(*exit.Error)) || errors.As(err, new(*slot.PublicationError)) {
			s.result.Searched.Unreadable = append(s.result.Searched.Unreadable, err.Error())
			if unread == nil {
				unread = err
			}
			continue
		}
		if err != nil {
			return err
		}
		s.tables = append(s.tables, t)
		s.result.Searched.Tables = append(s.result.Searched.Tables, t.name)
	}
	switch {
	case len(s.tables) > 0:
		return nil
	case unread != nil:
		return unread
	}
	return &exit.Error{Code: exit.Config,
		Err:  errors.New("replication.tables is empty: logical messages are in no table"),
		Next: "postrider trace " + s.arguments() + " --topic TOPIC --since 1h"}
}

// describe returns a *exit.Error for a table that may not be read.
func (s *search) describe(ctx context.Context, p *slot.Publication,
	of slot.Table) (*table, error) {
	all, err := slot.Relation(ctx, s.conn, of.Name)
	if err != nil {
		return nil, err
	}
	whyNot, err := slot.MayRead(ctx, s.conn, all.OID, s.Consented)
	if err != nil {
		return nil, err
	}
	if whyNot != "" {
		return nil, s.unreadable(of.Name, whyNot)
	}
	t := &table{name: of.Name, rel: all, filter: of.RowFilter, from: slot.QuoteTable(of.Name)}
	if of.Published {
		if t.rel, err = of.Relation(ctx, s.conn); err != nil {
			return nil, err
		}
	}
	if of.Kind != "p" {
		t.from = "ONLY " + t.from // tables that inherit from it have names of their own
	}
	for _, problem := range p.Problems() {
		if t.problem == "" && (problem.Table == t.name || problem.Table == "") {
			t.problem, t.fix = problem.Error(), problem.SQL
		}
	}
	t.rule, _ = s.cfg.Rule(of.Name)
	if t.names, err = of.PartitionNames(ctx, s.conn); err != nil {
		return nil, err
	}
	t.names = append(t.names, t.name)
	oids, err := slot.OIDs(ctx, s.conn, []string{t.name})
	if err != nil {
		return nil, err
	}
	t.oids = slices.Collect(maps.Keys(oids))
	t.updates, err = postgres.One[bool](ctx, s.conn, `SELECT EXISTS (
		SELECT FROM pg_catalog.pg_stat_all_tables WHERE relid = ANY($1::oid[]) AND n_tup_upd > 0)`,
		t.oids)
	if err != nil {
		return nil, fmt.Errorf("read the statistics of table %s: %w", t.name, err)
	}
	if t.description, err = catalog.Describe(ctx, s.conn, all.OID); err != nil {
		return nil, err
	}
	registries, err := registry.Preview(s.cfg.Registry, s.cfg.Format)
	if err != nil {
		return nil, exit.ConfigFailure(err)
	}
	t.router, err = router.New(s.cfg.Router, s.cfg.Format, router.Options{
		Registries: registries,
		Tables:     s.cfg.Replication.Tables, MessagePrefixes: s.cfg.Replication.Messages,
		OwnTopics: s.cfg.OwnTopics(),
		Describe:  func(uint32, uint32) (*router.Table, error) { return t.description, nil },
	})
	if err != nil {
		return nil, exit.ConfigFailure(err)
	}
	return t, t.findColumns()
}

// unreadable is the error of a table that may not be read by SELECT.
func (s *search) unreadable(name, whyNot string) error {
	role := postgres.QuoteName(s.conn.Config().User)
	schema, _ := slot.SplitTable(name)
	f := &exit.Error{Code: exit.Permission,
		Err: fmt.Errorf("table %s cannot be searched: %s", name, whyNot),
		Next: fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %s; "+
			"-- as the owner of the table\n"+
			"or search a topic alone: postrider trace %s --topic TOPIC --since 1h",
			postgres.QuoteName(schema), role, slot.QuoteTable(name), role, s.arguments())}
	if strings.HasPrefix(whyNot, "the table belongs to another role") {
		f.Next = "postrider trace " + s.arguments() +
			"   # the command may read it, if the login has SELECT"
	}
	return f
}

// findColumns finds the columns of the rule set as the router does.
func (t *table) findColumns() error {
	find := func(names ...string) int {
		for _, name := range names {
			i := slices.IndexFunc(t.rel.Columns,
				func(c replication.Column) bool { return c.Name == name })
			if i >= 0 {
				return i
			}
		}
		return -1
	}
	or := func(configured string, found ...string) int {
		if configured != "" {
			return find(configured)
		}
		return find(found...)
	}
	r := &t.rule
	t.id = find(r.FieldID)
	t.key = or(r.FieldKey, "aggregate_id", "aggregateid")
	t.topic = or(r.RouteByField, "aggregate_type", "aggregatetype")
	t.kind = or(r.FieldType, "event_type", "type")
	t.time = -1
	// Another column with a time may be that of an update.
	for _, i := range []int{find(r.FieldTimestamp), find("created_at"), find("createdAt")} {
		if t.time < 0 && i >= 0 && slot.HoldsTime(t.rel.Columns[i]) {
			t.time = i
		}
	}
	if t.id < 0 {
		return &exit.Error{Code: exit.Config,
			Err:  fmt.Errorf("table %s has no column %q", t.name, r.FieldID),
			Next: "set router.table.field.event.id to the column with the id"}
	}
	return nil
}

// condition is the SQL condition for the rows of a request, and its parameters.
func (t *table) condition(r *Request) (where string, values [][]byte, err error) {
	if r.Key == nil {
		return t.equals(t.id, 1), [][]byte{[]byte(r.ID)}, nil
	}
	for _, c := range []struct {
		column     int
		value, key string
	}{{t.key, *r.Key, "table.field.event.key"}, {t.topic, r.AggregateType, "route.by.field"}} {
		switch {
		case c.column < 0:
			return "", nil, &exit.Error{Code: exit.Config,
				Err:  fmt.Errorf("table %s has no column by which it could be searched", t.name),
				Next: "set router." + c.key}
		case len(values) > 0 && c.value == "":
			return where, values, nil
		}
		values = append(values, []byte(c.value))
		if where != "" {
			where += " AND "
		}
		where += t.equals(c.column, len(values))
	}
	return where, values, nil
}

// equals compares a column with a parameter, which takes the type of the column. One of a type
// that is not built in is compared as text: its operators can be code of the type's owner.
func (t *table) equals(column, parameter int) string {
	c := t.rel.Columns[column]
	if !slot.Builtin(c) {
		return fmt.Sprintf("%s = $%d", slot.TextSQL(c), parameter)
	}
	return fmt.Sprintf("%s = $%d", postgres.QuoteName(c.Name), parameter)
}

// explainPlan is a node of EXPLAIN (FORMAT JSON).
type explainPlan struct {
	Type  string        `json:"Node Type"`
	Table string        `json:"Relation Name"`
	Plans []explainPlan `json:"Plans"`
}

// scanned are the names of the tables that are read from their beginnings to their ends.
func (p *explainPlan) scanned() (names []string) {
	if p.Type == "Seq Scan" {
		names = append(names, p.Table)
	}
	for i := range p.Plans {
		names = append(names, p.Plans[i].scanned()...)
	}
	return names
}

// refuseScan returns an error if the server would read more of a table than the request allows.
func (s *search) refuseScan(ctx context.Context, t *table, query string, values [][]byte) error {
	read := s.conn.PgConn().ExecParams(ctx, "EXPLAIN (FORMAT JSON) "+query, values, nil, nil,
		nil).Read()
	if read.Err != nil {
		return s.unsearchable(t, read.Err)
	}
	var plans []struct{ Plan explainPlan }
	if err := json.Unmarshal(read.Rows[0][0], &plans); err != nil {
		return fmt.Errorf("read the plan of a query of table %s: %w", t.name, err)
	}
	names := plans[0].Plan.scanned()
	if len(names) == 0 {
		return nil
	}
	bytes, err := postgres.One[int64](ctx, s.conn, `
		SELECT coalesce(pg_catalog.sum(pg_catalog.pg_relation_size(c.oid)), 0)::bigint
		FROM pg_catalog.pg_class c WHERE c.oid = ANY($1::oid[]) AND c.relname = ANY($2::name[])`,
		t.oids, names)
	if err != nil {
		return fmt.Errorf("read the size of table %s: %w", t.name, err)
	}
	if bytes <= s.MaxScan {
		return nil
	}
	column := t.rel.Columns[t.id].Name
	if s.Key != nil {
		column = t.rel.Columns[t.key].Name
	}
	return &exit.Error{Code: exit.Config,
		Err: fmt.Errorf("no index of table %s finds rows by column %q: the server would read %s",
			t.name, column, slot.Size(float64(bytes))),
		Next: fmt.Sprintf("postrider trace %s --scan   # reads it\n"+
			"or CREATE INDEX CONCURRENTLY ON %s (%s); -- not on a partitioned table: on each partition",
			s.arguments(), slot.QuoteTable(t.name), postgres.QuoteName(column))}
}

// errUnfit is an id or a key that a column cannot have.
type errUnfit struct{ error }

// unsearchable is an error of a query of a table, in the words of the request.
func (s *search) unsearchable(t *table, err error) error {
	switch state := postgres.SQLState(err); {
	case strings.HasPrefix(state, "22"): // data exception: not a value of the type
		column := t.rel.Columns[t.id].Name
		if s.Key != nil {
			column = t.rel.Columns[t.key].Name
		}
		return errUnfit{fmt.Errorf("column %q of table %s cannot have it: %w", column, t.name, err)}
	case state == "57014":
		return &exit.Error{Code: exit.Temporary, Next: "postrider trace " + s.arguments(),
			Err: fmt.Errorf("the search in table %s took too long and was cancelled", t.name)}
	}
	err = fmt.Errorf("search table %s: %w", t.name, postgres.Error(err))
	return exit.Unreadable(err, slot.QuoteTable(t.name), s.conn.Config().User)
}
