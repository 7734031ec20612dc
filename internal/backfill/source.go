package backfill

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// Parts are what rows of the tables are read and published with.
type Parts struct {
	Postgres    postgres.Config
	Need        slot.Requirements
	Replication replication.Config
	// Keys says which columns of a table its order may depend on.
	Keys   func(table string) KeyColumns
	Limits Limits
	Log    zerolog.Logger
}

// source reads the rows of the tables from before a boundary: those that come by the slot are left
// out. It belongs to one goroutine.
type source struct {
	Parts
	conn       *pgx.Conn  // in a transaction while rows are read
	lock       *slot.Lock // nil: not taken
	tables     []*TableReader
	consistent pglogrepl.LSN      // the boundary
	inserted   map[RowID]struct{} // visible rows from behind the boundary; nil: there are none
}

func openSource(ctx context.Context, parts Parts) (*source, error) {
	conn, err := postgres.ConnectRows(ctx, parts.Postgres)
	if err != nil {
		return nil, err
	}
	return &source{Parts: parts, conn: conn}, nil
}

// close ends the connections, and with them the lock.
func (s *source) close() {
	postgres.Close(s.conn)
	if s.lock != nil {
		s.lock.Close()
	}
}

// takeLock takes the right to publish rows of the tables for the slot.
func (s *source) takeLock(ctx context.Context) (err error) {
	s.lock, err = slot.TryLock(ctx, s.Postgres, s.Need.Slot.Name)
	return err
}

// describe looks at the tables, before anything is made. each gives the reader to use in the place
// of the one that is described.
func (s *source) describe(ctx context.Context,
	each func(slot.Table, *TableReader) (*TableReader, error)) error {
	p, err := slot.VerifyPublication(ctx, s.conn, s.Need.Publication, s.Need.Tables)
	if err != nil {
		return err
	}
	for _, t := range p.Tables {
		reader, err := NewTableReader(ctx, s.conn, t, s.Need.Tables, s.Keys(t.Name))
		if err != nil {
			return err
		}
		if reader, err = each(t, reader); err != nil {
			return err
		}
		s.tables = append(s.tables, reader)
	}
	return nil
}

// beginAt reads the tables as they were at the boundary of a new slot.
func (s *source) beginAt(ctx context.Context, e *Exported) error {
	defer e.Close()
	if err := e.Begin(ctx, s.conn); err != nil {
		return err
	}
	s.consistent = e.ConsistentPoint
	return nil
}

// beginNow reads the tables as they are now, without what comes by a slot that is confirmed up to
// a boundary; no name: there is no slot.
func (s *source) beginNow(ctx context.Context, name string, boundary pglogrepl.LSN) error {
	end, err := BeginNow(ctx, s.conn)
	if err != nil {
		return err
	}
	if name == "" {
		s.consistent = end
		return nil
	}
	s.consistent = boundary
	s.inserted, err = Inserted(ctx, s.Postgres, s.conn, s.Replication, name, s.tables, end, s.Log)
	return err
}

// routed is a row of a table with what the router made of it.
type routed struct {
	*Row
	table   *TableReader
	message *sink.Message // nil: none, by the configuration, or refused
	refusal error         // of the router
}

// next gives the next row from before the boundary, or io.EOF after the last. index numbers the
// rows.
func (s *source) next(ctx context.Context, rows *Rows, to *router.Router,
	index int64) (routed, error) {
	for {
		row, err := rows.Next(ctx)
		if err != nil {
			return routed{}, err
		}
		if _, comes := s.inserted[row.ID]; comes {
			continue
		}
		out := routed{Row: row, table: rows.table}
		out.message, out.refusal = to.Route(&replication.Event{
			Kind: replication.Insert, Relation: rows.table.Relation, Values: row.Values, LSN: s.consistent,
			Time:  time.Now(),
			Index: uint32(index), //nolint:gosec // wraps after four billion rows; for error messages and a header
		})
		return out, nil
	}
}

// origin is the relation and the id of a row; empty if it has no message and was not refused.
func (r routed) origin() (relation, id string) {
	if r.message != nil {
		return r.message.Origin.Relation, r.message.Origin.EventID
	}
	if refused := new(router.RowError); errors.As(r.refusal, &refused) {
		return refused.Relation, refused.EventID
	}
	return "", ""
}
