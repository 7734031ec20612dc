package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/snapshot"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/sink/stdout"
	"github.com/postrider/postrider/slot"
)

// pipeline makes the parts of a relay out of a configuration. It is where the packages that must not know each other meet.
type pipeline struct {
	app      *app
	cfg      config.Config
	metrics  *metrics.Set
	log      zerolog.Logger
	monitor  *slot.Monitor
	observed func(slot.Observation) // told of each, by the monitor's goroutine; nil: nobody is
	snapshot *snapshot.Snapshot
	copy     *snapshot.Copy // from prepare to the end of runSnapshot; nil: there is nothing to copy
	renewed  time.Time      // when we last made a slot, with the rows that were in the tables; of the relay's goroutine
	gap      lastGap
	// As a session was last prepared; the same goroutine then makes its router.
	returns   int // Monitor.Returns
	tables    []slot.Table
	catalogue catalogue // the router's questions
	assigner  *slot.Assigner
	router    *router.Router // of the last session; of the relay's goroutine
	timeline  int32          // of its rows
}

func (a *app) newPipeline(cfg config.Config, set *metrics.Set, log zerolog.Logger) *pipeline {
	p := &pipeline{app: a, cfg: cfg, metrics: set, log: log, catalogue: catalogue{cfg: cfg.Postgres}}
	p.assigner = slot.NewAssigner(cfg.Replication, cfg.Slot.Name, p.component("slot"))
	export := slot.Export(set)
	p.monitor = slot.NewMonitor(cfg.Postgres, requirements(cfg), cfg.Monitor, func(o slot.Observation) {
		export(o)
		if p.observed != nil {
			p.observed(o)
		}
	}, p.component("slot"))
	p.monitor.Assigner = p.assigner
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
		AwaitServer:       p.awaitServer,
		AwaitBroker:       p.awaitBroker,
		OpenStream:        p.openStream,
		OpenSink:          p.openSink,
		OpenTransactional: p.openTransactional,
		Database:          p.database(),
		Slot:              p.cfg.Slot.Name,
		Events:            counted(p.cfg.Replication),
		Policies:          p.cfg.DeadLetter,
		OpenDesk:          p.openDesk,
		Router:            p.sessionRouter,
		Timeline:          p.rowsFrom,
		Heartbeat:         p.heartbeat,
		Moved:             p.moved,
		Explain: func(err error, st relay.State) (what, wal, next string) {
			f := relayFailure(err, st).of(p.cfg)
			return f.Error(), f.wal, p.app.typed(f.next)
		},
		ClockSkew: p.monitor.ClockSkew,
		Metrics:   p.metrics,
		Log:       p.component("relay"),
	}
}

// prepare looks at publication, tables and slot before a session.
func (p *pipeline) prepare(ctx context.Context, first bool) (err error) {
	p.catalogue.reset()
	p.returns = p.monitor.Returns()
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
	case unfit(err):
		return &misfit{err}
	case err != nil:
		return p.renewable(p.measured(ctx, err)) // lost, maybe in the moment since beginSnapshot looked
	case s.Active:
		return slot.Held(s.Name, s.ActivePID)
	}
	if err := p.monitor.Begin(ctx, conn); err != nil {
		return err
	}
	return p.checkShapes(ctx, conn)
}

