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
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

// Limits of what check reads of a table: rows, bytes, and pages from its end, where the newest rows mostly lie. Beside a relay, where a
// page asks again and again, it is a tenth.
const (
	sampleRows  = 1000
	sampleBytes = 32 << 20
	samplePages = 256
)

// samples are rows of the tables, routed: the topics that check asks Kafka for, and the largest record of each.
type samples struct {
	rows, bytes int            // limits for each table
	consented   bool           // see slot.MayRead
	topics      []string       // those that were named first
	largest     map[string]int // bytes of a record, with overhead, by topic
}

func newSamples(named []string, beside, snapshot bool) *samples {
	s := &samples{rows: sampleRows, bytes: sampleBytes, consented: snapshot || !beside, topics: slices.Clone(named), largest: map[string]int{}}
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

// table routes the newest rows of a table that the login may read, and reports one that cannot be routed. r has judged rel: it asks nothing.
func (s *samples) table(ctx context.Context, conn *pgx.Conn, r *router.Router, t slot.Table, rel *replication.Relation) []slot.Finding {
	whyNot, err := slot.MayRead(ctx, conn, rel.OID, s.consented)
	if err != nil || whyNot != "" {
		return nil // the relay needs no SELECT, so this is no finding
	}
	read, err := s.read(ctx, conn, r, t, rel)
	f := slot.Finding{Severity: slot.SeverityOK, Code: "rows", Subject: t.Name, Observed: fmt.Sprintf("the newest %d can be routed", read)}
	var row *router.RowError
	switch {
	case errors.As(err, &row):
		f.Severity, f.Observed, f.Fix = slot.SeverityWarning, err.Error(), row.Hint
		f.Required = "rows that can be routed: the first that cannot be halts the relay"
	case err != nil:
		f.Severity, f.Observed, f.Required = slot.SeverityInfo, "not looked at: "+err.Error(), "nothing: the relay reads no rows of the table"
		f.Fix = "check again, or name a topic:\npostrider check --topic TOPIC   # one to which route.topic.replacement leads"
	}
	return []slot.Finding{f}
}

// read reads in text format, as the stream would bring the rows, by a cursor: nobody knows before how large they are.
func (s *samples) read(ctx context.Context, conn *pgx.Conn, r *router.Router, t slot.Table, rel *replication.Relation) (rows int, err error) {
	from, err := newest(ctx, conn, t)
	if err != nil {
		return 0, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return 0, postgres.Error(err)
	}
	defer postgres.AllowRows(conn)()
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "DECLARE sample NO SCROLL CURSOR FOR SELECT "+ColumnList(rel)+" FROM "+from); err != nil {
		return 0, postgres.Error(err)
	}
	// One row, then as many as the budget lets expect.
	for n, size := 1, 0; rows < s.rows && size < s.bytes; {
		fetched, err := tx.Query(ctx, fmt.Sprintf("FETCH FORWARD %d FROM sample", n), pgx.QueryResultFormats{pgx.TextFormatCode})
		if err != nil {
			return rows, postgres.Error(err)
		}
		events, err := pgx.CollectRows(fetched, func(row pgx.CollectableRow) (replication.Event, error) { return TextRow(row, rel), nil })
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

// textRow is a row that was read in text format: what the types' output functions write, as in the stream. A cast to text could be a function of
// whoever made the type.
func TextRow(row pgx.CollectableRow, rel *replication.Relation) replication.Event {
	e := replication.Event{Kind: replication.Insert, Relation: rel, Values: make([][]byte, len(rel.Columns))}
	for i, raw := range row.RawValues()[:len(rel.Columns)] {
		e.Values[i] = bytes.Clone(raw) // the driver's buffer; nil stays that
	}
	return e
}

func ColumnList(rel *replication.Relation) string {
	names := make([]string, len(rel.Columns))
	for i, c := range rel.Columns {
		names[i] = pgx.Identifier{c.Name}.Sanitize()
	}
	return strings.Join(names, ", ")
}

// newest is what to select from for the newest rows: the end of the table, or of its youngest partition that has any and may be read. A table
// whose end was emptied gives its first rows.
func newest(ctx context.Context, conn *pgx.Conn, t slot.Table) (from string, err error) {
	var name string
	var pages int64
	err = conn.QueryRow(ctx, `
		SELECT c.oid::regclass::text, pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int
		FROM pg_catalog.pg_class c
		WHERE (c.oid = $1 OR c.oid IN (SELECT p.relid::oid FROM pg_catalog.pg_partition_tree($1::oid::regclass) p WHERE p.isleaf))
		  AND c.relkind = 'r' AND pg_catalog.pg_relation_size(c.oid) > 0 AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
		ORDER BY c.oid DESC LIMIT 1`, t.OID).Scan(&name, &pages)
	whole := pgx.Identifier(SplitTable(t.Name)).Sanitize()
	if errors.Is(err, pgx.ErrNoRows) {
		return whole, nil
	}
	if err != nil {
		return "", postgres.Error(err)
	}
	if pages <= samplePages {
		return name, nil
	}
	from = fmt.Sprintf("%s WHERE ctid >= '(%d,0)'::tid", name, pages-samplePages)
	var some bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+from+")").Scan(&some); err != nil {
		return "", postgres.Error(err)
	}
	if !some {
		return name, nil
	}
	return from, nil
}

func SplitTable(name string) []string {
	schema, table := slot.SplitTable(name)
	return []string{schema, table}
}

// checkNullable looks for columns that may be NULL and must not be: a row without a topic or a key halts the relay.
func checkNullable(ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table, rel *replication.Relation) []slot.Finding {
	rule, ok := cfg.Rule(t.Name)
	if !ok {
		return nil
	}
	exists := func(name string) bool {
		return slices.ContainsFunc(rel.Columns, func(c replication.Column) bool { return c.Name == name })
	}
	found := func(configured string, names ...string) string {
		for _, name := range append([]string{configured}, names...) {
			if name != "" && exists(name) {
				return name
			}
		}
		return ""
	}
	needed := []string{found(rule.RouteByField, "aggregate_type", "aggregatetype")}
	if rule.NullKey == "refuse" && !strings.Contains(rule.AdditionalPlacement, ":partition") {
		needed = append(needed, found(rule.FieldKey, "aggregate_id", "aggregateid"))
	}
	rows, err := conn.Query(ctx, `
		SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = ANY ($2) AND NOT attnotnull ORDER BY attnum`, rel.OID, needed)
	if err != nil {
		return []slot.Finding{slot.ErrorFinding("columns_nullable", t.Name, postgres.Error(err))}
	}
	nullable, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return []slot.Finding{slot.ErrorFinding("columns_nullable", t.Name, postgres.Error(err))}
	}
	if len(nullable) == 0 {
		return nil
	}
	set, holds := make([]string, len(nullable)), make([]string, len(nullable))
	for i, name := range nullable {
		set[i] = "ALTER COLUMN " + pgx.Identifier{name}.Sanitize() + " SET NOT NULL"
		holds[i] = pgx.Identifier{name}.Sanitize() + " IS NULL"
	}
	table := pgx.Identifier(SplitTable(t.Name)).Sanitize()
	return []slot.Finding{{
		Severity: slot.SeverityWarning, Code: "columns_nullable", Subject: t.Name, Observed: strings.Join(nullable, ", ") + " may be NULL",
		Required: "NOT NULL: a row without its topic or its key cannot be published, and halts the relay",
		Fix: "SELECT * FROM " + table + " WHERE " + strings.Join(holds, " OR ") + "; -- rows that have to be corrected or deleted first\n" +
			"ALTER TABLE " + table + " " + strings.Join(set, ", ") + ";",
	}}
}

// checkSnapshot finds out whether the rows of a table could be published, and in which order.
func checkSnapshot(ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table) slot.Finding {
	c, err := backfill.NewTableReader(ctx, conn, t, cfg.Replication.Tables, cfg.KeyColumns(t.Name))
	if err != nil {
		return slot.ErrorFinding("snapshot", t.Name, err)
	}
	f := slot.Finding{Severity: slot.SeverityOK, Code: "snapshot", Subject: t.Name, Observed: "rows already in the table are published in the order of " + c.Order.String()}
	if c.Order.Random {
		f.Severity, f.Required = slot.SeverityWarning, "an order that keeps the rows of a key in the order of their inserts"
		f.Fix = "if ids are random: set snapshot.order_by to a column with the time of the insert"
	}
	return f
}
