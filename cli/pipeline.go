package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"postrider/config"
	"postrider/metrics"
	"postrider/postgres"
	"postrider/relay"
	"postrider/replication"
	"postrider/router"
	"postrider/sink"
	"postrider/sink/kafka"
	"postrider/sink/stdout"
	"postrider/slot"
	"postrider/snapshot"
)

// pipeline makes the parts of a relay out of a configuration. It is where the packages that must not know each other meet.
type pipeline struct {
	app      *app
	cfg      config.Config
	metrics  *metrics.Set
	log      zerolog.Logger
	monitor  *slot.Monitor
	snapshot *snapshot.Snapshot
	copy     *snapshot.Copy // from prepare to the end of runSnapshot; nil: there is nothing to copy
	renewed  time.Time      // when we last made a slot, with the rows that were in the tables; of the relay's goroutine
	gap      lastGap
	// As a session was last prepared; the same goroutine then makes its router.
	tables    []slot.Table
	oids      map[uint32]string // see slot.OIDs
	catalogue catalogue         // the router's questions
}

func (a *app) newPipeline(cfg config.Config, set *metrics.Set, log zerolog.Logger) *pipeline {
	p := &pipeline{app: a, cfg: cfg, metrics: set, log: log, catalogue: catalogue{cfg: cfg.Postgres}}
	p.monitor = slot.NewMonitor(cfg.Postgres, requirements(cfg), cfg.Monitor, slot.Export(set), p.component("slot"))
	p.snapshot = p.newSnapshot()
	return p
}

func requirements(cfg config.Config) slot.Requirements {
	return slot.Requirements{Slot: cfg.Slot, Publication: cfg.Replication.Publication, Tables: cfg.Replication.Tables}
}

func (p *pipeline) component(name string) zerolog.Logger {
	c := p.log.With().Str("component", name)
	if name != "slot" { // which names the slot it is about in each line
		c = c.Str("slot", p.cfg.Slot.Name)
	}
	return c.Logger()
}

func (p *pipeline) parts() relay.Parts {
	return relay.Parts{
		Prepare:           p.prepare,
		Snapshot:          p.runSnapshot,
		Watch:             p.watch,
		AwaitSlot:         p.awaitSlot,
		OpenStream:        p.openStream,
		OpenSink:          p.openSink,
		OpenTransactional: p.openTransactional,
		Database:          p.database(),
		Slot:              p.cfg.Slot.Name,
		Events:            counted(p.cfg.Replication),
		Policies:          p.cfg.DeadLetter,
		OpenDesk:          p.openDesk,
		Router:            p.newRouter,
		Heartbeat:         p.heartbeat,
		Moved:             p.moved,
		Explain: func(err error, st relay.State) (what, wal, next string) {
			f := relayFailure(err, st)
			return f.Error(), f.wal, f.next
		},
		ClockSkew: p.monitor.ClockSkew,
		Metrics:   p.metrics,
		Log:       p.component("relay"),
	}
}

// prepare looks at publication, tables and slot before a session.
func (p *pipeline) prepare(ctx context.Context, first bool) (err error) {
	p.catalogue.reset()
	conn, err := postgres.Connect(ctx, p.cfg.Postgres)
	if err != nil {
		return err
	}
	defer closeSQL(ctx, conn)
	if err := p.beginSnapshot(ctx, first); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.endSnapshot()
		}
	}()
	s, err := slot.Prepare(ctx, conn, requirements(p.cfg), first, p.component("slot"))
	switch {
	case errors.Is(err, slot.ErrServer), errors.Is(err, slot.ErrNoFreeSlot):
		return &misfit{err}
	case err != nil:
		return p.renewable(p.measured(ctx, err)) // lost, maybe in the moment since beginSnapshot looked
	case s.Active:
		return fmt.Errorf("slot %q is held by the process with pid %d on the server: %w", s.Name, s.ActivePID, replication.ErrSlotInUse)
	}
	return p.checkShapes(ctx, conn)
}

// misfit is a relay.ErrConfiguration whose text is that of the error itself.
type misfit struct{ err error }

func (m *misfit) Error() string { return m.err.Error() }

func (m *misfit) Unwrap() []error { return []error{relay.ErrConfiguration, m.err} }

// prepareTables is prepare without a slot.
func (p *pipeline) prepareTables(ctx context.Context) error {
	conn, err := postgres.Connect(ctx, p.cfg.Postgres)
	if err != nil {
		return err
	}
	defer closeSQL(ctx, conn)
	if _, err := slot.VerifyPublication(ctx, conn, p.cfg.Replication.Publication, p.cfg.Replication.Tables); err != nil {
		return err
	}
	return p.checkShapes(ctx, conn)
}

// checkShapes finds a missing column before the first row does.
func (p *pipeline) checkShapes(ctx context.Context, conn *pgx.Conn) error {
	r, err := p.newRouter()
	if err != nil {
		return err
	}
	for _, table := range p.cfg.Replication.Tables {
		rel, err := slot.Relation(ctx, conn, table)
		if err != nil {
			return err
		}
		if err := r.Check(rel); err != nil {
			return err
		}
	}
	publication, err := slot.Inspect(ctx, conn, p.cfg.Replication.Publication, p.cfg.Replication.Tables)
	if err != nil {
		return err
	}
	p.tables = publication.Tables
	p.oids, err = slot.OIDs(ctx, conn, p.cfg.Replication.Tables)
	return err
}