// unfit reports what no new session can heal, since somebody has to change the server's configuration.
func unfit(err error) bool {
	return errors.Is(err, slot.ErrServer) || errors.Is(err, slot.ErrNoFreeSlot)
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
	switch _, err := slot.Diagnose(ctx, conn, requirements(p.cfg)); {
	case unfit(err):
		return &misfit{err}
	case err != nil:
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
	return p.assigner.Look(ctx, conn)
}

// standbyLook is how long a relay stands by until it looks at everything again.
const standbyLook = time.Minute

// awaitSlot looks at nothing but the slot, so that it can look often; and, where tables are copied, at whether another process copies them.
func (p *pipeline) awaitSlot(ctx context.Context) error {
	conn, err := postgres.Connect(ctx, p.cfg.Postgres)
	if err != nil {
		return err
	}
	defer closeSQL(ctx, conn)
	looking, cancel := context.WithTimeout(ctx, standbyLook)
	defer cancel()
	err = slot.AwaitFree(looking, conn, p.cfg.Slot.Name)
	if err == nil && p.copies() {
		err = slot.AwaitUnlocked(looking, conn, p.cfg.Slot.Name)
	}
	if looking.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// awaitServer leaves it to the monitor to look for the server: a session without the monitor's
// connection would hold up the next shutdown.
func (p *pipeline) awaitServer(ctx context.Context) error {
	return p.monitor.AwaitReturn(ctx, p.returns)
}

func (p *pipeline) awaitBroker(ctx context.Context) error {
	return kafka.AwaitAnswer(ctx, p.cfg.Sink.Kafka)
}

func (p *pipeline) openStream(ctx context.Context) (*replication.Stream, error) {
	pg, err := postgres.ReplicationConfig(p.cfg.Postgres)
	if err != nil {
		return nil, err
	}
	s, err := replication.Open(ctx, pg, streamed(p.cfg), p.cfg.Slot.Name, p.component("replication"))
	switch {
	case errors.Is(err, replication.ErrSlotMissing): // it was there in prepare: dropped since then, and not to be created again
		return nil, p.renewable(p.measured(ctx, slot.Disappeared(p.cfg.Slot.Name, 0)))
	case err != nil:
		return nil, p.renewable(slot.RefusedStream(ctx, p.cfg.Postgres, p.cfg.Slot.Name, err))
	}
	return s, nil
}

func (p *pipeline) openSink(ctx context.Context, done sink.Done) (sink.Sink, error) {
	if p.cfg.Sink.Kind == config.SinkStdout {
		return stdout.Open(p.app.Stdout)(ctx, done)
	}
	s, err := producer.Open(ctx, p.kafka(), p.component("sink"), done)
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
	s, err := producer.OpenTransactional(ctx, p.kafka(), p.cfg.Relay.PositionTopic, p.component("sink"), done, committed)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// streamed is what a relay reads. With exactly_once the stored position may be that of a message which is read no longer: it has to come all the same.
func streamed(cfg config.Config) replication.Config {
	cfg.Replication.Witness = cfg.Relay.ExactlyOnce
	return cfg.Replication
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

// sessionRouter is newRouter for a session. Rows of the session before may come again, and their partitions may be gone by now.
func (p *pipeline) sessionRouter() (r *router.Router, err error) {
	if p.router != nil {
		for _, a := range p.router.Assigned() {
			p.assigner.Remember(p.timeline, a.OID, a.Table, a.First, a.Last)
		}
	}
	p.router, err = p.newRouter()
	return p.router, err
}

// rowsFrom is told the timeline of a session's rows. On another one, positions stand for other rows.
func (p *pipeline) rowsFrom(timeline int32) {
	p.timeline = timeline
	p.assigner.On(timeline)
}

func (p *pipeline) newRouter() (*router.Router, error) {
	r, err := router.New(p.cfg.Router, p.cfg.Format, router.Options{
		Tables:          p.cfg.Replication.Tables,
		Home:            p.home,
		MessagePrefixes: p.cfg.Replication.Messages,
		Describe:        p.describe,
		Updated:         p.updated,
		OwnTopics:       p.cfg.OwnTopics(),
	})
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

// describe asks the catalogue about a table, once per shape, and behind the transaction of its first row: that may have made the columns.
func (p *pipeline) describe(oid, xid uint32) (t *router.Table, err error) {
	err = p.catalogue.ask(func(ctx context.Context, conn *pgx.Conn) error {
		if err := slot.AwaitChanges(ctx, conn, xid); err != nil {
			log := p.component("router")
			log.Warn().Err(err).Uint32("oid", oid).Msg("types of columns that this transaction has added are taken as text")
		}
		t, err = describe(ctx, conn, oid)
		return err
	})
	return t, err
}

// home asks which table a row belongs to, once per relation too.
func (p *pipeline) home(ev *replication.Event) (table string, upTo pglogrepl.LSN, err error) {
	row := slot.FirstRow{Relation: ev.Relation, LSN: ev.LSN, XID: ev.XID, Index: ev.Index}
	if table, known := p.assigner.Remembered(row); known {
		return table, 0, nil
	}
	err = p.catalogue.ask(func(ctx context.Context, conn *pgx.Conn) error {
		table, upTo, err = p.assigner.Assign(ctx, conn, row)
		return err
	})
	return table, upTo, err
}

func describe(ctx context.Context, conn *pgx.Conn, oid uint32) (*router.Table, error) {
	var document []byte
	if err := conn.QueryRow(ctx, router.DescribeSQL, oid).Scan(&document); err != nil {
		return nil, fmt.Errorf("describe relation %d: %w", oid, postgres.Error(err))
	}
	return router.ParseTable(document)
}
