package prune

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// stateTable is made by sql/prune.sql. A restore brings it back together with the rows.
const stateTable = "public.postrider_prune"

// state is what is saved of a relation.
type state struct {
	Identity identity `json:"identity"`
	Evidence string   `json:"evidence"`
	Coverage

	// Of the saved row, which may be older.
	savedAt      time.Time
	savedHorizon uint64
}

// checkStateTable refuses a table that another role could have put there: what it holds decides
// which rows are removed.
const checkStateTable = `SELECT c.oid, c.relkind = 'r'::"char" AND c.relpersistence = 'p'::"char"
	  AND NOT c.relhastriggers AND NOT c.relhasrules AND NOT c.relrowsecurity
	  AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
	o.rolsuper OR o.rolname = current_user OR o.oid = d.datdba,
	pg_catalog.has_table_privilege(c.oid, 'SELECT')
	  AND pg_catalog.has_table_privilege(c.oid, 'INSERT')
	  AND pg_catalog.has_table_privilege(c.oid, 'UPDATE')
	  AND pg_catalog.has_table_privilege(c.oid, 'DELETE'),
	o.rolname
	FROM pg_catalog.pg_class c
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
	JOIN pg_catalog.pg_database d ON d.datname = pg_catalog.current_database()
	WHERE n.nspname = 'public' AND c.relname = 'postrider_prune'`

// CheckState returns why the table of the saved coverage cannot be used, with advice.
func CheckState(ctx context.Context, conn *pgx.Conn) error {
	type row struct {
		OID                     uint32
		Plain, Trusted, Granted bool
		Owner                   string
	}
	found, err := postgres.Collect(ctx, conn, pgx.RowToStructByPos[row], checkStateTable)
	if err != nil {
		return fmt.Errorf("look for table %s: %w", stateTable, err)
	}
	const install = "psql -v ON_ERROR_STOP=1 -f sql/prune.sql   # as a superuser"
	var problem, fix string
	switch {
	case len(found) == 0:
		problem, fix = "does not exist", install
	case !found[0].Plain:
		problem, fix = "is not an ordinary table without triggers, rules and row security",
			"DROP TABLE "+stateTable+";\n"+install
	case !found[0].Trusted:
		problem = "belongs to role " + found[0].Owner + ", which is neither a superuser nor the owner " +
			"of the database nor the role of this connection: it could have any row removed"
		// another owner alone would leave what that role has put into it
		fix = "DROP TABLE " + stateTable + ";\n" + install
	case !found[0].Granted:
		problem = "may not be read and written by this role"
		fix = "GRANT SELECT, INSERT, UPDATE, DELETE ON " + stateTable + " TO " +
			postgres.QuoteName(conn.Config().User) + ";"
	default:
		return nil
	}
	return &slot.Error{Err: fmt.Errorf("table %s %s", stateTable, problem), WAL: nothingRemoved,
		Fix: fix}
}

// nothingRemoved is what an error of this package means for the rows.
const nothingRemoved = "no row is removed; the WAL is not concerned"

const selectStates = `SELECT relation, state::text, saved_at FROM public.postrider_prune
	WHERE system_identifier = $1::text AND slot = $2::text`

const upsertState = `INSERT INTO public.postrider_prune AS p
	(system_identifier, slot, relation, state, saved_at)
	VALUES ($1::text, $2::text, $3::pg_catalog.oid, $4::text::pg_catalog.jsonb,
	pg_catalog.clock_timestamp())
	ON CONFLICT (system_identifier, slot, relation)
	DO UPDATE SET state = EXCLUDED.state, saved_at = EXCLUDED.saved_at RETURNING saved_at`

// readStates returns the saved states of a slot by relation.
func readStates(ctx context.Context, conn *pgx.Conn, system, slotName string) (map[uint32]*state,
	error) {
	states := map[uint32]*state{}
	read := func(row pgx.CollectableRow) (uint32, error) {
		var oid uint32
		var text string
		s := &state{}
		if err := row.Scan(&oid, &text, &s.savedAt); err != nil {
			return 0, err
		}
		if err := json.Unmarshal([]byte(text), s); err != nil {
			return 0, fmt.Errorf("relation %d: %w", oid, err)
		}
		if n := len(s.Ranges); n > 0 {
			s.savedHorizon = s.Ranges[n-1].To
		}
		states[oid] = s
		return oid, nil
	}
	_, err := postgres.Collect(ctx, conn, read, selectStates, system, slotName)
	return states, postgres.Wrap(err, "read table %s", stateTable)
}

func (s *state) save(ctx context.Context, conn *pgx.Conn, system, slotName string,
	relation uint32) error {
	document, err := json.Marshal(s)
	if err != nil {
		return err
	}
	s.savedAt, err = postgres.One[time.Time](ctx, conn, upsertState, system, slotName, relation,
		string(document))
	return postgres.Wrap(err, "write table %s", stateTable)
}

// forgetDropped removes the states of relations that do not exist any more.
const forgetDropped = `DELETE FROM public.postrider_prune p WHERE p.system_identifier = $1::text
	AND p.slot = $2::text
	AND NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = p.relation)`