// standbyLook is how long a relay stands by until it looks at everything again.
const standbyLook = time.Minute

// awaitSlot looks at nothing but the slot, so that it can look often.
func (p *pipeline) awaitSlot(ctx context.Context) error {
	conn, err := postgres.Connect(ctx, p.cfg.Postgres)
	if err != nil {
		return err
	}
	defer closeSQL(ctx, conn)
	looking, cancel := context.WithTimeout(ctx, standbyLook)
	defer cancel()
	err = slot.AwaitFree(looking, conn, p.cfg.Slot.Name)
	if looking.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

func (p *pipeline) openStream(ctx context.Context) (*replication.Stream, error) {
	pg, err := postgres.ReplicationConfig(p.cfg.Postgres)
	if err != nil {
		return nil, err
	}
	s, err := replication.Open(ctx, pg, p.cfg.Replication, p.cfg.Slot.Name, p.component("replication"))
	switch {
	case errors.Is(err, replication.ErrSlotMissing): // it was there in prepare: dropped since then, and not to be created again
		return nil, p.renewable(p.measured(ctx, slot.Disappeared(p.cfg.Slot.Name, 0)))
	case err != nil:
		return nil, p.renewable(postgres.Error(err))
	}
	return s, nil
}

func (p *pipeline) openSink(ctx context.Context, done sink.Done) (sink.Sink, error) {
	if p.cfg.Sink.Kind == config.SinkStdout {
		return stdout.Open(p.app.Stdout)(ctx, done)
	}
	s, err := kafka.Open(ctx, p.kafka(), p.component("sink"), done)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// kafka is the configuration of a sink whose requests are counted.
func (p *pipeline) kafka() kafka.Config {
	cfg := p.cfg.Sink.Kafka
	cfg.Requested = func(bytes int) {
		p.metrics.Requests.Inc()
		p.metrics.RequestBytes.Add(float64(bytes))
	}
	return cfg
}

// openTransactional is openSink for relay.exactly_once.
func (p *pipeline) openTransactional(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional, error) {
	s, err := kafka.OpenTransactional(ctx, p.kafka(), p.cfg.Relay.PositionTopic, p.component("sink"), done, committed)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// counted says which events the server sends, and so what the index of an event counts; whatever changes that has to change this.
func counted(cfg replication.Config) string {
	if len(cfg.Messages) == 0 {
		return cfg.Publication
	}
	return cfg.Publication + "+messages"
}

// database is the name of the database that postgres.url leads to; empty if that cannot be read, which connecting will tell.
func (p *pipeline) database() string {
	pg, err := postgres.ReplicationConfig(p.cfg.Postgres)
	if err != nil {
		return ""
	}
	return pg.Database
}

func (p *pipeline) heartbeat(at time.Time) (*sink.Message, error) {
	return router.Heartbeat(p.cfg.Format, p.cfg.HeartbeatTopic(), p.cfg.Router[0].TopicPrefix, at)
}

func (p *pipeline) newRouter() (*router.Router, error) {
	options := router.Options{
		Tables:          p.cfg.Replication.Tables,
		OIDs:            p.oids,
		MessagePrefixes: p.cfg.Replication.Messages,
		Describe:        p.describe,
		Updated:         p.updated,
		OwnTopics:       p.cfg.OwnTopics(),
	}
	if slices.ContainsFunc(p.tables, slot.Table.Partitioned) {
		options.Home = p.home
	}
	r, err := router.New(p.cfg.Router, p.cfg.Format, options)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	return r, nil
}

// updated tells of the first update of a table in a session.
func (p *pipeline) updated(table, behavior string) {
	log := p.component("router")
	event := log.Warn()
	if behavior == "error" {
		event = log.Error()
	}
	event.Str("relation", table).Msg("a row of the outbox was updated; updates are not published (router.table.op.invalid.behavior)")
}

// describe asks the catalogue about a table, once per shape.
func (p *pipeline) describe(oid uint32) (t *router.Table, err error) {
	err = p.catalogue.ask(func(ctx context.Context, conn *pgx.Conn) error {
		t, err = describe(ctx, conn, oid)
		return err
	})
	return t, err
}

// home asks which table a relation is a partition of, once per shape too.
func (p *pipeline) home(rel *replication.Relation) (table string, err error) {
	err = p.catalogue.ask(func(ctx context.Context, conn *pgx.Conn) error {
		table, err = slot.Home(ctx, conn, p.tables, rel)
		return err
	})
	return table, err
}

func describe(ctx context.Context, conn *pgx.Conn, oid uint32) (*router.Table, error) {
	var document []byte
	if err := conn.QueryRow(ctx, router.DescribeSQL, oid).Scan(&document); err != nil {
		return nil, fmt.Errorf("describe relation %d: %w", oid, postgres.Error(err))
	}
	return router.ParseTable(document)
}
