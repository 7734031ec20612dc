package slot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// createLockTimeout bounds how long CreateExporting waits for each transaction that is writing: a
// cancelled creation would otherwise stay on the server, and statement_timeout does not end it.
const createLockTimeout = 10 * time.Second

// Create makes a logical slot, which delivers every transaction that commits afterwards, and no
// other. It blocks while older transactions are writing: ErrBlocked names them after two seconds
// for each, and the call can be repeated. The relay calls it by Prepare, which has the consent.
func Create(ctx context.Context, conn *pgx.Conn, cfg Config) (Slot, error) {
	return CreateWithin(ctx, conn, cfg, lasting)
}

// CreateWithin is Create with another limit for the wait for each older transaction.
func CreateWithin(ctx context.Context, conn *pgx.Conn, cfg Config,
	wait time.Duration) (Slot, error) {
	if err := errors.Join(cfg.Validate(), canFailover(conn, cfg)); err != nil {
		return Slot{}, err
	}
	if err := postgres.SetTimeout(ctx, conn, "lock_timeout", wait); err != nil {
		return Slot{}, err
	}
	if _, err := conn.Exec(ctx, createSQL(cfg)+";"); err != nil {
		return Slot{}, createError(ctx, conn, cfg.Name, err)
	}
	s, err := Get(ctx, conn, cfg.Name)
	return s.Slot, err
}

// CreateWaiting is Create without a limit for the wait, which ends with ctx. It calls blocked with
// each ErrBlocked, which names the transactions that are still writing.
func CreateWaiting(ctx context.Context, conn *pgx.Conn, cfg Config,
	blocked func(error)) (Slot, error) {
	for {
		created, err := Create(ctx, conn, cfg)
		if !errors.Is(err, ErrBlocked) || ctx.Err() != nil {
			return created, err
		}
		blocked(err)
	}
}

func canFailover(conn *pgx.Conn, cfg Config) error {
	if v := postgres.Major(conn); cfg.Failover && v < 17 {
		return &Error{
			Err: diagnosed(fmt.Sprintf("create slot %q: slot.failover requires PostgreSQL 17, and the "+
				"server is PostgreSQL %d", cfg.Name, v), ErrServer),
			Fix: "set slot.failover = false; before 17 the server's high-availability tool has to copy " +
				"slots",
		}
	}
	return nil
}

// CreateExporting is Create over a replication connection, which keeps the exported snapshot until
// its next command or its end: the snapshot has what had committed before consistent, the slot
// delivers the rest. sql is for the reasons of a failure.
func CreateExporting(ctx context.Context, conn *pgconn.PgConn, sql *pgx.Conn, cfg Config) (
	consistent pglogrepl.LSN, snapshot string, err error) {
	if err := errors.Join(cfg.Validate(), canFailover(sql, cfg)); err != nil {
		return 0, "", err
	}
	timeout := fmt.Sprintf("SET lock_timeout = '%dms'", createLockTimeout.Milliseconds())
	action := "EXPORT_SNAPSHOT" // the grammar that all versions from 14 understand
	if cfg.Failover {
		action = "(SNAPSHOT 'export', FAILOVER)"
	}
	var made pglogrepl.CreateReplicationSlotResult
	if _, err = conn.Exec(ctx, timeout).ReadAll(); err == nil {
		made, err = pglogrepl.CreateReplicationSlot(ctx, conn, postgres.QuoteName(cfg.Name), Plugin,
			pglogrepl.CreateReplicationSlotOptions{Mode: pglogrepl.LogicalReplication,
				SnapshotAction: action})
	}
	if err != nil {
		return 0, "", createError(ctx, sql, cfg.Name, err)
	}
	consistent, err = postgres.ParseLSN(made.ConsistentPoint)
	return consistent, made.SnapshotName, err
}

// Copy makes the slot of cfg at the position of another one, which stays. It waits for no
// transaction, and retains the WAL that the other retains. pg is for the replication connection
// that failover takes.
func Copy(ctx context.Context, pg postgres.Config, conn *pgx.Conn, from string, cfg Config) error {
	if err := errors.Join(cfg.Validate(), canFailover(conn, cfg)); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, `SELECT pg_catalog.pg_copy_logical_replication_slot($1, $2)`,
		from, cfg.Name)
	if err != nil {
		return fmt.Errorf("copy slot %q: %w", from, createError(ctx, conn, cfg.Name, err))
	}
	if !cfg.Failover { // which is not copied
		return nil
	}
	replication, err := postgres.ConnectReplication(ctx, pg)
	if err != nil {
		return err
	}
	defer postgres.Close(replication)
	_, err = replication.Exec(ctx,
		"ALTER_REPLICATION_SLOT "+postgres.QuoteName(cfg.Name)+" (FAILOVER true)").ReadAll()
	return postgres.Wrap(commandError(ctx, conn, err, cfg.Name),
		"let standbys keep a copy of slot %q", cfg.Name)
}

