package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

// tableCheck checks the columns of a table that is published.
type tableCheck struct {
	conn  *pgx.Conn
	cfg   config.Config
	table slot.Table
	rel   *replication.Relation
	seen  *samples
}

// run has the router judge the columns of the table, and adds the topics of its newest rows to
// seen, if the login may read them.
func (c tableCheck) run(ctx context.Context) []Finding {
	var err error
	name := c.table.Name
	if c.rel, err = c.table.Relation(ctx, c.conn); err != nil {
		return []Finding{errorFinding("columns", name, err)}
	}
	registries, err := registry.Preview(c.cfg.Registry, c.cfg.Format)
	if err != nil {
		return []Finding{errorFinding("registry", "registry.urls", err)}
	}
	r, err := NewRouter(ctx, c.conn, c.cfg, registries)
	if err == nil {
		err = r.Check(c.rel)
	}
	if err != nil {
		f := found("columns", name, err).fail("the columns that the router is to use, of types that "+
			"it can", "postrider config validate")
		if shape := new(router.ShapeError); errors.As(err, &shape) {
			f.Observed = strings.TrimPrefix(err.Error(), name+" cannot be routed: ")
			f.Fix = shape.Hint
		}
		return []Finding{f}
	}
	fs := findings{found("columns", name, "fit the router")}
	fs.add(c.nullable(ctx)...)
	if c.cfg.Snapshot.On() {
		fs.add(c.snapshot(ctx))
	}
	fs.add(c.rows(ctx, r)...)
	return fs
}

// NewRouter makes the router of a preview: with rows of tables, and registries that register
// nothing. It describes tables over conn, which must not be busy when a row is routed.
func NewRouter(ctx context.Context, conn *pgx.Conn, cfg config.Config,
	registries router.Registries) (*router.Router, error) {
	return router.New(cfg.Router, cfg.Format, router.Options{
		Registries: registries,
		Tables:     cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages,
		OwnTopics: cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) {
			return catalog.Describe(ctx, conn, oid)
		},
	})
}

// nullable finds columns of topic, key and type that may be NULL: a row without a topic or a key
// halts the relay, and a CloudEvent without a type.
func (c tableCheck) nullable(ctx context.Context) []Finding {
	rule, ok := c.cfg.Rule(c.table.Name)
	if !ok {
		return nil
	}
	// first is the first name that is a column of the table, "" if none is.
	first := func(names ...string) string {
		for _, name := range names {
			isName := func(column replication.Column) bool { return column.Name == name }
			if slices.ContainsFunc(c.rel.Columns, isName) {
				return name
			}
		}
		return ""
	}
	needed := []string{first(rule.RouteByField, "aggregate_type", "aggregatetype")}
	if rule.NullKey == "refuse" && !strings.Contains(rule.AdditionalPlacement, ":partition") {
		needed = append(needed, first(rule.FieldKey, "aggregate_id", "aggregateid"))
	}
	if c.cfg.Format.IsCloudEvents() {
		needed = append(needed, first(rule.FieldType, "event_type", "type"))
	}
	nullable, err := postgres.Collect(ctx, c.conn, pgx.RowTo[string], `
		SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = ANY ($2) AND NOT attnotnull ORDER BY attnum`,
		c.rel.OID, needed)
	if err != nil {
		return []Finding{errorFinding("columns_nullable", c.table.Name, err)}
	}
	if len(nullable) == 0 {
		return nil
	}
	set, null := make([]string, len(nullable)), make([]string, len(nullable))
	for i, name := range nullable {
		column := postgres.QuoteName(name)
		set[i], null[i] = "ALTER COLUMN "+column+" SET NOT NULL", column+" IS NULL"
	}
	table := slot.QuoteTable(c.table.Name)
	f := found("columns_nullable", c.table.Name, strings.Join(nullable, ", ")+" may be NULL")
	return []Finding{f.warn(
		"NOT NULL: a row without its topic or its key, or without the type of a CloudEvent, cannot be "+
			"published, and halts the relay",
		"SELECT * FROM "+table+" WHERE "+strings.Join(null, " OR ")+
			"; -- rows that have to be corrected or deleted first\n"+
			"ALTER TABLE "+table+" "+strings.Join(set, ", ")+";")}
}

// snapshot finds out whether the rows of the table can be published, and in which order.
func (c tableCheck) snapshot(ctx context.Context) Finding {
	name := c.table.Name
	reader, err := backfill.NewTableReader(ctx, c.conn, c.table, c.cfg.Replication.Tables,
		c.cfg.KeyColumns(name))
	if err != nil {
		return errorFinding("snapshot", name, err)
	}
	order := reader.Order
	f := found("snapshot", name,
		"rows already in the table are published in the order of "+order.String())
	if order.Random {
		return f.warn("an order that keeps the rows of a key in the order of their inserts",
			"if ids are random: set snapshot.order_by to a column with the time of the insert")
	}
	return f
}

// Limits of what check reads of a table: rows, bytes, and pages from its end, where the newest
// rows mostly lie. Beside a relay rows and bytes are a tenth: its page checks again and again.
const (
	sampleRows  = 1000
	sampleBytes = 32 << 20
	samplePages = 256
)

