package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// Requirements are what the relay needs on the server.
type Requirements struct {
	Slot        Config
	Publication string
	Tables      []string // schema-qualified, as in the catalog
}

// Prepare makes sure that publication and slot are what a session needs. It creates the slot if
// the configuration allows that and mayCreate: no session of this process has used it. The
// publication comes first, because a slot never sends what was committed before its publication
// existed.
func Prepare(ctx context.Context, conn *pgx.Conn, need Requirements, mayCreate bool,
	log zerolog.Logger) (Slot, error) {
	p, err := Diagnose(ctx, conn, need)
	if err != nil {
		return Slot{}, err
	}
	if err := warn(ctx, conn, p, log); err != nil {
		return Slot{}, err
	}
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
				"postrider check reports how to change that")
	}
	return s, nil
}

// Find returns the slot if the relay can read from it. create reports that it is missing and to be
// created: mayCreate and slot.create allow that, and no table has held a row.
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
	case !need.Slot.Create:
		return Slot{}, false, NotToBeCreated(need.Slot.Name)
	}
	used, err := FirstUsedTable(ctx, conn, need.Tables)
	if err == nil && used != "" {
		err = LacksConsent(need.Slot.Name, used)
	}
	return Slot{}, err == nil, err
}

// NotToBeCreated is the error of a slot that does not exist, where slot.create is false.
func NotToBeCreated(name string) error {
	return missingSlot(name, "and slot.create is false", "postrider slot create "+name)
}

// LacksConsent is the error of a slot that does not exist, where a table has held rows.
func LacksConsent(name, usedTable string) error {
	return missingSlot(name, "but table "+usedTable+
		" has held rows: a slot that is made now never sends them",
		"if a slot was here before, look which rows were not delivered:\npostrider recover\n"+
			"if this is the first start, consent to a slot that begins now:\npostrider slot create "+name)
}

func missingSlot(name, because, fix string) error {
	return &Error{
		Err: diagnosed(fmt.Sprintf("slot %q does not exist, %s", name, because), ErrNotFound),
		WAL: "nothing is kept for the relay: rows committed until the slot exists are not published",
		Fix: fix,
	}
}

func createMissing(ctx context.Context, conn *pgx.Conn, need Requirements,
	log zerolog.Logger) (Slot, error) {
	s, err := Create(ctx, conn, need.Slot)
	if err == nil {
		err = Verify(s, conn.Config().Database)
	}
	if err == nil {
		log.Warn().Str("slot", s.Name).Bool("failover", s.Failover).
			Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
			Msg("slot created: what was committed before now is not published")
	}
	return s, err
}

// FirstUsedTable names a table that has held a row since it was last truncated. That distinguishes
// a first start from a slot that was dropped: nothing else remembers a slot. The size can be read
// without a right to the table, and stays when rows are deleted.
func FirstUsedTable(ctx context.Context, conn *pgx.Conn, tables []string) (string, error) {
	for _, table := range tables {
		schema, name := SplitTable(table)
		bytes, err := postgres.One[int64](ctx, conn, `
			SELECT (pg_catalog.pg_relation_size(c.oid)::numeric +
				COALESCE((SELECT pg_catalog.sum(pg_catalog.pg_relation_size(p.relid)) FROM
				pg_catalog.pg_partition_tree(c.oid) p), 0))::bigint
			FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = $2`, schema, name)
		switch {
		case errors.Is(err, pgx.ErrNoRows): // a table that does not exist has held none
		case err != nil:
			return "", fmt.Errorf("read the size of table %s: %w", table, err)
		case bytes > 0:
			return table, nil
		}
	}
	return "", nil
}

func warn(ctx context.Context, conn *pgx.Conn, p *Publication, log zerolog.Logger) error {
	others, more, err := p.Others(ctx, conn)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		log.Warn().Str("publication", p.Name).Strs("relation", others).Int("more", more).
			Msg("publication holds other tables, which are read and ignored")
	}
	for _, t := range p.Tables {
		if t.RowFilter != "" {
			log.Warn().Str("publication", p.Name).Str("relation", t.Name).
				Msg("publication has a row filter: rows that do not match are not sent")
		}
	}
	return nil
}

// Verify reports whether the relay can read from a slot, in a database.
func Verify(s Slot, database string) error {
	var problem string
	switch {
	case s.Lost():
		return s.lostError()
	case s.Plugin == "":
		problem = "is a physical slot"
	case s.Plugin != Plugin:
		problem = fmt.Sprintf("has the output plugin %s, not %s", s.Plugin, Plugin)
	case s.Database != database:
		problem = fmt.Sprintf("belongs to database %q, not %q", s.Database, database)
	case s.Temporary:
		problem = "is temporary"
	case s.TwoPhase:
		problem = "decodes transactions when they are prepared, maybe to be rolled back " +
			"later (two_phase)"
	case s.ConfirmedFlushLSN == 0:
		return &Error{
			Err: diagnosed(fmt.Sprintf("slot %q has no confirmed position: its creation is not finished",
				s.Name), replication.ErrSlotInUse),
			Fix: "wait: the server ends or removes it once the transactions it waits for have ended",
		}
	default:
		return nil
	}
	const suffix, longest = "_own", 63
	own := s.Name[:min(len(s.Name), longest-len(suffix))] + suffix
	fix := fmt.Sprintf("give the relay a slot of its own:\nslot.name = %q\npostrider slot create %s",
		own, own)
	if s.TwoPhase { // which PostgreSQL 18 sets on any slot
		fix += "\nif the relay has streamed from this one, look which rows it did not deliver, before " +
			"it is dropped:\npostrider recover --from-xmin XID   # its catalog_xmin"
	}
	return &Error{
		Err: diagnosed(fmt.Sprintf("slot %q %s", s.Name, problem), replication.ErrSlotUnusable),
		WAL: "it keeps WAL until it is dropped",
		Fix: fix,
	}
}

// Disappeared is the error of a slot that was there and is not any more. confirmed is where its
// gap begins, zero if that is not known.
func Disappeared(name string, confirmed pglogrepl.LSN) error {
	return &LostError{Name: name, Reason: "it does not exist any more: it was dropped",
		ConfirmedFlushLSN: confirmed, Gone: true}
}

// IsMissing reports whether err is that of a slot that does not exist.
func IsMissing(err error) bool { return errors.Is(err, ErrNotFound) }

// lostError is for a slot that is lost.
func (s Slot) lostError() error {
	reason := s.InvalidationReason
	if reason == "" && s.Conflicting {
		reason = "conflict with recovery"
	}
	return &LostError{Name: s.Name, Reason: reason, ConfirmedFlushLSN: s.ConfirmedFlushLSN,
		CatalogXmin: s.CatalogXmin, InactiveSince: s.InactiveSince}
}
