package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/snapshot"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// openTopics also reads the dead letters.
func (r *Recovery) openTopics(ctx context.Context) (err error) {
	r.letters = map[letter]struct{}{}
	if r.topics, err = r.parts.OpenTopics(ctx); err != nil {
		return err
	}
	if r.parts.DeadLetters == "" {
		return nil
	}
	_, err = r.topics.Read(ctx, r.parts.DeadLetters, time.Time{}, func(m *sink.Message) {
		if relation, id := r.parts.DeadLetter(m); id != "" {
			if table, isPartition := r.partitions[relation]; isPartition {
				relation = table
			}
			r.letters[letter{relation, id}] = struct{}{}
		}
	})
	return err
}

// compare reads the rows in question, and then looks for them in their topics.
func (r *Recovery) compare(ctx context.Context) error {
	for _, t := range r.tables {
		r.report.Tables = append(r.report.Tables, TableReport{Table: t.Name})
	}
	topics := map[string]bool{}
	parked := map[fingerprint]struct{}{} // rows of parked keys that are no dead letters
	err := r.rows(ctx, func(t int, row routed) error {
		report := &r.report.Tables[t]
		report.Rows++
		switch {
		case row.refusal != nil && r.dead(row):
			report.DeadLetters++
		case row.refusal != nil:
			report.Refused++
			if r.report.refused == nil {
				r.report.refused = row.refusal
			}
		case row.message == nil:
			report.NoMessage++
		default:
			topics[row.message.Topic] = true
			sum := snapshot.Fingerprint(row.message)
			r.candidates.add(sum)
			if r.parts.Parked != nil && !r.dead(row) && r.parts.Parked(row.message) {
				parked[sum] = struct{}{}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.candidates.seal()
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		if err := r.find(ctx, topic); err != nil {
			return err
		}
	}
	for sum := range parked {
		r.report.parked += r.candidates.missingOf(sum)
	}
	return nil
}

// find reads one topic.
func (r *Recovery) find(ctx context.Context, topic string) error {
	var since time.Time
	if !r.sel.Since.IsZero() {
		since = r.sel.Since.Add(-readMargin)
	}
	report := TopicReport{Topic: topic}
	r.parts.Say("reading topic %s", topic)
	var err error
	report.Whole, err = r.topics.Read(ctx, topic, since, func(m *sink.Message) {
		report.Records++
		r.candidates.saw(snapshot.Fingerprint(m))
	})
	r.report.Topics = append(r.report.Topics, report)
	return err
}

// pass goes through the rows once more, now that it is known which were delivered. p publishes the others; nil: nobody does.
func (r *Recovery) pass(ctx context.Context, p *publisher) error {
	undelivered := map[string]int64{}
	err := r.rows(ctx, func(t int, row routed) error {
		report := &r.report.Tables[t]
		switch {
		case row.refusal != nil, row.message == nil:
			return nil
		case r.candidates.take(snapshot.Fingerprint(row.message)):
			report.Delivered++
			return nil
		case r.dead(row):
			report.DeadLetters++
			return nil
		}
		report.undelivered(row, r.times[t])
		undelivered[row.message.Topic]++
		if p != nil {
			return p.add(ctx, row.message)
		}
		return nil
	})
	for i := range r.report.Topics {
		r.report.Topics[i].Undelivered = undelivered[r.report.Topics[i].Topic]
	}
	if err == nil && p != nil {
		err = p.flush(ctx)
	}
	return err
}

// dead: the row is a dead letter.
func (r *Recovery) dead(row routed) bool {
	_, dead := r.letters[letter{row.relation, row.id}]
	return dead
}

// routed is a row with what the router made of it: a message, none, or a refusal.
type routed struct {
	relation, id string
	table        *slot.Copied
	row          *slot.Row
	message      *sink.Message
	refusal      error
}

// rows gives every row in question, table by table, each in its order.
func (r *Recovery) rows(ctx context.Context, each func(t int, row routed) error) error {
	router, err := r.parts.Router()
	if err != nil {
		return err
	}
	for i, t := range r.tables {
		rows, err := t.Rows(ctx, r.conn, nil)
		if err != nil {
			return err
		}
		err = r.table(ctx, router, t, rows, func(row routed) error { return each(i, row) })
		if err := errors.Join(err, rows.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recovery) table(ctx context.Context, to *router.Router, t *slot.Copied, rows *slot.Rows, each func(routed) error) error {
	for n := uint32(0); ; n++ {
		row, err := rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, comes := r.inserted[row.ID]; comes {
			continue
		}
		out := routed{table: t, row: row}
		out.message, err = to.Route(&replication.Event{
			Kind: replication.Insert, Relation: t.Relation, Values: row.Values, LSN: r.consistent, Time: time.Now(), Index: n,
		})
		if refused := new(router.RowError); errors.As(err, &refused) {
			out.relation, out.id, out.refusal = refused.Relation, refused.EventID, err
		} else if err != nil {
			return fmt.Errorf("route a row of table %s: %w", t.Name, err)
		}
		if out.message != nil {
			out.relation, out.id = out.message.Origin.Relation, out.message.Origin.EventID
		}
		if err := each(out); err != nil {
			return err
		}
	}
}
