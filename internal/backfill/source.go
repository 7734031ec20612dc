package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// Parts are the common dependencies of Snapshot and Recovery.
type Parts struct {
	Postgres    postgres.Config
	Need        slot.Requirements
	Replication replication.Config
	// Keys returns the columns of a table by which it may be sorted.
	Keys   func(table string) KeyColumns
	Limits Limits
	// Limiter limits the rate of messages. May be nil.
	Limiter *ratelimit.Limiter
	Log     zerolog.Logger
}

// source reads the rows of the tables from before a boundary, and not those that the slot sends.
// It is for one goroutine.
type source struct {
	Parts
	conn     *pgx.Conn  // in a transaction while rows are read
	lock     *slot.Lock // nil: not taken
	tables   []*TableReader
	boundary pglogrepl.LSN      // of the rows that are read
	inserted map[rowID]struct{} // visible rows from after the boundary; nil: there are none
}

func openSource(ctx context.Context, parts Parts) (*source, error) {
	conn, err := postgres.ConnectRows(ctx, parts.Postgres)
	if err != nil {
		return nil, err
	}
	if err := postgres.SetTimeout(ctx, conn, "lock_timeout", slot.LockTimeout); err != nil {
		postgres.Close(conn)
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

// describe verifies the publication and describes its tables. It changes nothing.
func (s *source) describe(ctx context.Context) (err error) {
	defer func() { err = slot.Locked(err) }()
	p, err := slot.VerifyPublication(ctx, s.conn, s.Need.Publication, s.Need.Tables)
	if err != nil {
		return err
	}
	for _, t := range p.Tables {
		reader, err := NewTableReader(ctx, s.conn, t, s.Need.Tables, s.Keys(t.Name))
		if err != nil {
			return err
		}
		s.tables = append(s.tables, reader)
	}
	return nil
}

// beginAt begins a transaction that sees the tables as they were at the boundary of a new slot.
func (s *source) beginAt(ctx context.Context, e *exportedSlot) error {
	defer e.Close()
	if err := e.begin(ctx, s.conn); err != nil {
		return err
	}
	s.boundary = e.ConsistentPoint
	return s.hold(ctx)
}

// beginNow begins a transaction that sees the tables as they are now, and finds the rows that the
// slot name will send, which is confirmed up to boundary. Empty name: there is no slot.
func (s *source) beginNow(ctx context.Context, name string, boundary pglogrepl.LSN) error {
	end, err := s.beginHeld(ctx)
	if err != nil {
		return err
	}
	if name == "" {
		s.boundary = end
		return nil
	}
	s.boundary = boundary
	s.inserted, err = readInserted(ctx, s.Postgres, s.conn, s.Replication, name, s.tables, end, s.Log)
	return err
}

// holdTries is how often a transaction begins before a table that is rewritten each time is an
// error.
const holdTries = 3

// beginHeld is beginNow with the tables held. It begins again if one of them was rewritten after
// the transaction began.
func (s *source) beginHeld(ctx context.Context) (end pglogrepl.LSN, err error) {
	for range holdTries {
		if end, err = beginNow(ctx, s.conn); err == nil {
			err = s.hold(ctx)
		}
		if !errors.Is(err, slot.ErrRewritten) {
			return end, err
		}
		if _, err := s.conn.Exec(ctx, "ROLLBACK"); err != nil {
			return 0, postgres.Wrap(err, "begin again to read the tables")
		}
	}
	return 0, err
}

// hold calls slot.HoldTable for each table.
func (s *source) hold(ctx context.Context) error {
	for _, t := range s.tables {
		if err := slot.HoldTable(ctx, s.conn, t.from, t.Relation.OID); err != nil {
			return err
		}
	}
	return nil
}

// routed is a row of a table with the router's result.
type routed struct {
	*Row
	table   *TableReader
	message *sink.Message // nil: the configuration makes none, or the row is refused
	refusal error         // of the router
}

// column returns the value of a column in text form; nil: there is none, or it is NULL.
func (r routed) column(name string) []byte {
	for i, c := range r.table.Relation.Columns {
		if c.Name == name {
			return r.Values[i]
		}
	}
	return nil
}

// next returns the next row from before the boundary, io.EOF after the last. index is its number.
func (s *source) next(ctx context.Context, rows *Rows, to *router.Router,
	index int64) (routed, error) {
	for {
		row, err := rows.Next(ctx)
		if err != nil {
			return routed{}, err
		}
		if _, inserted := s.inserted[row.id]; inserted {
			continue
		}
		out := routed{Row: row, table: rows.table}
		out.message, out.refusal = to.Route(&replication.Event{
			Kind: replication.Insert, Relation: rows.table.Relation, Values: row.Values, LSN: s.boundary,
			Time:  time.Now(),
			Index: uint32(index), //nolint:gosec // wraps after four billion rows; only informs
		})
		return out, nil
	}
}

// origin returns the relation and the id of a row; empty: it has no message and was not refused.
func (r routed) origin() (relation, id string) {
	if r.message != nil {
		return r.message.Origin.Relation, r.message.Origin.EventID
	}
	if refused, ok := errors.AsType[*router.RowError](r.refusal); ok {
		return refused.Relation, refused.EventID
	}
	return "", ""
}

// exportedSlot is a new slot with its exported snapshot: the snapshot has what had committed
// before ConsistentPoint, and the slot sends the rest.
type exportedSlot struct {
	ConsistentPoint pglogrepl.LSN // also the confirmed position of the slot
	snapshot        string        // for begin
	// Set by begin, for slot.AwaitCommitted: every transaction in the snapshot is below Xmax and not
	// in Running, which has at most as many as there are sessions and prepared transactions.
	Xmax    uint32
	Running []uint32
	conn    *pgconn.PgConn
}

// createExported makes a logical slot on a replication connection of its own, which keeps the
// snapshot until Close. sql is for finding the cause of a failure.
func createExported(ctx context.Context, pg postgres.Config, sql *pgx.Conn,
	cfg slot.Config) (*exportedSlot, error) {
	conn, err := postgres.ConnectReplication(ctx, pg)
	if err != nil {
		return nil, err
	}
	e := &exportedSlot{conn: conn}
	if e.ConsistentPoint, e.snapshot, err = slot.CreateExporting(ctx, conn, sql, cfg); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// begin opens a transaction on conn that sees the snapshot, once all transactions of the snapshot
// are visible. After that it may be closed.
func (e *exportedSlot) begin(ctx context.Context, conn *pgx.Conn) error {
	err := begin(ctx, conn, "; SET TRANSACTION SNAPSHOT "+postgres.QuoteText(e.snapshot))
	if err != nil {
		return err
	}
	seen, err := slot.AwaitFinished(ctx, conn)
	if err == nil {
		e.Xmax, e.Running = seen.Xmax, seen.Running
	}
	return err
}

// beginNow opens a transaction on conn that sees the database as it is now, and returns a position
// after all that it sees. To see all that had committed when a slot was made, call
// slot.AwaitCommitted before it.
func beginNow(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	if err := begin(ctx, conn, ""); err != nil {
		return 0, err
	}
	var lsn pglogrepl.LSN
	var block, segment uint64
	// The statement's snapshot is taken before its functions are called.
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_insert_lsn()::text,
		(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_block_size'),
		(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name =
		'wal_segment_size')`).Scan(&lsn, &block, &segment)
	if err != nil {
		return 0, fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	return postgres.EndOfRecord(lsn, segment, block), nil
}

func begin(ctx context.Context, conn *pgx.Conn, then string) error {
	_, err := conn.PgConn().Exec(ctx,
		"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"+then).ReadAll()
	return postgres.Wrap(err, "begin to read the tables")
}

// Close releases the snapshot, not the slot.
func (e *exportedSlot) Close() { postgres.Close(e.conn) }
