package backfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// SnapshotParts are the dependencies of a Snapshot.
type SnapshotParts struct {
	Parts
	// OpenStore connects to where records are kept. The Snapshot closes it.
	OpenStore func(ctx context.Context) (Store, error)
	Metrics   *metrics.Set
}

// Snapshot decides, before each session, whether rows already in the tables have to be published
// first.
type Snapshot struct {
	cfg     Config
	parts   SnapshotParts
	settled bool // an earlier Begin found that the existing slot needs no Copy
}

// NewSnapshot makes a Snapshot, which is for one goroutine.
func NewSnapshot(cfg Config, parts SnapshotParts) *Snapshot {
	return &Snapshot{cfg: cfg, parts: parts}
}

// Begin returns a Copy that has to be run before the slot is streamed, or nil. It makes the slot
// if a snapshot is due and the configuration allows it. first: no session of this process has
// streamed yet. Errors: replication.ErrSlotInUse if another process is copying,
// replication.ErrSlotLost if the slot was lost and may not be replaced, slot.ErrNoSnapshot if the
// configuration or the table has to be changed, or one of the database or the broker.
func (s *Snapshot) Begin(ctx context.Context, first bool) (*Copy, error) {
	src, err := openSource(ctx, s.parts.Parts)
	if err != nil {
		return nil, err
	}
	c := &Copy{source: src, metrics: s.parts.Metrics}
	due, err := s.begin(ctx, c, first)
	if err != nil || !due {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (s *Snapshot) begin(ctx context.Context, c *Copy, first bool) (due bool, err error) {
	name := s.parts.Need.Slot.Name
	current, err := findSlot(ctx, c.conn, name)
	if err != nil || current.busy() || current.usable() && s.settled {
		return false, err
	}
	if err = c.takeLock(ctx); err != nil {
		return false, err
	}
	// The slot may have changed before the lock was taken.
	if current, err = findSlot(ctx, c.conn, name); err != nil || current.busy() {
		return false, err
	}
	id, err := postgres.IdentifySystem(ctx, s.parts.Postgres)
	if err != nil {
		return false, err
	}
	if c.store, err = s.parts.OpenStore(ctx); err != nil {
		return false, err
	}
	if c.record, err = load(ctx, c.store, name); err != nil {
		return false, err
	}
	action, err := s.decide(current, c.record, id.SystemID, first)
	if err != nil {
		return false, err
	}
	s.settled = action == stream
	switch action {
	case resume:
		return true, s.resume(ctx, c, current.Slot)
	case create:
		return true, s.create(ctx, c, current, id.SystemID)
	}
	switch { // reports once why nothing is copied
	case !current.usable():
	case c.record != nil && c.record.Phase == phaseComplete:
		s.parts.Metrics.SnapshotCompleted.SetBool(true)
	default:
		s.parts.Log.Info().Str("slot", current.Name).Str("topic", s.cfg.Topic).
			Msg("slot already exists, made by another program: rows already in the tables are not " +
				"published")
	}
	return false, nil
}

// foundSlot is the slot on the server. A zero Slot: there is none.
type foundSlot struct{ slot.Slot }

func findSlot(ctx context.Context, conn *pgx.Conn, name string) (foundSlot, error) {
	status, err := slot.Get(ctx, conn, name)
	if errors.Is(err, slot.ErrNotFound) {
		return foundSlot{}, nil
	}
	return foundSlot{status.Slot}, err
}

func (f foundSlot) exists() bool { return f.Name != "" }

func (f foundSlot) usable() bool { return f.exists() && !f.Lost() }

// busy reports whether a session streams from the slot, or its creation is not finished.
// slot.Prepare reports the reason.
func (f foundSlot) busy() bool { return f.usable() && (f.Active || f.ConfirmedFlushLSN == 0) }

type decision int

const (
	stream decision = iota // no copy is due, or slot.Prepare decides about the slot
	resume
	create
)

// decide returns what to do for a slot and a record.
func (s *Snapshot) decide(current foundSlot, r *record, system string,
	first bool) (decision, error) {
	whenNeeded := s.cfg.Mode == WhenNeeded
	switch {
	case current.usable() && (r == nil || r.Phase == phaseComplete):
		return stream, nil
	case r != nil && r.SystemID != system && (current.usable() || !whenNeeded):
		return 0, s.refuse(fmt.Sprintf("snapshot.topic %q has the slot of another server (system "+
			"identifier %s, here it is %s): the server was upgraded, restored or replaced", s.cfg.Topic,
			r.SystemID, system),
			"to publish all rows that are in the tables here: without a slot of this name, "+
				"snapshot.mode = \"when_needed\"; to publish none: snapshot.mode = \"no_data\"")
	case current.usable():
		return resume, s.checkSameSlot(current.Slot, r)
	case !s.parts.Need.Slot.Create:
		return stream, nil // slot.Prepare refuses
	case whenNeeded:
		return create, nil
	case current.exists():
		return stream, nil // lost, which slot.Prepare reports
	case !first, r != nil && r.Phase != phaseCreating:
		return 0, slot.Disappeared(s.parts.Need.Slot.Name, 0)
	}
	return create, nil
}

// checkSameSlot returns an error if the slot was advanced or recreated since the snapshot began.
func (s *Snapshot) checkSameSlot(current slot.Slot, r *record) error {
	if r.Phase == phaseCreating || r.ConsistentPoint == current.ConfirmedFlushLSN.String() {
		return nil
	}
	return s.refuse(fmt.Sprintf("it was begun at %s and is not complete, but the slot is "+
		"confirmed up to %s: another process streamed from it, or recreated it",
		r.ConsistentPoint, current.ConfirmedFlushLSN),
		"to publish all rows that are in the tables: postrider slot drop "+current.Name+
			" --yes, then snapshot.mode = \"when_needed\"; to publish none of them: snapshot.mode = "+
			"\"no_data\"")
}

func (s *Snapshot) refuse(problem, fix string) error {
	return &slot.Error{
		Err: fmt.Errorf("snapshot of slot %q: %s: %w", s.parts.Need.Slot.Name, problem,
			slot.ErrNoSnapshot),
		WAL: "if the slot exists, it keeps WAL, more with every write",
		Fix: fix,
	}
}

// describe describes the tables, and warns of those in random order.
func (s *Snapshot) describe(ctx context.Context, c *Copy) error {
	if err := c.source.describe(ctx); err != nil {
		return err
	}
	for _, t := range c.tables {
		if t.Order.Random {
			s.parts.Log.Warn().Str("relation", t.Name).
				Msg("rows already in the table are published in the order of an id that may be random, " +
					"which does not show which row of a key came first: set snapshot.order_by to a " +
					"column with the time of the insert")
		}
	}
	return nil
}

// create makes the slot and begins a transaction of the Copy in the exported snapshot.
func (s *Snapshot) create(ctx context.Context, c *Copy, current foundSlot, system string) error {
	if err := s.describe(ctx, c); err != nil {
		return err
	}
	name := s.parts.Need.Slot.Name
	if c.record != nil && c.record.Phase != phaseCreating || current.exists() {
		s.parts.Log.Error().Str("slot", name).Stringer("confirmed_flush_lsn", current.ConfirmedFlushLSN).
			Str("reason", current.InvalidationReason).
			Msg("slot was lost and is recreated, since snapshot.mode is when_needed: all rows that are " +
				"in the tables are published, some for the second time, and rows that were deleted since " +
				"they were committed are missing")
	}
	fresh := &record{SystemID: system, Slot: name, Phase: phaseCreating,
		Topics: map[string]topicOffsets{}, StartedAt: time.Now().UTC()}
	if c.record != nil {
		fresh.SavedAt = c.record.SavedAt
	}
	c.record = fresh
	if err := c.record.save(ctx, c.store); err != nil {
		return err
	}
	if current.exists() {
		if err := slot.Drop(ctx, c.conn, name); err != nil {
			return err
		}
	}
	exported, err := createExported(ctx, s.parts.Postgres, c.conn, s.parts.Need.Slot)
	if err != nil {
		return err
	}
	if err := c.beginAt(ctx, exported); err != nil {
		return err
	}
	s.parts.Log.Info().Str("slot", name).Bool("failover", s.parts.Need.Slot.Failover).
		Stringer("confirmed_flush_lsn", exported.ConsistentPoint).
		Msg("slot created; rows that were in the tables before are published first")
	c.record.Phase, c.record.Xmax = phaseCopying, exported.Xmax
	c.record.ConsistentPoint = exported.ConsistentPoint.String()
	if len(exported.Running) <= maxRunning {
		c.record.Running = exported.Running
	}
	return c.record.save(ctx, c.store)
}

// resume prepares the Copy to continue where an earlier one has ended.
func (s *Snapshot) resume(ctx context.Context, c *Copy, current slot.Slot) error {
	if err := s.describe(ctx, c); err != nil {
		return err
	}
	for _, t := range c.tables {
		if was := c.record.table(t).Order; was != t.Order.String() {
			return s.refuse(fmt.Sprintf("table %s was being copied in the order of %s, and its "+
				"order is %s now", t.Name, was, t.Order),
				fmt.Sprintf("undo that until the snapshot is complete: snapshot.order_by = %q", was))
		}
		left := c.record.table(t)
		if !c.byCommitTime() { // which reads from the beginning
			if err := s.checkUnique(t, left); err != nil {
				return err
			}
		}
		if left.Last == nil { // the columns may be others than when the table was recorded
			left.Unique = t.uniqueColumns()
		}
	}
	c.resumed = true
	if c.byCommitTime() { // reads the table that was interrupted from its beginning
		for i := range c.record.Tables {
			if !c.record.Tables[i].Done {
				c.record.Tables[i].Rows = 0
			}
		}
	}
	c.boundary = current.ConfirmedFlushLSN
	c.record.Phase, c.record.ConsistentPoint = phaseCopying, c.boundary.String()
	if c.record.Topics == nil {
		c.record.Topics = map[string]topicOffsets{}
	}
	return nil
}

// checkUnique returns an error if the position at which a table was left is of other unique
// columns.
func (s *Snapshot) checkUnique(t *TableReader, left *tableProgress) error {
	now := t.uniqueColumns()
	if left.fits(now) {
		return nil
	}
	was := fmt.Sprintf("by %d unique columns", len(left.Last.Key))
	fix := "make the unique index as it was"
	if len(left.Unique) > 0 {
		was = "by the unique columns " + strings.Join(left.Unique, ", ")
		var quoted []string
		for _, column := range left.Unique {
			quoted = append(quoted, postgres.QuoteName(column))
		}
		fix = "CREATE UNIQUE INDEX ON " + slot.QuoteTable(t.Name) + " (" +
			strings.Join(quoted, ", ") + ");   # instead of others that have the id"
	}
	return s.refuse(fmt.Sprintf("table %s was being copied %s, and they are %s now; undo that until "+
		"the snapshot is complete", t.Name, was, strings.Join(now, ", ")), fix)
}
