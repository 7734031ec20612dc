package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// A lost slot ends the relay (relay/classify.go) with the advice of slot.LostError, or with
// snapshot.mode = "when_needed" the next session replaces it: see renewable.

// gapTimeout bounds how long the message about a lost slot waits for the database.
const gapTimeout = 20 * time.Second

// lastGap caches the last measured gap: session and monitor find the same lost slot, again and
// again.
type lastGap struct {
	mu   sync.Mutex // held while the gap is measured; guards the fields below
	from pglogrepl.LSN
	gone bool
	gap  *slot.Gap
}

// measured adds to a slot.LostError where the gap begins, which an invalidated slot no longer
// reports, and how large it is. Other errors stay as they are. Safe for concurrent use.
func (p *Pipeline) measured(ctx context.Context, err error) error {
	lost := new(slot.LostError)
	if !errors.As(err, &lost) {
		return err
	}
	last := p.monitor.Status()
	if lost.ConfirmedFlushLSN == 0 {
		lost.ConfirmedFlushLSN = last.ConfirmedFlushLSN
	}
	if lost.CatalogXmin == 0 {
		lost.CatalogXmin = last.CatalogXmin
	}
	g := &p.gap
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gap == nil || g.from != lost.ConfirmedFlushLSN || g.gone != lost.Gone {
		ctx, cancel := context.WithTimeout(ctx, gapTimeout)
		defer cancel()
		conn, connectErr := postgres.Connect(ctx, p.Config.Postgres)
		if connectErr != nil {
			return err
		}
		defer postgres.Close(conn)
		g.from, g.gone = lost.ConfirmedFlushLSN, lost.Gone
		g.gap = slot.MeasureGap(ctx, conn, lost, p.Config.Replication.Tables, p.Config.Snapshot.On())
	}
	lost.Gap = g.gap
	return err
}

// moved is relay.Server.Moved.
func (p *Pipeline) moved(ctx context.Context, m relay.Move) error {
	// recreated by this process, or by the one that had the slot, with the rows of the tables
	if p.renewed.After(m.Streamed) || m.Held && p.renews() {
		return nil
	}
	conn, err := postgres.Connect(ctx, p.Config.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	return monitor.Advanced(ctx, conn, p.monitor.Observation(), p.Config.Replication.Tables,
		p.Config.Snapshot.On(), m.Acked, m.Confirmed, m.Streamed.Add(p.monitor.ClockSkew()), m.Held)
}

// watch is relay.Server.Watch.
func (p *Pipeline) watch(ctx context.Context, problem func(error, time.Time)) {
	p.monitor.Run(ctx, func(err error, began time.Time) { problem(p.lost(ctx, err), began) })
}

// lost completes the error of a slot that may be lost.
func (p *Pipeline) lost(ctx context.Context, err error) error {
	return p.renewable(p.measured(ctx, err))
}

// renewable marks the loss of a slot that snapshot.mode when_needed repairs.
func (p *Pipeline) renewable(err error) error {
	lost := errors.Is(err, replication.ErrSlotLost) || errors.Is(err, replication.ErrSlotMissing)
	if !lost || !p.renews() || errors.Is(err, relay.ErrSlotRenewed) {
		return err
	}
	return &renewed{marked{relay.ErrSlotRenewed, err}}
}

// renews reports whether a lost slot is recreated together with a snapshot.
func (p *Pipeline) renews() bool {
	return p.copies() && p.Config.Snapshot.Mode == backfill.WhenNeeded && p.Config.Slot.Create
}

// marked is an error of package relay with the text of another error.
type marked struct{ mark, err error }

func (e marked) Error() string { return e.err.Error() }

func (e marked) Unwrap() []error { return []error{e.mark, e.err} }

// configError is a relay.ErrConfiguration with the text of another error.
func configError(err error) error { return marked{relay.ErrConfiguration, err} }

type renewed struct{ marked }

// Advice says what the error means for the WAL and what to type.
func (*renewed) Advice() (wal, fix string) {
	return "none is kept for the slot any more; the next session recreates it and publishes all " +
		"rows that are in the tables, since snapshot.mode is when_needed", ""
}
