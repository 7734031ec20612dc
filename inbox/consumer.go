package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Consumer processes events, each in a transaction of its own. T is the type of its transactions.
// It may be used from several goroutines once its fields are set.
type Consumer[T any] struct {
	// Name is whose marks these are, such as the name of the consumer group. Each name has marks
	// of its own: another one processes all events again.
	Name string
	// Table is the inbox. The zero value is public.inbox.
	Table Table
	// Begin begins a transaction, such as Begin of a *pgxpool.Pool. Once says which types it may
	// return.
	Begin func(context.Context) (T, error)

	// IDHeader is the header of a record with the id of its event, the relay's router.header_id.
	// Empty: id, or ce_id where there is no id.
	IDHeader string
	// PositionIDs has a record without that header processed, with its topic, partition, offset and
	// time as the id. Only a repeated delivery of the same record is then recognised as a duplicate,
	// and not an event that the topic has twice. Otherwise such a record is an error.
	PositionIDs bool
	// NumericIDs takes ids that are numbers, which are refused otherwise: two tables have the same
	// ones, and so has a table whose sequence was restarted. An event with the id of another would
	// be taken for its duplicate, and be lost. Set it if all records are of one table whose ids
	// never begin again.
	NumericIDs bool
	// AnyAge leaves the time of records out: a record that is older than the window and has no mark
	// is processed, and not refused with ErrOutsideWindow. It is for a consumer that reads old
	// records for the first time. If it has processed them before, it processes them twice.
	AnyAge bool
}

// mostAttempts bounds how often a transaction is tried.
const mostAttempts = 10

// Process begins a transaction, calls handler unless the event is a duplicate, and commits.
//
// done is true if the transaction was committed and handler was called in it, and false for a
// duplicate, which is no error. After an error nothing was committed, or, if the error is that of
// the commit, it is not known; the inbox recognises the event when it is processed again.
//
// A transaction that the server ended for the sake of others (SQLSTATE 40001 and 40P01) is
// repeated up to ten times within about two seconds, and handler is called each time. It blocks
// until the transaction has ended, or ctx has.
func (c *Consumer[T]) Process(ctx context.Context, event Event,
	handler func(ctx context.Context, tx T) error) (done bool, err error) {
	pause := 5 * time.Millisecond
	for attempt := 1; ; attempt++ {
		done, err = c.try(ctx, event, handler)
		if err == nil || attempt == mostAttempts || !repeatable(err) {
			return done, err
		}
		select {
		case <-ctx.Done():
			return false, errors.Join(ctx.Err(), err)
		case <-time.After(pause + rand.N(pause)):
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
}

func (c *Consumer[T]) try(ctx context.Context, event Event,
	handler func(ctx context.Context, tx T) error) (done bool, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("begin the transaction of event %q: %w", event.ID, err)
	}
	done, err = c.Table.Once(ctx, tx, c.Name, event, func(ctx context.Context) error {
		return handler(ctx, tx)
	})
	transaction, unusable := transactionOf(tx)
	if unusable != nil {
		return false, unusable
	}
	if err != nil {
		rollback(ctx, transaction) // where an argument was refused; it was rolled back otherwise
		return false, err
	}
	if err := transaction.commit(ctx); err != nil {
		return false, fmt.Errorf("commit the transaction of event %q: %w", event.ID, err)
	}
	return done, nil
}
