package prune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// Parts are what a Pruner depends on.
type Parts struct {
	Postgres          postgres.Config
	Config            Config
	Slot, Publication string
	Tables            []Source
	// DeadLetters returns the ids of rows with open dead letters by the relation that the letter
	// names: a table, a partition, or "message:<prefix>". foreign are those of other relays that
	// share the topic. nil: there are none.
	DeadLetters func(ctx context.Context) (own, foreign map[string][]string, err error)
	LockWait    time.Duration // for another pruner of the slot to end its run
	Metrics     *metrics.Set
	Log         zerolog.Logger
}

// longestRun is how long the lock may be taken before that counts as a failure: most runs of
// another process are over sooner.
const longestRun = 10 * time.Minute

// Pruner removes rows. It is for one goroutine.
type Pruner struct {
	parts  Parts
	conn   *pgx.Conn // nil: none is open
	prover *Prover
	marked bool
	gaps   map[string]time.Time // end of the last gap by table, as it was logged
	failed string               // reason of the last run's error; empty: it succeeded
	busy   time.Time            // when the lock was found taken first; zero: it was not

	kept      map[string][]KeptPartition // by table, as they were logged
	postponed postponed[uint32]          // by OID
	uncreated postponed[string]          // by name, quoted
}

// New returns a Pruner. It connects to nothing.
func New(parts Parts) *Pruner {
	return &Pruner{parts: parts, gaps: map[string]time.Time{}, kept: map[string][]KeptPartition{},
		postponed: postponed[uint32]{}, uncreated: postponed[string]{}}
}

// Close ends the connection, and with it the lock.
func (p *Pruner) Close() {
	if p.conn != nil {
		postgres.Close(p.conn)
	}
	p.conn, p.prover, p.marked = nil, nil, false
}

// Run prunes after each interval while streaming returns true, until ctx ends. A statement that
// runs then is cancelled. Errors go to log and metrics; the next run tries again.
func (p *Pruner) Run(ctx context.Context, streaming func() bool) {
	defer p.Close()
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if streaming() {
			report, err := p.Once(ctx, Save)
			if ctx.Err() != nil {
				return
			}
			p.record(report, err)
		} else if err := p.Ahead(ctx); err != nil && ctx.Err() == nil {
			p.record(&Report{}, err)
		}
		tick.Reset(p.parts.Config.Interval)
	}
}

// Once prunes all tables once. Errors: ErrBusy, those of Prover.Look and of the database. What it
// removed before is in the report. Tables that must not be pruned are in it with the reason.
func (p *Pruner) Once(ctx context.Context, mode Mode) (*Report, error) {
	report := &Report{Slot: p.parts.Slot, DryRun: mode == DryRun}
	err := p.connect(ctx)
	if err == nil {
		err = p.alone(ctx, func() error { return p.locked(ctx, mode, report) })
	}
	if err != nil {
		p.Close() // a new Prover decides anew by what is saved
	}
	return report, err
}

// Ahead does what needs no slot, for a time in which the relay does not stream: it creates
// partitions, and finishes what a killed run has left.
func (p *Pruner) Ahead(ctx context.Context) error {
	report := &Report{Slot: p.parts.Slot}
	err := p.connect(ctx)
	if err == nil {
		err = p.alone(ctx, func() error {
			runs, err := p.createAhead(ctx, Save, report)
			return errors.Join(err, finish(ctx, runs, report))
		})
	}
	if err != nil {
		p.Close()
	}
	for _, t := range report.Tables {
		p.logPartitions(t)
	}
	return err
}

func (p *Pruner) connect(ctx context.Context) (err error) {
	if p.conn != nil {
		return nil
	}
	if p.conn, err = postgres.ConnectRows(ctx, p.parts.Postgres); err != nil {
		return err
	}
	// A delete that a crash takes back is done again.
	_, err = p.conn.Exec(ctx, `SELECT pg_catalog.set_config('application_name', 'postrider prune',
		false), pg_catalog.set_config('synchronous_commit', 'off', false)`)
	if err == nil {
		err = postgres.SetTimeout(ctx, p.conn, "lock_timeout", p.parts.Config.LockTimeout)
	}
	if err != nil {
		return fmt.Errorf("prepare the connection: %w", postgres.Error(err))
	}
	p.prover, err = NewProver(ctx, p.conn, p.parts.Slot, p.parts.Publication,
		p.parts.Config.retention())
	return err
}

