package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/stdout"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/slot/partition"
)

// pipeline makes the parts of a relay out of a configuration. It is where the packages that must not know each other meet.
type Pipeline struct {
	env      Environment
	Config   config.Config
	metrics  *metrics.Set
	log      zerolog.Logger
	monitor  *monitor.Monitor
	observed func(monitor.Observation) // told of each, by the monitor's goroutine; nil: nobody is
	snapshot *backfill.Snapshot
	copy     *backfill.Copy // from prepare to the end of runSnapshot; nil: there is nothing to copy
	renewed  time.Time      // when we last made a slot, with the rows that were in the tables; of the relay's goroutine
	gap      lastGap
	// As a session was last prepared; the same goroutine then makes its router.
	returns  int // Monitor.Returns
	Tables   []slot.Table
	catalog  catalog.Catalog // the router's questions
	assigner *partition.Assigner
	router   *router.Router // of the last session; of the relay's goroutine
	timeline int32          // of its rows
}

func NewPipeline(env Environment, cfg config.Config, set *metrics.Set, log zerolog.Logger) *Pipeline {
	p := &Pipeline{env: env, Config: cfg, metrics: set, log: log, catalog: catalog.Catalog{Config: cfg.Postgres}}
	p.assigner = partition.New(cfg.Replication, cfg.Slot.Name, p.Component("slot"))
	export := monitor.Export(set)
	p.monitor = monitor.New(cfg.Postgres, cfg.Requirements(), cfg.Monitor, func(o monitor.Observation) {
		export(o)
		if p.observed != nil {
			p.observed(o)
		}
	}, p.Component("slot"))
	p.monitor.Assigner = p.assigner
	p.snapshot = p.newSnapshot()
	return p
}

func (p *Pipeline) Component(name string) zerolog.Logger {
	c := p.log.With().Str("component", name)
	if name != "slot" { // which names the slot it is about in each line
		c = c.Str("slot", p.Config.Slot.Name)
	}
	return c.Logger()
}

func (p *Pipeline) parts() relay.Parts {
	return relay.Parts{
		Server: relay.Server{
			Prepare:     p.prepare,
			Snapshot:    p.runSnapshot,
			OpenStream:  p.openStream,
			Moved:       p.moved,
			Watch:       p.watch,
			AwaitSlot:   p.awaitSlot,
			AwaitReturn: p.awaitServer,
			ClockSkew:   p.monitor.ClockSkew,
		},
		Broker: relay.Broker{
			OpenSink:          p.openSink,
			OpenTransactional: p.openTransactional,
			AwaitReturn:       p.awaitBroker,
			Heartbeat:         p.heartbeat,
		},
		Rows:        relay.Rows{Router: p.sessionRouter, Timeline: p.rowsFrom},
		DeadLetters: relay.DeadLetters{Policies: p.Config.DeadLetter, Open: p.openDeadLetters},
		Source:      sink.Source{Database: p.database(), Slot: p.Config.Slot.Name, Events: counted(p.Config.Replication)},
		Explain: func(err error, st relay.State) (what, wal, next string) {
			f := exit.OfRelay(err, st).For(p.Config)
			return f.Error(), f.WAL, p.env.Hint(f.Next)
		},
		Metrics: p.metrics,
		Log:     p.Component("relay"),
	}
}

