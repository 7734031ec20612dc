package auditor

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// ownLetters tells the dead letters of the audited tables from those of other relays that share their topic: tables and ids of another database may have the
// same names.
type ownLetters struct {
	system    string              // identifier; empty: not known
	foreign   map[string]struct{} // slots of other databases of the server
	relations map[string]struct{} // names under which rows of the tables come: their own and those of their partitions; none: whatever name
}

func findOwnLetters(ctx context.Context, conn *pgx.Conn) (o *ownLetters, err error) {
	o = &ownLetters{foreign: map[string]struct{}{}, relations: map[string]struct{}{}}
	if o.system, err = SystemIdentifier(ctx, conn); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, "SELECT slot_name::text FROM pg_catalog.pg_replication_slots WHERE database <> pg_catalog.current_database()")
	if err != nil {
		return nil, postgres.Error(err)
	}
	slots, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, postgres.Error(err)
	}
	for _, s := range slots {
		o.foreign[s] = struct{}{}
	}
	return o, nil
}

// systemIdentifier is that of the server as SQL has it; empty if it does not say, as services may not.
func SystemIdentifier(ctx context.Context, conn *pgx.Conn) (id string, err error) {
	err = conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_catalog.pg_control_system()").Scan(&id)
	if refused := new(pgconn.PgError); errors.As(err, &refused) && !conn.IsClosed() {
		return "", nil
	}
	return id, postgres.Error(err)
}

// add takes a table.
func (o *ownLetters) add(ctx context.Context, conn *pgx.Conn, t slot.Table) error {
	names, err := t.PartitionNames(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range append(names, t.Name) {
		o.relations[name] = struct{}{}
	}
	return nil
}

// has tells whether m may be one of them: what says nothing of where it is from may. Of a write log nothing is known, and o is nil.
func (o *ownLetters) has(m *sink.Message) bool {
	if o == nil {
		return true
	}
	if relation := header(m, deadletter.HeaderRelation); relation != nil && len(o.relations) > 0 {
		if _, ours := o.relations[string(relation)]; !ours {
			return false
		}
	}
	system, slot, ok := LetterSource(header(m, deadletter.HeaderSource))
	_, foreign := o.foreign[slot]
	return !ok || !foreign && (o.system == "" || system == o.system)
}

// letterSource takes apart the value of deadletter.HeaderSource, which is sink.Source.Header. The timeline does not matter: it changes with each promotion.
func LetterSource(value []byte) (system, slot string, ok bool) {
	part := strings.SplitN(string(value), "/", 4)
	if len(part) != 4 {
		return "", "", false
	}
	return part[0], part[2], true
}
