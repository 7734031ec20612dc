package cli

import (
	"context"
	"errors"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
)

// openDesk reads the dead-letter topic, which a policy needs.
func (p *pipeline) openDesk(ctx context.Context, source sink.Source, begin pglogrepl.LSN) (deadletter.Desk, error) {
	log := p.component("deadletter")
	store, err := producer.OpenDeadLetters(ctx, p.cfg.Sink.Kafka, p.cfg.DeadLetter.Topic, "", log)
	if errors.Is(err, sink.ErrUnknownTopic) {
		return nil, &misfit{err}
	}
	if err != nil {
		return nil, err
	}
	r, err := p.newRouter()
	if err != nil {
		store.Close()
		return nil, err
	}
	keeper, err := deadletter.Open(ctx, deadletter.Options{
		Topic: p.cfg.DeadLetter.Topic, Store: store, Source: source, Confirmed: begin,
		Address: func(ev *replication.Event) (string, []byte, bool) { return r.Address(ev) },
		Metrics: p.metrics, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return keeper, nil
}
