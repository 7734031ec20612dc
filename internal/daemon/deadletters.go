package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

// openDeadLetters reads the dead-letter topic. Without a policy that makes dead letters there may
// be earlier ones, whose keys stay parked; nil: there is no topic, or it may not be read.
func (p *Pipeline) openDeadLetters(ctx context.Context, source sink.Source,
	begin pglogrepl.LSN) (deadletter.Handler, error) {
	on := p.Config.DeadLetter.On()
	if !on && (p.letterless || p.Config.Sink.Kind != config.SinkKafka) {
		return nil, nil
	}
	if !on && p.lacksLetters(ctx) {
		p.letterless = true
		return nil, nil
	}
	tracker, err := p.openTracker(ctx, source, begin, on)
	switch {
	case err == nil:
		p.letterless = false
		return tracker, nil
	case p.noLetters(err):
		p.letterless = true
		return nil, nil
	case errors.Is(err, sink.ErrUnknownTopic):
		return nil, configError(err)
	}
	return nil, err
}

// lacksLetters reports whether the dead-letter topic surely does not exist. Opening it would wait
// for one that is being created, at each start of a relay that never had dead letters.
func (p *Pipeline) lacksLetters(ctx context.Context) bool {
	client, err := kafka.Connect(ctx, p.Config.Sink.Kafka, p.Component("deadletter"))
	if err != nil {
		return false
	}
	defer client.Close()
	return client.Lacks(ctx, p.Config.DeadLetter.Topic)
}

// noLetters reports whether an error of the dead-letter topic means that there are no dead
// letters, as far as this relay can know: no policy makes them, and it may not read the topic.
func (p *Pipeline) noLetters(err error) bool {
	if p.Config.DeadLetter.On() {
		return false
	}
	if errors.Is(err, sink.ErrPermission) {
		log := p.Component("deadletter")
		log.Warn().Err(err).Msg("dead letters of earlier policies cannot be read: no key is parked")
		return true
	}
	return errors.Is(err, sink.ErrUnknownTopic)
}

func (p *Pipeline) openTracker(ctx context.Context, source sink.Source, begin pglogrepl.LSN,
	create bool) (*deadletter.Tracker, error) {
	log, broker := p.Component("deadletter"), p.Config.Sink.Kafka
	broker.Topics.Create = broker.Topics.Create && create
	store, err := producer.OpenDeadLetters(ctx, broker, p.Config.DeadLetter.Topic, "", log)
	if err != nil {
		return nil, err
	}
	r, err := p.NewRouter()
	if err != nil {
		store.Close()
		return nil, err
	}
	return deadletter.Open(ctx, deadletter.Options{
		Topic: p.Config.DeadLetter.Topic, Store: store, Source: source, Confirmed: begin,
		Address: r.Address, Metrics: p.metrics, Log: log,
	})
}

// letters reads all dead letters; nil: there is no topic.
func (p *Pipeline) letters(ctx context.Context) (*deadletter.Index, error) {
	if p.Config.Sink.Kind != config.SinkKafka {
		return nil, nil
	}
	broker := p.Config.Sink.Kafka
	broker.Topics.Create = false
	store, err := producer.OpenDeadLetters(ctx, broker, p.Config.DeadLetter.Topic, "",
		p.Component("deadletter"))
	var index *deadletter.Index
	if err == nil {
		defer store.Close()
		index, err = deadletter.Read(ctx, store)
	}
	if errors.Is(err, sink.ErrUnknownTopic) || p.noLetters(err) {
		return nil, nil
	}
	return index, err
}

// parks reads which keys are parked by open dead letters.
func (p *Pipeline) parks(ctx context.Context) (func(m *sink.Message) bool, error) {
	letters, err := p.letters(ctx)
	if err != nil {
		return nil, err
	}
	if letters == nil {
		return func(*sink.Message) bool { return false }, nil
	}
	return letters.Parks(), nil
}

// ofAnotherRelay reports whether a dead letter with this source is of a relay that shares topics,
// for another slot or server. system is empty if it is not known.
func ofAnotherRelay(source []byte, system, slotName string) bool {
	ofSystem, ofSlot, ok := deadletter.ParseSource(source)
	return ok && (system != "" && ofSystem != system || ofSlot != slotName)
}

// Rerouter routes rows of dead letters again, as the relay does. It connects to the database when
// it first needs it. One goroutine uses it.
type Rerouter struct {
	pipeline *Pipeline
	conn     *pgx.Conn
	router   *router.Router
	system   string // identifier of the server; empty: not known
}

// NewRerouter returns a Rerouter, which the caller closes.
func NewRerouter(env Environment, cfg config.Config, log zerolog.Logger) *Rerouter {
	return &Rerouter{pipeline: Unmeasured(env, cfg, log)}
}

// Close closes the connection, if there is one.
func (r *Rerouter) Close() {
	if r.conn != nil {
		postgres.Close(r.conn)
	}
}

// Limiter has the limits of the configuration. They are those of this process alone.
func (r *Rerouter) Limiter() *ratelimit.Limiter { return r.pipeline.limiter }