// samples are rows of the tables, routed: the topics to check, and the largest record of each.
type samples struct {
	rows, bytes int            // limits for each table
	consented   bool           // see slot.MayRead
	topics      []string       // those that the user named first
	largest     map[string]int // bytes of a record, with overhead, by topic
}

func newSamples(named []string, beside, snapshot bool) *samples {
	s := &samples{
		rows: sampleRows, bytes: sampleBytes, consented: snapshot || !beside,
		topics: slices.Clone(named), largest: map[string]int{},
	}
	if beside {
		s.rows, s.bytes = sampleRows/10, sampleBytes/10
	}
	return s
}

func (s *samples) add(topic string, size int) {
	if !slices.Contains(s.topics, topic) {
		s.topics = append(s.topics, topic)
	}
	s.largest[topic] = max(s.largest[topic], size)
}

// rows routes the newest rows of the table, if the login may read them, and reports the first that
// cannot be routed. r has judged c.rel, so that routing sends no query.
func (c tableCheck) rows(ctx context.Context, r *router.Router) []Finding {
	whyNot, err := slot.MayRead(ctx, c.conn, c.rel.OID, c.seen.consented)
	if err != nil || whyNot != "" {
		return nil // no finding: the relay needs no SELECT
	}
	read, err := c.read(ctx, r)
	f := found("rows", c.table.Name, fmt.Sprintf("the newest %d can be routed", read))
	var row *router.RowError
	switch {
	case errors.As(err, &row):
		f.Observed = err.Error()
		f = f.warn("rows that can be routed: the first that cannot be halts the relay", row.Hint)
	case err != nil:
		f.Observed = "not looked at: " + err.Error()
		f = f.info("nothing: the relay reads no rows of the table",
			"check again, or name a topic:\n"+checkTopic)
	}
	return []Finding{f}
}

// read reads in text format, as the stream brings the rows, by a cursor: their size is not known.
func (c tableCheck) read(ctx context.Context, r *router.Router) (rows int, err error) {
	s, conn, rel := c.seen, c.conn, c.rel
	from, err := newest(ctx, conn, c.table)
	if err != nil {
		return 0, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, postgres.Error(err)
	}
	defer postgres.AllowRows(conn)()
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "DECLARE sample NO SCROLL CURSOR FOR SELECT "+ColumnList(rel)+" FROM "+from)
	if err != nil {
		return 0, postgres.Error(err)
	}
	// One row, then as many as the mean size lets expect.
	for n, size := 1, 0; rows < s.rows && size < s.bytes; {
		fetched, err := tx.Query(ctx, fmt.Sprintf("FETCH FORWARD %d FROM sample", n),
			pgx.QueryResultFormats{pgx.TextFormatCode})
		if err != nil {
			return rows, postgres.Error(err)
		}
		events, err := pgx.CollectRows(fetched, func(row pgx.CollectableRow) (replication.Event, error) {
			return TextRow(row, rel), nil
		})
		if err != nil {
			return rows, postgres.Error(err)
		}
		for i := range events {
			m, err := r.Route(&events[i])
			if err != nil {
				return rows, err
			}
			if m != nil {
				s.add(m.Topic, kafka.RecordSize(m))
				size += m.Size()
			}
			rows++
		}
		if len(events) < n {
			return rows, nil
		}
		n = min(10*n, s.rows-rows, (s.bytes-size)/(size/rows+1)+1)
	}
	return rows, nil
}

// TextRow is a row that was read in text format: the output of the types' output functions, as in
// the stream. A cast to text can be a function of the type's owner.
func TextRow(row pgx.CollectableRow, rel *replication.Relation) replication.Event {
	e := replication.Event{
		Kind: replication.Insert, Relation: rel, Values: make([][]byte, len(rel.Columns)),
	}
	for i, raw := range row.RawValues()[:len(rel.Columns)] {
		e.Values[i] = bytes.Clone(raw) // the driver's buffer; nil stays nil
	}
	return e
}

// ColumnList is the columns of a relation as SQL, in its order.
func ColumnList(rel *replication.Relation) string {
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = postgres.QuoteName(c.Name)
	}
	return strings.Join(names, ", ")
}

// newest is what to select from for the newest rows: the end of the table, or of its youngest
// partition that has rows and may be read. If the end is empty it is the whole table.
func newest(ctx context.Context, conn *pgx.Conn, t slot.Table) (from string, err error) {
	var name string
	var pages int64
	err = conn.QueryRow(ctx, `
		SELECT c.oid::regclass::text, pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int
		FROM pg_catalog.pg_class c
		WHERE (c.oid = $1 OR c.oid IN (SELECT p.relid::oid FROM pg_catalog.pg_partition_tree($1::oid::regclass) p WHERE p.isleaf))
		  AND c.relkind = 'r' AND pg_catalog.pg_relation_size(c.oid) > 0 AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
		ORDER BY c.oid DESC LIMIT 1`, t.OID).Scan(&name, &pages)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return slot.QuoteTable(t.Name), nil
	case err != nil:
		return "", postgres.Error(err)
	case pages <= samplePages:
		return name, nil
	}
	from = fmt.Sprintf("%s WHERE ctid >= '(%d,0)'::tid", name, pages-samplePages)
	some, err := postgres.One[bool](ctx, conn, "SELECT EXISTS (SELECT FROM "+from+")")
	if err != nil {
		return "", err
	}
	if !some {
		from = name
	}
	return from, nil
}
