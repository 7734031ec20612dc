package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoID is of a record that does not have the id of its event in a header.
var ErrNoID = errors.New("the record has no id")

// ErrNumericID is of a record whose id other events can have, too. See Consumer.NumericIDs.
var ErrNumericID = errors.New("the id is a number, which is unique in one table only, and until " +
	"its sequence is restarted: write UUIDs, or set NumericIDs if there is one table")

// Record is what the inbox needs of the record of a topic, with whichever client it was read.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Time      time.Time
	// Header returns the value of the first header of a name, and whether there is one.
	Header func(name string) (value []byte, found bool)
}

// ProcessRecord is Process for the event of a record. Errors name its topic, partition and
// offset. The offset may be committed once ProcessRecord has returned without an error, and not
// before.
func (c *Consumer[T]) ProcessRecord(ctx context.Context, record Record,
	handler func(ctx context.Context, tx T) error) (done bool, err error) {
	event, err := c.event(record)
	if err == nil {
		done, err = c.Process(ctx, event, handler)
	}
	if err != nil {
		return false, fmt.Errorf("process %s, partition %d, offset %d: %w", record.Topic,
			record.Partition, record.Offset, err)
	}
	return done, nil
}

func (c *Consumer[T]) event(record Record) (Event, error) {
	event := Event{Time: record.Time}
	if c.AnyAge {
		event.Time = time.Time{}
	}
	names := []string{c.IDHeader}
	if c.IDHeader == "" {
		names = []string{"id", "ce_id"} // of the relay, and of CloudEvents
	}
	for _, name := range names {
		if value, found := record.Header(name); found {
			event.ID = string(value)
			if !c.NumericIDs && isNumber(event.ID) {
				return Event{}, fmt.Errorf("id %q: %w", event.ID, ErrNumericID)
			}
			return event, nil
		}
	}
	if !c.PositionIDs {
		return Event{}, fmt.Errorf("%w in header %q: set IDHeader to the header that has it, or "+
			"PositionIDs for records without one", ErrNoID, names[0])
	}
	// The offsets of a topic that is created again begin anew; the time tells its records apart.
	event.ID = fmt.Sprintf("%s-%d-%d-%d", record.Topic, record.Partition, record.Offset,
		record.Time.UnixMilli())
	return event, nil
}

// isNumber reports whether an id is digits alone, with or without a sign.
func isNumber(id string) bool {
	digits := strings.TrimPrefix(id, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}