// prepare looks at publication, tables and slot before a session.
func (p *Pipeline) prepare(ctx context.Context, first bool) (err error) {
	p.catalog.Reset()
	p.returns = p.monitor.Returns()
	conn, err := postgres.Connect(ctx, p.Config.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	if err := p.beginSnapshot(ctx, first); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.endSnapshot()
		}
	}()
	s, err := slot.Prepare(ctx, conn, p.Config.Requirements(), first, p.Component("slot"))
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
func (p *Pipeline) PrepareTables(ctx context.Context) error {
	conn, err := postgres.Connect(ctx, p.Config.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	switch _, err := slot.Diagnose(ctx, conn, p.Config.Requirements()); {
	case unfit(err):
		return &misfit{err}
	case err != nil:
		return err
	}
	return p.checkShapes(ctx, conn)
}

// checkShapes finds a missing column before the first row does.
func (p *Pipeline) checkShapes(ctx context.Context, conn *pgx.Conn) error {
	r, err := p.NewRouter()
	if err != nil {
		return err
	}
	for _, table := range p.Config.Replication.Tables {
		rel, err := slot.Relation(ctx, conn, table)
		if err != nil {
			return err
		}
		if err := r.Check(rel); err != nil {
			return err
		}
	}
	publication, err := slot.Inspect(ctx, conn, p.Config.Replication.Publication, p.Config.Replication.Tables)
	if err != nil {
		return err
	}
	p.Tables = publication.Tables
	return p.assigner.Look(ctx, conn)
}

// standbyLook is how long a relay stands by until it looks at everything again.
const standbyLook = time.Minute

// awaitSlot looks at nothing but the slot, so that it can look often; and, where tables are copied, at whether another process copies them.
func (p *Pipeline) awaitSlot(ctx context.Context) error {
	conn, err := postgres.Connect(ctx, p.Config.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	looking, cancel := context.WithTimeout(ctx, standbyLook)
	defer cancel()
	err = slot.AwaitFree(looking, conn, p.Config.Slot.Name)
	if err == nil && p.copies() {
		err = slot.AwaitUnlocked(looking, conn, p.Config.Slot.Name)
	}
	if looking.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// awaitServer leaves it to the monitor to look for the server: a session without the monitor's
// connection would hold up the next shutdown.
func (p *Pipeline) awaitServer(ctx context.Context) error {
	return p.monitor.AwaitReturn(ctx, p.returns)
}

func (p *Pipeline) awaitBroker(ctx context.Context) error {
	return kafka.AwaitAnswer(ctx, p.Config.Sink.Kafka)
}

func (p *Pipeline) openStream(ctx context.Context) (*replication.Stream, error) {
	pg, err := postgres.ReplicationConfig(p.Config.Postgres)
	if err != nil {
		return nil, err
	}
	s, err := replication.Open(ctx, pg, streamed(p.Config), p.Config.Slot.Name, p.Component("replication"))
	switch {
	case errors.Is(err, replication.ErrSlotMissing): // it was there in prepare: dropped since then, and not to be created again
		return nil, p.renewable(p.measured(ctx, slot.Disappeared(p.Config.Slot.Name, 0)))
	case err != nil:
		return nil, p.renewable(slot.RefusedStream(ctx, p.Config.Postgres, p.Config.Slot.Name, err))
	}
	return s, nil
}

func (p *Pipeline) openSink(ctx context.Context, done sink.Done) (sink.Sink, error) {
	if p.Config.Sink.Kind == config.SinkStdout {
		return stdout.Open(p.env.Stdout)(ctx, done)
	}
	s, err := kafka.Open(ctx, p.kafka(), p.Component("sink"), done)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// kafka is the configuration of a sink whose requests are counted.
func (p *Pipeline) kafka() kafka.Config {
	cfg := p.Config.Sink.Kafka
	cfg.Requested = func(bytes int) {
		p.metrics.Requests.Inc()
		p.metrics.RequestBytes.Add(float64(bytes))
	}
	return cfg
}

// openTransactional is openSink for relay.exactly_once.
func (p *Pipeline) openTransactional(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional, error) {
	s, err := kafka.OpenTransactional(ctx, p.kafka(), p.Config.Relay.PositionTopic, p.Component("sink"), done, committed)
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
func (p *Pipeline) database() string {
	pg, err := postgres.ReplicationConfig(p.Config.Postgres)
	if err != nil {
		return ""
	}
	return pg.Database
}

func (p *Pipeline) heartbeat(at time.Time) (*sink.Message, error) {
	return router.Heartbeat(p.Config.Format, p.Config.HeartbeatTopic(), p.Config.Router[0].TopicPrefix, at)
}

// sessionRouter is newRouter for a session. Rows of the session before may come again, and their partitions may be gone by now.
func (p *Pipeline) sessionRouter() (r *router.Router, err error) {
	if p.router != nil {
		for _, a := range p.router.Assigned() {
			p.assigner.Remember(p.timeline, a.OID, a.Table, a.First, a.Last)
		}
	}
	p.router, err = p.NewRouter()
	return p.router, err
}

// rowsFrom is told the timeline of a session's rows. On another one, positions stand for other rows.
func (p *Pipeline) rowsFrom(timeline int32) {
	p.timeline = timeline
	p.assigner.On(timeline)
}

func (p *Pipeline) NewRouter() (*router.Router, error) {
	r, err := router.New(p.Config.Router, p.Config.Format, router.Options{
		Tables:          p.Config.Replication.Tables,
		Home:            p.home,
		MessagePrefixes: p.Config.Replication.Messages,
		Describe:        p.describe,
		Updated:         p.updated,
		OwnTopics:       p.Config.OwnTopics(),
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", relay.ErrConfiguration, err)
	}
	return r, nil
}

// updated tells of the first update of a table in a session.
func (p *Pipeline) updated(table, behavior string) {
	log := p.Component("router")
	event := log.Warn()
	if behavior == "error" {
		event = log.Error()
	}
	event.Str("relation", table).Msg("a row of the outbox was updated; updates are not published (router.table.op.invalid.behavior)")
}

// home asks which table a row belongs to, once per relation too.
func (p *Pipeline) home(ev *replication.Event) (table string, upTo pglogrepl.LSN, err error) {
	row := partition.FirstRow{Relation: ev.Relation, LSN: ev.LSN, XID: ev.XID, Index: ev.Index}
	if table, known := p.assigner.Remembered(row); known {
		return table, 0, nil
	}
	err = p.catalog.Ask(func(ctx context.Context, conn *pgx.Conn) error {
		table, upTo, err = p.assigner.Assign(ctx, conn, row)
		return err
	})
	return table, upTo, err
}

// describe asks the catalog about a table, once per shape, and behind the transaction of its first row: that may have made the columns.
func (p *Pipeline) describe(oid, xid uint32) (t *router.Table, err error) {
	err = p.catalog.Ask(func(ctx context.Context, conn *pgx.Conn) error {
		if err := partition.AwaitChanges(ctx, conn, xid); err != nil {
			log := p.Component("router")
			log.Warn().Err(err).Uint32("oid", oid).Msg("types of columns that this transaction has added are taken as text")
		}
		t, err = catalog.Describe(ctx, conn, oid)
		return err
	})
	return t, err
}

// environment is what a relay uses of the process it runs in.
type Environment struct {
	Stdout io.Writer // of sink.kind stdout
	Stderr io.Writer // of the answer to SIGUSR1
	Getenv func(name string) string
	Hint   func(hint string) string // makes of a hint what is to be typed here
}
