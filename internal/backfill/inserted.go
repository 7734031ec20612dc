package backfill

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot/partition"
)

// readInserted returns the rows of tables that slot name will send up to a position. It reads them
// from the slot's stream and confirms nothing, so the relay will read them again. Each row takes
// 16 bytes of memory. sql is for assigning partitions to tables, as the relay does.
func readInserted(ctx context.Context, pg postgres.Config, sql *pgx.Conn, cfg replication.Config,
	name string, tables []*TableReader, upTo pglogrepl.LSN,
	log zerolog.Logger) (map[rowID]struct{}, error) {
	found := insertedRows{
		maxRowBytes: cfg.MaxRowBytes, tables: map[string]*TableReader{},
		assigned: map[*replication.Relation]assignment{}, ids: map[rowID]struct{}{},
		assigner: partition.New(cfg, name, log), sql: sql,
	}
	for _, t := range tables {
		found.tables[t.Name] = t
	}
	if err := found.assigner.Look(ctx, sql); err != nil {
		return nil, err
	}
	conn, err := postgres.ReplicationLogin(ctx, pg)
	if err != nil {
		return nil, err
	}
	err = replication.ReadInserts(ctx, conn, cfg, name, upTo, log,
		func(e *replication.Event) error { return found.insert(ctx, e) })
	if err != nil {
		return nil, fmt.Errorf("find the rows that come by slot %q: %w", name, postgres.Error(err))
	}
	return found.ids, nil
}

// insertedRows collects the ids of rows in a stream.
type insertedRows struct {
	assigner *partition.Assigner
	sql      *pgx.Conn
	tables   map[string]*TableReader // by name
	assigned map[*replication.Relation]assignment
	ids      map[rowID]struct{}
	unique   [][]byte // of the current row, reused

	maxRowBytes int64
}

// assignment is the table of a relation's rows, up to a position.
type assignment struct {
	table *TableReader  // nil: no outbox table
	upTo  pglogrepl.LSN // zero: all
}

func (f *insertedRows) table(ctx context.Context, e *replication.Event) (*TableReader, error) {
	if known, ok := f.assigned[e.Relation]; ok && (known.upTo == 0 || e.LSN <= known.upTo) {
		return known.table, nil
	}
	name, upTo, err := f.assigner.Assign(ctx, f.sql,
		partition.FirstRow{Relation: e.Relation, LSN: e.LSN, XID: e.XID, Index: e.Index})
	if err != nil {
		return nil, err
	}
	f.assigned[e.Relation] = assignment{f.tables[name], upTo}
	return f.tables[name], nil
}

func (f *insertedRows) insert(ctx context.Context, e *replication.Event) error {
	t, err := f.table(ctx, e)
	if t == nil || err != nil {
		return err
	}
	f.unique = f.unique[:0]
	for _, k := range t.unique {
		i := slices.IndexFunc(e.Relation.Columns,
			func(c replication.Column) bool { return c.Name == k.column })
		if i < 0 {
			return t.refuse(fmt.Sprintf(
				"had no column %q, or did not publish it, when rows were inserted after the snapshot began",
				k.column),
				"undo the change of the table until the snapshot is complete, or set snapshot.mode = "+
					"\"no_data\" and publish the rest of the rows by hand")
		}
		if e.Oversize > 0 && e.Values[i] == nil { // after the large column
			return &replication.RowTooLargeError{Bytes: e.Oversize, Max: f.maxRowBytes}
		}
		f.unique = append(f.unique, e.Values[i])
	}
	f.ids[newRowID(t.Relation.OID, f.unique)] = struct{}{}
	return nil
}
