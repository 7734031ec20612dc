package partition

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

const (
	// treeInterval is the time between two looks at the partitions. Retention takes one away at most
	// this long after its last row was written, or the row has long been relayed.
	treeInterval = 10 * time.Second
	// treeShare bounds what the looks cost: the next one comes after this many times the last one's
	// duration, but after maxTreeInterval at the latest.
	treeShare       = 500
	maxTreeInterval = time.Minute
)

// selectTree avoids pg_partition_tree, which locks every partition. Parameters: slot, OIDs.
var selectTree = `
WITH RECURSIVE horizon(age, confirmed) AS (
  SELECT pg_catalog.age(r.catalog_xmin), r.confirmed_flush_lsn FROM
  pg_catalog.pg_replication_slots r WHERE r.slot_name = $1::pg_catalog.name),
tree(root, oid, depth, id, steady) AS (
  SELECT w.oid, w.oid, 0, ''::pg_catalog.text, true
  FROM pg_catalog.unnest($2::pg_catalog.oid[]) AS w(oid)
  UNION ALL
  SELECT tree.root, i.inhrelid, tree.depth + 1,
    pg_catalog.concat(i.xmin::pg_catalog.text, CASE WHEN tree.depth > 0 THEN '/' END, tree.id),
    tree.steady AND NOT i.inhdetachpending
    AND (` + old("i.xmin") + ` OR ` + born("i.xmin", "i.inhrelid") + `)
    -- nor may one between have had the name of another outbox table
    AND (tree.depth = 0 OR coalesce((SELECT ` + born("p.xmin", "p.oid") + `
        OR ` + old("p.xmin") + ` AND ` + old("s.xmin") + `
      FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace s ON s.oid = p.relnamespace
      WHERE p.oid = tree.oid), false))
  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)
SELECT root, oid, id, steady, coalesce((SELECT confirmed FROM horizon)::pg_catalog.text, '')
FROM tree WHERE depth > 0 ORDER BY depth DESC`

// old is SQL for proof.old.
func old(xmin string) string {
	return `coalesce(pg_catalog.age(` + xmin + `) < 0
      OR pg_catalog.age(` + xmin + `) > (SELECT age FROM horizon), false)`
}

// Look learns which relations are partitions of the outbox tables now, so that their rows are
// known when they are partitions no longer.
func (a *Assigner) Look(ctx context.Context, conn *pgx.Conn) error {
	e, before, err := a.readProof(ctx, conn, 0)
	if err != nil {
		return fmt.Errorf("read the partitions of the tables: %w", err)
	}
	var members map[uint32]member
	if roots := a.lookAtTables(e, before); len(roots) > 0 {
		if members, err = a.lookAtTree(ctx, conn, e, before, roots); err != nil {
			return fmt.Errorf("read the partitions of the tables: %w", err)
		}
	}
	a.forget(e, members)
	return a.settle(ctx, conn)
}

// LookIfDue is Look once in a while.
func (a *Assigner) LookIfDue(ctx context.Context, conn *pgx.Conn) error {
	a.mu.Lock()
	due := !time.Now().Before(a.next)
	a.mu.Unlock()
	if !due {
		return nil
	}
	began := time.Now()
	err := a.Look(ctx, conn)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next = time.Now().Add(min(max(treeInterval, treeShare*time.Since(began)), maxTreeInterval))
	return err
}

// lookAtTables returns the tables of which rows may come under the names of partitions, by OID.
func (a *Assigner) lookAtTables(e *proof, before walPosition) map[uint32]tableProof {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.see(e, before)
	roots := map[uint32]tableProof{}
	for _, t := range e.Tables {
		if t.Kind == "p" && !(e.viaRoot(t) && e.namedBefore(t.nameProof)) {
			roots[t.OID] = t
		}
	}
	return roots
}

// member is a partition that a look has seen: a row of selectTree.
type member struct {
	Root, OID uint32
	Link      string
	Steady    bool
	Sent      string // LSN: nothing before it was still to be sent then
}

