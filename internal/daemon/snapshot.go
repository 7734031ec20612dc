package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

func (p *Pipeline) newSnapshot() *backfill.Snapshot {
	cfg := p.Config
	return backfill.NewSnapshot(cfg.Snapshot, backfill.SnapshotParts{
		Parts: p.BackfillParts("snapshot"),
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

// BackfillParts are what a snapshot and a recovery read and publish rows with.
func (p *Pipeline) BackfillParts(component string) backfill.Parts {
	cfg := p.Config
	return backfill.Parts{
		Postgres: cfg.Postgres, Need: cfg.Requirements(), Replication: cfg.Replication,
		Keys:   cfg.KeyColumns,
		Limits: backfill.Limits{Messages: cfg.Relay.InFlightMessages, Bytes: cfg.Relay.InFlightBytes},
		Log:    p.Component(component),
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
		return &configError{err}
	}
	return err
}

// runSnapshot is relay.Parts.Snapshot.
func (p *Pipeline) runSnapshot(ctx, stop context.Context, report func(relay.Snapshot)) error {
	if p.copy == nil {
		return nil
	}
	defer p.endSnapshot()
	err := p.copy.Run(ctx, stop, backfill.Target{OpenSink: p.openSink, Router: p.NewRouter,
		Parks: p.parks},
		func(s backfill.State) { report(relay.Snapshot(s)) })
	if parked := new(backfill.ParkedError); errors.As(err, &parked) {
		return &configError{err}
	}
	return err
}

// parks reads which keys are parked by open dead letters.
func (p *Pipeline) parks(ctx context.Context) (func(m *sink.Message) bool, error) {
	none := func(*sink.Message) bool { return false }
	if !p.Config.DeadLetter.On() {
		return none, nil
	}
	broker := p.Config.Sink.Kafka
	broker.Topics.Create = false
	store, err := producer.OpenDeadLetters(ctx, broker, p.Config.DeadLetter.Topic, "",
		p.Component("deadletter"))
	if errors.Is(err, sink.ErrUnknownTopic) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	defer store.Close()
	letters, err := deadletter.Read(ctx, store)
	if err != nil {
		return nil, err
	}
	return letters.Parks(), nil
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

// renewable marks the loss of a slot that snapshot.mode when_needed repairs.
func (p *Pipeline) renewable(err error) error {
	lost := errors.Is(err, replication.ErrSlotLost) || errors.Is(err, replication.ErrSlotMissing)
	if !lost || !p.renews() || errors.Is(err, relay.ErrSlotRenewed) {
		return err
	}
	return &renewed{err}
}

// renews reports whether a lost slot is recreated together with a snapshot.
func (p *Pipeline) renews() bool {
	return p.copies() && p.Config.Snapshot.Mode == backfill.WhenNeeded && p.Config.Slot.Create
}

// renewed is a relay.ErrSlotRenewed with the text of another error.
type renewed struct{ err error }

func (r *renewed) Error() string { return r.err.Error() }

func (r *renewed) Unwrap() []error { return []error{relay.ErrSlotRenewed, r.err} }

// Advice says what the error means for the WAL and what to type.
func (r *renewed) Advice() (wal, fix string) {
	return "none is kept for the slot any more; the next session recreates it and publishes all " +
		"rows that are in the tables, " +
		"since snapshot.mode is when_needed", ""
}

func (p *Pipeline) watch(ctx context.Context, problem func(error, time.Time)) {
	p.monitor.Run(ctx, func(err error, began time.Time) {
		problem(p.renewable(p.measured(ctx, err)),
			began)
	})
}
