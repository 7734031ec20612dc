package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Emitter writes events to one table. It may be used from any goroutine.
type Emitter struct {
	columns *columns
	insert  string
}

// New returns an emitter for a table. It asks no server: a table that does not have the columns is
// an error of the first Emit.
func New(cfg Config) (*Emitter, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("outbox: Config: %w", err)
	}
	c, err := newColumns(cfg)
	if err != nil {
		return nil, fmt.Errorf("outbox: Config: %w", err)
	}
	return &Emitter{columns: c, insert: insertSQL(c)}, nil
}

// standard is the emitter of Emit and Message, which never changes.
var standard = func() *Emitter {
	e, err := New(DefaultConfig())
	if err != nil {
		panic(err)
	}
	return e
}()

// Emit writes events to the table of DefaultConfig. See Emitter.Emit.
func Emit(ctx context.Context, tx any, events ...Event) error {
	return standard.Emit(ctx, tx, events...)
}

// Message writes events as logical messages with the members of DefaultConfig. See
// Emitter.Message.
func Message(ctx context.Context, tx any, prefix string, events ...Event) error {
	return standard.Message(ctx, tx, prefix, events...)
}

// Emit writes a row for each event, in their order, with one statement in the caller's
// transaction; the package's documentation says what tx can be. It takes one round trip, and none
// without events. The array that it sends can have 255 MB, and 190 MB if payloads are bytes.
//
// An event that cannot be written is refused before anything is sent. An error of the server says
// what to change, aborts the transaction, and leaves no event of this call.
func (e *Emitter) Emit(ctx context.Context, tx any, events ...Event) error {
	document := make([]byte, 0, typicalSize)
	err := e.each(ctx, events, func(_ Event, r row, payload []byte) error {
		var err error
		if document, err = r.appendJSON(append(document, `,{"row":`...)); err != nil {
			return err
		}
		if payload != nil {
			document = append(document, `,"payload":`...)
			document = appendPayload(document, e.columns.cfg.PayloadType, payload)
		}
		document = append(document, '}')
		return nil
	})
	if err != nil || len(events) == 0 {
		return err
	}
	if err := exec(ctx, tx, e.insert, array(document)); err != nil {
		return explain(fmt.Sprintf("insert into %s", e.columns.cfg.Table), err)
	}
	return nil
}

// Message writes a transactional logical message for each event, in their order, instead of a row:
// pg_logical_emit_message(true, prefix, ...) with a JSON object whose members are the columns. The
// relay publishes them if replication.messages has the prefix. They are in the WAL only: a lost
// slot loses them.
//
// tx, round trips and errors are as for Emit. The payload has to be text or JSON, and every column
// needs a value, since the router takes a member that is null for a column that does not exist.
func (e *Emitter) Message(ctx context.Context, tx any, prefix string, events ...Event) error {
	if prefix == "" {
		return errors.New("outbox: the prefix is empty: write one of replication.messages")
	}
	if err := validText("prefix", prefix); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	document := make([]byte, 0, typicalSize)
	err := e.each(ctx, events, func(ev Event, r row, payload []byte) error {
		var err error
		document, err = e.columns.appendMessage(append(document, ','), ev, r, payload)
		return err
	})
	if err != nil || len(events) == 0 {
		return err
	}
	if len(events) == 1 {
		err = exec(ctx, tx, messageSQL, prefix, string(document[1:]))
	} else {
		err = exec(ctx, tx, messagesSQL, prefix, array(document))
	}
	if err != nil {
		return explain(fmt.Sprintf("emit messages with prefix %q", prefix), err)
	}
	return nil
}

// typicalSize is the first size of what is sent: most calls have one small event.
const typicalSize = 1024

// array closes a JSON array of elements that each begin with a comma. It is written by hand since
// encoding/json would change the white space of payloads.
func array(elements []byte) string { return "[" + string(elements[1:]) + "]" }

// each completes the events and calls write with the columns of each, and its payload as it is
// stored.
func (e *Emitter) each(ctx context.Context, events []Event,
	write func(Event, row, []byte) error) error {
	now := time.Now()
	for i, ev := range events {
		ev, r, payload, err := e.prepare(ctx, ev, now)
		if err == nil {
			err = write(ev, r, payload)
		}
		if err != nil {
			return fmt.Errorf("outbox: event %d of %d: %w", i+1, len(events), err)
		}
	}
	return nil
}

func (e *Emitter) prepare(ctx context.Context, ev Event, now time.Time) (
	complete Event, r row, payload []byte, err error) {
	if err = e.columns.placed(ev); err != nil {
		return ev, nil, nil, err
	}
	if ev, err = ev.complete(now); err != nil {
		return ev, nil, nil, err
	}
	if r, err = e.columns.row(ctx, ev); err != nil {
		return ev, nil, nil, err
	}
	if e.columns.cfg.Envelope {
		payload, err = enveloped(ctx, ev)
	} else {
		payload, err = payloadBytes(e.columns.cfg.PayloadType, ev.Payload)
	}
	return ev, r, payload, err
}

func explain(doing string, err error) error {
	if hint := hintOf(err); hint != "" {
		return fmt.Errorf("outbox: %s: %w: %s", doing, err, hint)
	}
	return fmt.Errorf("outbox: %s: %w", doing, err)
}
