package prune

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// partitionedTable is an outbox table as the catalog has it, with its partitions.
type partitionedTable struct {
	OID        uint32      `json:"oid"`
	Schema     string      `json:"schema"`
	Name       string      `json:"name"`
	Owner      string      `json:"owner"`
	MayAct     bool        `json:"may_act"` // as the owner
	Role       string      `json:"role"`    // current_user
	Strategy   string      `json:"strategy"`
	Keys       int         `json:"keys"`
	Key        string      `json:"key"`      // empty: an expression
	KeyType    string      `json:"key_type"` // empty: not of pg_catalog
	HasDefault bool        `json:"has_default"`
	ReferredBy []string    `json:"referred_by"` // tables with a foreign key to it
	Unlink     []string    `json:"unlink"`      // statements that drop these keys
	Triggers   []string    `json:"triggers"`    // for DELETE or TRUNCATE
	Now        time.Time   `json:"now"`         // of the server
	Partitions []partition `json:"partitions"`
	kind       keyKind
}

// partition is one child of a partitioned table.
type partition struct {
	OID        uint32   `json:"oid"`
	Schema     string   `json:"schema"`
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`        // relkind
	Durability string   `json:"durability"`  // relpersistence
	Owner      string   `json:"owner"`       //
	Bound      string   `json:"bound"`       // pg_get_expr(relpartbound)
	Pending    bool     `json:"pending"`     // DETACH CONCURRENTLY has begun
	ReferredBy []string `json:"referred_by"` // tables with a foreign key to it
	Triggers   []string `json:"triggers"`    // for DELETE or TRUNCATE
	Dependents []string `json:"dependents"`  // what DROP TABLE would refuse for: views, functions
	Seal       *seal    `json:"seal"`        // nil: none
	configured bool     // as a table of its own
	ranged     bool     // span is valid
	span       span
}

// listPartitions is one statement, so that all is of one snapshot. It takes no lock of a table.
// Parameters: schema and name of the table.
const listPartitions = `
SELECT pg_catalog.json_build_object(
  'oid', c.oid::pg_catalog.int8, 'schema', n.nspname, 'name', c.relname,
  'owner', pg_catalog.pg_get_userbyid(c.relowner), 'role', current_user,
  'may_act', pg_catalog.pg_has_role(c.relowner, 'USAGE'),
  'strategy', p.partstrat, 'keys', p.partnatts, 'has_default', p.partdefid <> 0::pg_catalog.oid,
  'key', coalesce(a.attname, ''), 'now', pg_catalog.clock_timestamp(),
  'key_type', coalesce((SELECT y.typname FROM pg_catalog.pg_type y
    WHERE y.oid = a.atttypid AND y.typnamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid), ''),
  'referred_by', (SELECT pg_catalog.json_agg(DISTINCT r.conrelid::pg_catalog.regclass::pg_catalog.text)
    FROM pg_catalog.pg_constraint r WHERE r.contype = 'f' AND r.confrelid = c.oid),
  'unlink', (SELECT pg_catalog.json_agg(pg_catalog.format('ALTER TABLE %s DROP CONSTRAINT %I;',
      r.conrelid::pg_catalog.regclass, r.conname) ORDER BY r.oid)
    FROM pg_catalog.pg_constraint r
    WHERE r.contype = 'f' AND r.confrelid = c.oid AND r.conparentid = 0::pg_catalog.oid),
  'triggers', (SELECT pg_catalog.json_agg(g.tgname) FROM pg_catalog.pg_trigger g
    WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgtype::integer & 40 <> 0),
  'partitions', (SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
    'oid', t.oid::pg_catalog.int8, 'schema', m.nspname, 'name', t.relname, 'kind', t.relkind,
    'durability', t.relpersistence, 'owner', pg_catalog.pg_get_userbyid(t.relowner),
    'bound', coalesce(pg_catalog.pg_get_expr(t.relpartbound, t.oid), ''), 'pending', i.inhdetachpending,
    'referred_by', (SELECT pg_catalog.json_agg(DISTINCT r.conrelid::pg_catalog.regclass::pg_catalog.text)
      FROM pg_catalog.pg_constraint r WHERE r.contype = 'f' AND r.confrelid = t.oid),
    'triggers', (SELECT pg_catalog.json_agg(g.tgname) FROM pg_catalog.pg_trigger g
      WHERE g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgtype::integer & 40 <> 0),
    'dependents', (SELECT pg_catalog.json_agg(DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, 0))
      FROM pg_catalog.pg_depend d
      WHERE d.deptype = 'n' AND (d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
          AND d.refobjid = t.oid
        OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid
          AND d.refobjid IN (SELECT y.oid FROM pg_catalog.pg_type y WHERE y.oid = t.reltype OR y.typelem = t.reltype))
        AND d.objid <> t.oid
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint x WHERE x.oid = d.objid
          AND d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid
          AND (x.conrelid = t.oid OR x.contype = 'f'))
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_attrdef x WHERE x.oid = d.objid
          AND d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass::pg_catalog.oid AND x.adrelid = t.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_index x WHERE x.indexrelid = d.objid
          AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND x.indrelid = t.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger x WHERE x.oid = d.objid
          AND d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass::pg_catalog.oid AND x.tgrelid = t.oid)
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy x WHERE x.oid = d.objid
          AND d.classid = 'pg_catalog.pg_policy'::pg_catalog.regclass::pg_catalog.oid AND x.polrelid = t.oid)),
    'seal', ` + sealColumns + `) ORDER BY t.oid)
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class t ON t.oid = i.inhrelid
    JOIN pg_catalog.pg_namespace m ON m.oid = t.relnamespace WHERE i.inhparent = c.oid))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0] AND a.attnum > 0
