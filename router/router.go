package router

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// Options are what a Router routes.
type Options struct {
	// outbox tables as schema.table; empty: every relation that is met, by the one rule set
	Tables []string
	// prefixes of logical messages that carry outbox events; empty: none do
	MessagePrefixes []string

	// OwnTopics are those that the relay itself writes to: no event may be routed there, whatever
	// is in it.
	OwnTopics []string

	// ParentTable decides which of Tables a row belongs to; empty: none. A partition has a name of
	// its own. It is called for the first row of each *replication.Relation; the answer applies to
	// all rows of it up to a position, zero for all. Nil: the name of the relation decides.
	ParentTable func(ev *replication.Event) (table string, upTo pglogrepl.LSN, err error)
	// Release takes what was decided about a relation that is no outbox table, before the router
	// forgets it: rows of it may come again. May be nil.
	Release func(Assigned)
	// Updated is called with the first update of a table that is dropped, and the router's
	// table.op.invalid.behavior, warn or error. May be nil.
	Updated func(table, behavior string)
	// Describe reads what the catalog has about a relation, as the transaction of the row left it
	// (zero: as it is now); it is called once for each *replication.Relation that is met. Nil, or
	// a nil Table: types that are not built in are taken as text, and columns as nullable unless
	// part of the key.
	Describe func(oid, xid uint32) (*Table, error)

	Registries Registries
}

// Registries write keys and values of the formats for a schema registry; nil with other formats.
type Registries struct {
	Key, Value connect.Registered
	// Requested is when a request of these last ran: now while one does, zero before the first. It
	// may be called from any goroutine. Nil: there is no registry.
	Requested func() time.Time
}

// encoders are those of keys and values.
func (r Registries) encoders(f Format, java bool) (keys, values connect.Encoder, err error) {
	keys, values = connect.NewEncoder(f.key(), java), connect.NewEncoder(f.value(), java)
	key, value := f.Registered()
	if key {
		keys.Registered = r.Key
	}
	if value {
		values.Registered = r.Value
	}
	if key && r.Key == nil || value && r.Value == nil {
		return keys, values, errors.New("[format] needs a schema registry: set registry.urls")
	}
	return keys, values, nil
}

// Router maps events to messages, each by the rule set of its table. It belongs to one goroutine.
type Router struct {
	opts     Options
	rules    []*rule
	tables   map[string]*rule // by outbox table
	prefixes map[string]*rule // by prefix of logical messages

	last     *plan            // of the relation of the row before
	plans    map[uint32]*plan // by OID, of its newest shape
	foreign  int              // how many of them have no rule, at most
	assigned map[uint32][]*Assigned
}

// Assigned is how ParentTable has decided about rows of a relation, from the first one to the
// last.
type Assigned struct {
	OID         uint32
	Table       string // empty: none
	First, Last pglogrepl.LSN
}

// rule is one rule set, ready for use.
type rule struct {
	name       string // see RuleName
	cfg        Config
	handling   connect.Handling
	opts       Options
	placements []placement
	topics     *topics
	keys       connect.Encoder
	values     connect.Encoder
	headers    connect.Encoder
	expander   connect.Expander
	context    []sink.Header // of every row
	positions  positions
	events     *cloudEvents // nil: none

	// with first_schema_name: of all envelopes
	schemas map[schemaKey][]*connect.Schema
}

// AnyPrefix stands for every prefix of logical messages, as for a connector of Debezium without
// message.prefix.include.list.
const AnyPrefix = "*"

// New makes a router of valid rule sets.
func New(rules []Config, f Format, opts Options) (*Router, error) {
	divided, err := Divide(rules, opts.Tables, opts.MessagePrefixes)
	if err = errors.Join(err, f.Validate(), f.Fits(rules)); err != nil {
		return nil, err
	}
	run, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make the id of this run: %w", err)
	}
	r := &Router{opts: opts, tables: map[string]*rule{}, prefixes: map[string]*rule{},
		plans: map[uint32]*plan{}, assigned: map[uint32][]*Assigned{}}
	for i, cfg := range divided {
		one, err := newRule(cfg, f, opts, run.String())
		if err != nil {
			if len(rules) > 1 {
				err = fmt.Errorf("%s: %w", RuleName(i, len(rules)), err)
			}
			return nil, err
		}
		one.name = RuleName(i, len(rules))
		r.rules = append(r.rules, one)
		for _, table := range cfg.Tables {
			r.tables[table] = one
		}
		for _, prefix := range cfg.Messages {
			r.prefixes[prefix] = one
		}
	}
	return r, nil
}

