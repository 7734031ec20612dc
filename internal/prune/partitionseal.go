package prune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// A seal is a CHECK constraint that no new row fulfils. ADD CONSTRAINT waits for the transactions
// that have written to the partition, so after it no row can come or change any more. NOT VALID:
// the rows that are there are not read, and the planner does not use the constraint.
//
// Without it, rows that are inserted through the parent while DETACH CONCURRENTLY is pending would
// be lost: PostgreSQL decodes them as rows of a table in no publication.
// TestPartition_SealKeepsRowsFromADetachmentThatIsPending
const (
	sealName = "postrider_pruned"
	sealDef  = "CHECK (false) NOT VALID"
)

// seal is the constraint of a partition, with what its comment says. The comment stays with the
// constraint when the partition is detached and when the database is restored.
type seal struct {
	Def     string `json:"def"`
	Comment string `json:"comment"`
}

// sealColumns is SQL for the seal of the pg_class row t.
const sealColumns = `(SELECT pg_catalog.json_build_object('def', pg_catalog.pg_get_constraintdef(k.oid),
      'comment', coalesce(pg_catalog.obj_description(k.oid, 'pg_constraint'), ''))
      FROM pg_catalog.pg_constraint k WHERE k.conrelid = t.oid AND k.conname = '` + sealName + `')`

// mark is the comment of a seal.
type mark struct {
	Slot   string `json:"slot"`
	Schema string `json:"schema"` // of the parent, which the catalog lacks once it is detached
	Table  string `json:"table"`
	Proven bool   `json:"proven"` // every row was delivered, and none has come since
}

// ours reports whether postrider made the constraint, for whatever slot. Nil: there is none.
func (s *seal) ours() bool {
	_, ok := s.mark()
	return ok
}

func (s *seal) mark() (m mark, ok bool) {
	if s == nil || s.Def != sealDef || json.Unmarshal([]byte(s.Comment), &m) != nil {
		return mark{}, false
	}
	return m, m.Slot != "" && m.Table != ""
}

// errChanged means that a partition is no longer what the list had: another session works on it.
var errChanged = errors.New("it was changed meanwhile by another session")

// seal adds the constraint. It waits for the partition's writers, at most lock_timeout.
func (r *partitionRun) seal(ctx context.Context, p *partition) error {
	return r.transaction(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "ALTER TABLE "+p.quoted()+" ADD CONSTRAINT "+sealName+" "+sealDef)
		if err != nil {
			return err
		}
		if err := r.comment(ctx, tx, p, false); err != nil {
			return err
		}
		return r.sameAttached(ctx, tx, p)
	})
}

// recordProof notes in the mark of a sealed partition that its rows are delivered.
func (r *partitionRun) recordProof(ctx context.Context, p *partition) error {
	return r.transaction(ctx, func(tx pgx.Tx) error {
		if err := r.comment(ctx, tx, p, true); err != nil {
			return err
		}
		return r.sameAttached(ctx, tx, p)
	})
}

func (r *partitionRun) comment(ctx context.Context, tx pgx.Tx, p *partition, proven bool) error {
	text, err := json.Marshal(mark{Slot: r.slot, Schema: r.table.Schema, Table: r.table.Name,
		Proven: proven})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "COMMENT ON CONSTRAINT "+sealName+" ON "+p.quoted()+" IS "+
		postgres.QuoteText(string(text)))
	return err
}

// sameAttached verifies that the name still means the listed partition, and that it is attached.
// The transaction holds a lock on it that keeps out changes of its definition.
func (r *partitionRun) sameAttached(ctx context.Context, tx pgx.Tx, p *partition) error {
	var same bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c
		JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
		WHERE n.nspname = $1 AND c.relname = $2 AND c.oid = $3 AND i.inhparent = $4
		AND NOT i.inhdetachpending)`, p.Schema, p.Name, p.OID, r.table.OID).Scan(&same)
	if err == nil && !same {
		err = errChanged
	}
	return err
}

// unseal lets rows in again.
func (r *partitionRun) unseal(ctx context.Context, p *partition) error {
	err := r.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, p.unsealSQL()); err != nil {
			return err
		}
		return r.sameAttached(ctx, tx, p)
	})
	if postgres.SQLState(err) == "42501" { // insufficient_privilege
		return fmt.Errorf("a run was ended that was removing it, and inserts into it fail until its "+
			"owner does %s: %w", p.unsealSQL(), err)
	}
	return err
}

func (p *partition) unsealSQL() string {
	return "ALTER TABLE " + p.quoted() + " DROP CONSTRAINT " + sealName
}

// left are the sealed partitions, which a run that was ended has left, and the statements that let
// rows in again or end the detachment.
func (t *partitionedTable) left() (partitions, statements []string) {
	for i := range t.Partitions {
		p := &t.Partitions[i]
		if !p.Seal.ours() {
			continue
		}
		statement := p.unsealSQL()
		if p.Pending {
			statement = t.finalizeSQL(p)
		}
		partitions, statements = append(partitions, p.quoted()), append(statements, statement+";")
	}
	return partitions, statements
}

func (t *partitionedTable) finalizeSQL(p *partition) string {
	return "ALTER TABLE " + t.quoted() + " DETACH PARTITION " + p.quoted() + " FINALIZE"
}

// transaction runs f in one that waits for each lock at most r.lockTimeout.
func (r *partitionRun) transaction(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('lock_timeout', $1, true)`,
			fmt.Sprintf("%dms", r.lockTimeout.Milliseconds()))
		if err != nil {
			return err
		}
		return f(tx)
	})
}