// createError finds out, on a connection for SQL, why a slot could not be made.
func createError(ctx context.Context, conn *pgx.Conn, name string, err error) error {
	switch postgres.SQLState(err) {
	case "55P03": // lock_not_available
		return Blocked(ctx, conn, name, err)
	case "55000": // object_not_in_prerequisite_state: wal_level as a rule, or what the server reports
		level, levelErr := postgres.One[string](ctx, conn,
			`SELECT pg_catalog.current_setting('wal_level')`)
		if levelErr == nil && level != "logical" {
			return fmt.Errorf("create slot %q: %w", name, WrongLevel(level))
		}
	case "53400": // configuration_limit_exceeded
		return &Error{
			Err: fmt.Errorf("create slot %q: %w: %w", name, ErrNoFreeSlot, err),
			WAL: NoSlotYet,
			Fix: fixFull(ctx, conn),
		}
	}
	return fmt.Errorf("create slot %q: %w", name, commandError(ctx, conn, err, name))
}

// ensureSQL is createSQL where there is no slot of this name, with its semicolon.
func ensureSQL(cfg Config) string {
	return createSQL(cfg) + "\nWHERE NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots " +
		"WHERE slot_name = '" + cfg.Name + "');"
}

// createSQL is the statement that makes the slot, without its semicolon. cfg is valid: its name
// needs no quoting.
func createSQL(cfg Config) string {
	options := "temporary => false, twophase => false"
	if cfg.Failover {
		options += ", failover => true"
	}
	return fmt.Sprintf("SELECT pg_catalog.pg_create_logical_replication_slot('%s', '%s', %s)",
		cfg.Name, Plugin, options)
}

// Blocked names the transactions that the creation of a slot waits for, or has waited for until
// cause, which may be nil.
func Blocked(ctx context.Context, conn *pgx.Conn, name string, cause error) error {
	blockers, err := findBlockers(ctx, conn, ` ORDER BY pg_catalog.age(l.transactionid) DESC`)
	blockers = transactionsOf(blockers)
	who := namesOf(blockers)
	fix := "wait for these transactions to end; then try again" + endSessions(blockers)
	switch {
	case err != nil:
		who = []string{"not known: " + err.Error()}
	case len(who) == 0:
		who = []string{"ended meanwhile"}
	}
	err = fmt.Errorf("create slot %q: %w: %s", name, ErrBlocked, strings.Join(who, ", "))
	if cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &Error{Err: err, WAL: NoSlotYet, Fix: fix + endPrepared(blockers)}
}

// NoSlotYet is what it means for the WAL that a slot could not be made.
const NoSlotYet = "there is no slot, so nothing is kept: rows committed before it exists are " +
	"not published"

// fixWALLevel is for people with a server of their own, and for those with a managed one.
const fixWALLevel = "ALTER SYSTEM SET wal_level = logical; -- takes effect when the server is " +
	"restarted\non managed services it is a parameter: rds.logical_replication = 1, " +
	"cloudsql.logical_decoding = on"

// fixFull is FixSlotLimit for a server whose slots are all taken.
func fixFull(ctx context.Context, conn *pgx.Conn) string {
	limit, _ := postgres.One[int](ctx, conn, // zero if it cannot be read
		`SELECT pg_catalog.current_setting('max_replication_slots')::int`)
	return FixSlotLimit(limit)
}

// FixSlotLimit leaves room for more than one more: changing it takes a restart.
func FixSlotLimit(limit int) string {
	return "postrider slot list   # an unused one can be dropped; or:\n" +
		fmt.Sprintf("ALTER SYSTEM SET max_replication_slots = %d; -- takes effect when the server is "+
			"restarted", max(20, 2*limit))
}

// commandError gives an error of a slot command its sentinel and advice; nil for nil.
func commandError(ctx context.Context, conn *pgx.Conn, err error, name string) error {
	switch postgres.SQLState(err) {
	case "42710": // duplicate_object
		exists := fmt.Errorf("%w: %w", ErrExists, err)
		if s, err := Get(ctx, conn, name); err == nil && s.Lost() {
			return fmt.Errorf("%w, and %w", exists, s.lostError())
		}
		return exists
	case "42704": // undefined_object
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case "55006": // object_in_use
		in := fmt.Errorf("%w: %w", replication.ErrSlotInUse, err)
		if s, err := Get(ctx, conn, name); err == nil && s.Active {
			in = Held(name, s.ActivePID)
		}
		return &Error{
			Err: in,
			WAL: "none is lost: the slot stays as it is",
			Fix: "postrider slot show " + name + "   # its pid holds the slot; stop that process",
		}
	case "42501": // insufficient_privilege
		return denied(ctx, conn, err)
	case "55000": // object_not_in_prerequisite_state
		switch s, getErr := Get(ctx, conn, name); {
		case getErr == nil && s.Lost():
			return s.lostError()
		case getErr == nil:
			return &Error{
				Err: postgres.Error(err),
				WAL: "none is lost: the slot stays as it is",
				Fix: "postrider slot show " + name,
			}
		}
		return &Error{Err: fmt.Errorf("%w: %w", ErrServer, err), WAL: NoSlotYet, Fix: "postrider check"}
	}
	return postgres.Error(err)
}
