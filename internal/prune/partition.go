package prune

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// partitionRun removes partitions of one outbox table: those whose whole range is older than the
// retention and whose every row is delivered. For each, in the order of the ranges, it
//
//  1. proves that all rows are delivered,
//  2. seals the partition, so that no row comes any more,
//  3. proves it again of the rows that are there now, and records that in the mark of the seal,
//  4. detaches the partition,
//  5. drops it.
//
// A run that ends in between leaves the seal. The next one goes on from there, or takes the seal
// away if the proof does not hold. Steps 4 and 5 require the mark.
type partitionRun struct {
	conn        *pgx.Conn // no transaction is open
	table       *partitionedTable
	slot        string
	cutoff      time.Time // of the server's clock: older rows may go
	lockTimeout time.Duration
	// detachTimeout bounds the wait of DETACH CONCURRENTLY for transactions that use the parent. The
	// wait keeps no session out.
	detachTimeout time.Duration
	dryRun        bool // the result is what would be done
	partman       partman
	result        *PartitionReport
	ran           bool              // remove was called
	refused       bool              // the table: only what an earlier run has left is looked at
	uncreated     postponed[string] // by name, quoted
	reached       *int64            // no partition is created for ids up to it; nil: none is known

	// For remove.
	coverage  map[uint32]*Coverage // of each partition; none of one that was not looked at
	ids       []string             // columns that a dead letter may name a row by
	letters   []string             // ids of rows with open dead letters; not nil
	postponed postponed[uint32]
}

// PartitionReport is what a run did with the partitions of a table, or would do. Names are quoted
// for SQL.
type PartitionReport struct {
	Removed []string        `json:"removed,omitempty"`
	Created []string        `json:"created,omitempty"`
	Kept    []KeptPartition `json:"kept,omitempty"`
}

// KeptPartition is one that is old enough and was not removed, or one that was not created.
type KeptPartition struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

func (r *PartitionReport) keep(name, why string) {
	r.Kept = append(r.Kept, KeptPartition{Name: name, Why: why})
}

func (r *partitionRun) removed(name string) { r.result.Removed = append(r.result.Removed, name) }

// remove takes away what may go. It returns an error if the connection or the context has ended;
// what is about one partition is in the result.
func (r *partitionRun) remove(ctx context.Context) error {
	r.ran = true
	err := r.note(ctx, r.table.quoted(), "", r.dropDetached(ctx))
	for i := 0; err == nil && i < len(r.table.Partitions); i++ {
		p := &r.table.Partitions[i]
		why, failed := r.removePartition(ctx, p)
		err = r.note(ctx, p.quoted(), why, failed)
	}
	return err
}

// note puts into the result why something was not done. It returns err if nothing else can be done
// either.
func (r *partitionRun) note(ctx context.Context, name, why string, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && r.conn.IsClosed():
		return err
	case why != "":
		r.result.keep(name, why)
	}
	if err != nil {
		r.result.keep(name, explain(err))
	}
	return nil
}

// removePartition takes one through all steps. It returns why the partition stays, which is empty
// also if it is not old enough.
func (r *partitionRun) removePartition(ctx context.Context, p *partition) (why string, err error) {
	if p.Pending {
		return r.finalize(ctx, p)
	}
	sealed := p.Seal.ours()
	if r.refused && !sealed {
		return "", nil
	}
	why, old, err := r.removable(ctx, p)
	switch {
	case sealed && !r.dryRun && (err != nil || why != "" || !old):
		return why, errors.Join(err, r.unseal(ctx, p))
	case err != nil || why != "" || !old:
		return why, err
	case r.dryRun:
		r.removed(p.quoted())
		return "", nil
	case !sealed:
		if err := r.seal(ctx, p); err != nil {
			return "", err
		}
	}
	why, err = r.unproven(ctx, p)
	if err == nil && why == "" {
		err = r.recordProof(ctx, p)
	}
	if err == nil && why == "" {
		err = r.detach(ctx, p)
	}
	if err != nil || why != "" {
		return why, errors.Join(err, r.unsealAttached(ctx, p))
	}
	return "", nil
}

// removable is the look before a partition is sealed: most are too new.
func (r *partitionRun) removable(ctx context.Context, p *partition) (why string, old bool,
	err error) {
	if why, wait := r.postponed.of(p.OID); wait || !p.ranged {
		return why, false, nil // no range: the default partition, or a bound that Go cannot hold
	}
	began := time.Now()
	if old, err = r.old(ctx, p); err != nil {
		return "", false, err
	}
	if old {
		why = r.table.refusesPartition(p)
	}
	if old && why == "" && r.coverage[p.OID] != nil {
		why, err = r.unproven(ctx, p)
	}
	if !old || why != "" {
		r.postponed.add(p.OID, why, readShare*time.Since(began))
	}
	return why, old && r.coverage[p.OID] != nil, err
}

// postponed are the partitions that are tried again only after some time: each run would otherwise
// read the rows of those that stay, or keep writers out for those that cannot be created.
type postponed[K comparable] map[K]struct {
	why   string
	until time.Time
}

// readShare bounds what reading them takes: the next time comes after this many times what the
// last one took.
const readShare = 100

func (all postponed[K]) of(key K) (why string, wait bool) {
	one, is := all[key]
	return one.why, is && time.Now().Before(one.until)
}

func (all postponed[K]) add(key K, why string, wait time.Duration) {
	one := all[key]
	one.why, one.until = why, time.Now().Add(wait)
	all[key] = one
}

