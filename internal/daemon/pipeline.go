package daemon

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/internal/registry"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/sink/stdout"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/slot/partition"
)

// Pipeline builds the parts of a relay from a configuration. It connects packages that must not
// import each other.
type Pipeline struct {
	env      Environment
	Config   config.Config
	metrics  *metrics.Set
	log      zerolog.Logger
	monitor  *monitor.Monitor
	limiter  *ratelimit.Limiter
	observed func(monitor.Observation) // called with each, by the goroutine of the monitor
	snapshot *backfill.Snapshot
	copy     *backfill.Copy // from prepare to the end of runSnapshot; nil: there is nothing to copy
	// when this process last created the slot together with a snapshot; of the relay's goroutine
	renewed time.Time
	gap     lastGap
	// no policy makes dead letters, and there was no topic of them; of the relay's goroutine
	letterless bool
	// made once: what the schema registry has answered goes on while it is away
	registries func() (router.Registries, error)
	// State of the session that is prepared; of the same goroutine, which then makes its router.
	returns  int             // Monitor.Returns
	tables   []slot.Table    // of prepareTables
	catalog  catalog.Catalog // queries of the router
	assigner *partition.Assigner
	router   *router.Router // of the last session; of the relay's goroutine
	timeline int32          // of the rows of that session
}

// newPipeline builds the parts, whose metrics are those of set. It connects to nothing.
func newPipeline(env Environment, cfg config.Config, set *metrics.Set,
	log zerolog.Logger) *Pipeline {
	p := &Pipeline{
		env: env, Config: cfg, metrics: set, log: log, observed: func(monitor.Observation) {},
		catalog: catalog.Catalog{Config: cfg.Postgres},
		limiter: ratelimit.New(cfg.Relay.MaxRate, cfg.Relay.Rates, set),
	}
	p.registries = sync.OnceValues(func() (router.Registries, error) {
		return registry.Open(p.Config.Registry, p.Config.Format)
	})
	export := monitor.Export(set)
	p.monitor = monitor.New(cfg.Postgres, cfg.Requirements(), cfg.Monitor,
		func(o monitor.Observation) {
			export(o)
			p.observed(o)
		}, p.Component("slot"))
	p.assigner = partition.New(cfg.Replication, cfg.Slot.Name, p.Component("slot"))
	p.monitor.Assigner, p.monitor.Limiter, p.monitor.Hint = p.assigner, p.limiter, env.Hint
	p.snapshot = p.newSnapshot()
	return p
}

// Unmeasured is a Pipeline whose metrics are not served.
func Unmeasured(env Environment, cfg config.Config, log zerolog.Logger) *Pipeline {
	return newPipeline(env, cfg, metrics.New(prometheus.NewRegistry(), cfg.Slot.Name), log)
}

// Component returns the logger of a component.
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
		Limiter:     p.limiter,
		Source: sink.Source{
			Database: p.database(), Slot: p.Config.Slot.Name, Events: counted(p.Config.Replication),
		},
		Explain: func(err error, st relay.State) (what, wal, next string) {
			f := exit.OfRelay(err, st).For(p.Config)
			return f.Error(), f.WAL, p.env.Hint(f.Next)
		},
		Metrics: p.metrics,
		Log:     p.Component("relay"),
	}
}

// prepare verifies publication, tables and slot before a session.
func (p *Pipeline) prepare(ctx context.Context, first bool) (err error) {
	p.catalog.Reset()
	p.returns = p.monitor.Returns()
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	if err := p.beginSnapshot(ctx, first); err != nil {
		return err
	}
	defer func() {
		if err = slot.Locked(err); err != nil {
			p.endSnapshot()
		}
	}()
	s, err := slot.Prepare(ctx, conn, p.Config.Requirements(), first, p.Component("slot"))
	switch {
	case err != nil:
		return p.lost(ctx, unfit(err)) // lost, maybe in the moment since beginSnapshot looked
	case s.Active:
		return slot.Held(s.Name, s.ActivePID)
	}
	if err := p.monitor.Begin(ctx, conn); err != nil {
		return err
	}
	return p.checkShapes(ctx, conn)
}

// unfit marks an error that stays until the configuration of the server changes.
func unfit(err error) error {
	if errors.Is(err, slot.ErrServer) || errors.Is(err, slot.ErrNoFreeSlot) {
		return configError(err)
	}
	return err
}

// connect opens a connection that waits for no lock on a table for long: without a session nothing
// is confirmed for the other tables either.
func (p *Pipeline) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := postgres.Connect(ctx, p.Config.Postgres)
	if err != nil {
		return nil, err
	}
	if err := postgres.SetTimeout(ctx, conn, "lock_timeout", slot.LockTimeout); err != nil {
		postgres.Close(conn)
		return nil, err
	}
	return conn, nil
}

