package backfill

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/slot"
)

// NewSlotName returns the name that the new slot has until everything is published.
func NewSlotName(name string) string {
	const suffix, longest = "_recover", 63
	return name[:min(len(name), longest-len(suffix))] + suffix
}

// beginVisible waits until all is visible that had committed before now, and so before an existing
// slot was made. Then it calls beginAsIs.
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

// beginAsIs is beginNow with the boundary of the slot, or else of the new slot. If there is
// neither, the transaction is the boundary.
func (r *Recovery) beginAsIs(ctx context.Context) error {
	name, boundary := r.Need.Slot.Name, r.report.ConfirmedFlushLSN
	if !r.usable {
		status, err := slot.Get(ctx, r.conn, NewSlotName(name))
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

// beginAtNewSlot makes the new slot and begins a transaction that sees the tables at its boundary.
// If an earlier attempt has made the slot it calls beginVisible.
func (r *Recovery) beginAtNewSlot(ctx context.Context) error {
	cfg := r.Need.Slot
	cfg.Name, cfg.Failover = NewSlotName(cfg.Name), false // only its copy has Failover
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
	var exported *exportedSlot
	err = r.await(ctx, func() (err error) {
		exported, err = createExported(ctx, r.Postgres, r.conn, cfg)
		return err
	})
	if err != nil {
		return err
	}
	r.created = true
	r.parts.Say("slot %s created: it sends what is committed after %s", cfg.Name,
		exported.ConsistentPoint)
	if err := r.beginAt(ctx, exported); err != nil {
		return r.interrupted(ctx, err)
	}
	r.report.ConsistentPoint = r.boundary
	return nil
}

// await repeats try while a transaction blocks it, and shows the blocking ones. try itself waits.
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
	status, err := slot.Get(ctx, r.conn, NewSlotName(cfg.Name))
	if err == nil { // or the lost one is dropped, and its position with it, for nothing
		err = slot.Verify(status.Slot, r.conn.Config().Database)
	}
	if err != nil {
		return err
	}
	if r.lost != nil {
		if err := slot.Drop(ctx, r.conn, cfg.Name); err != nil {
			return err
		}
	}
	if err := slot.Copy(ctx, r.Postgres, r.conn, NewSlotName(cfg.Name), cfg); err != nil {
		return err
	}
	if err := slot.Drop(ctx, r.conn, NewSlotName(cfg.Name)); err != nil {
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
	name := NewSlotName(r.Need.Slot.Name)
	spare, err := slot.Get(ctx, r.conn, name)
	if errors.Is(err, slot.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	// Only a spare slot at the position of its copy is surely unused. Another may be a relay's, or,
	// if the usable slot was made by hand, the only one with the logical messages in between.
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

// interrupted drops the new slot of an attempt that has published nothing, or shows that the slot
// stays. It returns err, with which the attempt ended.
func (r *Recovery) interrupted(ctx context.Context, err error) error {
	name := NewSlotName(r.Need.Slot.Name)
	if r.created && !r.publishing {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, rollbackErr := r.conn.Exec(ctx, "ROLLBACK")
		if rollbackErr == nil && slot.Drop(ctx, r.conn, name) == nil {
			r.parts.Say("slot %s dropped again: nothing was published", name)
			return err
		}
	}
	if r.created || r.publishing && !r.usable && r.sel.coversGap() {
		r.parts.Say("slot %s stays and keeps WAL, so that this can be repeated without a "+
			"gap; to give up: postrider slot drop %s --yes", name, name)
	}
	return err
}