func newRule(cfg Config, f Format, opts Options, runID string) (*rule, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.normalised()
	placements, err := parsePlacements(cfg.AdditionalPlacement)
	if err != nil {
		return nil, err
	}
	t, err := newTopics(&cfg, opts.OwnTopics)
	if err != nil {
		return nil, err
	}
	r := &rule{
		cfg: cfg, handling: cfg.handling(), opts: opts, placements: placements, topics: t,
		headers: connect.NewEncoder(connect.Converter{Format: f.Headers}, cfg.JavaText),
		events:  newCloudEvents(f, &cfg),
		schemas: make(map[schemaKey][]*connect.Schema),
	}
	if r.keys, r.values, err = opts.Registries.encoders(f, cfg.JavaText); err != nil {
		return nil, err
	}
	named := func(e *connect.Encoder) bool { // writes the names of schemas
		return e.Format == "json+schema" || e.Delegate == "json+schema" || e.Registered != nil
	}
	r.expander = connect.Expander{
		KeepNulls:  cfg.NullBehavior == "optional_bytes",
		KeepEmpty:  cfg.EmptyArrayBehavior == "optional_string",
		Adjustment: cfg.FieldNameAdjustment,
		Named:      named(&r.keys) || named(&r.values) || named(&r.headers),
	}
	if cfg.ContextHeaders {
		r.context, err = r.contextHeaders(runID)
	}
	return r, err
}

// Requested is Registries.Requested, or zero. It may be called from any goroutine.
func (r *Router) Requested() time.Time {
	if r.opts.Registries.Requested == nil {
		return time.Time{}
	}
	return r.opts.Registries.Requested()
}

// Route is RouteTo with a new message; nil for an event that is not ours.
func (r *Router) Route(ev *replication.Event) (*sink.Message, error) {
	m := new(sink.Message)
	if ours, err := r.RouteTo(m, ev); !ours {
		return nil, err
	}
	return m, nil
}

// RouteTo maps an Insert, an Update or a Message to m, whose room for headers is used again. It
// returns false without an error for an event that is not ours: another table, another prefix. The
// error is a *RowError for an event that can never be published, a *ShapeError for a relation that
// cannot be routed, one of connect.ErrRegistry and its siblings, or what ParentTable or Describe
// returned; then m is of no use.
// Everything of the message but Origin.Transaction and Origin.HandedOver is set; its slices may
// alias those of the event.
func (r *Router) RouteTo(m *sink.Message, ev *replication.Event) (ours bool, err error) {
	p, values, err := r.locate(ev)
	if err != nil || p == nil {
		return false, err
	}
	if ev.Kind == replication.Update && !p.keyChanged(ev) {
		return false, p.rule.unexpected(p, ev)
	}
	if err := p.rule.route(m, p, ev, values); err != nil {
		if ofRegistry(err) {
			return false, err
		}
		return false, rowError(ev, p.relation, values[p.id.Index], err)
	}
	return true, nil
}

// ofRegistry reports whether an error is about the schema registry, and not about the row.
func ofRegistry(err error) bool {
	return slices.ContainsFunc(
		[]error{connect.ErrRegistry, connect.ErrRegistryLogin, connect.ErrRegistryHalt},
		func(target error) bool { return errors.Is(err, target) })
}

// locate finds the plan and the values of an event; a nil plan if it is not ours.
func (r *Router) locate(ev *replication.Event) (*plan, [][]byte, error) {
	switch ev.Kind {
	case replication.Insert, replication.Update:
		p := r.planOf(ev)
		p.assigned.Last = ev.LSN
		switch {
		case p.err != nil || p.rule == nil:
			return nil, nil, p.err
		case len(ev.Values) != len(p.rel.Columns):
			return nil, nil, rowError(ev, p.relation, nil, fault(ReasonUnconvertible, "",
				"the row has %d values, the relation %d columns", len(ev.Values), len(p.rel.Columns)))
		}
		return p, ev.Values, nil
	case replication.Message:
		one := cmp.Or(r.prefixes[ev.Prefix], r.prefixes[AnyPrefix])
		if one == nil {
			return nil, nil, nil
		}
		p, values, err := one.messagePlan(ev)
		if err != nil {
			return nil, nil, rowError(ev, "message:"+ev.Prefix, nil, err)
		}
		return p, values, nil
	}
	return nil, nil, nil
}

