package auditor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// deadLetters recognizes the dead letters of the audited tables among those of other relays that
// share their topic: another database may have tables and ids of the same names.
type deadLetters struct {
	system  string   // identifier; empty: not known
	foreign []string // slots of other databases of the server
	// relations are the names under which rows of the tables are decoded: their own and those of
	// their partitions. None: any name.
	relations []string
}

func findDeadLetters(ctx context.Context, conn *pgx.Conn) (d *deadLetters, err error) {
	d = &deadLetters{}
	if d.system, err = SystemIdentifier(ctx, conn); err != nil {
		return nil, err
	}
	rows, _ := conn.Query(ctx, "SELECT slot_name::text FROM pg_catalog.pg_replication_slots "+
		"WHERE database <> pg_catalog.current_database()") // CollectRows returns the error
	d.foreign, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return d, postgres.Error(err)
}

// SystemIdentifier is that of the server. It is empty where the server does not give it, as
// managed services may not.
func SystemIdentifier(ctx context.Context, conn *pgx.Conn) (id string, err error) {
	err = conn.QueryRow(ctx,
		"SELECT system_identifier::text FROM pg_catalog.pg_control_system()").Scan(&id)
	if refused := new(pgconn.PgError); errors.As(err, &refused) && !conn.IsClosed() {
		return "", nil
	}
	return id, postgres.Error(err)
}

func (d *deadLetters) add(ctx context.Context, conn *pgx.Conn, t slot.Table) error {
	names, err := t.PartitionNames(ctx, conn)
	d.relations = append(append(d.relations, names...), t.Name)
	return err
}

// has reports whether m may be a dead letter of the tables: one without headers about its source
// may be. Nil is that of a write log: every dead letter may be of it.
func (d *deadLetters) has(m *sink.Message) bool {
	if d == nil {
		return true
	}
	relation := header(m, deadletter.HeaderRelation)
	if relation != nil && len(d.relations) > 0 && !slices.Contains(d.relations, string(relation)) {
		return false
	}
	system, slot, ok := LetterSource(header(m, deadletter.HeaderSource))
	return !ok || !slices.Contains(d.foreign, slot) && (d.system == "" || system == d.system)
}

// LetterSource splits the value of deadletter.HeaderSource, which is sink.Source.Header. It leaves
// out the timeline, which changes with each promotion.
func LetterSource(value []byte) (system, slot string, ok bool) {
	part := strings.SplitN(string(value), "/", 4)
	if len(part) != 4 {
		return "", "", false
	}
	return part[0], part[2], true
}
