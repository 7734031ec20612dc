package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

func (p *Pipeline) newSnapshot() *backfill.Snapshot {
	cfg := p.Config
	return backfill.NewSnapshot(cfg.Snapshot, backfill.SnapshotParts{
		Parts: p.backfillParts("snapshot"),
		OpenStore: func(ctx context.Context) (backfill.Store, error) {
			s, err := producer.OpenProgress(ctx, cfg.Sink.Kafka, cfg.Snapshot.Topic, p.Component("sink"))
			if err != nil {
				return nil, err // an interface that holds a nil pointer is not nil
			}
			return s, nil
		},
		Metrics: p.metrics,
	})
}

// backfillParts are what a snapshot and a recovery read and publish rows with.
func (p *Pipeline) backfillParts(component string) backfill.Parts {
	cfg := p.Config
	return backfill.Parts{
		Postgres: cfg.Postgres, Need: cfg.Requirements(), Replication: cfg.Replication,
		Keys:    cfg.KeyColumns,
		Limits:  backfill.Limits{Messages: cfg.Relay.InFlightMessages, Bytes: cfg.Relay.InFlightBytes},
		Limiter: p.limiter,
		Log:     p.Component(component),
	}
}

// beginSnapshot creates the slot if a snapshot comes first, and leaves the copy to runSnapshot.
func (p *Pipeline) beginSnapshot(ctx context.Context, first bool) error {
	if !p.copies() {
		return nil
	}
	var err error
	p.copy, err = p.snapshot.Begin(ctx, first)
	if p.copy != nil {
		p.renewed = time.Now()
	}
	if errors.Is(err, slot.ErrNoSnapshot) {
		return configError(err)
	}
	return err
}

// runSnapshot is relay.Server.Snapshot.
func (p *Pipeline) runSnapshot(ctx, stop context.Context, report func(relay.Snapshot)) error {
	if p.copy == nil {
		return nil
	}
	defer p.endSnapshot()
	target := backfill.Target{OpenSink: p.openSink, Router: p.NewRouter, Parks: p.parks}
	err := p.copy.Run(ctx, stop, target, func(s backfill.State) { report(relay.Snapshot(s)) })
	if parked := new(backfill.ParkedError); errors.As(err, &parked) {
		return configError(err)
	}
	return err
}

func (p *Pipeline) endSnapshot() {
	if p.copy != nil {
		p.copy.Close()
		p.copy = nil
	}
}

// copies reports whether tables are configured and a snapshot of their rows is wanted.
func (p *Pipeline) copies() bool {
	return p.Config.Snapshot.On() && len(p.Config.Replication.Tables) > 0
}
