package slot

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// Setup is what the command init makes where it is missing: tables, publication and slot.
type Setup struct {
	Slot        Config
	Publication string
	Tables      []string
	Scripts     []string // that create the tables, one for each
	// SnapshotMode is snapshot.mode if rows are published before the slot streams: the slot is left
	// to the relay then. Empty: it is made here.
	SnapshotMode string
}

// SQL is a script for psql that leaves what exists. Its parts are separate transactions: a
// transaction that has written creates no slot.
func (s *Setup) SQL() string {
	last := "-- From here on the server keeps WAL until the relay has confirmed it.\n" +
		ensureSQL(s.Slot)
	if s.SnapshotMode != "" {
		last = "-- The slot is made by postrider run, which publishes the rows that are in the " +
			"tables first (snapshot.mode)."
	}
	return "-- Unqualified names resolve to pg_catalog, whatever search_path the session has.\n" +
		"SET search_path = pg_catalog, pg_temp;\n\n" + strings.Join(s.Scripts, "\n") + "\n" +
		"-- The publication sends inserts only, under the name of the configured table. It comes " +
		"before the slot, which never sends rows committed before their publication existed.\n" +
		EnsurePublicationSQL(s.Publication, s.Tables) + "\n\n" + last + "\n"
}

// Run makes what is missing, and calls report with a line about each object. It waits without a
// limit for transactions that the creation of the slot waits for. After an error it can be
// repeated.
func (s *Setup) Run(ctx context.Context, conn *pgx.Conn,
	report func(format string, args ...any)) error {
	// A standby creates no table, and its slots wait for what only the primary writes.
	if err := verifyServer(ctx, conn); err != nil {
		return err
	}
	for i, table := range s.Tables {
		if err := createTable(ctx, conn, table, s.Scripts[i], report); err != nil {
			return err
		}
	}
	if err := s.createPublication(ctx, conn, report); err != nil {
		return err
	}
	return s.createSlot(ctx, conn, report)
}

func createTable(ctx context.Context, conn *pgx.Conn, table, script string,
	report func(format string, args ...any)) error {
	schema, name := SplitTable(table)
	exists, err := postgres.One[bool](ctx, conn, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2)`, schema, name)
	if err != nil {
		return postgres.Wrap(err, "look for table %s", table)
	}
	if exists {
		report("table %s exists, left as it is", table)
		return nil
	}
	if _, err := conn.Exec(ctx, script); err != nil {
		return &Error{
			Err: postgres.Wrap(err, "create table %s", table),
			WAL: "nothing was created, nothing is kept",
			Fix: "run init as a role that may create tables in schema " + schema +
				", or hand over: postrider init --print-sql",
		}
	}
	report("table %s created", table)
	return nil
}

func (s *Setup) createPublication(ctx context.Context, conn *pgx.Conn,
	report func(format string, args ...any)) error {
	created, err := EnsurePublication(ctx, conn, s.Publication, s.Tables)
	if err != nil {
		return err
	}
	if created {
		report("publication %s created", s.Publication)
		return nil
	}
	added, err := AddTables(ctx, conn, s.Publication, s.Tables)
	for _, table := range added {
		report("table %s added to publication %s; the slot never sends rows inserted before",
			table, s.Publication)
	}
	if err != nil {
		return err
	}
	if len(added) == 0 {
		report("publication %s exists, left as it is", s.Publication)
	}
	_, err = VerifyPublication(ctx, conn, s.Publication, s.Tables)
	return err
}

func (s *Setup) createSlot(ctx context.Context, conn *pgx.Conn,
	report func(format string, args ...any)) error {
	name := s.Slot.Name
	found, err := Get(ctx, conn, name)
	switch {
	case err == nil:
		report("slot %s exists, left as it is", name)
		return Verify(found.Slot, conn.Config().Database)
	case !errors.Is(err, ErrNotFound):
		return err
	case s.SnapshotMode != "":
		report("slot %s is left to postrider run, which publishes the rows that are in the "+
			"tables first (snapshot.mode = %q)", name, s.SnapshotMode)
		return nil
	}
	created, err := CreateWaiting(ctx, conn, s.Slot, func(err error) {
		report("%v; still waiting", err)
	})
	if err != nil {
		return err
	}
	report("slot %s created; what is committed after %s is published", name,
		created.ConfirmedFlushLSN)
	return nil
}