// mark marks the slot, once for a connection.
func (p *Pruner) mark(ctx context.Context, mode Mode) error {
	if p.marked || mode == DryRun {
		return nil
	}
	err := p.prover.mark(ctx)
	p.marked = err == nil
	return err
}

// alone calls f with the lock.
func (p *Pruner) alone(ctx context.Context, f func() error) error {
	unlock, err := lock(ctx, p.conn, p.parts.Slot, p.parts.LockWait)
	switch {
	case !errors.Is(err, ErrBusy):
		p.busy = time.Time{}
	case p.busy.IsZero():
		p.busy = time.Now()
	}
	if err != nil {
		return err
	}
	defer unlock()
	return f()
}

// locked is Once, with the lock.
func (p *Pruner) locked(ctx context.Context, mode Mode, report *Report) error {
	runs, err := p.createAhead(ctx, mode, report)
	if err == nil {
		err = p.remove(ctx, mode, report, runs)
	}
	return errors.Join(err, finish(ctx, runs, report))
}

// remove removes rows and partitions. What it does not come to is for finish.
func (p *Pruner) remove(ctx context.Context, mode Mode, report *Report,
	runs map[string]*partitionRun) error {
	if err := p.mark(ctx, mode); err != nil {
		return err
	}
	tables, err := p.describe(ctx, report)
	if err != nil || len(tables) == 0 {
		return err
	}
	var relations []Relation
	for _, t := range tables {
		if t.kind == "p" {
			r := runs[t.Name]
			if r == nil { // an ordinary table when the run began
				return fmt.Errorf("table %s: %w", t.Name, errChanged)
			}
			relations = append(relations, r.table.relations(t.Column, t.ColumnType)...)
			continue
		}
		relations = append(relations, t.Relation)
	}
	coverages, err := p.prover.Look(ctx, relations, mode)
	if err != nil {
		return err
	}
	letters, err := p.readLetters(ctx, runs)
	if err != nil {
		return err
	}
	now, err := postgres.One[time.Time](ctx, p.conn, `SELECT pg_catalog.now()`)
	if err != nil {
		return fmt.Errorf("read the server's clock: %w", err)
	}
	for _, t := range tables {
		if t.kind == "p" {
			r := runs[t.Name]
			n := len(r.table.relations(t.Column, t.ColumnType))
			err := p.removePartitions(ctx, t, r, coverages[:n], letters, report.of(t.Name))
			if err != nil {
				return err
			}
			coverages = coverages[n:]
			continue
		}
		r := &rows{conn: p.conn, cfg: p.parts.Config, slot: p.parts.Slot, table: t,
			coverage: coverages[0], now: now, kept: letters.of(t.Name)}
		coverages = coverages[1:]
		if err := p.table(ctx, r, mode, report.of(t.Name)); err != nil {
			return err
		}
	}
	return nil
}

// of returns the report of a table.
func (r *Report) of(table string) *TableReport {
	for i := range r.Tables {
		if r.Tables[i].Table == table {
			return &r.Tables[i]
		}
	}
	r.Tables = append(r.Tables, TableReport{Table: table})
	return &r.Tables[len(r.Tables)-1]
}

