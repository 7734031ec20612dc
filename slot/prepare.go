package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
)

// Requirements are what the relay needs on the server.
type Requirements struct {
	Slot        Config
	Publication string
	Tables      []string // schema-qualified, as in the catalog
}

// Prepare makes sure that publication and slot are what a session needs. The slot is created if
// that is allowed, by the configuration and by mayCreate: no session of this process has used it
// yet. The publication is looked at first, because a slot never sends what was committed before
// its publication existed.
func Prepare(ctx context.Context, conn *pgx.Conn, need Requirements, mayCreate bool,
	log zerolog.Logger) (Slot, error) {
	p, err := Diagnose(ctx, conn, need)
	if err != nil {
		return Slot{}, err
	}
	warn(log, p)
	s, create, err := Find(ctx, conn, need, mayCreate)
	if create {
		s, err = createMissing(ctx, conn, need, log)
	}
	if err != nil {
		return Slot{}, err
	}
	if need.Slot.Failover && !s.Failover {
		log.Warn().Str("slot", need.Slot.Name).
			Msg("slot.failover is true, but the slot was made without it, and a failover loses it: " +
				"postrider check says how to change that")
	}
	return s, nil
}

// Find returns the slot if the relay can read from it, or that it is to be created, which
// mayCreate and the configuration have to allow.
func Find(ctx context.Context, conn *pgx.Conn, need Requirements,
	mayCreate bool) (s Slot, create bool, err error) {
	status, err := Get(ctx, conn, need.Slot.Name)
	switch {
	case err == nil:
		err = Verify(status.Slot, conn.Config().Database)
		return status.Slot, false, err
	case !IsMissing(err):
		return Slot{}, false, err
	case !mayCreate:
		return Slot{}, false, Disappeared(need.Slot.Name, 0)
	}
	err = mayBeCreated(ctx, conn, need)
	return Slot{}, err == nil, err
}

func mayBeCreated(ctx context.Context, conn *pgx.Conn, need Requirements) error {
	if !need.Slot.Create {
		return NotToBeCreated(need.Slot.Name)
	}
	used, err := FirstUsedTable(ctx, conn, need.Tables)
	if err == nil && used != "" {
		return LacksConsent(need.Slot.Name, used)
	}
	return err
}

func NotToBeCreated(name string) error {
	return missingSlot(name, "and slot.create is false", "postrider slot create "+name)
}

func LacksConsent(name, usedTable string) error {
	return missingSlot(name, "but table "+usedTable+
		" has held rows: a slot that is made now never sends them", fixConsent(name))
}

func missingSlot(name, because, fix string) error {
	return &Error{
		Err: &diagnosis{fmt.Sprintf("slot %q does not exist, %s", name, because), []error{ErrNotFound}},
		WAL: "nothing is kept for the relay: rows committed until the slot exists are not published",
		Fix: fix,
	}
}

func createMissing(ctx context.Context, conn *pgx.Conn, need Requirements,
	log zerolog.Logger) (Slot, error) {
	s, err := Create(ctx, conn, need.Slot)
	if err != nil {
		return Slot{}, err
	}
	if err := Verify(s, conn.Config().Database); err != nil {
		return Slot{}, err
	}
	log.Warn().Str("slot", s.Name).Bool("failover", s.Failover).
		Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
		Msg("slot created: what was committed before now is not published")
	return s, nil
}

// FirstUsedTable names a table that has ever held a row since it was last truncated. Nothing of
// our own remembers whether a slot was here before, so this is how a first start is told from a
// slot that was dropped. The size needs no right to read the table, and it stays when rows are
// deleted in the transaction that inserted them.
func FirstUsedTable(ctx context.Context, conn *pgx.Conn, tables []string) (string, error) {
	for _, table := range tables {
		schema, name := SplitTable(table)
		var bytes int64
		err := conn.QueryRow(ctx, `
			SELECT (pg_catalog.pg_relation_size(c.oid)::numeric +
				COALESCE((SELECT pg_catalog.sum(pg_catalog.pg_relation_size(p.relid)) FROM
				pg_catalog.pg_partition_tree(c.oid) p), 0))::bigint
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = $2`, schema, name).Scan(&bytes)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // a table that does not exist has held none
		}
		if err != nil {
			return "", fmt.Errorf("read the size of table %s: %w", table, postgres.Error(err))
		}
		if bytes > 0 {
			return table, nil
		}
	}
	return "", nil
}

func fixConsent(name string) string {
	return "if a slot was here before, look which rows were not delivered:\npostrider recover\n" +
		"if this is the first start, consent to a slot that begins now:\npostrider slot create " + name
}

func warn(log zerolog.Logger, p *Publication) {
	if len(p.Others) > 0 {
		log.Warn().Str("publication", p.Name).Strs("relation", p.Others).Int("more", p.More).
			Msg("publication holds other tables, which are read and ignored")
	}
	for _, t := range p.Tables {
		if t.RowFilter != "" {
			log.Warn().Str("publication", p.Name).Str("relation", t.Name).
				Msg("publication has a row filter: rows that do not match are not sent")
		}
	}
}
