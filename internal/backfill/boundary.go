package backfill

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// Exported is a new slot together with the database as it was at the slot's boundary: what had
// committed before ConsistentPoint is in the snapshot, and what commits after it comes by the
// slot.
type Exported struct {
	ConsistentPoint pglogrepl.LSN // also the confirmed position of the slot
	snapshot        string        // for Begin
	// Of the snapshot, once Begin has returned, for AwaitCommitted: no transaction in it reaches
	// Xmax, nor is it one of Running. These are at most as many as the server has sessions and
	// prepared transactions.
	Xmax    uint32
	Running []uint32
	conn    *pgconn.PgConn
}

// CreateExported makes a logical slot by a replication connection of its own, which keeps the
// snapshot until Close. sql is asked for the reasons of a failure.
func CreateExported(ctx context.Context, pg postgres.Config, sql *pgx.Conn,
	cfg slot.Config) (*Exported, error) {
	conn, err := postgres.ConnectReplication(ctx, pg)
	if err != nil {
		return nil, err
	}
	e := &Exported{conn: conn}
	if e.ConsistentPoint, e.snapshot, err = slot.CreateExporting(ctx, conn, sql, cfg); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Begin opens a transaction on conn that sees the snapshot, as soon as all that belongs to it can
// be seen. After that the Exported may be closed.
func (e *Exported) Begin(ctx context.Context, conn *pgx.Conn) error {
	if err := begin(ctx, conn, "; SET TRANSACTION SNAPSHOT "+
		postgres.QuoteText(e.snapshot)); err != nil {
		return err
	}
	seen, err := slot.AwaitFinished(ctx, conn)
	if err == nil {
		e.Xmax, e.Running = seen.Xmax, seen.Running
	}
	return err
}

// BeginNow opens a transaction on conn that sees the database as it is now, and returns a position
// behind everything it sees. All that had committed when a slot began is visible only after
// AwaitCommitted.
func BeginNow(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	if err := begin(ctx, conn, ""); err != nil {
		return 0, err
	}
	var text string
	var block, segment uint64
	// The statement's snapshot is taken before its functions are called.
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_current_wal_insert_lsn()::text,
		(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_block_size'),
		(SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name =
		'wal_segment_size')`).Scan(&text, &block, &segment)
	if err != nil {
		return 0, fmt.Errorf("read the server's position: %w", postgres.Error(err))
	}
	lsn, err := postgres.ParseLSN(text)
	return endOfRecord(lsn, block, segment), err
}

// endOfRecord is the end of the last record before the position where the next one is inserted. At
// the start of a page this lies behind the page's header, where no record ever ends: an idle
// server would never come to it.
func endOfRecord(insert pglogrepl.LSN, block, segment uint64) pglogrepl.LSN {
	const shortHeader, longHeader = 24, 40
	switch at := uint64(insert); {
	case at%segment == longHeader:
		return insert - longHeader
	case at%block == shortHeader:
		return insert - shortHeader
	}
	return insert
}

func begin(ctx context.Context, conn *pgx.Conn, more string) error {
	if _, err := conn.PgConn().Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"+more).
		ReadAll(); err != nil {
		return fmt.Errorf("begin to read the tables: %w", postgres.Error(err))
	}
	return nil
}

// Close releases the snapshot, not the slot.
func (e *Exported) Close() { postgres.Close(e.conn) }
