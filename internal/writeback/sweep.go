package writeback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/slot"
)

// statementTimeout bounds a statement on a table without an index that finds pending rows.
const statementTimeout = time.Minute

// counts are rows that were written.
type counts struct{ published, failed int64 }

// table is a table that is written to, with the names under which its dead letters come.
type table struct {
	src       prune.Source
	names     []string
	relations []*relation // ordinary tables without problems
}

// sweep writes everything that was delivered until now. Rows that another session has locked are
// left: complete is false then. Errors of one table, of the type Problem too, do not keep the
// others from being written.
func (w *Writer) sweep(ctx context.Context) (n counts, complete bool, err error) {
	if err := w.connect(ctx); err != nil {
		return n, false, err
	}
	tables, problems, err := describeAll(ctx, w.conn, w.parts)
	if err != nil {
		return n, false, err
	}
	var relations []prune.Relation
	for _, t := range tables {
		for _, r := range t.relations {
			relations = append(relations, r.proven(t.src, w.parts.Config))
		}
	}
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		if !p.Warning {
			errs = append(errs, p)
		}
	}
	if len(relations) == 0 {
		return n, true, errors.Join(errs...)
	}
	coverages, err := w.look(ctx, relations)
	if err != nil {
		return n, false, err
	}
	// After the look: a dead letter is durable before its row counts as delivered.
	var entries []*deadletter.Entry
	if w.parts.Letters != nil {
		if entries, err = w.parts.Letters(ctx); err != nil {
			return n, false, fmt.Errorf("read the dead letters: %w", err)
		}
	}
	complete = true
	now, err := w.names(ctx, tables)
	if err != nil {
		return n, false, err
	}
	for _, t := range tables {
		of := coverages[:len(t.relations)]
		coverages = coverages[len(t.relations):]
		more, all, err := w.table(ctx, t, now, of, entries)
		n.published, n.failed = n.published+more.published, n.failed+more.failed
		complete = complete && (all || isProblem(err))
		if err != nil && (w.conn.IsClosed() || ctx.Err() != nil) {
			return n, false, err
		}
		errs = append(errs, err)
	}
	return n, complete, errors.Join(errs...)
}

// names returns the names that the tables of the relay and their partitions have now.
func (w *Writer) names(ctx context.Context, tables []*table) (map[string]bool, error) {
	now := map[string]bool{}
	for _, t := range tables {
		for _, name := range t.names {
			now[name] = true
		}
	}
	for _, name := range w.parts.Others {
		found, err := describe(ctx, w.conn, name)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			now[r.name()] = true
		}
	}
	return now, nil
}

// connect opens the connection, unless there is one.
func (w *Writer) connect(ctx context.Context) (err error) {
	if w.conn != nil {
		return nil
	}
	if w.conn, err = postgres.ConnectRows(ctx, w.parts.Postgres); err != nil {
		return err
	}
	// What a crash of the server takes back is written again.
	_, err = w.conn.Exec(ctx, `SELECT pg_catalog.set_config('application_name',
		'postrider write-back', false), pg_catalog.set_config('synchronous_commit', 'off', false)`)
	if err != nil {
		return fmt.Errorf("prepare the connection: %w", postgres.Error(err))
	}
	err = postgres.SetTimeout(ctx, w.conn, "lock_timeout", w.parts.Config.LockTimeout)
	if err == nil {
		err = postgres.SetTimeout(ctx, w.conn, "statement_timeout", statementTimeout)
	}
	if err == nil {
		w.system, err = postgres.SystemIdentifier(ctx, w.conn)
	}
	if err == nil {
		w.prover, err = prune.NewProverFor(ctx, w.conn, "write_back", w.parts.Slot,
			w.parts.Publication)
	}
	return ofState(err)
}

// ofState has an error of the proof say what it means for the write-back.
func ofState(err error) error {
	if advised, ok := errors.AsType[*slot.Error](err); ok {
		return &slot.Error{Err: advised.Err, WAL: nothingWritten,
			Fix: strings.ReplaceAll(advised.Fix, "sql/prune.sql", "sql/writeback.sql")}
	}
	return err
}

// look proves what was delivered, with the lock that one process has at a time.
func (w *Writer) look(ctx context.Context, relations []prune.Relation) ([]*prune.Coverage, error) {
	unlock, err := w.prover.Lock(ctx)
	if err != nil {
		return nil, ofState(err)
	}
	defer unlock()
	coverages, err := w.prover.Look(ctx, relations, prune.Save)
	return coverages, ofState(err)
}

// Check returns the problems of the tables and of the state table. It writes nothing, and takes no
// more rights than any role has.
func Check(ctx context.Context, conn *pgx.Conn, parts Parts) ([]Problem, error) {
	_, problems, err := describeAll(ctx, conn, parts)
	if err != nil {
		return nil, err
	}
	if err := ofState(prune.CheckState(ctx, conn)); err != nil {
		advised, ok := errors.AsType[*slot.Error](err)
		if !ok {
			return nil, err
		}
		problems = append(problems, Problem{Table: "public.postrider_prune",
			Text: strings.TrimPrefix(advised.Error(), "table public.postrider_prune "), Fix: advised.Fix})
	}
	return problems, nil
}

