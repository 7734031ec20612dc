package prune

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// Report is what a run did, or would do.
type Report struct {
	Slot   string        `json:"slot"`
	DryRun bool          `json:"dry_run"`
	Tables []TableReport `json:"tables"`
}

// TableReport is that of one table.
type TableReport struct {
	Table string `json:"table"`
	// Refused is why nothing of the table is removed; empty: it may be. Fix is what to type.
	Refused string `json:"refused,omitempty"`
	Fix     string `json:"fix,omitempty"`
	Removed int64  `json:"removed"` // rows; of a dry run: that would be
	// Of a dry run: all rows, those that are old enough and not proven to be delivered, and those
	// with an open dead letter.
	Rows     int64 `json:"rows,omitempty"`
	Unproven int64 `json:"unproven,omitempty"`
	Held     int64 `json:"held,omitempty"`
	// CoveredSince is since when every inserted row is known to be sent by the slot.
	CoveredSince time.Time `json:"covered_since,omitzero"`
	Gaps         []Gap     `json:"gaps,omitempty"`
	Warnings     []string  `json:"warnings,omitempty"`

	Partitions *PartitionReport `json:"partitions,omitempty"` // nil: the table is not partitioned

	OldestRow      time.Time `json:"oldest_row,omitzero"` // by the column; zero: not known
	DeadRows       int64     `json:"dead_rows"`           // as the server estimates them
	LastAutovacuum time.Time `json:"last_autovacuum,omitzero"`
	Autovacuums    int64     `json:"autovacuums"`

	refused error
}

// Gap is a time whose rows are kept, since it is not proven that the slot sends them. ALTER TABLE
// that rewrites a table makes all its rows those of one moment. The first gap of a table has no
// beginning.
type Gap struct {
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to"`
}

// Refusal is the error of the first table that was refused, or nil.
func (r *Report) Refusal() error {
	for _, t := range r.Tables {
		if t.refused != nil {
			return t.refused
		}
	}
	return nil
}

// refuse puts an error of refuse into the report.
func (r *TableReport) refuse(err error) {
	r.refused, r.Refused, r.Fix = err, err.Error(), fixOf(err)
}

// gaps are the times between the ranges, and that before the first one, as far as there were rows
// when they ended.
func (c *Coverage) gaps() (gaps []Gap) {
	for i, r := range c.Ranges {
		switch {
		case r.Bound == nil && !r.Unbounded: // no row is kept
		case i > 0:
			gaps = append(gaps, Gap{c.Ranges[i-1].Proven, r.Began})
		default:
			gaps = append(gaps, Gap{To: r.Began})
		}
	}
	return gaps
}

// addGaps adds those of a partition. Partitions that were looked at together have the same ones.
func (r *TableReport) addGaps(gaps []Gap) {
	for _, gap := range gaps {
		same := func(g Gap) bool { return g.From.Equal(gap.From) && g.To.Equal(gap.To) }
		if !slices.ContainsFunc(r.Gaps, same) {
			r.Gaps = append(r.Gaps, gap)
		}
	}
	slices.SortFunc(r.Gaps, func(a, b Gap) int { return a.To.Compare(b.To) })
}

const selectVacuum = `SELECT pg_catalog.pg_stat_get_dead_tuples($1::pg_catalog.oid),
	pg_catalog.pg_stat_get_last_autovacuum_time($1::pg_catalog.oid),
	pg_catalog.pg_stat_get_autovacuum_count($1::pg_catalog.oid)`

// observe fills in what autovacuum did.
func (r *TableReport) observe(ctx context.Context, conn *pgx.Conn, t *table) error {
	var last *time.Time
	err := conn.QueryRow(ctx, selectVacuum, t.OID).Scan(&r.DeadRows, &last, &r.Autovacuums)
	if last != nil {
		r.LastAutovacuum = *last
	}
	return postgres.Wrap(err, "look at the vacuum of table %s", r.Table)
}
