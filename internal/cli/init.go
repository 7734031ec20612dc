package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
)

func newInit(a *app) *cobra.Command {
	var printSQL bool
	var table string
	o := setup{}
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
			o.cfg, o.tables = l.Config, l.Config.Replication.Tables
			if table != "" {
				if !strings.Contains(table, ".") {
					table = "public." + table
				}
				o.tables = []string{table}
			}
			for _, t := range o.tables {
				schema, name := slot.SplitTable(t)
				script, err := sql.Outbox(o.preset, schema, name)
				if err != nil {
					return exit.Usagef("%v", err)
				}
				o.scripts = append(o.scripts, script)
			}
			if printSQL {
				return a.printf("%s", o.sql())
			}
			if err := a.connect(ctx, l.Config, o.run); err != nil {
				return err
			}
			for _, t := range o.tables {
				if !slices.Contains(l.Config.Replication.Tables, t) {
					a.progress("set replication.tables = [%q] (it is from: %s)", t,
						l.Origin("replication.tables"))
				}
			}
			a.progress("%s", a.typed("next: postrider check"))
			a.progress("%s", a.typed("then: postrider run"))
			return nil
		}, "postgres", "slot"),
	}
	cmd.Flags().BoolVar(&printSQL, "print-sql", false, "print the SQL and change nothing")
	cmd.Flags().StringVar(&table, "table", "",
		"outbox `table` instead of replication.tables; without a schema in public")
	cmd.Flags().StringVar(&o.preset, "preset", sql.Plain,
		"shape of a new outbox table: "+strings.Join(sql.Presets(), ", "))
	completeWords(cmd, "preset", sql.Presets())
	completeNothing(cmd, "table")
	a.keyFlags(cmd, "slot.name", "replication.publication")
	return cmd
}

// setup is what init creates.
type setup struct {
	cfg     config.Config
	preset  string
	tables  []string
	scripts []string // one per table
}

// sql is a script for psql that leaves what exists. Its parts are separate transactions: a
// transaction that has written creates no slot.
func (o *setup) sql() string {
	last := "-- From here on the server keeps WAL until the relay has confirmed it.\n" +
		slot.EnsureSQL(o.cfg.Slot)
	if o.cfg.Snapshot.On() {
		last = "-- The slot is made by postrider run, which publishes the rows that are in the " +
			"tables first (snapshot.mode)."
	}
	return "-- Whatever this session begins with: names are those of PostgreSQL itself.\n" +
		"SET search_path = pg_catalog, pg_temp;\n\n" + strings.Join(o.scripts, "\n") + "\n" +
		"-- Inserts only, under the name of the table. Before the slot: it never sends what was " +
		"committed before its publication.\n" +
		slot.EnsurePublicationSQL(o.cfg.Replication.Publication, o.tables) + "\n\n" + last + "\n"
}

// run creates what is missing.
func (o *setup) run(s *session) error {
	// A standby creates no table, and its slots wait for what only the primary writes.
	if err := slot.VerifyServer(s.ctx, s.conn); err != nil {
		return err
	}
	for i, t := range o.tables {
		if err := s.createTable(t, o.scripts[i]); err != nil {
			return err
		}
	}
	if err := s.createPublication(o.tables); err != nil {
		return err
	}
	return s.createMissingSlot()
}

func (s *session) createTable(table, script string) error {
	schema, name := slot.SplitTable(table)
	var exists bool
	err := s.conn.QueryRow(s.ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2)`, schema, name).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for table %s: %w", table, postgres.Error(err))
	}
	if exists {
		s.progress("table %s exists, left as it is", table)
		return nil
	}
	if _, err := s.conn.Exec(s.ctx, script); err != nil {
		return &slot.Error{
			Err: fmt.Errorf("create table %s: %w", table, postgres.Error(err)),
			WAL: "nothing was created, nothing is kept",
			Fix: "run init as a role that may create tables in schema " + schema +
				", or hand over: postrider init --print-sql",
		}
	}
	s.progress("table %s created", table)
	return nil
}

func (s *session) createPublication(tables []string) error {
	name := s.cfg.Replication.Publication
	created, err := slot.EnsurePublication(s.ctx, s.conn, name, tables)
	if err != nil {
		return err
	}
	if created {
		s.progress("publication %s created", name)
		return nil
	}
	added, err := slot.AddTables(s.ctx, s.conn, name, tables)
	for _, table := range added {
		s.progress("table %s added to publication %s; the slot never sends rows inserted before",
			table, name)
	}
	if err != nil {
		return err
	}
	if len(added) == 0 {
		s.progress("publication %s exists, left as it is", name)
	}
	_, err = slot.VerifyPublication(s.ctx, s.conn, name, tables)
	return err
}

func (s *session) createMissingSlot() error {
	name := s.cfg.Slot.Name
	found, err := s.slot()
	switch {
	case err == nil:
		s.progress("slot %s exists, left as it is", name)
		return slot.Verify(found.Slot, s.conn.Config().Database)
	case !errors.Is(err, slot.ErrNotFound):
		return err
	case s.cfg.Snapshot.On():
		s.progress("slot %s is left to postrider run, which publishes the rows that are in the "+
			"tables first (snapshot.mode = %q)", name, s.cfg.Snapshot.Mode)
		return nil
	}
	created, err := s.createSlot()
	if err != nil {
		return err
	}
	s.progress("slot %s created; what is committed after %s is published", name,
		created.ConfirmedFlushLSN)
	return nil
}
