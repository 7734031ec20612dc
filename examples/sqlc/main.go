// Places an order and emits its event in one transaction, with queries that sqlc generates.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"outbox-sqlc/db"
)

type orderPlaced struct {
	OrderID    string `json:"orderId"`
	Customer   string `json:"customer"`
	TotalCents int32  `json:"totalCents"`
}

var errPaymentRefused = errors.New("payment refused")

// placeOrder inserts an order and its event. The caller's transaction commits both or neither.
func placeOrder(ctx context.Context, queries *db.Queries, customer string, totalCents int32) (
	order, event pgtype.UUID, err error) {
	order, err = queries.InsertOrder(ctx, db.InsertOrderParams{
		Customer: customer, TotalCents: totalCents})
	if err != nil {
		return order, event, fmt.Errorf("insert the order: %w", err)
	}
	payload, err := json.Marshal(orderPlaced{order.String(), customer, totalCents})
	if err != nil {
		return order, event, err
	}
	event, err = queries.EmitEvent(ctx, db.EmitEventParams{
		AggregateType: "order",
		AggregateID:   order.String(),
		EventType:     "OrderPlaced",
		Payload:       payload,
		Headers:       []byte(`{"schema-version": "1"}`),
	})
	if err != nil {
		return order, event, fmt.Errorf("emit the event: %w", err)
	}
	return order, event, nil
}

func run(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var order, event pgtype.UUID

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		order, event, err = placeOrder(ctx, db.New(tx), "Zoë", 1250)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("placed", order, "event", event)

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if order, event, err = placeOrder(ctx, db.New(tx), "Zoë", 1250); err != nil {
			return err
		}
		return errPaymentRefused // rolls back the order and the event
	})
	if !errors.Is(err, errPaymentRefused) {
		return err
	}
	fmt.Println("rolled back", order, "event", event)
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
