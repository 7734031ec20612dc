package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
)

func newInit(a *app) *cobra.Command {
	var printSQL bool
	var table string
	preset := ""
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create outbox table, publication and slot",
		Long: `init creates what is missing, in this order: the outbox table, the publication, the
slot. What exists is left as it is, but that a table of replication.tables is added to a
publication that lacks it.

It takes more rights than the relay: ownership of the table, CREATE on the database, REPLICATION.
So run it with another login, for instance with POSTRIDER_POSTGRES_URL set, or hand the output of
--print-sql to an administrator. sql/role.sql creates the role of the relay itself.

Presets: plain, partitioned (one partition a day, dropped instead of deleted), debezium
(Debezium's column names).`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			a.warn(l.Warnings)
			cfg := l.Config
			setup := slot.Setup{Slot: cfg.Slot, Publication: cfg.Replication.Publication,
				Tables: cfg.Replication.Tables}
			if cfg.Snapshot.On() {
				setup.SnapshotMode = cfg.Snapshot.Mode
			}
			if table != "" {
				if !strings.Contains(table, ".") {
					table = "public." + table
				}
				setup.Tables = []string{table}
			}
			for _, t := range setup.Tables {
				schema, name := slot.SplitTable(t)
				script, err := sql.Outbox(preset, schema, name)
				if err != nil {
					return exit.Usagef("%v", err)
				}
				setup.Scripts = append(setup.Scripts, script)
			}
			if printSQL {
				return a.printf("%s", setup.SQL())
			}
			err := a.connect(ctx, cfg, func(s *session) error {
				return setup.Run(s.ctx, s.conn, s.progress)
			})
			if err != nil {
				return err
			}
			for _, t := range setup.Tables {
				if !slices.Contains(cfg.Replication.Tables, t) {
					a.progress("set replication.tables = [%q] (it is from: %s)", t,
						l.Origin("replication.tables"))
				}
			}
			a.progress("%s", a.typedForRelay("next: postrider check"))
			a.progress("%s", a.typedForRelay("then: postrider run"))
			return nil
		}, "postgres", "slot"),
	}
	cmd.Flags().BoolVar(&printSQL, "print-sql", false, "print the SQL and change nothing")
	cmd.Flags().StringVar(&table, "table", "",
		"outbox `table` instead of replication.tables; without a schema in public")
	cmd.Flags().StringVar(&preset, "preset", sql.Plain,
		"shape of a new outbox table: "+strings.Join(sql.Presets(), ", "))
	completeWords(cmd, "preset", sql.Presets())
	completeNothing(cmd, "table")
	a.keyFlags(cmd, "slot.name", "replication.publication")
	return cmd
}
