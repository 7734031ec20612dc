package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/snapshot"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

func (p *pipeline) newSnapshot() *snapshot.Snapshot {
	cfg := p.cfg
	return snapshot.New(cfg.Snapshot, snapshot.Parts{
		Postgres: cfg.Postgres, Need: requirements(cfg), Replication: cfg.Replication,
		Roles: func(table string) slot.Roles { return roles(cfg, table) },
		OpenStore: func(ctx context.Context) (snapshot.Store, error) {
			s, err := producer.OpenProgress(ctx, cfg.Sink.Kafka, cfg.Snapshot.Topic, p.component("sink"))
			if err != nil {
				return nil, err // an interface that holds a nil pointer is not nil
			}
			return s, nil
		},
		Limits:  snapshot.Limits{Messages: cfg.Relay.InFlightMessages, Bytes: cfg.Relay.InFlightBytes},
		Metrics: p.metrics, Log: p.component("snapshot"),
	})
}

// roles are the columns that the table's router uses.
func roles(cfg config.Config, table string) slot.Roles {
	r := slot.Roles{ID: router.DefaultConfig().FieldID, OrderBy: cfg.Snapshot.OrderBy}
	rules, err := router.Divide(cfg.Router, cfg.Replication.Tables, cfg.Replication.Messages)
	if err != nil {
		return r // the router says so
	}
	for _, rule := range rules {
		if slices.Contains(rule.Tables, table) {
			r.ID, r.Timestamp = rule.FieldID, rule.FieldTimestamp
		}
	}
	return r
}

// checkSnapshot finds out whether the rows of a table could be published, and in which order.
func checkSnapshot(ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table) slot.Finding {
	c, err := slot.DescribeCopied(ctx, conn, t, cfg.Replication.Tables, roles(cfg, t.Name))
	if err != nil {
		return slot.ErrorFinding("snapshot", t.Name, err)
	}
	f := slot.Finding{Severity: slot.SeverityOK, Code: "snapshot", Subject: t.Name, Observed: "rows already in the table are published in the order of " + c.Order.String()}
	if c.Order.Random {
		f.Severity, f.Required = slot.SeverityWarning, "an order that keeps the rows of a key in the order of their inserts"
		f.Fix = "if ids are random: set snapshot.order_by to a column with the time of the insert"
	}
	return f
}

// beginSnapshot makes the slot if rows that are in the tables come first, and leaves the copy to runSnapshot.
func (p *pipeline) beginSnapshot(ctx context.Context, first bool) error {
	if !p.copies() {
		return nil
	}
	var err error
	p.copy, err = p.snapshot.Begin(ctx, first)
	if p.copy != nil {
		p.renewed = time.Now()
	}
	if errors.Is(err, slot.ErrNoSnapshot) {
		return &misfit{err}
	}
	return err
}

// runSnapshot is relay.Parts.Snapshot.
func (p *pipeline) runSnapshot(ctx, stop context.Context, report func(relay.Snapshot)) error {
	if p.copy == nil {
		return nil
	}
	defer p.endSnapshot()
	err := p.copy.Run(ctx, stop, snapshot.Target{OpenSink: p.openSink, Router: p.newRouter, Parks: p.parks},
		func(s snapshot.State) { report(relay.Snapshot(s)) })
	if parked := new(snapshot.ParkedError); errors.As(err, &parked) {
		return &misfit{err}
	}
	return err
}

// parks reads which keys open dead letters park.
func (p *pipeline) parks(ctx context.Context) (func(m *sink.Message) bool, error) {
	none := func(*sink.Message) bool { return false }
	if !p.cfg.DeadLetter.On() {
		return none, nil
	}
	broker := p.cfg.Sink.Kafka
	broker.Topics.Create = false
	store, err := producer.OpenDeadLetters(ctx, broker, p.cfg.DeadLetter.Topic, "", p.component("deadletter"))
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

func (p *pipeline) endSnapshot() {
	if p.copy != nil {
		p.copy.Close()
		p.copy = nil
	}
}

// copies: there are tables, and their rows are wanted.
func (p *pipeline) copies() bool { return p.cfg.Snapshot.On() && len(p.cfg.Replication.Tables) > 0 }

// renewable marks the loss of a slot that snapshot.mode when_needed heals.
func (p *pipeline) renewable(err error) error {
	lost := errors.Is(err, replication.ErrSlotLost) || errors.Is(err, replication.ErrSlotMissing)
	if !lost || !p.renews() || errors.Is(err, relay.ErrSlotRenewed) {
		return err
	}
	return &renewed{err}
}

// renews: a slot that is lost is made anew, with the rows of the tables.
func (p *pipeline) renews() bool {
	return p.copies() && p.cfg.Snapshot.Mode == snapshot.WhenNeeded && p.cfg.Slot.Create
}

// renewed is a relay.ErrSlotRenewed whose text is that of the error itself.
type renewed struct{ err error }

func (r *renewed) Error() string { return r.err.Error() }

func (r *renewed) Unwrap() []error { return []error{relay.ErrSlotRenewed, r.err} }

// Advice is what the user needs besides the text.
func (r *renewed) Advice() (wal, fix string) {
	return "none is kept for the slot any more; the next session makes it anew and publishes all rows that are in the tables, " +
		"since snapshot.mode is when_needed", ""
}

func (p *pipeline) watch(ctx context.Context, problem func(error, time.Time)) {
	p.monitor.Run(ctx, func(err error, began time.Time) { problem(p.renewable(p.measured(ctx, err)), began) })
}
