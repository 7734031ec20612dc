package slot

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"postrider/postgres"
	"postrider/replication"
)

// Inserted reads the slot's stream from its confirmed position up to a position, confirming nothing, and returns which rows of the tables
// were inserted there: these come again when the slot is streamed. It takes 16 bytes of memory for each. sql is asked for the partitions.
func Inserted(ctx context.Context, pg postgres.Config, sql *pgx.Conn, cfg replication.Config, name string, tables []*Copied, upTo pglogrepl.LSN,
	log zerolog.Logger) (map[RowID]struct{}, error) {
	found := finder{maxRowBytes: cfg.MaxRowBytes, tables: map[uint32]*Copied{}, ids: map[RowID]struct{}{}}
	if err := found.know(ctx, sql, tables); err != nil {
		return nil, err
	}
	conn, err := postgres.ReplicationConfig(pg)
	if err != nil {
		return nil, err
	}
	stream, err := replication.Open(ctx, conn, cfg, name, log)
	if err != nil {
		return nil, fmt.Errorf("look at what came after the snapshot: %w", postgres.Error(err))
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
				if err := found.insert(e); err != nil {
					failed = err
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
		return nil, failed
	case err != nil:
		return nil, fmt.Errorf("look at what came after the snapshot: %w", postgres.Error(err))
	case finishErr != nil:
		return nil, fmt.Errorf("look at what came after the snapshot: %w", postgres.Error(finishErr))
	}
	return found.ids, nil
}

type finder struct {
	tables map[uint32]*Copied // by OID of the relation under which their rows come
	ids    map[RowID]struct{}
	unique [][]byte // of the row at hand, reused

	maxRowBytes int64
}

func (f *finder) know(ctx context.Context, sql *pgx.Conn, tables []*Copied) error {
	var names []string
	byName := map[string]*Copied{}
	for _, t := range tables {
		names = append(names, t.Name)
		byName[t.Name] = t
	}
	oids, err := OIDs(ctx, sql, names)
	if err != nil {
		return err
	}
	for oid, name := range oids {
		f.tables[oid] = byName[name]
	}
	return nil
}

func (f *finder) insert(e *replication.Event) error {
	t := f.tables[e.Relation.OID]
	if t == nil {
		return nil
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