func (a *Assigner) lookAtTree(ctx context.Context, conn *pgx.Conn, e *proof, before walPosition,
	roots map[uint32]tableProof) (map[uint32]member, error) {
	oids := slices.Collect(maps.Keys(roots))
	rows, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[member], selectTree, a.slot, oids)
	if err != nil {
		return nil, err
	}
	members := map[uint32]member{}
	for _, m := range rows { // nearest last: a partition that is configured belongs to its own name
		members[m.OID] = m
	}
	after, err := postgres.One[pglogrepl.LSN](ctx, conn,
		"SELECT pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text")
	if err != nil {
		return nil, err
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	for oid, m := range members {
		t, asked := roots[m.Root]
		if !asked || a.isTable(oid) {
			continue
		}
		from := after
		if m.Steady && e.named(t.nameProof) {
			if from, err = pglogrepl.ParseLSN(m.Sent); err != nil {
				return nil, err
			}
		}
		a.extend(oid, assigned{table: a.tables[t.N-1], link: m.Link, from: from,
			sight: sight{before.flushed, e.snapshot}})
	}
	return members, nil
}

// forget drops what is about rows that do not come again, and about places in the trees that are
// no more.
func (a *Assigner) forget(e *proof, members map[uint32]member) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for oid, spans := range a.spans {
		m, is := members[oid]
		spans = slices.DeleteFunc(spans,
			func(s assigned) bool { return s.to < e.kept && (!is || s.link != m.Link) })
		if a.spans[oid] = spans; len(spans) == 0 {
			delete(a.spans, oid)
		}
	}
}

// extend adds what is known of a relation to what was known before. a.mu is held.
func (a *Assigner) extend(oid uint32, now assigned) {
	for i := range a.spans[oid] {
		s := &a.spans[oid][i]
		touches := now.from <= s.to && s.from <= now.to
		if s.table == now.table &&
			(now.link != "" && s.link == now.link || now.link == "" && touches) {
			s.from, s.sight = min(s.from, now.from), s.further(now.sight)
			return
		}
	}
	if now.link != "" || now.from <= now.to {
		a.spans[oid] = append(a.spans[oid], now)
	}
}

// Remember records how rows of a relation were assigned, from the first one to the last: when
// the slot sends them again, the relation may be gone. On another timeline it does not.
func (a *Assigner) Remember(timeline int32, oid uint32, table string, first, last pglogrepl.LSN) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timeline != timelineName(timeline) {
		return
	}
	a.extend(oid, assigned{table: table, from: first, sight: sight{to: last}})
}

// settle logs, once for each decision, that no row is left for which it is needed.
func (a *Assigner) settle(ctx context.Context, conn *pgx.Conn) error {
	for _, d := range a.decisions {
		if a.reported(d) {
			continue
		}
		e, before, err := a.readProof(ctx, conn, d.OID)
		if err != nil {
			return fmt.Errorf("look whether %q is still needed: %w", d, err)
		}
		if a.settles(d, e, before) {
			a.log.Info().Str("decision", d.String()).Uint32("oid", d.OID).Str("relation", d.Relation).
				Msg("entry of replication.partitions is no longer needed: remove it")
		}
	}
	return nil
}

// reported reports whether the log has that a decision is no longer needed.
func (a *Assigner) reported(d replication.Assignment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, is := a.settled[d.String()]
	return is
}

// settles reports whether a decision is needed no longer, once for each.
func (a *Assigner) settles(d replication.Assignment, e *proof, before walPosition) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.see(e, before)
	if _, is := a.settled[d.String()]; is || a.needed(d, e) {
		return false
	}
	a.settled[d.String()] = struct{}{}
	return true
}

// needed reports whether rows may come for which a decision is needed. a.mu is held.
func (a *Assigner) needed(d replication.Assignment, e *proof) bool {
	if d.UpTo != 0 && e.confirmed > d.UpTo {
		return false
	}
	if e.Relation == nil {
		if _, seen := a.gone[d.OID]; !seen {
			a.gone[d.OID] = e.behind
		}
		return e.confirmed < a.gone[d.OID]
	}
	schema, name := slot.SplitTable(d.Relation)
	row := FirstRow{Relation: &replication.Relation{OID: d.OID, Namespace: schema, Name: name},
		LSN: e.confirmed}
	return !a.judge(e, row).known()
}
