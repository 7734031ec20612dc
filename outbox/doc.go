// Package outbox writes events to an outbox table, in the transaction that makes the change:
//
//	err := outbox.Emit(ctx, tx, outbox.Event{
//		AggregateType: "order", AggregateID: "17", Type: "OrderCreated", Payload: order,
//	})
//
// Both are committed, or neither is. postrider reads the row from the WAL after the commit and
// publishes it to Kafka.
//
// tx is any of pgx.Tx, *sql.Tx, and what has the ExecContext of *sql.Tx, such as a transaction of
// sqlx or ent. GORM has it in tx.Statement.ConnPool, Bun in the field Tx of bun.Tx. With a
// *pgx.Batch the events are queued and have no round trip of their own; errors of the server then
// come with the results of the batch.
//
// A call sends one statement, whose text is the same for any number of events: drivers that cache
// prepared statements prepare it once. It needs INSERT on the table and no other right. Either all
// events of a call are written or none. An error of the server aborts the transaction, as that of
// any statement does; an error that is found before leaves the transaction as it was.
//
//	event.go      Event
//	config.go     Config: the table and its columns, under the option names of [router]
//	columns.go    which part of an event goes to which column
//	row.go        the columns of an event as JSON
//	emitter.go    Emitter, Emit and Message
//	statement.go  the SQL
//	transaction.go  what the SQL is sent with
//	payload.go    how a payload is written
//	envelope.go   the JSON around a payload, on demand
//	trace.go      the trace of the context
//	errors.go     what an error of the server means
package outbox
