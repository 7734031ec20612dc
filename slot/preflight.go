package slot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// oldestServer is the first major version whose pgoutput and catalogues the relay knows.
const oldestServer = 14

// Preflight is what Check looks at.
type Preflight struct {
	Postgres postgres.Config
	Need     Requirements
	Messages bool // logical decoding messages are relayed, too
	Snapshot bool // rows already in the tables are published, so a slot may be made for tables that have held rows
	// Table judges the columns of a table that exists and is published; called with a connection that it may query. May be nil.
	Table func(ctx context.Context, conn *pgx.Conn, table Table) []Finding
}

// Check looks at everything on the server that the relay needs, and reports what it saw, good and bad. It changes nothing.
// When the server cannot be reached there is one finding.
func Check(ctx context.Context, p Preflight) []Finding {
	conn, err := postgres.Connect(ctx, p.Postgres)
	if err != nil {
		return []Finding{ConnectionFinding("connection", "postgres.url", err)}
	}
	defer closeConn(conn)
	c := checker{Preflight: p, conn: conn}
	c.add(okFinding("connection", conn.Config().Database, "connected as "+conn.Config().User))
	for _, step := range []struct {
		code string
		run  func(context.Context) error
	}{
		{"server", c.server},
		{"role", c.role},
		{"replication_connection", c.replication},
		{"publication", c.publication},
		{"slot", c.slot},
		{"settings", c.settings},
		{"messages", c.messages},
	} {
		if err := step.run(ctx); err != nil {
			c.add(ErrorFinding(step.code, "", err))
			if conn.IsClosed() {
				break
			}
		}
	}
	return c.findings
}

type checker struct {
	Preflight
	conn     *pgx.Conn
	replica  bool // may stream: superuser, REPLICATION or rds_replication
	findings []Finding
}

func (c *checker) add(f Finding) { c.findings = append(c.findings, f) }

// setting reads a parameter of the server; empty if this version does not have it.
func (c *checker) setting(ctx context.Context, name string) (string, error) {
	var value string
	err := c.conn.QueryRow(ctx, `SELECT coalesce(pg_catalog.current_setting($1, true), '')`, name).Scan(&value)
	if err != nil {
		return "", fmt.Errorf("read setting %s: %w", name, postgres.Error(err))
	}
	return value, nil
}

