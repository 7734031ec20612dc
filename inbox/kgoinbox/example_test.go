package kgoinbox_test

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/kgoinbox"
)

// An invoice for each order, once.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	consumer := &inbox.Consumer[pgx.Tx]{Name: "billing", Begin: pool.Begin}
	err = kgoinbox.Run(ctx, consumer, func(ctx context.Context, tx pgx.Tx, record *kgo.Record) error {
		var order struct {
			ID    string      `json:"id"`
			Total json.Number `json:"total"`
		}
		if err := json.Unmarshal(record.Value, &order); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO invoices (id, total) VALUES ($1, $2)", order.ID, order.Total)
		return err
	},
		kgo.SeedBrokers(os.Getenv("KAFKA_BROKERS")),
		kgo.ConsumerGroup("billing"),
		kgo.ConsumeTopics("outbox.event.order"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // for relay.exactly_once
	)
	if err != nil {
		log.Fatal(err)
	}
}
