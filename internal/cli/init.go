package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
)

func newInit(a *app) *cobra.Command {
	var printSQL bool
	var table, preset string
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "postgres", "slot")
			if err != nil {
				return err
			}
			a.warn(l)
			s := setup{cfg: l.Config, preset: preset, tables: l.Config.Replication.Tables}
			if table != "" {
				if !strings.Contains(table, ".") {
					table = "public." + table
				}
				s.tables = []string{table}
			}
			if err := s.render(); err != nil {
				return exit.Usagef("%v", err)
			}
			if printSQL {
				_, err := fmt.Fprint(a.Stdout, s.sql())
				return err
			}
			return explained(a.setUp(cmd.Context(), s, l))
		},
	}
	cmd.Flags().BoolVar(&printSQL, "print-sql", false, "print the SQL and change nothing")
	cmd.Flags().StringVar(&table, "table", "",
		"outbox `table` instead of replication.tables; without a schema in public")
	cmd.Flags().StringVar(&preset, "preset", sql.Plain,
		"shape of a new outbox table: "+strings.Join(sql.Presets(), ", "))
	must(cmd.RegisterFlagCompletionFunc("preset",
		cobra.FixedCompletions(sql.Presets(), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("table", cobra.NoFileCompletions))
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

func (s *setup) render() error {
	for _, t := range s.tables {
		schema, name := slot.SplitTable(t)
		script, err := sql.Outbox(s.preset, schema, name)
		if err != nil {
			return err
		}
		s.scripts = append(s.scripts, script)
	}
	return nil
}

// sql is a script for psql that leaves what exists. Its parts are separate transactions: a
// transaction that has written creates no slot.
func (s *setup) sql() string {
	var b strings.Builder
	b.WriteString("-- Whatever this session begins with: names are those of PostgreSQL " +
		"itself.\nSET search_path = pg_catalog, pg_temp;\n\n")
	for _, script := range s.scripts {
		b.WriteString(script + "\n")
	}
	b.WriteString("-- Inserts only, under the name of the table. Before the slot: it never " +
		"sends what was committed before its publication.\n")
	b.WriteString(slot.EnsurePublicationSQL(s.cfg.Replication.Publication, s.tables) + "\n\n")
	if s.cfg.Snapshot.On() {
		b.WriteString("-- The slot is made by postrider run, which publishes the rows that are " +
			"in the tables first (snapshot.mode).\n")
		return b.String()
	}
	b.WriteString("-- From here on the server keeps WAL until the relay has confirmed it.\n")
	b.WriteString(slot.EnsureSQL(s.cfg.Slot) + "\n")
	return b.String()
}

func (a *app) setUp(ctx context.Context, s setup, l *config.Loaded) error {
	conn, err := postgres.Connect(ctx, s.cfg.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	// A standby creates no table, and its slots wait for what only the primary writes.
	if err := slot.VerifyServer(ctx, conn); err != nil {
		return err
	}
	for i, t := range s.tables {
		if err := a.setUpTable(ctx, conn, t, s.scripts[i]); err != nil {
			return err
		}
	}
	if err := a.setUpPublication(ctx, conn, s); err != nil {
		return err
	}
	if err := a.setUpSlot(ctx, conn, s); err != nil {
		return err
	}
	for _, t := range s.tables {
		if !slices.Contains(l.Config.Replication.Tables, t) {
			a.progress("set replication.tables = [%q] (it is from: %s)", t,
				l.Origin("replication.tables"))
		}
	}
	a.progress("%s", a.typed("next: postrider check"))
	a.progress("%s", a.typed("then: postrider run"))
	return nil
}

func (a *app) setUpTable(ctx context.Context, conn *pgx.Conn, table, script string) error {
	schema, name := slot.SplitTable(table)
	var exists bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2)`, schema, name).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for table %s: %w", table, postgres.Error(err))
	}
	if exists {
		a.progress("table %s exists, left as it is", table)
		return nil
	}
	if _, err := conn.Exec(ctx, script); err != nil {
		return &slot.Error{
			Err: fmt.Errorf("create table %s: %w", table, postgres.Error(err)),
			WAL: "nothing was created, nothing is kept",
			Fix: "run init as a role that may create tables in schema " + schema +
				", or hand over: postrider init --print-sql",
		}
	}
	a.progress("table %s created", table)
	return nil
}

func (a *app) setUpPublication(ctx context.Context, conn *pgx.Conn, s setup) error {
	name := s.cfg.Replication.Publication
	created, err := slot.EnsurePublication(ctx, conn, name, s.tables)
	if err != nil {
		return err
	}
	if created {
		a.progress("publication %s created", name)
		return nil
	}
	added, err := slot.AddTables(ctx, conn, name, s.tables)
	for _, table := range added {
		a.progress("table %s added to publication %s; the slot never sends rows inserted before",
			table, name)
	}
	if err != nil {
		return err
	}
	if len(added) == 0 {
		a.progress("publication %s exists, left as it is", name)
	}
	_, err = slot.VerifyPublication(ctx, conn, name, s.tables)
	return err
}

func (a *app) setUpSlot(ctx context.Context, conn *pgx.Conn, s setup) error {
	name := s.cfg.Slot.Name
	status, err := slot.Get(ctx, conn, name)
	if err == nil {
		a.progress("slot %s exists, left as it is", name)
		return slot.Verify(status.Slot, conn.Config().Database)
	}
	if !errors.Is(err, slot.ErrNotFound) {
		return err
	}
	if s.cfg.Snapshot.On() {
		a.progress("slot %s is left to postrider run, which publishes the rows that are in the "+
			"tables first (snapshot.mode = %q)", name, s.cfg.Snapshot.Mode)
		return nil
	}
	created, err := a.createSlot(ctx, conn, s.cfg.Slot)
	if err != nil {
		return err
	}
	a.progress("slot %s created; what is committed after %s is published", name,
		created.ConfirmedFlushLSN)
	return nil
}
