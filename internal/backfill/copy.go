package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// Copy is one attempt to publish the rows of all tables. Run it once, then Close it.
type Copy struct {
	*source
	metrics *metrics.Set
	store   Store
	record  *record
	resumed bool

	published *fingerprints              // messages in the topics, if resumed
	parks     func(m *sink.Message) bool // of Target.Parks
	pacer     ratelimit.Pacer            // lifted at a stop
	progress  progress
}

// Target routes and publishes the rows.
type Target struct {
	OpenSink sink.Open
	Router   func() (*router.Router, error)
	// Parks returns a function that reports whether open dead letters park the key of a message.
	Parks func(ctx context.Context) (func(m *sink.Message) bool, error)
}

// ParkedError is the error for a row that must follow the open dead letters of its key.
type ParkedError struct {
	Table string
	Row   int64 // of the snapshot, from 0
	Topic string
}

func (e *ParkedError) Error() string {
	return fmt.Sprintf("row %d of the snapshot of table %s: publishing it to topic %q before the "+
		"open dead letters of its key breaks the key's order", e.Row, e.Table, e.Topic)
}

// Advice returns what the error means for the WAL, and what to do.
func (e *ParkedError) Advice() (wal, fix string) {
	return "the slot keeps it from the beginning of the snapshot on",
		"postrider deadletter list, then redrive or discard them, and start the relay again: " +
			"the snapshot continues"
}

// Close ends the connections, and with them the lock.
func (c *Copy) Close() {
	if c.store != nil {
		c.store.Close()
	}
	c.close()
}

// Run publishes the remaining rows. When stop ends it finishes its chunk and returns nil, and a
// later Copy resumes. When ctx ends it returns at once. If it returns nil and stop has not ended,
// the slot may be streamed. Errors are those of the stream, the router or the sink.
func (c *Copy) Run(ctx, stop context.Context, to Target, report func(State)) error {
	c.pacer = ratelimit.Pacer{Limiter: c.Limiter, Lifted: stop.Done()}
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(stop, func() { cancel(errStopped) })()

	c.metrics.SnapshotRunning.Set(1)
	c.metrics.SnapshotCompleted.SetBool(false)
	defer c.metrics.SnapshotRunning.Set(0)
	err := c.run(ctx, reading, to, report)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && errors.Is(context.Cause(reading), errStopped):
		c.Log.Info().Int64("rows", c.progress.rows).
			Msg("snapshot interrupted; it resumes at the next start")
		return nil
	}
	return err
}

var errStopped = errors.New("stop requested")

func (c *Copy) run(ctx, reading context.Context, to Target, report func(State)) error {
	if err := c.estimate(reading, report); err != nil {
		return err
	}
	if c.resumed {
		if err := c.catchUp(reading); err != nil {
			return err
		}
	}
	r, err := to.Router()
	if err != nil {
		return err
	}
	if c.parks, err = to.Parks(reading); err != nil {
		return err
	}
	w, err := sink.OpenSyncPublisher(reading, to.OpenSink, c.delivered)
	if err != nil {
		return err
	}
	defer w.Close()
	for _, t := range c.tables {
		if err := c.table(ctx, reading, t, r, w); err != nil {
			return err
		}
	}
	c.record.Phase = phaseComplete
	if err := c.record.save(ctx, c.store); err != nil {
		return err
	}
	c.metrics.SnapshotCompleted.SetBool(true)
	c.progress.report()
	c.Log.Info().Int64("rows", c.progress.rows).
		Float64("duration", time.Since(c.progress.started).Seconds()).
		Stringer("confirmed_flush_lsn", c.boundary).Msg("snapshot complete")
	return nil
}

// estimate adds up the estimated rows of all tables, and logs in which order they are published.
func (c *Copy) estimate(ctx context.Context, report func(State)) error {
	c.progress = progress{started: time.Now(), logged: time.Now(), reporter: report, log: c.Log}
	for _, t := range c.tables {
		n, err := t.estimateRows(ctx, c.conn)
		if err != nil {
			return err
		}
		entry := c.record.table(t)
		c.progress.estimated += n
		c.progress.rows += entry.Rows
		c.Log.Info().Str("relation", t.Name).Str("order", t.Order.String()).Int64("rows", entry.Rows).
			Int64("estimated_rows", n).
			Bool("resumed", c.resumed).Msg("snapshot started")
	}
	c.progress.before = c.progress.rows
	c.metrics.SnapshotEstimated.Set(float64(c.progress.estimated))
	c.progress.report()
	return nil
}

// catchUp finds the rows that must not be published again, and begins a transaction that sees the
// tables as they are now.
func (c *Copy) catchUp(ctx context.Context) error {
	if err := c.awaitCommitted(ctx); err != nil {
		return err
	}
	if err := c.beginNow(ctx, c.Need.Slot.Name, c.boundary); err != nil {
		return err
	}
	c.published = &fingerprints{}
	for topic, offsets := range c.record.Topics {
		from := offsets.Last
		if c.byCommitTime() {
			from = offsets.First
		}
		err := c.store.Read(ctx, topic, from, func(m *sink.Message) { c.published.add(fingerprint(m)) })
		if err != nil {
			return err
		}
	}
	c.published.seal()
	c.Log.Info().Int("inserted", len(c.inserted)).Int("published", c.published.total).
		Msg("snapshot resumed; it skips rows inserted since it began, which the slot sends, and rows " +
			"already published")
	return nil
}

