package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
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
right to SELECT. A row that is committed while it begins can be printed twice.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			return daemon.DryRun(ctx, l.Config, a.environment(), from, a.newLogger(l.Config.Log))
		}, "postgres", "replication", "router", "format", "log"),
	}
	timeFlag(cmd, &from, "since", "print rows from the table first: a `duration` or time")
	return cmd
}
