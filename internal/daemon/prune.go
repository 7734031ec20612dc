package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
)

// lockWait is longer than a run takes that waits for the slot.
const lockWait = time.Minute

// Prune prunes the tables once. Errors are those of prune.Pruner.Once, and of a broker whose
// dead-letter topic cannot be read.
func Prune(ctx context.Context, env Environment, cfg config.Config, mode prune.Mode,
	log zerolog.Logger) (*prune.Report, error) {
	pruner, end := Unmeasured(env, cfg, log).newPruner(lockWait)
	defer end()
	return pruner.Once(ctx, mode)
}

// startPruner prunes while the relay streams, if [prune] is on, until stop ends or end is called.
func (d *Daemon) startPruner(stop context.Context) (end func()) {
	if !d.cfg.Prune.Enabled {
		return func() {}
	}
	pruner, closeLetters := d.pipeline.newPruner(0)
	ctx, cancel := context.WithCancel(stop)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pruner.Run(ctx, func() bool { return d.Relay.State().Phase == relay.Streaming })
	}()
	return func() {
		cancel()
		<-ended
		closeLetters()
	}
}

// newPruner returns a Pruner of the tables. end closes it.
func (p *Pipeline) newPruner(lockWait time.Duration) (pruner *prune.Pruner, end func()) {
	parts := prune.Parts{
		Postgres: p.Config.Postgres, Config: p.Config.Prune, Slot: p.Config.Slot.Name,
		Publication: p.Config.Replication.Publication, Metrics: p.metrics, Log: p.Component("prune"),
		LockWait: lockWait, Tables: p.Config.Sources(p.Config.Replication.Tables),
	}
	open := &openLetters{pipeline: p}
	parts.DeadLetters = open.rows
	pruner = prune.New(parts)
	return pruner, func() {
		pruner.Close()
		open.close()
	}
}

// openLetters reads which rows have open dead letters. It reads the topic once, and then what is
// new. It is for one goroutine.
type openLetters struct {
	pipeline *Pipeline
	store    *producer.DeadLetters // nil: not open
	index    *deadletter.Index
	system   string // identifier of the server; empty: not known
	missing  bool   // there is no topic, and no policy makes one
}

func (o *openLetters) close() {
	if o.store != nil {
		o.store.Close()
	}
	o.store = nil
}

// rows returns the ids of these rows by relation: of letters of this relay, and of others.
func (o *openLetters) rows(ctx context.Context) (own, foreign map[string][]string, err error) {
	entries, err := o.entries(ctx)
	own, foreign = openRows(entries, o.system, o.pipeline.Config.Slot.Name)
	return own, foreign, err
}

func openRows(entries []*deadletter.Entry, system, slotName string,
) (own, foreign map[string][]string) {
	own, foreign = map[string][]string{}, map[string][]string{}
	for _, e := range entries {
		if !e.Open() {
			continue
		}
		of := own
		if ofAnotherRelay([]byte(e.Source), system, slotName) {
			of = foreign
		}
		of[e.Relation] = append(of[e.Relation], e.EventID)
	}
	return own, foreign
}

// entries returns all dead letters. Also without a policy that makes them there may be earlier
// ones.
func (o *openLetters) entries(ctx context.Context) ([]*deadletter.Entry, error) {
	cfg := o.pipeline.Config
	if o.missing || cfg.Sink.Kind != config.SinkKafka {
		return nil, nil
	}
	err := o.read(ctx, cfg)
	switch {
	case errors.Is(err, sink.ErrUnknownTopic) && !cfg.DeadLetter.On():
		o.missing = true
		return nil, nil
	case err != nil:
		o.close()
		return nil, err
	case len(o.index.Unknown) > 0:
		return nil, o.index.Unknown[0]
	case o.store.Undecided():
		return nil, deadletter.ErrUndecided
	}
	return o.index.List(deadletter.Filter{All: true}), nil
}

func (o *openLetters) read(ctx context.Context, cfg config.Config) (err error) {
	if o.store != nil {
		return o.index.Update(ctx, 0)
	}
	if o.system, err = systemIdentifier(ctx, cfg.Postgres); err != nil {
		return err
	}
	broker := cfg.Sink.Kafka
	broker.Topics.Create = false
	o.store, err = producer.OpenDeadLetters(ctx, broker, cfg.DeadLetter.Topic, "",
		o.pipeline.Component("prune"))
	if err == nil {
		o.index, err = deadletter.Read(ctx, o.store)
	}
	return err
}
