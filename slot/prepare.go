package slot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"postrider/postgres"
)

// Requirements are what the relay needs on the server.
type Requirements struct {
	Slot        Config
	Publication string
	Tables      []string // schema-qualified, as in the catalogue
}

// Prepare makes sure that publication and slot are what a session needs. The slot is created if that is allowed, by the configuration
// and by mayCreate: no session of this process has used it yet. The publication is looked at first, because a slot
// never sends what was committed before its publication existed.
func Prepare(ctx context.Context, conn *pgx.Conn, need Requirements, mayCreate bool, log zerolog.Logger) (Slot, error) {
	p, err := VerifyPublication(ctx, conn, need.Publication, need.Tables)
	if err != nil {
		return Slot{}, err
	}
	warn(log, p)
	status, err := Get(ctx, conn, need.Slot.Name)
	s := status.Slot
	if isMissing(err) {
		s, err = createMissing(ctx, conn, need, mayCreate, log)
	}
	if err != nil {
		return Slot{}, err
	}
	if err := Verify(s, conn.Config().Database); err != nil {
		return Slot{}, err
	}
	if need.Slot.Failover && !s.Failover {
		log.Warn().Str("slot", need.Slot.Name).Msg("slot.failover is true, but the slot was made without it, and a failover loses it: postrider check says how to change that")
	}
	newer, err := newerThanSlot(ctx, conn, need.Publication, need.Slot.Name)
	if err != nil {
		return Slot{}, err
	}
	for _, what := range newer {
		log.Warn().Str("slot", need.Slot.Name).Str("publication", need.Publication).Str("relation", what).
			Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
			Msg("publication changed after the position of the slot: rows from before the change are not sent")
	}
	return s, nil
}

func createMissing(ctx context.Context, conn *pgx.Conn, need Requirements, mayCreate bool, log zerolog.Logger) (Slot, error) {
	name := need.Slot.Name
	switch {
	case !mayCreate:
		return Slot{}, Disappeared(name, 0)
	case !need.Slot.Create:
		return Slot{}, &Error{
			Err: fmt.Errorf("slot %q: %w, and slot.create is false", name, ErrNotFound),
			WAL: "nothing is kept for the relay: rows committed until the slot exists are not published",
			Fix: "postrider slot create " + name,
		}
	}
	used, err := firstUsedTable(ctx, conn, need.Tables)
	if err != nil {
		return Slot{}, err
	}
	if used != "" {
		return Slot{}, &Error{
			Err: fmt.Errorf("slot %q: %w, but table %s has held rows: a slot that is made now never sends them", name, ErrNotFound, used),
			WAL: "nothing is kept for the relay: rows committed until the slot exists are not published",
			Fix: fixConsent(name),
		}
	}
	s, err := Create(ctx, conn, need.Slot)
	if err != nil {
		return Slot{}, err
	}
	log.Warn().Str("slot", name).Bool("failover", s.Failover).Stringer("confirmed_flush_lsn", s.ConfirmedFlushLSN).
		Msg("slot created: what was committed before now is not published")
	return s, nil
}

// firstUsedTable names a table that has ever held a row since it was last truncated. Nothing of our own remembers whether a slot was here
// before, so this is how a first start is told from a slot that was dropped. The size needs no right to read the table, and
// it stays when rows are deleted in the transaction that inserted them.
func firstUsedTable(ctx context.Context, conn *pgx.Conn, tables []string) (string, error) {
	for _, table := range tables {
		schema, name := SplitTable(table)
		var bytes int64
		err := conn.QueryRow(ctx, `
			SELECT (pg_catalog.pg_relation_size(c.oid) +
				COALESCE((SELECT sum(pg_catalog.pg_relation_size(p.relid)) FROM pg_catalog.pg_partition_tree(c.oid) p), 0))::bigint
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
			log.Warn().Str("publication", p.Name).Str("relation", t.Name).Msg("publication has a row filter: rows that do not match are not sent")
		}
	}
}

// newerThanSlot names what was created or altered after the slot's catalog horizon: the publication, or the membership of a
// table. Rows committed before such a change and not confirmed yet are not sent, or end the stream with an error.
// xids are compared by age, which survives their wraparound.
func newerThanSlot(ctx context.Context, conn *pgx.Conn, publication, slotName string) ([]string, error) {
	rows, err := conn.Query(ctx, `
		WITH horizon AS (SELECT pg_catalog.age(catalog_xmin) AS age FROM pg_catalog.pg_replication_slots WHERE slot_name = $2)
		SELECT pg_catalog.format('publication %s', p.pubname) FROM pg_catalog.pg_publication p, horizon
		WHERE p.pubname = $1 AND pg_catalog.age(p.xmin) <= horizon.age
		UNION ALL
		SELECT pg_catalog.format('%s.%s', n.nspname, c.relname)
		FROM pg_catalog.pg_publication p
		JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
		JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace, horizon
		WHERE p.pubname = $1 AND pg_catalog.age(r.xmin) <= horizon.age`, publication, slotName)
	if err != nil {
		return nil, fmt.Errorf("compare publication %q and slot %q: %w", publication, slotName, postgres.Error(err))
	}
	newer, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("compare publication %q and slot %q: %w", publication, slotName, postgres.Error(err))
	}
	return newer, nil
}
