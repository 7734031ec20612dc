package backfill

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/slot"
)

// NewSlot is the name that the new slot has until everything is published.
func NewSlot(name string) string {
	const suffix, longest = "_recover", 63
	return name[:min(len(name), longest-len(suffix))] + suffix
}

// beginVisible is beginAsIs once all can be seen that had committed when a slot began, which may
// be there already.
func (r *Recovery) beginVisible(ctx context.Context) error {
	xmax, err := slot.NextXID(ctx, r.conn)
	if err != nil {
		return err
	}
	err = r.await(ctx, func() error { return slot.AwaitCommitted(ctx, r.conn, xmax, nil) })
	if err != nil {
		return err
	}
	return r.beginAsIs(ctx)
}

// beginAsIs is beginNow behind the boundary of the slot, or else of the new one; without either
// the transaction is the boundary.
func (r *Recovery) beginAsIs(ctx context.Context) error {
	name, boundary := r.Need.Slot.Name, r.report.ConfirmedFlushLSN
	if !r.usable {
		status, err := slot.Get(ctx, r.conn, NewSlot(name))
		switch {
		case errors.Is(err, slot.ErrNotFound), err == nil && status.Lost():
			return r.beginNow(ctx, "", 0)
		case err != nil:
			return err
		}
		name, boundary = status.Name, status.ConfirmedFlushLSN
	}
	r.report.ConsistentPoint = boundary
	err := r.beginNow(ctx, name, boundary)
	r.report.BySlot = int64(len(r.inserted))
	return err
}

// beginAtNewSlot makes the new slot and reads the tables as they were at its boundary; or goes on
// with the one that an attempt before this has made.
func (r *Recovery) beginAtNewSlot(ctx context.Context) error {
	cfg := r.Need.Slot
	cfg.Name, cfg.Failover = NewSlot(cfg.Name), false // the copy of it may be one for failover
	status, err := slot.Get(ctx, r.conn, cfg.Name)
	switch {
	case err == nil && !status.Lost():
		if err := slot.Verify(status.Slot, r.conn.Config().Database); err != nil {
			return err
		}
		r.parts.Say("slot %s, which an earlier attempt has made, is used", cfg.Name)
		return r.beginVisible(ctx)
	case err == nil:
		if err := slot.Drop(ctx, r.conn, cfg.Name); err != nil {
			return err
		}
	case !errors.Is(err, slot.ErrNotFound):
		return err
	}
	var exported *Exported
	err = r.await(ctx, func() (err error) {
		exported, err = CreateExported(ctx, r.Postgres, r.conn, cfg)
		return err
	})
	if err != nil {
		return err
	}
	r.made = true
	r.parts.Say("slot %s created: what is committed after %s comes by it", cfg.Name,
		exported.ConsistentPoint)
	if err := r.beginAt(ctx, exported); err != nil {
		return r.interrupted(ctx, err)
	}
	r.report.ConsistentPoint = r.consistent
	return nil
}

// await tries until no transaction blocks it, and reports the blocking ones. Each try waits by
// itself.
func (r *Recovery) await(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, slot.ErrBlocked) || ctx.Err() != nil {
			return err
		}
		r.parts.Say("%v; still waiting", err)
	}
}

// replace gives the new slot the name that the relay streams from.
func (r *Recovery) replace(ctx context.Context) error {
	if _, err := r.conn.Exec(ctx, "COMMIT"); err != nil { // the reading is over
		return err
	}
	cfg := r.Need.Slot
	if r.lost != nil {
		if err := slot.Drop(ctx, r.conn, cfg.Name); err != nil {
			return err
		}
	}
	if err := slot.Copy(ctx, r.Postgres, r.conn, NewSlot(cfg.Name), cfg); err != nil {
		return err
	}
	if err := slot.Drop(ctx, r.conn, NewSlot(cfg.Name)); err != nil {
		return err
	}
	r.report.Recreated = true
	return nil
}

// dropSpare drops the new slot of an earlier attempt that was killed, if the slot can be streamed:
// no relay streams from the new one, and it retains WAL until the disk is full.
func (r *Recovery) dropSpare(ctx context.Context) error {
	if _, err := r.conn.Exec(ctx, "COMMIT"); err != nil { // the reading is over
		return err
	}
	name := NewSlot(r.Need.Slot.Name)
	spare, err := slot.Get(ctx, r.conn, name)
	if errors.Is(err, slot.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// Only a slot at the position of its copy is surely that one: another may be a relay's, or, if
	// the slot was made by hand, all that still has the logical messages in between.
	if slot.Verify(spare.Slot, r.conn.Config().Database) != nil ||
		spare.ConfirmedFlushLSN != r.report.ConfirmedFlushLSN {
		r.parts.Say("slot %s stays and keeps WAL. If an earlier attempt has left it behind, and no "+
			"relay has it: postrider slot drop %s --yes", name, name)
		return nil
	}
	if err := slot.Drop(ctx, r.conn, name); err != nil {
		return err
	}
	r.parts.Say("slot %s, which an earlier attempt has left behind, dropped", name)
	return nil
}

// interrupted reports what an attempt that ended with err leaves behind, and drops a slot that was
// made for nothing.
func (r *Recovery) interrupted(ctx context.Context, err error) error {
	name := NewSlot(r.Need.Slot.Name)
	if r.made && !r.begun {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, rollbackErr := r.conn.Exec(ctx, "ROLLBACK")
		if rollbackErr == nil && slot.Drop(ctx, r.conn, name) == nil {
			r.parts.Say("slot %s dropped again: nothing was published", name)
			return err
		}
	}
	if r.made || r.begun && !r.usable && r.sel.closing() {
		r.parts.Say("slot %s stays and keeps WAL, so that this can be repeated and nothing falls "+
			"between; to give up: postrider slot drop %s --yes", name, name)
	}
	return err
}