// old reports whether the whole range is older than the cutoff. An id has no age: there every row
// must have been committed before the cutoff, and a row behind the range too. Otherwise the
// partition that is being written to would go in a quiet week.
func (r *partitionRun) old(ctx context.Context, p *partition) (bool, error) {
	c := r.coverage[p.OID]
	switch {
	case p.span.from.open() || p.span.to.open():
		return false, nil
	case r.table.kind != keyID && r.table.kind != keyUUID:
		return p.span.before(r.table.kind, r.cutoff), nil
	case c == nil:
		return false, nil
	}
	key, before := postgres.QuoteName(r.table.Key), c.CommittedBefore(r.cutoff)
	if before == neverCommitted {
		return false, nil
	}
	return postgres.One[bool](ctx, r.conn, "SELECT coalesce((SELECT "+before+" FROM "+
		r.table.quoted()+" WHERE "+key+" >= "+postgres.QuoteText(p.span.to.text)+" ORDER BY "+key+
		" LIMIT 1), false) AND NOT EXISTS (SELECT FROM ONLY "+p.quoted()+" WHERE NOT "+before+")")
}

// countedAtMost bounds the rows that are counted to say how many are not delivered.
const countedAtMost = 1000

// unproven returns why a row may be the only copy of its event; empty: all are proven to be
// delivered, and none has an open dead letter. After the seal no row can come any more that the
// coverage, which is older, does not have.
func (r *partitionRun) unproven(ctx context.Context, p *partition) (why string, err error) {
	letters := &rows{table: &table{ids: r.ids}, kept: r.letters}
	delivered := r.coverage[p.OID].Delivered()
	var undelivered, held int
	err = r.conn.QueryRow(ctx, "SELECT pg_catalog.count(*) FILTER (WHERE NOT delivered), "+
		"pg_catalog.count(*) FILTER (WHERE delivered) FROM (SELECT "+delivered+" AS delivered FROM "+
		"ONLY "+p.quoted()+" WHERE NOT ("+delivered+" AND "+letters.free()+") LIMIT "+
		strconv.Itoa(countedAtMost)+") rows", pgx.QueryExecModeExec, r.letters).
		Scan(&undelivered, &held)
	switch {
	case err != nil:
		return "", err
	case undelivered == countedAtMost:
		return fmt.Sprintf("%d or more of its rows are not proven to be delivered", undelivered), nil
	case undelivered > 0:
		return fmt.Sprintf("%d of its rows are not proven to be delivered", undelivered), nil
	case held > 0:
		return fmt.Sprintf("%d of its rows have an open dead letter", held), nil
	}
	return "", nil
}

// detach takes the proven partition out of its table and drops it. With a default partition
// PostgreSQL detaches only with a lock that keeps writers out: that is for the moment of one
// transaction, which waits at most lock_timeout for it.
func (r *partitionRun) detach(ctx context.Context, p *partition) error {
	alter := "ALTER TABLE " + r.table.quoted() + " DETACH PARTITION " + p.quoted()
	if r.table.HasDefault {
		err := r.transaction(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, alter); err != nil {
				return err
			}
			return r.drop(ctx, tx, p.OID, p.Schema, p.Name)
		})
		if err == nil {
			r.removed(p.quoted())
		}
		return err
	}
	if err := r.outsideTransaction(ctx, alter+" CONCURRENTLY"); err != nil {
		return err
	}
	return r.dropAlone(ctx, p.OID, p.Schema, p.Name)
}

// finalize ends a detachment that was interrupted. One that is not of this slot, or not of a
// proven partition, belongs to the session that began it.
func (r *partitionRun) finalize(ctx context.Context, p *partition) (why string, err error) {
	m, ok := p.Seal.mark()
	const pending, end = "its DETACH CONCURRENTLY is pending, and ", "; end it: "
	switch reason := r.table.refusesPartition(p); {
	case !ok || m.Slot != r.slot || !m.Proven:
		return pending + "postrider did not begin it: rows that are inserted meanwhile may be lost" +
			end + r.table.finalizeSQL(p) + ";", nil
	case reason != "":
		return pending + reason + end + r.table.finalizeSQL(p) + ";", nil
	}
	if r.dryRun {
		r.removed(p.quoted())
		return "", nil
	}
	if err := r.outsideTransaction(ctx, r.table.finalizeSQL(p)); err != nil {
		return "", err
	}
	return "", r.dropAlone(ctx, p.OID, p.Schema, p.Name)
}

// outsideTransaction runs a statement that waits for other transactions and keeps none out.
func (r *partitionRun) outsideTransaction(ctx context.Context, sql string) error {
	if err := postgres.SetTimeout(ctx, r.conn, "lock_timeout", r.detachTimeout); err != nil {
		return err
	}
	_, err := r.conn.Exec(ctx, sql)
	return errors.Join(err, postgres.SetTimeout(ctx, r.conn, "lock_timeout", r.lockTimeout))
}

// unsealAttached takes the seal away if the partition is still attached and no detachment is
// pending: a pending one is finalized by the next run, and needs the seal until then.
func (r *partitionRun) unsealAttached(ctx context.Context, p *partition) error {
	if r.conn.IsClosed() || ctx.Err() != nil {
		return nil // the next run finds it
	}
	attached, err := postgres.One[bool](ctx, r.conn, `SELECT EXISTS (SELECT FROM
		pg_catalog.pg_inherits i JOIN pg_catalog.pg_constraint k ON k.conrelid = i.inhrelid
		WHERE i.inhrelid = $1 AND NOT i.inhdetachpending AND k.conname = '`+sealName+`')`, p.OID)
	if err != nil || !attached {
		return err
	}
	return r.unseal(ctx, p)
}

// explain is an error in the words of an operator.
func explain(err error) string {
	switch postgres.SQLState(err) {
	case "55P03": // lock_not_available
		return "a lock was not free in time; the next run tries again"
	case "40P01", "40001": // deadlock_detected, serialization_failure
		return "another transaction was in the way; the next run tries again"
	}
	return fmt.Sprint(err)
}
