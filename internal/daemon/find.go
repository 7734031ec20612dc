package daemon

import (
	"context"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// FindHandover reads the slot to the last event that Debezium published, without moving the slot.
func FindHandover(
	ctx context.Context, env Environment, cfg config.Config, last replication.LastEvent,
) (replication.Handover, error) {
	pg, isRow, err := rows(ctx, env, cfg)
	if err != nil {
		return replication.Handover{}, err
	}
	found, err := replication.FindHandover(
		ctx, pg, cfg.Replication, cfg.Slot.Name, last, isRow, zerolog.Nop())
	return found, postgres.Error(err)
}

// FindTransaction reads the slot to the transaction that commits at an LSN, without moving the
// slot.
func FindTransaction(
	ctx context.Context, env Environment, cfg config.Config, commit pglogrepl.LSN,
) (replication.Transaction, error) {
	pg, isRow, err := rows(ctx, env, cfg)
	if err != nil {
		return replication.Transaction{}, err
	}
	found, err := replication.FindTransaction(
		ctx, pg, cfg.Replication, cfg.Slot.Name, commit, isRow, zerolog.Nop())
	return found, postgres.Error(err)
}

// rows returns how to connect, and which events are rows or messages of the relay: those that the
// router of run routes. A row with an error is one of them.
func rows(ctx context.Context, env Environment, cfg config.Config) (
	*pgconn.Config, func(*replication.Event) bool, error,
) {
	// run logs the warnings about rows.
	p := NewPipeline(env, cfg, metrics.New(prometheus.NewRegistry(), cfg.Slot.Name), zerolog.Nop())
	if err := p.PrepareTables(ctx); err != nil {
		return nil, nil, err
	}
	r, err := p.NewRouter()
	if err != nil {
		return nil, nil, err
	}
	pg, err := postgres.ReplicationConfig(cfg.Postgres)
	return pg, func(ev *replication.Event) bool {
		m, err := r.Route(ev)
		return m != nil || err != nil
	}, err
}
