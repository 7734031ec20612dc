package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// openTopics connects to the topics and reads the dead letters.
func (r *Recovery) openTopics(ctx context.Context) (err error) {
	if r.topics, err = r.parts.OpenTopics(ctx); err != nil || r.parts.DeadLetters == nil {
		return err
	}
	letters, err := r.parts.DeadLetters(ctx)
	if err != nil {
		return err
	}
	r.deadRows, r.renamed, r.parks = map[DeadRow]struct{}{}, map[string]string{}, letters.Parks
	for _, row := range letters.Rows {
		table, isPartition := r.partitions[row.Relation]
		switch {
		case isPartition:
			row.Relation = table
		// a logical message is in no table
		case !slices.Contains(r.Need.Tables, row.Relation) &&
			!strings.HasPrefix(row.Relation, "message:"):
			r.renamed[row.ID] = row.Relation
		}
		r.deadRows[row] = struct{}{}
	}
	return nil
}

// compare reads the selected rows, and then looks for them in their topics.
func (r *Recovery) compare(ctx context.Context) error {
	for i, t := range r.tables {
		report := TableReport{Table: t.Name}
		if r.sel.byTime() {
			report.TimeColumn = r.times[i]
		}
		r.report.Tables = append(r.report.Tables, report)
	}
	topics := map[string]time.Time{} // from when on they are read; zero: from their beginnings
	parked := map[digest]struct{}{}  // rows of parked keys, without dead letters
	renamed := map[digest]struct{}{} // rows that may have a dead letter under an earlier name
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
			since := r.since[t]
			if row.column(r.times[t]) == nil { // it may have been published at any time
				since = time.Time{}
			}
			topic := row.message.Topic
			if known, ok := topics[topic]; !ok || since.Before(known) {
				topics[topic] = since
			}
			sum := fingerprint(row.message)
			r.candidates.add(sum)
			if r.parks != nil && !r.dead(row) && r.parks(row.message) {
				parked[sum] = struct{}{}
			}
			if before := r.renamedFrom(row); before != "" {
				renamed[sum], r.report.renamedFrom = struct{}{}, before
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.candidates.seal()
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		if err := r.find(ctx, topic, topics[topic]); err != nil {
			return err
		}
	}
	for sum := range parked {
		r.report.parked += r.candidates.unmarkedOf(sum)
	}
	for sum := range renamed {
		r.report.renamed += int64(r.candidates.unmarkedOf(sum))
	}
	return r.countOvertaken(ctx)
}

// countOvertaken counts the rows that a topic without its older records does not have, though it
// has a later row of the same key. The slot delivers the rows of a key in the order of commits,
// which is almost that of the table: compaction, or retention, may have removed them.
func (r *Recovery) countOvertaken(ctx context.Context) error {
	lossy := map[string]*TopicReport{}
	for i := range r.report.Topics {
		if t := &r.report.Topics[i]; !t.Whole {
			lossy[t.Topic] = t
		}
	}
	if len(lossy) == 0 || r.candidates.unmarked() == 0 || r.sel.Partial || len(r.sel.IDs) > 0 {
		return nil
	}
	missing, table := map[digest]int64{}, 0 // rows of a table by topic and key
	return r.rows(ctx, func(t int, row routed) error {
		if t != table {
			missing, table = map[digest]int64{}, t // tables are read one after the other
		}
		if row.refusal != nil || row.message == nil || lossy[row.message.Topic] == nil ||
			row.message.Key == nil {
			return nil
		}
		key := fingerprint(&sink.Message{Topic: row.message.Topic, Key: row.message.Key})
		switch {
		case r.candidates.unmarkedOf(fingerprint(row.message)) == 0:
			lossy[row.message.Topic].overtaken += missing[key]
			delete(missing, key)
		case !r.dead(row):
			missing[key]++
		}
		return nil
	})
}

// find marks the candidates that are in a topic, of records since a time; zero: all.
func (r *Recovery) find(ctx context.Context, topic string, since time.Time) error {
	report := TopicReport{Topic: topic}
	r.parts.Say("reading topic %s", topic)
	extent, err := r.topics.Read(ctx, topic, since, func(m *sink.Message) {
		report.Records++
		r.candidates.mark(fingerprint(m))
	})
	report.Whole, report.Open = extent.Whole, extent.Open
	r.report.Topics = append(r.report.Topics, report)
	return err
}

// pass reads the rows again and counts which were delivered. It publishes the others by p; nil: it
// only counts them.
func (r *Recovery) pass(ctx context.Context, p *publisher) error {
	undelivered := map[string]int64{}
	err := r.rows(ctx, func(t int, row routed) error {
		report := &r.report.Tables[t]
		switch {
		case row.refusal != nil, row.message == nil:
			return nil
		case r.candidates.unmark(fingerprint(row.message)):
			report.Delivered++
			return nil
		case r.dead(row), r.sel.SkipRefused && r.renamedFrom(row) != "":
			report.DeadLetters++
			return nil
		}
		report.addUndelivered(row, r.times[t])
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

// dead reports whether the row is a dead letter.
func (r *Recovery) dead(row routed) bool {
	relation, id := row.origin()
	_, dead := r.deadRows[DeadRow{relation, id}]
	return dead
}

// renamedFrom returns the relation of a dead letter with the id of the row, if none of the tables
// has that name now; else nothing. The table may have been renamed, or be another one, whose ids
// are the same. Rows that are selected by their ids are meant.
func (r *Recovery) renamedFrom(row routed) string {
	if r.dead(row) || len(r.sel.IDs) > 0 {
		return ""
	}
	_, id := row.origin()
	return r.renamed[id]
}

// rows calls each with every selected row, table by table, in the order of each table.
func (r *Recovery) rows(ctx context.Context, each func(t int, row routed) error) error {
	to, err := r.parts.Router()
	if err != nil {
		return err
	}
	for i, t := range r.tables {
		rows, err := t.Rows(ctx, r.conn, nil)
		if err != nil {
			return err
		}
		err = r.table(ctx, to, rows, func(row routed) error { return each(i, row) })
		if err := errors.Join(err, rows.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recovery) table(ctx context.Context, to *router.Router, rows *Rows,
	each func(routed) error) error {
	for n := int64(0); ; n++ {
		row, err := r.next(ctx, rows, to, n)
		switch refused := new(router.RowError); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case row.refusal != nil && !errors.As(row.refusal, &refused):
			return fmt.Errorf("route a row of table %s: %w", rows.table.Name, row.refusal)
		}
		if err := each(row); err != nil {
			return err
		}
	}
}
