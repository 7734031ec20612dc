package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/demo"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

// DefaultName is that of schema, publication and slot, and the beginning of the topics' names.
const DefaultName = "postrider_bench"

// Config is where to measure, and what.
type Config struct {
	Postgres  string   // connection string
	Brokers   []string // host:port
	BrokerPID int      // of a broker that was started for this; zero: find it
	Binary    string   // the relay: a postrider
	Env       []string // of the relay
	Set       []string // configuration of the relay, as key=value, below what bench sets
	Name      string   // a valid name of a slot
	Runs      int      // of each workload
}

// Measured is a workload with its results.
type Measured struct {
	Workload
	Runs int `json:"runs"`
	Result
	NotCarried string            `json:"not_carried,omitempty"` // why not; empty: kept up
	Spread     map[string]Spread `json:"spread"`                // by the names of the figures
	Each       []Result          `json:"each"`
}

// Run measures the workloads one after another. It removes what it made, also when it fails or ctx
// ends, and refuses to touch what exists already. On an error it returns the workloads that were
// finished before. say gets a line of progress.
func Run(ctx context.Context, cfg Config, workloads []Workload, say func(string)) (*Report,
	error) {
	b := &bench{cfg: cfg, say: say, pg: postgres.DefaultConfig()}
	b.pg.URL = secret.Of(cfg.Postgres)
	report := &Report{Environment: newEnvironment()}
	err := b.setUp(ctx)
	if err == nil {
		report.Postgres, report.Kafka = b.versions(ctx)
	}
	for i := 0; err == nil && i < len(workloads); i++ {
		var m *Measured
		if m, err = b.measure(ctx, workloads[i], fmt.Sprintf("%s.%d", cfg.Name, i)); err == nil {
			report.Workloads = append(report.Workloads, *m)
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the error follows from it
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return report, errors.Join(err, b.undoTo(ending, 0))
}

// bench is one call of Run.
type bench struct {
	cfg    Config
	pg     postgres.Config
	say    func(string)
	client *kafka.Client
	pids   []int                         // of the brokers, where they are known
	undo   []func(context.Context) error // removes what was made and ends what was started
}

// atEnd has undo called at the end of the run or, before the first, at the end of the bench.
func (b *bench) atEnd(undo func(context.Context) error) { b.undo = append(b.undo, undo) }

// undoTo undoes all but the first n, the latest first.
func (b *bench) undoTo(ctx context.Context, n int) (err error) {
	for _, undo := range slices.Backward(b.undo[n:]) {
		err = errors.Join(err, undo(ctx))
	}
	b.undo = b.undo[:n]
	return err
}

// execAtEnd is atEnd with a statement.
func (b *bench) execAtEnd(sql string) {
	b.atEnd(func(ctx context.Context) error {
		conn, err := b.connect(ctx)
		if err != nil {
			return fmt.Errorf("remove what was made: %w", err)
		}
		defer postgres.Close(conn)
		_, err = conn.Exec(ctx, sql)
		return err
	})
}

func (b *bench) table() string { return b.cfg.Name + ".outbox" }

// unrelated is a table outside of the publication.
func (b *bench) unrelated() string { return b.cfg.Name + ".unrelated" }

func (b *bench) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := postgres.Connect(ctx, b.pg)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return conn, nil
}

// setUp makes schema, tables and publication. Nothing of that name may exist.
func (b *bench) setUp(ctx context.Context) error {
	if err := b.connectKafka(ctx); err != nil {
		return err
	}
	if b.cfg.BrokerPID != 0 {
		b.pids = []int{b.cfg.BrokerPID}
	}
	conn, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	if err := freeWalsender(ctx, conn); err != nil {
		return err
	}
	if _, err := slot.Get(ctx, conn, b.cfg.Name); err == nil {
		return b.refuse("slot", nil)
	} else if !errors.Is(err, slot.ErrNotFound) {
		return err
	}
	for _, step := range []struct{ what, sql, undo string }{
		{"schema", `CREATE SCHEMA ` + b.cfg.Name, `DROP SCHEMA IF EXISTS ` + b.cfg.Name + ` CASCADE`},
		{"table", `CREATE TABLE ` + b.table() + ` (id uuid PRIMARY KEY,
			aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
			payload jsonb NOT NULL)`, ""},
		{"table", `CREATE TABLE ` + b.unrelated() +
			` (id bigserial PRIMARY KEY, body text NOT NULL)`, ""},
		{"publication", slot.CreatePublicationSQL(b.cfg.Name, []string{b.table()}),
			`DROP PUBLICATION IF EXISTS ` + b.cfg.Name},
	} {
		if _, err := conn.Exec(ctx, step.sql); err != nil {
			return b.refuse(step.what, err)
		}
		if step.undo != "" {
			b.execAtEnd(step.undo)
		}
	}
	return nil
}

// refuse is the error for an object that cannot be made; err nil: it exists.
func (b *bench) refuse(what string, err error) error {
	var pe *pgconn.PgError
	// duplicate_schema, duplicate_object
	if err != nil && (!errors.As(err, &pe) || pe.Code != "42P06" && pe.Code != "42710") {
		return fmt.Errorf("create %s %q: %w", what, b.cfg.Name, postgres.Error(err))
	}
	return existsError(fmt.Errorf("%s %q exists already: another bench is running there, or one was "+
		"killed, or it is yours", what, b.cfg.Name), fmt.Sprintf(
		"choose another --name; or, if it is left of a bench:\n"+
			"SELECT pg_catalog.pg_drop_replication_slot(slot_name) "+
			"FROM pg_catalog.pg_replication_slots WHERE slot_name = '%[1]s';\n"+
			"DROP PUBLICATION IF EXISTS %[1]s; DROP SCHEMA IF EXISTS %[1]s CASCADE;", b.cfg.Name))
}

// freeWalsender returns an error when all walsenders are in use: the relay would wait for one, and
// the wait would be measured.
func freeWalsender(ctx context.Context, conn *pgx.Conn) error {
	var limit, used int
	err := conn.QueryRow(ctx, `SELECT pg_catalog.current_setting('max_wal_senders')::int,
		(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication)`).Scan(&limit, &used)
	if err != nil {
		return fmt.Errorf("count the walsenders: %w", postgres.Error(err))
	}
	if used >= limit {
		return &slot.Error{
			Err: fmt.Errorf("%w: %d of %d walsenders are in use", slot.ErrServer, used, limit),
			WAL: "nothing was made",
			Fix: fmt.Sprintf("ALTER SYSTEM SET max_wal_senders = %d; "+
				"-- takes effect when the server is restarted", max(10, 2*limit)),
		}
	}
	return nil
}

func (b *bench) dropSlot(ctx context.Context) error {
	conn, err := b.connect(ctx)
	if err != nil {
		return fmt.Errorf("remove what was made: %w", err)
	}
	defer postgres.Close(conn)
	// The walsender of a relay that was killed has the slot for a moment.
	err = slot.Drop(ctx, conn, b.cfg.Name)
	for errors.Is(err, replication.ErrSlotInUse) && pause(ctx, 50*time.Millisecond) {
		err = slot.Drop(ctx, conn, b.cfg.Name)
	}
	if errors.Is(err, slot.ErrNotFound) {
		return nil
	}
	return err
}

// pause blocks for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	return demo.WaitUntil(ctx, time.Now().Add(d))
}