func (c *checker) server(ctx context.Context) error {
	version := c.conn.PgConn().ParameterStatus("server_version")
	f := okFinding("server_version", "", version)
	if major(c.conn) < oldestServer {
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, fmt.Sprintf("%d or newer", oldestServer)
		f.Fix = "upgrade the server"
	}
	c.add(f)

	level, err := c.setting(ctx, "wal_level")
	if err != nil {
		return err
	}
	f = okFinding("wal_level", "wal_level", level)
	if level != "logical" {
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, "logical"
		f.Fix = "ALTER SYSTEM SET wal_level = logical; -- takes effect when the server is restarted; on managed services a parameter: " +
			"rds.logical_replication = 1, cloudsql.logical_decoding = on"
	}
	c.add(f)

	var standby bool
	if err := c.conn.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery()`).Scan(&standby); err != nil {
		return fmt.Errorf("ask for recovery: %w", postgres.Error(err))
	}
	if standby {
		c.add(Finding{
			Severity: SeverityError, Code: "primary", Observed: "the server is a standby", Required: "the primary", Class: ClassConfiguration,
			Fix: "name the primary in postgres.url, or all hosts: the writable one is used",
		})
	}
	return nil
}

func (c *checker) role(ctx context.Context) error {
	var user string
	var super, replication, rds bool
	err := c.conn.QueryRow(ctx, `
		SELECT r.rolname, r.rolsuper, r.rolreplication,
		  EXISTS (SELECT FROM pg_catalog.pg_roles m WHERE m.rolname = 'rds_replication' AND pg_catalog.pg_has_role(r.oid, m.oid, 'MEMBER'))
		FROM pg_catalog.pg_roles r WHERE r.rolname = current_user`).Scan(&user, &super, &replication, &rds)
	if err != nil {
		return fmt.Errorf("read role: %w", postgres.Error(err))
	}
	f := Finding{Severity: SeverityOK, Code: "role", Subject: user}
	c.replica = super || replication || rds
	switch {
	case super:
		f.Severity, f.Observed, f.Required = SeverityWarning, "superuser", "LOGIN REPLICATION is enough"
		f.Fix = "make a role of its own for the relay: sql/role.sql"
	case replication:
		f.Observed = "REPLICATION"
	case rds:
		f.Observed = "member of rds_replication"
	default:
		f.Severity, f.Class, f.Observed, f.Required = SeverityError, ClassPermission, "no right to replicate", "REPLICATION"
		f.Fix = fixReplicationRole(quoteName(user))
	}
	c.add(f)
	return nil
}

// replication opens the kind of connection that streams: pg_hba.conf, a pooler between, or the lack of a walsender show only there.
func (c *checker) replication(ctx context.Context) error {
	if !c.replica {
		return nil // said by role
	}
	conn, err := postgres.ConnectReplication(ctx, c.Postgres)
	if err != nil {
		c.add(ConnectionFinding("replication_connection", "", err))
		return nil
	}
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx)
	}()
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		c.add(Finding{
			Severity: SeverityError, Code: "replication_connection", Observed: err.Error(), Required: "a connection that speaks the replication protocol",
			Fix: "connect to the server itself, not through a pooler", Class: ClassConfiguration,
		})
		return nil
	}
	c.add(okFinding("replication_connection", "", fmt.Sprintf("system %s, timeline %d", id.SystemID, id.Timeline)))
	return nil
}

func (c *checker) slot(ctx context.Context) error {
	name := c.Need.Slot.Name
	status, err := Get(ctx, c.conn, name)
	if isMissing(err) {
		return c.room(ctx)
	}
	if err != nil {
		return err
	}
	if err := Verify(status.Slot, c.conn.Config().Database); err != nil {
		c.add(ErrorFinding("slot", name, err))
		return nil
	}
	f := okFinding("slot", name, describe(status))
	if status.WALStatus == "unreserved" {
		f.Severity, f.Required = SeverityWarning, "wal_status reserved or extended"
		f.Fix = "it is lost at the next checkpoint unless the relay catches up: start the relay; ALTER SYSTEM SET max_slot_wal_keep_size to more, SELECT pg_reload_conf();"
	}
	c.add(f)
	newer, err := newerThanSlot(ctx, c.conn, c.Need.Publication, name)
	if err != nil {
		return err
	}
	if len(newer) > 0 {
		c.add(Finding{
			Severity: SeverityWarning, Code: "publication_before_slot", Subject: strings.Join(newer, ", "),
			Observed: "created or altered after the slot's position", Required: "publication first, then slot",
			Fix: "rows committed between the two are not sent: if there are any, write them again; on a first start, drop and create the slot: " +
				"postrider slot drop " + name + "; postrider slot create " + name,
		})
	}
	return nil
}

func describe(s Status) string {
	text := "inactive"
	if s.Active {
		text = fmt.Sprintf("active, pid %d", s.ActivePID)
	}
	text += ", wal_status " + s.WALStatus
	if s.LagBytes != nil {
		text += fmt.Sprintf(", %d bytes behind", *s.LagBytes)
	}
	return text
}

// room is for a slot that does not exist yet.
func (c *checker) room(ctx context.Context) error {
	var used, limit int
	err := c.conn.QueryRow(ctx, `SELECT count(*), pg_catalog.current_setting('max_replication_slots')::int FROM pg_catalog.pg_replication_slots`).
		Scan(&used, &limit)
	if err != nil {
		return fmt.Errorf("count slots: %w", postgres.Error(err))
	}
	usedTable, err := firstUsedTable(ctx, c.conn, c.Need.Tables)
	if err != nil {
		return err
	}
	f := Finding{Code: "slot", Subject: c.Need.Slot.Name, Observed: fmt.Sprintf("does not exist; %d of %d slots are used", used, limit)}
	switch {
	case used >= limit:
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, "a free slot"
		f.Fix = fixSlotLimit(limit)
	case c.Need.Slot.Create && usedTable != "" && c.Snapshot:
		f.Severity, f.Required = SeverityInfo, "created by run, which publishes the rows that are in the tables first"
	case c.Need.Slot.Create && usedTable != "":
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, "consent to a slot that begins now: table "+usedTable+" has held rows, which it never sends"
		f.Fix = fixConsent(c.Need.Slot.Name)
	case c.Need.Slot.Create:
		f.Severity, f.Required = SeverityInfo, "created by run, or now by: postrider slot create "+c.Need.Slot.Name
	default:
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, "an existing slot, since slot.create is false"
		f.Fix = "postrider slot create " + c.Need.Slot.Name
	}
	if f.Severity == SeverityError {
		f.WAL = noSlotYet
	}
	c.add(f)
	if c.Need.Slot.Failover && major(c.conn) < 17 {
		c.add(Finding{
			Severity: SeverityError, Code: "slot_failover", Subject: c.Need.Slot.Name, Class: ClassConfiguration,
			Observed: fmt.Sprintf("PostgreSQL %d", major(c.conn)), Required: "PostgreSQL 17 for slot.failover", Fix: "set slot.failover = false",
		})
	}
	return nil
}