// awaitCommitted waits until every transaction that the slot does not send is visible.
func (c *Copy) awaitCommitted(ctx context.Context) (err error) {
	if c.record.Xmax == 0 { // saved: later attempts need not wait for newer transactions
		if c.record.Xmax, err = slot.NextXID(ctx, c.conn); err != nil {
			return err
		}
		if err := c.record.save(ctx, c.store); err != nil {
			return err
		}
	}
	return slot.AwaitCommitted(ctx, c.conn, c.record.Xmax, c.record.Running)
}

// byCommitTime reports whether a table is sorted by commit time. Updates move rows in that order,
// and vacuum may remove commit times, so the rows after a position are not the remaining ones: all
// rows are read again then, and looked for among all messages of the snapshot.
func (c *Copy) byCommitTime() bool {
	return slices.ContainsFunc(c.tables, func(t *TableReader) bool { return t.Order.Commit })
}

// table publishes one table, chunk by chunk.
func (c *Copy) table(ctx, reading context.Context, t *TableReader, r *router.Router,
	w *sink.SyncPublisher) error {
	entry := c.record.table(t)
	if entry.Done {
		return nil
	}
	c.progress.table = t.Name
	after := entry.Last
	if c.byCommitTime() {
		after = nil
	}
	rows, err := t.Rows(reading, c.conn, after)
	if err != nil {
		return err
	}
	for !entry.Done {
		ch, failed := c.read(reading, entry, rows, r)
		if err := context.Cause(reading); err != nil {
			return err
		}
		// Another process may publish the tables, once the lock is lost.
		if err := c.lock.Check(ctx); err != nil {
			return err
		}
		// Rows before a failed one are published.
		if err := c.publish(ctx, w, ch.chunk); err != nil {
			return err
		}
		entry.Rows += ch.rows
		if ch.last != nil {
			entry.Last = ch.last
		}
		entry.Done = ch.end && failed == nil
		if err := c.record.save(ctx, c.store); err != nil {
			return err
		}
		c.progress.advance(ch.rows)
		c.metrics.SnapshotRows.Add(float64(ch.rows))
		if failed != nil {
			return failed
		}
	}
	return rows.Close(reading)
}

// tableChunk is a chunk of one table, with what is recorded of it.
type tableChunk struct {
	chunk
	rows int64     // read, with or without a message
	last *Position // of the last row; nil: there is none
	end  bool      // the table has no more rows
}

// read reads rows up to the limits of a chunk. An error is about the row after the chunk.
func (c *Copy) read(ctx context.Context, entry *tableProgress, rows *Rows,
	to *router.Router) (ch tableChunk, err error) {
	for !ch.full(c.Limits) && ch.rows < int64(10*c.Limits.Messages) {
		number := entry.Rows + ch.rows
		row, err := c.next(ctx, rows, to, number)
		switch {
		case errors.Is(err, io.EOF):
			ch.end = true
			return ch, nil
		case err != nil:
			return ch, err
		case row.refusal != nil:
			c.metrics.EventsRefused.Inc()
			return ch, fmt.Errorf("route row %d of the snapshot of table %s: %w", number, entry.Name,
				row.refusal)
		}
		m := row.message
		published := m != nil && c.published.unmarked() > 0 && c.published.mark(fingerprint(m))
		if m != nil && !published && c.parks(m) {
			return ch, &ParkedError{Table: entry.Name, Row: number, Topic: m.Topic}
		}
		ch.rows++
		ch.last = &row.Position
		switch {
		case m == nil:
			c.metrics.EventsSkipped.Inc()
		case published: // by an earlier attempt, in a chunk without a record
		default:
			c.metrics.EventsRouted.Inc()
			ch.add(m)
		}
	}
	return ch, nil
}

// logInterval is the time between two log lines about a snapshot under way.
const logInterval = 10 * time.Second

// State is how far a Copy has come.
type State struct {
	Table         string  // being copied; empty: none yet
	Rows          int64   // read and acknowledged, over all tables, by this and earlier Copies
	EstimatedRows int64   // of all tables, by the planner
	RowsPerSecond float64 // of this Copy
}

type progress struct {
	table     string
	rows      int64
	before    int64 // of rows, those of earlier Copies
	estimated int64
	started   time.Time
	logged    time.Time
	reporter  func(State)
	log       zerolog.Logger
}

// advance counts the rows of a chunk.
func (p *progress) advance(rows int64) {
	p.rows += rows
	p.report()
	if time.Since(p.logged) < logInterval {
		return
	}
	p.logged = time.Now()
	st := p.state()
	p.log.Info().Str("relation", st.Table).Int64("rows", st.Rows).
		Int64("estimated_rows", st.EstimatedRows).
		Float64("rows_per_second", st.RowsPerSecond).Msg("snapshot in progress")
}

func (p *progress) report() { p.reporter(p.state()) }

func (p *progress) state() State {
	st := State{Table: p.table, Rows: p.rows, EstimatedRows: p.estimated}
	if seconds := time.Since(p.started).Seconds(); seconds > 0 {
		st.RowsPerSecond = float64(p.rows-p.before) / seconds
	}
	return st
}
