package prune

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// createTimeout bounds CREATE TABLE ... PARTITION OF. It keeps writers out, and reads all of the
// default partition to find out whether rows of the new range are there.
const createTimeout = 2 * time.Second

// createRest is for how long a range is left alone that cannot have a partition: that changes only
// if somebody moves rows or a table, and each attempt keeps writers out.
const createRest = 10 * time.Minute

const (
	noneCreated = "no partition was created: "
	notCreated  = "it was not created: "
	tooLarge    = "it took too long with writers kept out: the default partition is large"
	// inDefault: a range that is passed over is not created by a later run.
	inDefault = "rows of its range are in the default partition, and are published from there; to " +
		"have it, detach the default partition, create this one, move the rows, and attach the " +
		"default partition again, in one transaction"
)

// createAhead creates partitions until that many are empty behind the one that is written to. They
// continue the ranges and the names of the last ones. PostgreSQL gives them the indexes,
// constraints and triggers of the table. A range that cannot have a partition is passed over: else
// the rows of all later ones would go to the default partition too. Of ids, so are all up to the
// greatest one there, as are times that are past.
func (r *partitionRun) createAhead(ctx context.Context, ahead int) error {
	closed := slices.DeleteFunc(slices.Clone(r.table.Partitions), func(p partition) bool {
		return !p.ranged || p.span.from.open() || p.span.to.open()
	})
	s, why := r.stepAhead(closed)
	if why != "" || s == (step{}) {
		if why != "" {
			r.result.keep(r.table.quoted(), noneCreated+why)
		}
		return nil
	}
	count, err := r.countAhead(ctx, closed)
	refused := 0
	for p := closed[len(closed)-1]; err == nil && count < ahead && refused <= ahead; {
		if p, why = r.following(p, s); why == noLargerID {
			r.result.keep(r.table.quoted(), noneCreated+why)
			return nil
		} else if why != "" {
			r.result.keep(p.quoted(), notCreated+why)
			return nil
		}
		why, wait := r.uncreated.of(p.quoted())
		last := why == tooLarge
		if !wait {
			if why, last, err = r.create(ctx, &p); why != "" {
				refused++
			}
		}
		switch {
		case why != "":
			r.result.keep(p.quoted(), notCreated+why)
		case err == nil:
			r.result.Created = append(r.result.Created, p.quoted())
		}
		if last {
			return nil
		}
		if why == inDefault && r.table.kind == keyID {
			r.reached, err = r.greatest(ctx, p)
		}
		if !wait && (why == "" || r.table.kind != keyID) { // a refused time comes all the same
			count += r.isAhead(p)
		}
	}
	return err
}

// greatest returns the greatest id in a range and behind it, or nil. Where no partition is, the
// default partition has it.
func (r *partitionRun) greatest(ctx context.Context, p partition) (*int64, error) {
	key := postgres.QuoteName(r.table.Key)
	return postgres.One[*int64](ctx, r.conn, "SELECT pg_catalog.max("+key+")::bigint FROM "+
		r.table.quoted()+" WHERE "+key+" >= "+postgres.QuoteText(p.span.from.text))
}

// isAhead is 0 for the partition of now, and 1 for a later one.
func (r *partitionRun) isAhead(p partition) int {
	if r.table.kind != keyID && !p.span.from.at.After(r.table.Now) {
		return 0
	}
	return 1
}

// stepAhead returns by what the ranges advance; zero: none is to be created.
func (r *partitionRun) stepAhead(closed []partition) (s step, why string) {
	toTheEnd := slices.ContainsFunc(r.table.Partitions, func(p partition) bool {
		return p.ranged && p.span.to.open()
	})
	switch {
	case toTheEnd, r.table.kind == keyUUID: // no room; and what follows a UUID is not known
		return step{}, ""
	case len(closed) == 0:
		return step{}, "there is none yet whose range could be continued; create the first by hand"
	}
	last := closed[len(closed)-1]
	s = stepOf(r.table.kind, last.span)
	if len(closed) == 1 {
		return s, ""
	}
	before := closed[len(closed)-2]
	switch {
	case stepOf(r.table.kind, before.span) == s:
		return s, ""
	case r.table.kind != keyID && before.span.width() == last.span.width():
		return step{width: last.span.width()}, "" // four weeks, of which one looks as a February
	}
	return step{}, fmt.Sprintf("the ranges of the last two, %s and %s, differ in width; create the "+
		"next by hand", before.quoted(), last.quoted())
}

// countAhead returns how many partitions are for times to come, or how many are empty at the end.
func (r *partitionRun) countAhead(ctx context.Context, closed []partition) (count int, err error) {
	for _, p := range slices.Backward(closed) {
		used := !p.span.from.at.After(r.table.Now)
		if r.table.kind == keyID {
			used, err = postgres.One[bool](ctx, r.conn, "SELECT EXISTS (SELECT FROM "+p.quoted()+" t)")
		}
		if used || err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

// create makes one partition, as the owner of the table: the owner of a partition may read and
// drop it. last: what hinders it hinders the next one too.
func (r *partitionRun) create(ctx context.Context, p *partition) (why string, last bool,
	err error) {
	if r.dryRun {
		return "", false, nil
	}
	err = r.transaction(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('statement_timeout', $1, true)`,
			fmt.Sprintf("%dms", (r.lockTimeout+createTimeout).Milliseconds()))
		if err == nil && r.table.Owner != r.table.Role {
			_, err = tx.Exec(ctx, "SET LOCAL ROLE "+postgres.QuoteName(r.table.Owner))
		}
		if err == nil {
			_, err = tx.Exec(ctx, "CREATE TABLE "+p.quoted()+" PARTITION OF "+r.table.quoted()+
				" FOR VALUES FROM ("+postgres.QuoteText(p.span.from.text)+") TO ("+
				postgres.QuoteText(p.span.to.text)+")")
		}
		return err
	})
	switch postgres.SQLState(err) {
	case "23514": // check_violation
		r.uncreated.add(p.quoted(), inDefault, createRest)
		return inDefault, false, nil
	case "42P07": // duplicate_table
		why = "another table has the name, or was created meanwhile"
		r.uncreated.add(p.quoted(), why, createRest)
		return why, false, nil
	case "42P17": // invalid_object_definition
		return "another partition has a part of its range", true, nil
	case "57014": // query_canceled: the statement_timeout
		if ctx.Err() == nil {
			r.uncreated.add(p.quoted(), tooLarge, createRest)
			return tooLarge, true, nil
		}
	case "42501": // insufficient_privilege
		return fmt.Sprintf("role %s may not create a table in schema %s: GRANT CREATE ON SCHEMA %s "+
			"TO %s; (%v)", r.table.Owner, p.Schema, postgres.QuoteName(p.Schema),
			postgres.QuoteName(r.table.Owner), postgres.Error(err)), true, nil
	}
	return "", false, err
}