// measure runs a workload as often as configured, each time with an empty table, a slot and topics
// of its own.
func (b *bench) measure(ctx context.Context, w Workload, prefix string) (*Measured, error) {
	w.Seconds = w.Duration.Seconds()
	m := &Measured{Workload: w, Runs: b.cfg.Runs}
	for i := range b.cfg.Runs {
		line := w.String()
		if b.cfg.Runs > 1 {
			line += fmt.Sprintf(", run %d of %d", i+1, b.cfg.Runs)
		}
		b.say(line)
		r := &run{bench: b, Workload: w, prefix: fmt.Sprintf("%s.%d.", prefix, i),
			reader: newReader(newRows(w.Size), w.outboxRows())}
		if err := r.once(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", w, err)
		}
		r.result.Verdict = r.tally.Verdict()
		m.Each = append(m.Each, r.result)
	}
	m.Result, m.Spread = merge(m.Each)
	m.NotCarried = m.behind()
	return m, nil
}

// run is one run of a workload, with topics of its own.
type run struct {
	*bench
	Workload
	*reader
	prefix        string // of the topics
	conn          *pgx.Conn
	relay         *relay
	load          *steady
	backlogEnd    pglogrepl.LSN // of drain: a position behind it
	before, after usage         // of the measured part
	result        Result
}

// inOrder takes steps up to the first that fails.
func inOrder(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) once(ctx context.Context) (err error) {
	before := len(r.undo)
	if r.conn, err = r.connect(ctx); err != nil {
		return err
	}
	defer postgres.Close(r.conn)
	if _, err := r.conn.Exec(ctx, `TRUNCATE `+r.table()+`, `+r.unrelated()); err != nil {
		return fmt.Errorf("empty the tables: %w", postgres.Error(err))
	}
	if _, err := slot.Create(ctx, r.conn,
		slot.Config{Name: r.cfg.Name, CheckInterval: time.Second}); err != nil {
		return err
	}
	r.atEnd(r.dropSlot)
	if err := r.createTopics(ctx, r.prefix); err != nil {
		return err
	}
	workload := map[Kind]func(context.Context) error{Drain: r.drain, Rate: r.rate, Idle: r.idle}
	if err := workload[r.Kind](ctx); err != nil {
		return err
	}
	return r.undoTo(ctx, before)
}

// usage is what relay, walsender and brokers have used so far. NaN: not known.
type usage struct {
	reading
	at                     time.Time
	walsender, broker, rss float64
}

// used reads the usage of all of them. The walsender is the present one of the slot; it ends with
// the relay.
func (r *run) used(ctx context.Context) (u usage, err error) {
	u.at, u.walsender = time.Now(), math.NaN()
	if u.reading, err = r.relay.read(ctx); err != nil {
		return u, err
	}
	u.broker, u.rss = r.brokerCPU(), peakRSS(r.relay.PID)
	status, err := slot.Get(ctx, r.conn, r.cfg.Name)
	if pid := int(status.ActivePID); err == nil && pid != 0 && isWalsender(pid) {
		u.walsender = cpuSeconds(pid)
	}
	return u, err
}

func (r *run) useAfter(ctx context.Context) (err error) {
	r.after, err = r.used(ctx)
	return err
}

// brokerCPU is that of all brokers together; NaN if one of them is not known.
func (b *bench) brokerCPU() (total float64) {
	if len(b.pids) == 0 {
		return math.NaN()
	}
	for _, pid := range b.pids {
		total += cpuSeconds(pid)
	}
	return total
}
