package daemon

import (
	"context"
	"errors"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
)

// openDeadLetters reads the dead-letter topic, which a policy needs.
func (p *Pipeline) openDeadLetters(ctx context.Context, source sink.Source,
	begin pglogrepl.LSN) (deadletter.Handler, error) {
	log := p.Component("deadletter")
	store, err := producer.OpenDeadLetters(ctx, p.Config.Sink.Kafka, p.Config.DeadLetter.Topic, "",
		log)
	if errors.Is(err, sink.ErrUnknownTopic) {
		return nil, &configError{err}
	}
	if err != nil {
		return nil, err
	}
	r, err := p.NewRouter()
	if err != nil {
		store.Close()
		return nil, err
	}
	tracker, err := deadletter.Open(ctx, deadletter.Options{
		Topic: p.Config.DeadLetter.Topic, Store: store, Source: source, Confirmed: begin,
		Address: func(ev *replication.Event) (string, []byte, bool) { return r.Address(ev) },
		Metrics: p.metrics, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return tracker, nil
}
