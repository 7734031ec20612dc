// Package inbox processes each event once, although a topic delivers it at least once. The event
// is marked in the transaction in which its handler writes, so both are committed or neither is.
// A duplicate meets the mark, and its handler is not called.
//
// The table and its functions are those of sql/inbox.sql, in the database to which the handler
// writes. A duplicate is recognised for as many days as the script says, at least;
// docs/CONSUMING.md says what happens after that.
//
//	inbox.go        Once, and the table
//	transaction.go  transactions of pgx and of database/sql
//	errors.go       what an error of the server means here
//	consumer.go     Consumer: a transaction of its own for each event
//	record.go       which event the record of a topic is
//
// Packages kgoinbox and saramainbox below it are for consumers with franz-go and with sarama.
package inbox

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Event is what an inbox recognises.
type Event struct {
	// ID is what duplicates have in common: the header id of a record. 1 to 1,024 bytes of UTF-8
	// without NUL.
	ID string
	// Time at which the event came into being, or a later one at which no consumer can have
	// processed it yet: the timestamp of its record. With a time, an event is refused with
	// ErrOutsideWindow if it has no mark and is so old that its mark may have been removed. The
	// zero time is that of an event of any age, which is processed again if its mark was removed.
	Time time.Time
}

// Table is an inbox that has another name than the script gives it. The zero value is
// public.inbox.
type Table struct{ Schema, Name string }

// Once calls handler if consumer has not processed the event yet, in public.inbox. See
// Table.Once, which also takes the time of the event.
func Once(ctx context.Context, tx any, consumer, eventID string,
	handler func(context.Context) error) (done bool, err error) {
	return Table{}.Once(ctx, tx, consumer, Event{ID: eventID}, handler)
}

// Once marks the event for the consumer in tx and calls handler, which writes to tx. For a
// duplicate it returns without a call. The caller commits tx; only then is the event processed.
//
// done is true if handler was called and returned nil, and false for a duplicate, which is no
// error.
//
// tx is a pgx.Tx, a *sql.Tx, or what has their methods to query, commit and roll back. Anything
// else, such as a pool, is refused, because its mark would be committed without what handler
// writes.
//
// After an error, tx is rolled back and cannot be committed: a mark without what handler writes
// would lose the event. That is so for errors of handler, and when it panics. Only an argument
// that is refused leaves tx as it was. An error of handler is returned as it is.
//
// While another transaction has marked the event, Once waits until it ends, or until ctx does.
// It then returns false if that one was committed, and calls handler otherwise. It is correct at
// every isolation level. From REPEATABLE READ on, a mark that tx cannot see is an error with
// SQLSTATE 40001, after which the whole transaction is to be repeated, as after each such error.
//
// consumer is 1 to 255 bytes. Each has marks of its own: another name processes all events again.
func (t Table) Once(ctx context.Context, tx any, consumer string, event Event,
	handler func(context.Context) error) (done bool, err error) {
	transaction, err := transactionOf(tx)
	if err != nil {
		return false, err
	}
	if err := valid("the name of a consumer", consumer, 255); err != nil {
		return false, err
	}
	if err := valid("the id of an event", event.ID, 1024); err != nil {
		return false, err
	}
	usable := false
	defer func() { // handler can panic
		if !usable {
			rollback(ctx, transaction)
		}
	}()
	var at any
	if !event.Time.IsZero() {
		at = event.Time
	}
	fresh, err := transaction.mark(ctx, t.markSQL(), consumer, event.ID, at)
	if err != nil {
		return false, t.explain(err, consumer, event)
	}
	if fresh {
		if err := handler(ctx); err != nil {
			return false, err
		}
	}
	usable = true
	return fresh, nil
}

func (t Table) named() Table {
	if t.Schema == "" {
		t.Schema = "public"
	}
	if t.Name == "" {
		t.Name = "inbox"
	}
	return t
}

// String is the name as messages have it.
func (t Table) String() string { t = t.named(); return t.Schema + "." + t.Name }

// The types have their schema, and the function all its arguments: nothing else of that name is a
// better match, whatever the search_path.
func (t Table) markSQL() string {
	return "SELECT " + t.function("mark") +
		"($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.timestamptz)"
}

// function is one of those that the script names after the table.
func (t Table) function(suffix string) string {
	t = t.named()
	return pgx.Identifier{t.Schema, t.Name + "_" + suffix}.Sanitize()
}

func valid(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case len(s) > most:
		return fmt.Errorf("%s has %d bytes, and at most %d are possible: %q...", what, len(s), most,
			s[:40])
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return fmt.Errorf("%s is no text of UTF-8 without NUL: %q", what, s)
	}
	return nil
}