func (r *Rerouter) open(ctx context.Context) (err error) {
	if r.conn == nil {
		if r.conn, err = postgres.ConnectRows(ctx, r.pipeline.Config.Postgres); err != nil {
			return err
		}
	}
	if r.router == nil {
		if r.system, err = postgres.SystemIdentifier(ctx, r.conn); err != nil {
			return err
		}
		if err := r.pipeline.prepareTables(ctx); err != nil {
			return err
		}
		r.router, err = r.pipeline.NewRouter()
	}
	return err
}

// Route routes a row again.
func (r *Rerouter) Route(ctx context.Context, ev *replication.Event) (*sink.Message, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r.router.Route(ev)
}

// Row reads the row of a letter that has only a claim: its key, or the id of its event.
func (r *Rerouter) Row(
	ctx context.Context, l *deadletter.Letter, d deadletter.Document,
) (*replication.Event, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	table, err := r.tableOf(ctx, l, d)
	if err != nil {
		return nil, err
	}
	rel, err := r.relation(ctx, table, d)
	if err != nil {
		return nil, err
	}
	where, values := r.condition(l, d, rel)
	if len(values) == 0 {
		return nil, fmt.Errorf("nothing is known by which its row in %s could be found", table)
	}
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT 2", check.ColumnList(rel),
		slot.QuoteTable(table), where)
	// In text format, as the stream brings it.
	result := r.conn.PgConn().ExecParams(ctx, query, values, nil, nil, nil).Read()
	if result.Err != nil {
		err := fmt.Errorf("read the row from %s: %w", table, postgres.Error(result.Err))
		return nil, exit.Unreadable(err, table, r.conn.Config().User)
	}
	switch len(result.Rows) {
	case 0:
		return nil, fmt.Errorf("its row is no longer in %s", table)
	case 1:
		return &replication.Event{
			Kind: replication.Insert, XID: d.XID, Relation: rel, Values: result.Rows[0],
		}, nil
	}
	return nil, fmt.Errorf("several rows of %s could be it", table)
}

const selectTable = `
SELECT pg_catalog.format('%s.%s', n.nspname, c.relname)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1 AND c.relkind IN ('r', 'p')`

// tableOf decides which table a claim is read from, and returns its name of now. Another table may
// have the name that the claim has, so the OID decides; but only in the database that gave it.
func (r *Rerouter) tableOf(
	ctx context.Context, l *deadletter.Letter, d deadletter.Document,
) (string, error) {
	if d.OID == 0 || ofAnotherRelay([]byte(l.Source), r.system, r.pipeline.Config.Slot.Name) {
		return d.Relation, nil
	}
	table, err := postgres.One[string](ctx, r.conn, selectTable, d.OID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", fmt.Errorf("the table with its row, %s (OID %d), was dropped, and one that has "+
			"the name now is another: if the row was copied, insert it again; then discard the "+
			"dead letter", d.Relation, d.OID)
	case err != nil:
		return "", fmt.Errorf("find the table with the OID %d: %w", d.OID, err)
	}
	return table, nil
}

// relation describes the table of a claim with its published columns, or with all if it is not
// published.
func (r *Rerouter) relation(
	ctx context.Context, table string, d deadletter.Document,
) (*replication.Relation, error) {
	for _, t := range r.pipeline.tables {
		if t.Name == table {
			return t.Relation(ctx, r.conn)
		}
	}
	rel, err := slot.Relation(ctx, r.conn, table)
	if err == nil {
		// The router decides by the name that the table had when the row was committed.
		rel.Namespace, rel.Name = slot.SplitTable(d.Relation)
	}
	return rel, err
}

// condition is the SQL condition of the row of a claim, and its parameters.
func (r *Rerouter) condition(
	l *deadletter.Letter, d deadletter.Document, rel *replication.Relation,
) (where string, values [][]byte) {
	var conditions []string
	for _, c := range d.Columns {
		if c.Value != nil {
			values = append(values, *c.Value)
			conditions = append(conditions, equals(rel, c.Name, len(values)))
		}
	}
	if len(values) > 0 || l.EventID == "" {
		return strings.Join(conditions, " AND "), values
	}
	column := r.pipeline.Config.Router[0].FieldID
	if rule, found := r.pipeline.Config.Rule(rel.String()); found {
		column = rule.FieldID
	}
	return equals(rel, column, 1), [][]byte{[]byte(l.EventID)}
}

// keyTypes are those of which keys are made: an index finds their values. The others are compared
// as text. With REPLICA IDENTITY FULL, or none, a claim has columns of any type: json, xml and
// point have no operator =, and for a type that is not built in PostgreSQL could choose a cast of
// the type's owner.
var keyTypes = []uint32{
	pgtype.BoolOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.NumericOID,
	pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.NameOID, pgtype.QCharOID,
	pgtype.UUIDOID, pgtype.ByteaOID, pgtype.DateOID, pgtype.TimeOID, pgtype.TimetzOID,
	pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.IntervalOID, pgtype.InetOID, pgtype.CIDROID,
	pgtype.MacaddrOID, pgtype.Macaddr8OID,
}

// equals compares a column with a parameter in text format.
func equals(rel *replication.Relation, column string, parameter int) string {
	value := postgres.QuoteName(column)
	for _, c := range rel.Columns {
		if c.Name == column && !slices.Contains(keyTypes, c.TypeOID) {
			value = slot.WrittenSQL(value)
		}
	}
	return fmt.Sprintf("%s = $%d", value, parameter)
}
