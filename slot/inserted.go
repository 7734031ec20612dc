package slot

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// Inserted reads the slot's stream from its confirmed position up to a position, confirming nothing, and returns which rows of the tables
// were inserted there: these come again when the slot is streamed. It takes 16 bytes of memory for each. sql is asked which table
// the rows of a partition belong to, as the relay decides it.
func Inserted(ctx context.Context, pg postgres.Config, sql *pgx.Conn, cfg replication.Config, name string, tables []*Copied, upTo pglogrepl.LSN,
	log zerolog.Logger) (map[RowID]struct{}, error) {
	found := finder{
		maxRowBytes: cfg.MaxRowBytes, tables: map[string]*Copied{}, of: map[*replication.Relation]copiedTo{}, ids: map[RowID]struct{}{},
		assigner: NewAssigner(cfg, name, log), sql: sql,
	}
	for _, t := range tables {
		found.tables[t.Name] = t
	}
	if err := found.assigner.Look(ctx, sql); err != nil {
		return nil, err
	}
	if err := ReadInserts(ctx, pg, cfg, name, upTo, log, func(e *replication.Event) error { return found.insert(ctx, e) }); err != nil {
		return nil, fmt.Errorf("look at what came after the snapshot: %w", err)
	}
	return found.ids, nil
}

// ReadInserts reads the slot's stream from its confirmed position up to another one, confirming nothing, and gives the inserts there in the order of
// their commits. An event is valid until each returns; an error of each ends it and is returned.
func ReadInserts(ctx context.Context, pg postgres.Config, cfg replication.Config, name string, upTo pglogrepl.LSN, log zerolog.Logger,
	each func(*replication.Event) error) error {
	conn, err := postgres.ReplicationConfig(pg)
	if err != nil {
		return err
	}
	stream, err := replication.Open(ctx, conn, cfg, name, log)
	if err != nil {
		return postgres.Error(err)
	}
	reached, stop := context.WithCancel(ctx)
	defer stop()
	batches := make(chan *replication.Batch, 1)
	ended := make(chan error, 1)
	// Ends with ctx, an error of the stream, or stop; waited for below.
	go func() { ended <- stream.Run(ctx, reached, batches, stream.SeedLSN) }()

	if stream.SeedLSN() >= upTo {
		stop()
	}
	var failed error
	for b := range batches {
		for i := range b.Events {
			e := &b.Events[i]
			switch e.Kind {
			case replication.Insert:
				if failed == nil {
					failed = each(e)
				}
				if failed != nil {
					stop()
				}
			case replication.Commit, replication.Idle:
				if e.LSN >= upTo {
					stop()
				}
			}
		}
		b.Release()
	}
	err = <-ended
	nothing := make(chan struct{})
	close(nothing)
	finishErr := stream.Finish(context.WithoutCancel(ctx), nothing)
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return postgres.Error(err)
	}
	return postgres.Error(finishErr)
}

type finder struct {
	assigner *Assigner
	sql      *pgx.Conn
	tables   map[string]*Copied // by name
	of       map[*replication.Relation]copiedTo
	ids      map[RowID]struct{}
	unique   [][]byte // of the row at hand, reused

	maxRowBytes int64
}

// copiedTo is the table that rows of a relation belong to, up to a position; nil: none of ours.
type copiedTo struct {
	table *Copied
	upTo  pglogrepl.LSN // zero: all
}

func (f *finder) table(ctx context.Context, e *replication.Event) (*Copied, error) {
	if known, is := f.of[e.Relation]; is && (known.upTo == 0 || e.LSN <= known.upTo) {
		return known.table, nil
	}
	name, upTo, err := f.assigner.Assign(ctx, f.sql, FirstRow{Relation: e.Relation, LSN: e.LSN, XID: e.XID, Index: e.Index})
	if err != nil {
		return nil, fmt.Errorf("look at what came after the snapshot: %w", err)
	}
	f.of[e.Relation] = copiedTo{f.tables[name], upTo}
	return f.tables[name], nil
}

func (f *finder) insert(ctx context.Context, e *replication.Event) error {
	t, err := f.table(ctx, e)
	if t == nil || err != nil {
		return err
	}
	f.unique = f.unique[:0]
	for _, k := range t.unique {
		i := slices.IndexFunc(e.Relation.Columns, func(c replication.Column) bool { return c.Name == k.column })
		if i < 0 {
			return t.refuse(fmt.Sprintf("had no column %q, or did not publish it, when rows were inserted after the snapshot began", k.column),
				"undo the change of the table until the snapshot is complete, or set snapshot.mode = \"no_data\" and publish the rest of the rows by hand")
		}
		if e.Oversize > 0 && e.Values[i] == nil { // behind the large column
			return fmt.Errorf("look at what came after the snapshot: %w", &replication.RowTooLargeError{Bytes: e.Oversize, Max: f.maxRowBytes})
		}
		f.unique = append(f.unique, e.Values[i])
	}
	f.ids[rowID(t.Relation.OID, f.unique)] = struct{}{}
	return nil
}
