package prune

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// detachedTable is a table with a seal that is no partition any more.
type detachedTable struct {
	OID    uint32
	Schema string
	Name   string
	Def    string
	Mark   string
}

// listDetached finds the sealed tables of one owner: a role that makes such a table itself cannot
// have another role's rights used on it.
const listDetached = `
SELECT t.oid, n.nspname, t.relname, pg_catalog.pg_get_constraintdef(k.oid),
  coalesce(pg_catalog.obj_description(k.oid, 'pg_constraint'), '')
FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class t ON t.oid = k.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE k.conname = '` + sealName + `' AND t.relkind = 'r' AND NOT t.relispartition
AND pg_catalog.pg_get_userbyid(t.relowner) = $1
ORDER BY t.oid`

// dropDetached drops what an earlier run detached and did not drop.
func (r *partitionRun) dropDetached(ctx context.Context) error {
	found, err := postgres.Collect(ctx, r.conn, pgx.RowToStructByPos[detachedTable], listDetached,
		r.table.Owner)
	if err != nil {
		return err
	}
	for _, t := range found {
		s := &seal{Def: t.Def, Comment: t.Mark}
		m, ok := s.mark()
		if !ok || m.Slot != r.slot || m.Schema != r.table.Schema || m.Table != r.table.Name {
			continue
		}
		name := pgx.Identifier{t.Schema, t.Name}.Sanitize()
		if !m.Proven {
			r.result.keep(name, "it was detached from "+r.table.quoted()+" by another session before "+
				"its rows were proven to be delivered; attach it again")
			continue
		}
		if err := r.note(ctx, name, "", r.dropAlone(ctx, t.OID, t.Schema, t.Name)); err != nil {
			return err
		}
	}
	return nil
}

// dropAlone drops a detached table in a transaction of its own.
func (r *partitionRun) dropAlone(ctx context.Context, oid uint32, schema, name string) error {
	quoted := pgx.Identifier{schema, name}.Sanitize()
	if r.dryRun {
		r.removed(quoted)
		return nil
	}
	err := r.transaction(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "LOCK TABLE ONLY "+quoted+" IN ACCESS EXCLUSIVE MODE")
		if err != nil {
			return err
		}
		return r.drop(ctx, tx, oid, schema, name)
	})
	if err == nil {
		r.removed(quoted)
	}
	return err
}

// selectSealed reads what allows to drop a table, which the transaction has locked.
const selectSealed = `
SELECT pg_catalog.json_build_object('oid', t.oid::pg_catalog.int8,
  'owner', pg_catalog.pg_get_userbyid(t.relowner), 'attached', t.relispartition, 'seal', ` + sealColumns + `)
FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE n.nspname = $1 AND t.relname = $2`

// drop removes a detached table, if it is the proven one and still sealed: then no row has come
// since the proof. The transaction has it locked in ACCESS EXCLUSIVE mode. A table on which
// another object depends stays, since RESTRICT is the default.
func (r *partitionRun) drop(ctx context.Context, tx pgx.Tx, oid uint32, schema,
	name string) error {
	var document []byte
	if err := tx.QueryRow(ctx, selectSealed, schema, name).Scan(&document); err != nil {
		return err
	}
	var t struct {
		OID      uint32 `json:"oid"`
		Owner    string `json:"owner"`
		Attached bool   `json:"attached"`
		Seal     *seal  `json:"seal"`
	}
	if err := json.Unmarshal(document, &t); err != nil {
		return err
	}
	m, ok := t.Seal.mark()
	if t.OID != oid || t.Attached || t.Owner != r.table.Owner || !ok || !m.Proven ||
		m.Slot != r.slot || m.Schema != r.table.Schema || m.Table != r.table.Name {
		return errChanged
	}
	_, err := tx.Exec(ctx, "DROP TABLE "+pgx.Identifier{schema, name}.Sanitize())
	return err
}