// describeAll describes the tables. Problems keep a relation out of the tables, warnings do not.
func describeAll(ctx context.Context, conn *pgx.Conn, parts Parts) (tables []*table,
	problems []Problem, err error) {
	var names []string
	for _, src := range parts.Tables {
		names = append(names, src.Table)
	}
	publication, err := slot.Inspect(ctx, conn, parts.Publication, names)
	if err != nil {
		return nil, nil, err
	}
	unproven := unproven(publication)
	for _, src := range parts.Tables {
		own := slices.DeleteFunc(slices.Clone(unproven),
			func(p Problem) bool { return p.Table != src.Table })
		problems = append(problems, own...)
		found, err := describe(ctx, conn, src.Table)
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			problems = append(problems, Problem{Table: src.Table, Text: "does not exist",
				Fix: "correct replication.tables"})
			continue
		}
		t := &table{src: src}
		for _, r := range found {
			t.names = append(t.names, r.name())
			of := r.problems(parts.Config, conn.Config().User)
			problems = append(problems, of...)
			stops := func(p Problem) bool { return !p.Warning }
			if len(own) == 0 && r.Kind == "r" && !r.Sealed && !slices.ContainsFunc(of, stops) {
				t.relations = append(t.relations, r)
			}
		}
		tables = append(tables, t)
	}
	return tables, problems, nil
}

// isProblem reports whether an error lasts until somebody repairs it.
func isProblem(err error) bool {
	_, is := errors.AsType[Problem](err)
	return is
}

// table writes the rows of one table. now is that of lettersOf.
func (w *Writer) table(ctx context.Context, t *table, now map[string]bool,
	coverages []*prune.Coverage, entries []*deadletter.Entry) (n counts, complete bool, err error) {
	l := lettersOf(entries, w.system, w.parts.Slot, t.names, now, w.applied, time.Now())
	complete = l.settled
	for i, r := range t.relations {
		s := statements{cfg: w.parts.Config, relation: r, src: t.src}
		failed, redriven, all, err := w.letters(ctx, s, l)
		n.failed, n.published, complete = n.failed+failed, n.published+redriven, complete && all
		if err != nil {
			return n, false, err
		}
		if l.nameless > 0 || len(s.ids()) == 0 && len(l.held) > 0 {
			return n, false, Problem{Table: r.name(), Text: "has an open dead letter without the id of " +
				"its row", Fix: "postrider deadletter list   # then redrive or discard it"}
		}
		if coverages[i].Unordered() {
			return n, false, Problem{Table: r.name(), Text: "had rows when the write-back began, and no " +
				"column orders its rows by time, or it is NULL in some, so that none is known to be new",
				Fix: "ALTER TABLE " + r.quoted() + " ADD COLUMN created_at timestamptz DEFAULT now();"}
		}
		published, err := w.batches(ctx, s, s.publishSQL(coverages[i]), l.held)
		n.published += published
		if err != nil {
			return n, false, err
		}
		left, err := w.left(ctx, s, s.leftSQL(coverages[i]), l.held)
		if err != nil {
			return n, false, err
		}
		complete = complete && !left
	}
	if complete {
		for _, sign := range l.signs {
			w.applied[sign] = true
		}
	}
	return n, complete, nil
}

// letters writes to the rows of dead letters.
func (w *Writer) letters(ctx context.Context, s statements, l rowLetters) (failed, redriven int64,
	complete bool, err error) {
	complete = true
	write := func(sql, condition string, of map[string]string) (n int64, err error) {
		if sql == "" || len(of) == 0 {
			return 0, nil
		}
		ids := slices.Sorted(maps.Keys(of))
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = of[id]
		}
		if n, err = w.batches(ctx, s, sql, ids, texts); err != nil {
			return n, err
		}
		left, err := w.left(ctx, s, s.lettersLeftSQL(condition), ids, texts)
		complete = complete && !left
		return n, err
	}
	if failed, err = write(s.failSQL(), s.failing(), l.failed); err == nil {
		redriven, err = write(s.redriveSQL(), s.redriving(), l.redriven)
	}
	return failed, redriven, complete, err
}

// batches repeats a statement until a batch is not full, and returns how many rows it has written.
func (w *Writer) batches(ctx context.Context, s statements, sql string, args ...any) (n int64,
	err error) {
	for {
		batch, err := w.batch(ctx, s, sql, args)
		n += batch
		if err != nil || batch < int64(w.parts.Config.BatchRows) {
			return n, postgres.Wrap(err, "write to table %s", s.name())
		}
	}
}

// batch executes a statement in a transaction, in which the relation is locked and judged again:
// its owner may have made a trigger since.
func (w *Writer) batch(ctx context.Context, s statements, sql string, args []any) (n int64,
	err error) {
	// A stricter level, as the default of a database may be, would make transactions of others fail.
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	err = pgx.BeginTxFunc(ctx, w.conn, options, func(pgx.Tx) error {
		// To parse an UPDATE takes the lock that keeps triggers, rules and constraints from being made.
		// Nothing is executed, and LOCK TABLE would take more rights.
		c := postgres.QuoteName(s.cfg.pendingColumn())
		_, err := w.conn.PgConn().Prepare(ctx, "", "UPDATE ONLY "+s.quoted()+" SET "+c+" = "+c, nil)
		if err != nil {
			return err
		}
		now, err := describe(ctx, w.conn, s.name())
		if err != nil {
			return err
		}
		if len(now) == 0 || now[0].OID != s.OID || now[0].Sealed {
			return prune.ErrChanged
		}
		for _, p := range now[0].problems(s.cfg, w.conn.Config().User) {
			if !p.Warning {
				return p
			}
		}
		tag, err := w.conn.Exec(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (w *Writer) left(ctx context.Context, s statements, sql string, args ...any) (left bool,
	err error) {
	args = append([]any{pgx.QueryExecModeExec}, args...)
	left, err = postgres.One[bool](ctx, w.conn, sql, args...)
	return left, postgres.Wrap(err, "read table %s", s.name())
}