// Address returns the topic and key of an event that Route has refused. The key is nil if the
// event has none, or if topic or key are what is wrong. An error says nothing about the event: it
// is one of RouteTo's, but no *RowError.
func (r *Router) Address(ev *replication.Event) (topic string, key []byte, err error) {
	p, values, err := r.locate(ev)
	if _, wrong := errors.AsType[*RowError](err); wrong {
		return "", nil, nil
	}
	if err != nil || p == nil {
		return "", nil, err
	}
	if topic, err = p.topic(values); err != nil {
		return "", nil, nil
	}
	p.rule.keys.Topic = topic
	if key, err = p.rule.makeKey(p, values, 0); err != nil && !ofRegistry(err) {
		return "", nil, nil
	}
	return topic, key, err
}

// Check resolves the columns of one of Tables as Route would, without a row. The error is a
// *ShapeError, or what Describe returned. Where the same rule set is for logical messages, its
// columns may be members of those, and the table may have none of them: a row of it fails when it
// comes.
func (r *Router) Check(rel *replication.Relation) error {
	one := r.named(rel.String())
	if one == nil {
		return nil
	}
	_, err := one.relationPlan(rel, 0)
	if shape := (*ShapeError)(nil); errors.As(err, &shape) && len(one.cfg.Messages) > 0 {
		return nil
	}
	return err
}

// planOf gives the plan of a row's relation. One without a rule is for a relation that is no
// outbox table.
func (r *Router) planOf(ev *replication.Event) *plan {
	if r.last != nil && r.last.rel == ev.Relation && ev.LSN <= r.last.upTo {
		return r.last
	}
	p := r.plans[ev.Relation.OID]
	if p == nil || p.rel != ev.Relation || ev.LSN > p.upTo {
		p = r.makePlan(ev)
		r.keep(ev.Relation.OID, p)
	}
	r.last = p
	return p
}

// maxForeign bounds how many relations are known that are no outbox tables: with a publication of
// all tables, those that come and go are any number.
const maxForeign = 1000

// keep remembers a plan. Those of tables that are none of ours can be made again.
func (r *Router) keep(oid uint32, p *plan) {
	if r.plans[oid] == nil && p.rule == nil {
		if r.foreign++; r.foreign > maxForeign {
			maps.DeleteFunc(r.plans, func(_ uint32, p *plan) bool { return p.rule == nil })
			r.foreign = 1
			r.release(p.assigned)
		}
	}
	r.plans[oid] = p
}

// release forgets what was decided about relations that are no outbox tables, except one of it.
func (r *Router) release(but *Assigned) {
	for oid, of := range r.assigned {
		of = slices.DeleteFunc(of, func(a *Assigned) bool {
			if a.Table != "" || a == but {
				return false
			}
			if r.opts.Release != nil {
				r.opts.Release(*a)
			}
			return true
		})
		if r.assigned[oid] = of; len(of) == 0 {
			delete(r.assigned, oid)
		}
	}
}

// noEnd is behind every position.
const noEnd = ^pglogrepl.LSN(0)

func (r *Router) makePlan(ev *replication.Event) *plan {
	rel, relation := ev.Relation, ev.Relation.String()
	table, upTo := relation, pglogrepl.LSN(0)
	if r.opts.ParentTable != nil && len(r.opts.Tables) > 0 {
		var err error
		if table, upTo, err = r.opts.ParentTable(ev); err != nil {
			return &plan{rel: rel, relation: relation, upTo: noEnd, assigned: new(Assigned), err: err}
		}
	}
	p := new(plan)
	if one := r.named(table); one == nil {
		table = ""
	} else if made, err := one.relationPlan(rel, ev.XID); err != nil {
		p.err = err
	} else {
		p, made.rule = made, one
		p.setSource(table)
	}
	p.rel, p.relation, p.upTo, p.assigned = rel, relation, cmp.Or(upTo, noEnd), r.assign(ev, table)
	return p
}

// named gives the rule set of an outbox table; nil if there is none of this name.
func (r *Router) named(table string) *rule {
	if len(r.opts.Tables) == 0 {
		return r.rules[0]
	}
	return r.tables[table]
}

// assign continues what is remembered of a relation.
func (r *Router) assign(ev *replication.Event, table string) *Assigned {
	of := r.assigned[ev.Relation.OID]
	if n := len(of); n > 0 && of[n-1].Table == table {
		return of[n-1]
	}
	a := &Assigned{OID: ev.Relation.OID, Table: table, First: ev.LSN, Last: ev.LSN}
	r.assigned[a.OID] = append(of, a)
	return a
}

// Assigned gives what ParentTable has decided so far, without what went to Release.
func (r *Router) Assigned() (all []Assigned) {
	for _, of := range r.assigned {
		for _, a := range of {
			all = append(all, *a)
		}
	}
	return all
}
