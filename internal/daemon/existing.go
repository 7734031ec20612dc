package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/stdout"
	"github.com/postrider/postrider/slot"
)

// printExisting routes the rows that are in the tables since a time, and writes each message to w
// as sink.kind stdout does: table by table, in the order of created_at. It takes the right to
// SELECT. Errors are those of the database, of the router and of w.
func printExisting(ctx context.Context, cfg config.Config, since time.Time, w io.Writer) error {
	conn, err := postgres.ConnectRows(ctx, cfg.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	catalog, err := postgres.Connect(ctx, cfg.Postgres) // conn is busy while rows are read
	if err != nil {
		return err
	}
	defer postgres.Close(catalog)
	registries, err := registry.Preview(cfg.Registry, cfg.Format)
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	r, err := check.NewRouter(ctx, catalog, cfg, registries)
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	for _, table := range cfg.Replication.Tables {
		if err := printTable(ctx, conn, r, table, since, w); err != nil {
			return err
		}
	}
	return nil
}

// printTable reads rows in text format, as the stream brings them, and keeps none.
func printTable(ctx context.Context, conn *pgx.Conn, r *router.Router, table string,
	since time.Time, w io.Writer) error {
	rel, err := slot.Relation(ctx, conn, table)
	if err != nil {
		return err
	}
	unreadable := func(err error) error {
		return exit.Unreadable(fmt.Errorf("read %s since %s: %w", table, since.Format(time.RFC3339),
			postgres.Error(err)), table, conn.Config().User)
	}
	at := slices.IndexFunc(rel.Columns, func(c replication.Column) bool {
		return c.Name == "created_at" && slot.HoldsTime(c)
	})
	if at < 0 {
		return unreadable(errors.New(
			"there is no column created_at of a type with a time: timestamptz, timestamp or date"))
	}
	query := "SELECT " + check.ColumnList(rel) + " FROM " +
		pgx.Identifier{rel.Namespace, rel.Name}.Sanitize() +
		" WHERE created_at >= $1 ORDER BY created_at"
	reading, cancel := context.WithCancel(ctx)
	rows, err := conn.Query(reading, query, pgx.QueryResultFormats{pgx.TextFormatCode}, since)
	if err != nil {
		cancel()
		return unreadable(err)
	}
	defer rows.Close()
	defer cancel()                           // first: Close would read what is left
	targets := make([]any, len(rel.Columns)) // nil: left out
	for rows.Next() {
		e := check.TextRow(rows, rel)
		targets[at] = &e.Time
		if err := rows.Scan(targets...); err != nil {
			return unreadable(err)
		}
		m, err := r.Route(&e)
		if err == nil && m != nil {
			_, err = w.Write(append(stdout.Encode(nil, m), '\n'))
		}
		if err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return unreadable(err)
	}
	return nil
}
