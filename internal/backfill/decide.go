package backfill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// SnapshotParts are what a Snapshot is made of.
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
	settled bool // this process has seen that they have not, for the slot that is there
}

// NewSnapshot makes a Snapshot. It belongs to one goroutine.
func NewSnapshot(cfg Config, parts SnapshotParts) *Snapshot {
	return &Snapshot{cfg: cfg, parts: parts}
}

// Begin returns a Copy that has to be run before the slot is streamed, or nil. It makes the slot
// if a snapshot is due and the configuration allows both. first: no session of this process has
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
	now, err := look(ctx, c.conn, name)
	if err != nil || now.busy() || now.usable() && s.settled {
		return false, err
	}
	if err = c.takeLock(ctx); err != nil {
		return false, err
	}
	// What was seen before the lock may have changed until it was there.
	if now, err = look(ctx, c.conn, name); err != nil || now.busy() {
		return false, err
	}
	system, err := systemID(ctx, s.parts.Postgres)
	if err != nil {
		return false, err
	}
	if c.store, err = s.parts.OpenStore(ctx); err != nil {
		return false, err
	}
	if c.record, err = load(ctx, c.store, name); err != nil {
		return false, err
	}
	what, err := s.decide(now, c.record, system, first)
	if err != nil {
		return false, err
	}
	s.settled = what == stream
	switch what {
	case resume:
		return true, s.resume(ctx, c, now.Slot)
	case create:
		return true, s.create(ctx, c, now, system)
	}
	switch { // once: why nothing is copied
	case !now.usable():
	case c.record != nil && c.record.Phase == Complete:
		s.parts.Metrics.SnapshotCompleted.SetBool(true)
	default:
		s.parts.Log.Info().Str("slot", now.Name).Str("topic", s.cfg.Topic).
			Msg("slot was there before, made by another program: rows already in the tables are not " +
				"published")
	}
	return false, nil
}

// found is the slot as it is. A zero Slot does not exist.
type found struct{ slot.Slot }

func look(ctx context.Context, conn *pgx.Conn, name string) (found, error) {
	status, err := slot.Get(ctx, conn, name)
	if errors.Is(err, slot.ErrNotFound) {
		return found{}, nil
	}
	return found{status.Slot}, err
}

func (f found) exists() bool { return f.Name != "" }

func (f found) usable() bool { return f.exists() && !f.Lost() }

// busy reports whether a session streams from it, or it is not finished. What that means is for
// slot.Prepare to say.
func (f found) busy() bool { return f.usable() && (f.Active || f.ConfirmedFlushLSN == 0) }

type decision int

const (
	stream decision = iota // nothing to copy, or nothing that we may do about the slot
	resume
	create
)

// decide is the table of what slot and record mean together.
func (s *Snapshot) decide(now found, r *Record, system string, first bool) (decision, error) {
	again := s.cfg.Mode == WhenNeeded
	switch {
	case now.usable() && (r == nil || r.Phase == Complete):
		return stream, nil
	case r != nil && r.SystemID != system && (now.usable() || !again):
		return 0, s.refuse(fmt.Sprintf("snapshot.topic %q remembers the slot on another server (system "+
			"identifier %s, here it is %s): it was upgraded, restored or replaced", s.cfg.Topic,
			r.SystemID, system),
			"to publish all rows that are in the tables here: without a slot of this name, "+
				"snapshot.mode = \"when_needed\"; to publish none: snapshot.mode = \"no_data\"")
	case now.usable():
		return resume, s.sameSlot(now.Slot, r)
	case !s.parts.Need.Slot.Create:
		return stream, nil // slot.Prepare refuses
	case again:
		return create, nil
	case now.exists():
		return stream, nil // lost, which slot.Prepare reports
	case !first, r != nil && r.Phase != Creating:
		return 0, slot.Disappeared(s.parts.Need.Slot.Name, 0)
	}
	return create, nil
}