// prepareTables is prepare without a slot.
func (p *Pipeline) prepareTables(ctx context.Context) (err error) {
	defer func() { err = slot.Locked(err) }()
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	publication, err := slot.Diagnose(ctx, conn, p.Config.Requirements())
	if err != nil {
		return unfit(err)
	}
	p.tables = publication.Tables
	return p.checkShapes(ctx, conn)
}

// checkShapes reports a missing column before the first row arrives.
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
	return p.assigner.Look(ctx, conn)
}

// standbyLook is how long a relay stands by before it verifies everything again.
const standbyLook = time.Minute

// awaitSlot polls the slot alone, which is cheap enough to do often. With a snapshot it also polls
// the lock of the process that copies the tables.
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

// awaitServer waits until the monitor has connected again: a session that polls by itself would
// delay the next shutdown of the server.
func (p *Pipeline) awaitServer(ctx context.Context) error {
	return p.monitor.AwaitReturn(ctx, p.returns)
}

func (p *Pipeline) awaitBroker(ctx context.Context) error {
	return kafka.AwaitAnswer(ctx, p.Config.Sink.Kafka)
}

func (p *Pipeline) openStream(ctx context.Context) (*replication.Stream, error) {
	pg, err := postgres.ReplicationLogin(ctx, p.Config.Postgres)
	if err != nil {
		return nil, err
	}
	s, err := replication.Open(ctx, pg, streamed(p.Config), p.Config.Slot.Name,
		p.Component("replication"))
	switch {
	case errors.Is(err, replication.ErrSlotMissing):
		// it was there in prepare: dropped since then, and not to be created again
		return nil, p.lost(ctx, slot.Disappeared(p.Config.Slot.Name, 0))
	case err != nil:
		err = p.Config.Postgres.Explain(err)
		return nil, p.lost(ctx,
			slot.RefusedStream(ctx, p.Config.Postgres, p.Config.Slot.Name, err))
	}
	return s, nil
}

func (p *Pipeline) openSink(ctx context.Context, done sink.Done) (sink.Sink, error) {
	if p.Config.Sink.Kind == config.SinkStdout {
		return stdout.Open(p.env.Stdout)(ctx, done)
	}
	s, err := producer.Open(ctx, p.kafka(), p.Component("sink"), done)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// kafka is the configuration of a sink with counted requests.
func (p *Pipeline) kafka() kafka.Config {
	cfg := p.Config.Sink.Kafka
	cfg.Requested = func(bytes int) {
		p.metrics.Requests.Inc()
		p.metrics.RequestBytes.Add(float64(bytes))
	}
	return cfg
}

// openTransactional is openSink for relay.exactly_once.
func (p *Pipeline) openTransactional(ctx context.Context, done sink.Done,
	committed sink.Committed) (sink.Transactional, error) {
	s, err := producer.OpenTransactional(ctx, p.kafka(), p.Config.Relay.PositionTopic,
		p.Component("sink"), done, committed)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// streamed is the replication configuration of a relay. With exactly_once the stored position may
// be that of a logical message that is no longer published: the server has to send it
// nevertheless.
func streamed(cfg config.Config) replication.Config {
	cfg.Replication.Witness = cfg.Relay.ExactlyOnce
	return cfg.Replication
}

// counted names the set of events that the server sends, which the index of an event counts. It
// changes with the set, so that positions of different sets are not compared.
func counted(cfg replication.Config) string {
	if len(cfg.Messages) == 0 {
		return cfg.Publication
	}
	return cfg.Publication + "+messages"
}

// database is the database of postgres.url; empty if the URL is invalid, which connecting reports.
func (p *Pipeline) database() string {
	pg, err := postgres.ReplicationConfig(p.Config.Postgres)
	if err != nil {
		return ""
	}
	return pg.Database
}

func (p *Pipeline) heartbeat(at time.Time) (*sink.Message, error) {
	registries, err := p.registries()
	if err != nil {
		return nil, err
	}
	return router.Heartbeat(p.Config.Format, registries, p.Config.HeartbeatTopic(),
		p.Config.Router[0].TopicPrefix, at)
}

// Environment is what a relay uses of its process.
type Environment struct {
	Stdout io.Writer // of sink.kind stdout
	Stderr io.Writer // of the answer to SIGUSR1
	Getenv func(name string) string
	Hint   func(hint string) string // makes of a hint what is to be typed here
}
