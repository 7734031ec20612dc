package saramainbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"os/signal"

	"github.com/IBM/sarama"
	_ "github.com/jackc/pgx/v5/stdlib" // or another driver of PostgreSQL

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/saramainbox"
)

// An invoice for each order, once, with database/sql.
func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest // or a new group leaves out what is there
	config.Consumer.IsolationLevel = sarama.ReadCommitted // for relay.exactly_once
	group, err := sarama.NewConsumerGroup([]string{os.Getenv("KAFKA_BROKERS")}, "billing", config)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()

	consumer := &inbox.Consumer[*sql.Tx]{Name: "billing", Begin: func(ctx context.Context) (*sql.Tx, error) {
		return db.BeginTx(ctx, nil)
	}}
	err = saramainbox.Run(ctx, consumer, func(ctx context.Context, tx *sql.Tx, message *sarama.ConsumerMessage) error {
		var order struct {
			ID    string      `json:"id"`
			Total json.Number `json:"total"`
		}
		if err := json.Unmarshal(message.Value, &order); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO invoices (id, total) VALUES ($1, $2)", order.ID, string(order.Total))
		return err
	}, group, "outbox.event.order")
	if err != nil {
		log.Fatal(err)
	}
}