// sameSlot makes sure that the slot was neither advanced nor recreated since the snapshot was
// begun.
func (s *Snapshot) sameSlot(now slot.Slot, r *Record) error {
	if r.Phase == Creating || r.ConsistentPoint == now.ConfirmedFlushLSN.String() {
		return nil
	}
	return s.refuse(fmt.Sprintf("it was begun at %s and is not complete, but the slot is "+
		"confirmed up to %s: another process streamed from it, or recreated it",
		r.ConsistentPoint, now.ConfirmedFlushLSN),
		"to publish all rows that are in the tables: postrider slot drop "+now.Name+
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

func systemID(ctx context.Context, pg postgres.Config) (string, error) {
	conn, err := postgres.ConnectReplication(ctx, pg)
	if err != nil {
		return "", err
	}
	defer postgres.Close(conn)
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	return id.SystemID, postgres.Wrap(err, "identify system")
}

func (s *Snapshot) describe(ctx context.Context, c *Copy) error {
	if err := c.source.describe(ctx); err != nil {
		return err
	}
	for _, t := range c.tables {
		if t.Order.Random {
			s.parts.Log.Warn().Str("relation", t.Name).
				Msg("rows already in the table are published in the order of an id that may be random, " +
					"which says nothing about which row of a key came first: set snapshot.order_by to a " +
					"column with the time of the insert")
		}
	}
	return nil
}

// create makes the slot and opens its snapshot on the Copy's connection.
func (s *Snapshot) create(ctx context.Context, c *Copy, now found, system string) error {
	if err := s.describe(ctx, c); err != nil {
		return err
	}
	name := s.parts.Need.Slot.Name
	if c.record != nil && c.record.Phase != Creating || now.exists() {
		s.parts.Log.Error().Str("slot", name).Stringer("confirmed_flush_lsn", now.ConfirmedFlushLSN).
			Str("reason", now.InvalidationReason).
			Msg("slot was lost and is recreated, since snapshot.mode is when_needed: all rows that are " +
				"in the tables are published, some for the second time, and rows that were deleted since " +
				"they were committed are missing")
	}
	fresh := &Record{SystemID: system, Slot: name, Phase: Creating, Topics: map[string]Offsets{},
		StartedAt: time.Now().UTC()}
	if c.record != nil {
		fresh.SavedAt = c.record.SavedAt
	}
	c.record = fresh
	if err := c.record.save(ctx, c.store); err != nil {
		return err
	}
	if now.exists() {
		if err := slot.Drop(ctx, c.conn, name); err != nil {
			return err
		}
	}
	exported, err := CreateExported(ctx, s.parts.Postgres, c.conn, s.parts.Need.Slot)
	if err != nil {
		return err
	}
	if err := c.beginAt(ctx, exported); err != nil {
		return err
	}
	s.parts.Log.Info().Str("slot", name).Bool("failover", s.parts.Need.Slot.Failover).
		Stringer("confirmed_flush_lsn", exported.ConsistentPoint).
		Msg("slot created; rows that were in the tables before are published first")
	c.record.Phase, c.record.Xmax = Copying, exported.Xmax
	c.record.ConsistentPoint = exported.ConsistentPoint.String()
	if len(exported.Running) <= maxRunning {
		c.record.Running = exported.Running
	}
	return c.record.save(ctx, c.store)
}

// resume prepares to go on where another process, or another session, ended.
func (s *Snapshot) resume(ctx context.Context, c *Copy, now slot.Slot) error {
	if err := s.describe(ctx, c); err != nil {
		return err
	}
	for _, t := range c.tables {
		if was := c.record.table(t).Order; was != t.Order.String() {
			return s.refuse(fmt.Sprintf("table %s was being copied in the order of %s, which is %s now",
				t.Name, was, t.Order),
				fmt.Sprintf("undo that until the snapshot is complete: snapshot.order_by = %q", was))
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
	c.consistent = now.ConfirmedFlushLSN
	c.record.Phase, c.record.ConsistentPoint = Copying, c.consistent.String()
	if c.record.Topics == nil {
		c.record.Topics = map[string]Offsets{}
	}
	return nil
}
