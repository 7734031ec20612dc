package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

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
	var some bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+from+")").Scan(&some); err != nil {
		return "", postgres.Error(err)
	}
	if !some {
		from = name
	}
	return from, nil
}
