package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

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
		g.from, g.gone, g.gap = lost.ConfirmedFlushLSN, lost.Gone, slot.MeasureGap(ctx, conn, lost,
			p.Config.Replication.Tables, p.Config.Snapshot.On())
	}
	lost.Gap = g.gap
	return err
}

// moved is relay.Parts.Moved.
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