// describe returns the tables that may be pruned, and puts the others into the report.
func (p *Pruner) describe(ctx context.Context, report *Report) (tables []*table, err error) {
	var names []string
	for _, src := range p.parts.Tables {
		names = append(names, src.Table)
	}
	publication, err := slot.VerifyPublication(ctx, p.conn, p.parts.Publication, names)
	if err != nil {
		return nil, err
	}
	for i, src := range p.parts.Tables {
		t, warnings, err := describe(ctx, p.conn, src, p.parts.Config.Column, p.parts.Publication)
		if filter := publication.Tables[i].RowFilter; err == nil && filter != "" {
			err = refuse(src.Table, "has a row filter in the publication, so that some rows are never "+
				"sent: "+filter, "ALTER PUBLICATION "+postgres.QuoteName(p.parts.Publication)+
				" SET TABLE "+slot.QuoteTable(src.Table)+";")
		}
		r := report.of(src.Table)
		r.Warnings = warnings
		if r.refused != nil { // its partitions must be left alone
			continue
		}
		if errors.Is(err, ErrRefused) {
			r.refuse(err)
			continue
		}
		if err != nil {
			return nil, err
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// table prunes one table.
func (p *Pruner) table(ctx context.Context, r *rows, mode Mode,
	report *TableReport) (err error) {
	report.CoveredSince, report.Gaps = r.coverage.Began(), r.coverage.gaps()
	for _, id := range r.kept {
		if id == "" || len(r.table.ids) == 0 {
			report.refuse(refuseUnnamedLetter(r.table.Name))
			return nil
		}
	}
	if mode == DryRun {
		c, err := r.count(ctx)
		report.Rows, report.Removed, report.Unproven, report.Held = c.Rows, c.Removable, c.Unproven,
			c.Held
		return err
	}
	report.Removed, err = r.delete(ctx)
	if err == nil {
		err = r.oldest(ctx, report)
	}
	return errors.Join(err, report.observe(ctx, p.conn, r.table))
}

func refuseUnnamedLetter(table string) error {
	return refuse(table, "has an open dead letter without the id of its row, under this name or an "+
		"earlier one",
		"postrider deadletter list   # then redrive or discard it")
}

// record exports a run, and logs what is new.
func (p *Pruner) record(report *Report, err error) {
	set := p.parts.Metrics
	var gaps, oldest, dead, vacuumed []metrics.OptionalSample
	for _, t := range report.Tables {
		set.PruneRows.WithLabelValues(t.Table).Add(float64(t.Removed))
		p.logPartitions(t)
		if t.CoveredSince.IsZero() { // refused, or not reached
			continue
		}
		gaps = append(gaps, metrics.Sample(float64(len(t.Gaps)), t.Table))
		dead = append(dead, metrics.Sample(float64(t.DeadRows), t.Table))
		if !t.OldestRow.IsZero() {
			oldest = append(oldest, metrics.Sample(float64(t.OldestRow.UnixMilli())/1e3, t.Table))
		}
		if !t.LastAutovacuum.IsZero() {
			vacuumed = append(vacuumed,
				metrics.Sample(float64(t.LastAutovacuum.UnixMilli())/1e3, t.Table))
		}
		p.logGap(t)
	}
	if err == nil {
		set.PruneGaps.Replace(gaps...)
		set.PruneOldestRow.Replace(oldest...)
		set.PruneDeadRows.Replace(dead...)
		set.PruneAutovacuum.Replace(vacuumed...)
		err = report.Refusal()
	}
	switch {
	case errors.Is(err, ErrBusy) && time.Since(p.busy) < longestRun:
	case err != nil:
		set.PruneFailures.Inc()
		if p.failed != reason(err) {
			p.parts.Log.Warn().Err(err).Str("fix", fixOf(err)).Msg("rows are not pruned")
		}
		p.failed = reason(err)
	default:
		set.PruneLastRun.SetTime(time.Now())
		if p.failed != "" {
			p.parts.Log.Info().Msg("rows are pruned again")
		}
		p.failed = ""
	}
}

// reason is the same for errors of one kind, whose texts have positions and times, or say how a
// connection was lost.
func reason(err error) string {
	for _, sentinel := range []error{ErrBusy, ErrBehind, ErrOpen, ErrChanged,
		postgres.ErrUnreachable} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return err.Error()
}

// logGap logs the last gap of a table, once.
func (p *Pruner) logGap(t TableReport) {
	if len(t.Gaps) == 0 {
		return
	}
	gap := t.Gaps[len(t.Gaps)-1]
	if p.gaps[t.Table].Equal(gap.To) {
		return
	}
	p.gaps[t.Table] = gap.To
	event := p.parts.Log.Warn().Str("relation", t.Table).Time("to", gap.To)
	if !gap.From.IsZero() {
		event = event.Time("from", gap.From)
	}
	event.Str("fix", FixGap).Msg("rows that were written, or rewritten by ALTER TABLE, in this " +
		"time are kept: it is not proven that the slot sends them")
}

// FixGap is what to type about rows that are kept. Accept is a consent.
const FixGap = "postrider prune --dry-run   # counts them\n" +
	"postrider recover   # while the relay is stopped: what is not in the topics; --publish\n" +
	"postrider prune --accept-gap   # while it runs again: the rows count as delivered"

func fixOf(err error) string {
	if advised := new(slot.Error); errors.As(err, &advised) {
		return advised.Fix
	}
	return ""
}
