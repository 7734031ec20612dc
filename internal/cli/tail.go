package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink/stdout"
	"github.com/postrider/postrider/slot"
)

func newTail(a *app) *cobra.Command {
	var from time.Time
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print routed messages as they come, without touching the relay's slot",
		Long: `tail routes new rows the way run would and prints each message as one line of JSON.
It streams from a slot of its own that ends with it, so the relay's slot, its position and the
topics stay as they are.

--since prints rows that are in the table already before it follows: a duration (1h) or a time
(2026-01-31T12:00:00Z), compared with the column created_at. Unlike streaming, that needs the
right to SELECT.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			if !from.IsZero() {
				if err := a.printExisting(ctx, l.Config, from); err != nil {
					return err
				}
			}
			return daemon.DryRun(ctx, l.Config, a.environment(), a.newLogger(l.Config.Log))
		}, "postgres", "replication", "router", "format", "log"),
	}
	timeFlag(cmd, &from, "since", "print rows from the table first: a `duration` or time")
	return cmd
}

// printExisting prints the rows of the tables from a time on, in the order of created_at.
func (a *app) printExisting(ctx context.Context, cfg config.Config, from time.Time) error {
	conn, err := postgres.ConnectRows(ctx, cfg.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages,
		OwnTopics: cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) {
			return catalog.Describe(ctx, conn, oid)
		},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	s := &session{a, ctx, cfg, conn}
	for _, table := range cfg.Replication.Tables {
		if err := s.printTable(r, table, from); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) printTable(r *router.Router, table string, from time.Time) error {
	rel, err := slot.Relation(s.ctx, s.conn, table)
	if err != nil {
		return err
	}
	// Read before routing: Describe uses the same connection.
	events, err := s.existingRows(rel, from)
	if err != nil {
		return exit.Unreadable(fmt.Errorf("read %s since %s: %w", table, from.Format(time.RFC3339),
			postgres.Error(err)), table, s.conn.Config().User)
	}
	for i := range events {
		m, err := r.Route(&events[i])
		if err == nil && m != nil {
			_, err = s.Stdout.Write(append(stdout.Encode(nil, m), '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// existingRows reads rows in text format, as the stream brings them.
func (s *session) existingRows(rel *replication.Relation, from time.Time) (
	[]replication.Event, error) {
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
	rows, err := s.conn.Query(s.ctx, query, pgx.QueryResultFormats{pgx.TextFormatCode}, from)
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
