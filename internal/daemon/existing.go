package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/catalog"
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

// PrintExisting routes the rows that are in the tables since a time, and writes each message to w
// as sink.kind stdout does: table by table, in the order of created_at. It takes the right to
// SELECT. Errors are those of the database, of the router and of w.
func PrintExisting(ctx context.Context, cfg config.Config, since time.Time, w io.Writer) error {
	conn, err := postgres.ConnectRows(ctx, cfg.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	registries, err := registry.Preview(cfg.Registry, cfg.Format)
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Registries: registries,
		Tables:     cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages,
		OwnTopics: cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) {
			return catalog.Describe(ctx, conn, oid)
		},
	})
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

func printTable(ctx context.Context, conn *pgx.Conn, r *router.Router, table string,
	since time.Time, w io.Writer) error {
	rel, err := slot.Relation(ctx, conn, table)
	if err != nil {
		return err
	}
	// Read before routing: Describe uses the same connection.
	events, err := existingRows(ctx, conn, rel, since)
	if err != nil {
		return exit.Unreadable(fmt.Errorf("read %s since %s: %w", table,
			since.Format(time.RFC3339), postgres.Error(err)), table, conn.Config().User)
	}
	for i := range events {
		m, err := r.Route(&events[i])
		if err == nil && m != nil {
			_, err = w.Write(append(stdout.Encode(nil, m), '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// existingRows reads rows in text format, as the stream brings them.
func existingRows(ctx context.Context, conn *pgx.Conn, rel *replication.Relation,
	since time.Time) ([]replication.Event, error) {
	at := slices.IndexFunc(rel.Columns, func(c replication.Column) bool {
		return c.Name == "created_at" && slot.HoldsTime(c)
	})
	if at < 0 {
		return nil, errors.New(
			"there is no column created_at of a type with a time: timestamptz, timestamp or date")
	}
	query := "SELECT " + check.ColumnList(rel) + " FROM " +
		pgx.Identifier{rel.Namespace, rel.Name}.Sanitize() +
		" WHERE created_at >= $1 ORDER BY created_at"
	rows, err := conn.Query(ctx, query, pgx.QueryResultFormats{pgx.TextFormatCode}, since)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (replication.Event, error) {
		e := check.TextRow(row, rel)
		targets := make([]any, len(rel.Columns)) // nil: left out
		targets[at] = &e.Time
		return e, row.Scan(targets...)
	})
}