WHERE n.nspname = $1 AND c.relname = $2`

// readPartitioned describes a partitioned table, its partitions by their ranges; tables are the
// configured ones. The connection has DateStyle ISO and time zone UTC. The error is pgx.ErrNoRows
// if there is no such table, or it is not partitioned.
func readPartitioned(ctx context.Context, conn *pgx.Conn, schema, name string,
	tables [][2]string) (*partitionedTable, error) {
	document, err := postgres.One[[]byte](ctx, conn, listPartitions, schema, name)
	if err != nil {
		return nil, err
	}
	t := &partitionedTable{}
	if err := json.Unmarshal(document, t); err != nil {
		return nil, fmt.Errorf("partitions of %s.%s: %w", schema, name, err)
	}
	if t.Strategy == "r" && t.Keys == 1 && t.Key != "" {
		t.kind = keyKindOf(t.KeyType)
	}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		p.span, p.ranged = parseSpan(t.kind, p.Bound)
		p.configured = slices.Contains(tables, [2]string{p.Schema, p.Name})
	}
	slices.SortStableFunc(t.Partitions, t.order)
	return t, nil
}

// order is that of the ranges: those without a lower end first, those without a range last.
func (t *partitionedTable) order(a, b partition) int {
	rank := func(p partition) int {
		switch {
		case !p.ranged:
			return 2
		case p.span.from.open():
			return 0
		}
		return 1
	}
	if by := cmp.Compare(rank(a), rank(b)); by != 0 || rank(a) != 1 {
		return by
	}
	return a.span.from.compare(t.kind, b.span.from)
}

// relations are the partitions whose rows can be proven to be delivered.
func (t *partitionedTable) relations(column, columnType string) (all []Relation) {
	for _, p := range t.Partitions {
		if p.Kind == "r" && p.Durability == "p" {
			all = append(all, Relation{OID: p.OID, Name: p.Schema + "." + p.Name, Column: column,
				ColumnType: columnType})
		}
	}
	return all
}

func (t *partitionedTable) quoted() string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

func (p *partition) quoted() string { return pgx.Identifier{p.Schema, p.Name}.Sanitize() }

// dropByHand names the condition: rows that were not delivered would be lost.
const dropByHand = "drop its partitions by hand, once 'postrider recover' finds none of their " +
	"rows missing"

// refuses returns why its partitions must be left alone, and what to type; empty: they need not.
func (t *partitionedTable) refuses() (problem, fix string) {
	switch {
	case !t.MayAct:
		problem = fmt.Sprintf("belongs to role %s, and only its owner may detach partitions, whose "+
			"rights role %s does not have", t.Owner, t.Role)
		fix = fmt.Sprintf("GRANT %s TO %s;\nor run 'postrider prune' as %s", postgres.QuoteName(t.Owner),
			postgres.QuoteName(t.Role), t.Owner)
		if sealed, statements := t.left(); len(sealed) > 0 {
			problem += "; a run that was ended has left inserts failing in partition " + names(sealed)
			fix += "\nor, as " + t.Owner + ", to let rows in again:\n" + strings.Join(statements, "\n")
		}
		return problem, fix
	case t.Strategy != "r":
		return "is partitioned by list or hash: only ranges of a time or an id have an age",
			dropByHand
	case t.Keys != 1 || t.Key == "":
		return "is partitioned by several columns or by an expression: only the range of one column " +
			"has an age", dropByHand
	case t.kind == keyOther:
		return fmt.Sprintf("has the partition key %q, which is neither a time (timestamptz, "+
				"timestamp, date) nor an id (smallint, integer, bigint, uuid)", t.Key),
			dropByHand
	case len(t.ReferredBy) > 0:
		return "is referenced by a foreign key of " + names(t.ReferredBy),
			strings.Join(t.Unlink, "\n")
	case len(t.Triggers) > 0:
		return "has a trigger for DELETE or TRUNCATE, which DROP TABLE does not fire: " +
			names(t.Triggers), dropTrigger(t.Triggers[0], t.quoted())
	}
	return "", ""
}

// refusesPartition returns why one is never removed, however old its rows are; empty: it may be.
func (t *partitionedTable) refusesPartition(p *partition) string {
	switch {
	case p.Kind == "f":
		return "it is a foreign table: its rows are not in the WAL"
	case p.Kind == "p":
		return "it is itself partitioned"
	case p.Durability != "p":
		return "it is unlogged: its rows are not in the WAL"
	case p.Owner != t.Owner:
		return fmt.Sprintf("it belongs to role %q and the table to %q: ALTER TABLE %s OWNER TO %s;",
			p.Owner, t.Owner, p.quoted(), postgres.QuoteName(t.Owner))
	case p.configured:
		return "replication.tables names it"
	case len(p.ReferredBy) > 0:
		return "a foreign key refers to it: " + names(p.ReferredBy) + "; drop the constraint"
	case len(p.Triggers) > 0:
		return "it has a trigger for DELETE or TRUNCATE, which DROP TABLE does not fire: " +
			names(p.Triggers) + ": " + dropTrigger(p.Triggers[0], p.quoted())
	case len(p.Dependents) > 0:
		return "other objects depend on it: " + names(p.Dependents) + "; drop them"
	case p.Seal != nil && !p.Seal.ours():
		return "it has a constraint " + sealName + " that postrider did not make: " +
			p.unsealSQL() + ";"
	}
	return ""
}

func dropTrigger(name, on string) string {
	return "DROP TRIGGER " + postgres.QuoteName(name) + " ON " + on + ";"
}

// names lists at most five.
func names(all []string) string {
	if len(all) > 5 {
		return strings.Join(all[:5], ", ") + fmt.Sprintf(" and %d more", len(all)-5)
	}
	return strings.Join(all, ", ")
}
