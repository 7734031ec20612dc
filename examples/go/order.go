package examples

import (
	"strconv"

	"github.com/postrider/postrider/outbox"
)

// Order is a row of the table orders.
type Order struct {
	ID    int64 `json:"id"`
	Total int64 `json:"total"` // in cents
}

// insertOrder is for those that write SQL by themselves.
const insertOrder = "INSERT INTO orders (id, total) VALUES ($1, $2)"

// created is the event that an order was placed.
func (o Order) created() outbox.Event {
	return outbox.Event{
		AggregateType: "order",
		AggregateID:   strconv.FormatInt(o.ID, 10),
		Type:          "OrderCreated",
		Payload:       o,
		Headers:       map[string]any{"tenant": "acme"},
	}
}
