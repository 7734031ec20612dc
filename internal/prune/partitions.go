package prune

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/slot"
)

// detachTimeout is that of partitionRun.
const detachTimeout = 30 * time.Second

// createAhead creates the partitions of the partitioned tables, and returns a run for each, which
// is for finish after an error too. It does without the slot: inserts need partitions also while
// that is behind. Tables whose partitions must be left alone are in the report.
func (p *Pruner) createAhead(ctx context.Context, mode Mode,
	report *Report) (map[string]*partitionRun, error) {
	var tables [][2]string
	for _, src := range p.parts.Tables {
		schema, name := slot.SplitTable(src.Table)
		tables = append(tables, [2]string{schema, name})
	}
	runs := map[string]*partitionRun{}
	for i, src := range p.parts.Tables {
		t, err := readPartitioned(ctx, p.conn, tables[i][0], tables[i][1], tables)
		if errors.Is(err, pgx.ErrNoRows) {
			continue // an ordinary table, or none
		}
		if err != nil {
			return runs, err
		}
		r := &partitionRun{conn: p.conn, table: t, slot: p.parts.Slot, dryRun: mode == DryRun,
			cutoff:      t.Now.Add(-p.parts.Config.retention()),
			lockTimeout: p.parts.Config.LockTimeout, detachTimeout: detachTimeout,
			result: &PartitionReport{}, postponed: p.postponed, uncreated: p.uncreated}
		report.of(src.Table).Partitions = r.result
		runs[src.Table] = r
	}
	for _, src := range p.parts.Tables {
		r := runs[src.Table]
		if r == nil {
			continue
		}
		err := r.refusal(ctx, src.Table)
		switch {
		case errors.Is(err, ErrRefused):
			report.of(src.Table).refuse(err)
			continue
		case err == nil:
			err = r.ahead(ctx, p.parts.Config.PartitionsAhead, tables)
		}
		if err != nil {
			return runs, err
		}
	}
	return runs, nil
}

// refusal is why the partitions of the table must be left alone, or nil.
func (r *partitionRun) refusal(ctx context.Context, name string) (err error) {
	if problem, fix := r.table.refuses(); problem != "" {
		return refuse(name, problem, fix)
	}
	if r.partman, err = readPartman(ctx, r.conn, r.table); err != nil {
		return err
	}
	if problem, fix := r.partman.refuses(r.table); problem != "" {
		return refuse(name, problem, fix)
	}
	return nil
}

// ahead is createAhead, unless pg_partman does it. Afterwards the list has what was created.
func (r *partitionRun) ahead(ctx context.Context, ahead int, tables [][2]string) error {
	if r.partman.managed || ahead == 0 {
		return nil
	}
	err := r.note(ctx, r.table.quoted(), "", r.createAhead(ctx, ahead))
	if err != nil || len(r.result.Created) == 0 || r.dryRun {
		return err
	}
	t, err := readPartitioned(ctx, r.conn, r.table.Schema, r.table.Name, tables)
	if err == nil { // else finish has the one from before
		r.table = t
	}
	return err
}

// finish ends what a killed run has left in the tables that this run does not prune, without a
// proof of what is there now: it drops what is detached and was proven, and lets rows into sealed
// partitions again. A role without the rights of the owner cannot: refuses names the partitions.
func finish(ctx context.Context, runs map[string]*partitionRun, report *Report) (err error) {
	for name, r := range runs {
		if r.ran || !r.table.MayAct {
			continue
		}
		if r.conn.IsClosed() || ctx.Err() != nil {
			return err // the caller has the cause
		}
		r.refused = report.of(name).refused != nil
		err = errors.Join(err, r.remove(ctx))
	}
	return err
}

// removePartitions removes the old ones of a table. coverages are those of r.table.relations.
func (p *Pruner) removePartitions(ctx context.Context, t *table, r *partitionRun,
	coverages []*Coverage, letters letters, report *TableReport) error {
	names, coverage := []string{t.Name}, map[uint32]*Coverage{}
	for i, relation := range r.table.relations(t.Column, t.ColumnType) {
		coverage[relation.OID] = coverages[i]
		names = append(names, relation.Name)
		report.addGaps(coverages[i].gaps())
		if began := coverages[i].Began(); report.CoveredSince.IsZero() ||
			began.Before(report.CoveredSince) {
			report.CoveredSince = began
		}
	}
	kept := letters.of(names...)
	if slices.Contains(kept, "") || len(kept) > 0 && len(t.ids) == 0 {
		report.refuse(refuseUnnamedLetter(t.Name))
		return nil // without coverage, so that finish removes nothing that was not proven
	}
	r.ids, r.letters, r.coverage = t.ids, kept, coverage
	return r.remove(ctx)
}

// logPartitions logs what a run did, and once why a partition stays.
func (p *Pruner) logPartitions(t TableReport) {
	if t.Partitions == nil {
		return
	}
	for _, name := range t.Partitions.Created {
		p.parts.Log.Info().Str("relation", t.Table).Str("partition", name).Msg("partition created")
	}
	for _, name := range t.Partitions.Removed {
		p.parts.Log.Info().Str("relation", t.Table).Str("partition", name).Msg("partition removed: " +
			"every row was delivered, and is older than the retention")
	}
	for _, kept := range t.Partitions.Kept {
		if !slices.Contains(p.kept[t.Table], kept) {
			p.parts.Log.Warn().Str("relation", t.Table).Str("partition", kept.Name).
				Str("reason", kept.Why).Msg("partition kept")
		}
	}
	p.kept[t.Table] = t.Partitions.Kept
}
