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

// createAhead creates the partitions of the partitioned tables, and returns a run for each. It
// does without the slot: inserts need partitions also while that is behind. Tables whose
// partitions must be left alone are in the report.
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
			return nil, err
		}
		r := &partitionRun{conn: p.conn, table: t, slot: p.parts.Slot, dryRun: mode == DryRun,
			cutoff:      t.Now.Add(-p.parts.Config.retention()),
			lockTimeout: p.parts.Config.LockTimeout, detachTimeout: detachTimeout,
			result: &PartitionReport{}, postponed: p.postponed}
		entry := report.of(src.Table)
		entry.Partitions = r.result
		if err := r.refusal(ctx, src.Table); err != nil {
			if !errors.Is(err, ErrRefused) {
				return nil, err
			}
			entry.refuse(err)
			continue
		}
		runs[src.Table] = r
		if err := r.ahead(ctx, p.parts.Config.PartitionsAhead, tables); err != nil {
			return nil, err
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
	if err == nil && len(r.result.Created) > 0 && !r.dryRun {
		r.table, err = readPartitioned(ctx, r.conn, r.table.Schema, r.table.Name, tables)
	}
	return err
}

// finish ends what a killed run has left, without a proof of what is there now: it drops what is
// detached and was proven, and lets rows into sealed partitions again.
func finish(ctx context.Context, runs map[string]*partitionRun) (err error) {
	for _, r := range runs {
		err = errors.Join(err, r.remove(ctx))
	}
	return err
}

// removePartitions removes the old ones of a table. coverages are those of r.table.relations.
func (p *Pruner) removePartitions(ctx context.Context, t *table, r *partitionRun,
	coverages []*Coverage, letters letters, report *TableReport) error {
	names := []string{t.Name}
	r.coverage = map[uint32]*Coverage{}
	for i, relation := range r.table.relations(t.Column, t.ColumnType) {
		r.coverage[relation.OID] = coverages[i]
		names = append(names, relation.Name)
		report.addGaps(coverages[i].gaps())
		if began := coverages[i].Began(); report.CoveredSince.IsZero() ||
			began.Before(report.CoveredSince) {
			report.CoveredSince = began
		}
	}
	r.ids, r.letters = t.ids, letters.of(names...)
	if slices.Contains(r.letters, "") || len(r.letters) > 0 && len(r.ids) == 0 {
		report.refuse(refuseUnnamedLetter(t.Name))
		return nil
	}
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
