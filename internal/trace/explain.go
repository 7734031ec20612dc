package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/internal/units"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
)

func (s *search) note(text string) { s.result.Notes = append(s.result.Notes, text) }

// explain fills the result from what was found. failed is why topics were not read.
func (s *search) explain(failed error) {
	r := &s.result
	r.ID, r.Events = s.ID, []*Event{}
	r.Searched.Tables = append([]string{}, r.Searched.Tables...) // [] in JSON, not null
	r.Searched.Topics = append([]TopicSearched{}, r.Searched.Topics...)
	if s.Key != nil {
		r.Key = *s.Key
	}
	if s.relay != nil && r.Slot != nil {
		r.Slot.Relay, r.Slot.Error = string(s.relay.State.Phase), s.relay.State.Error
	}
	updates, untimed := false, false
	for _, e := range s.events {
		slices.SortStableFunc(e.Records, func(a, b Record) int { // some were read from the end
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
		})
		s.fillCommit(e)
		e.Commit.Passed = s.passed(e)
		s.judge(e, failed)
		e.fillLegs()
		updates = updates || e.Row != nil && e.Row.Updates
		if n := len(e.Legs); n > 0 && e.State == Published {
			untimed = untimed || e.Legs[n-1].Name == "committed"
		}
	}
	if s.Key != nil {
		s.sortByCommit()
	}
	for _, e := range s.events {
		r.Events = append(r.Events, &e.Event)
	}
	if untimed {
		s.note("when it was published is not recorded: the topic has message.timestamp.type = " +
			"CreateTime, the time of the commit; with LogAppendTime brokers record it")
	}
	if updates {
		s.note("rows of the table are updated: a row has the xid, and maybe the commit time, of " +
			"its last update")
	}
	if s.Key == nil && len(s.events) > 1 {
		s.note("the id is not unique: records are matched by it, and by the key")
	}
	if r.More {
		s.note(fmt.Sprintf("only the %d newest rows are shown", maxRows))
	}
	s.summarize(failed)
}

// judge decides the state of an event, and why it is not published.
func (s *search) judge(e *event, failed error) {
	set := func(state State, why, next string) { e.State, e.Why, e.Next = state, why, next }
	switch l := e.last(); {
	case len(e.Records) > 0 || e.acknowledged != nil:
		e.State = Published
	case l != nil && l.Action == "":
		set(DeadLetter, fmt.Sprintf("dead letter %s since %s: %s (%s)", l.ID, stamp(l.At),
			cmp.Or(l.Error, l.Reason), l.Cause), "postrider deadletter redrive "+l.ID)
	case l != nil && l.Action == string(deadletter.Discarded):
		set(Discarded, fmt.Sprintf("dead letter %s was discarded at %s: %s", l.ID,
			stamp(l.ResolvedAt), cmp.Or(l.Error, l.Reason)), "")
	case e.Row == nil: // a letter that was redriven, of a row that was deleted
		set(Undecided, fmt.Sprintf("dead letter %s was redriven at %s to topic %s", l.ID,
			stamp(l.ResolvedAt), l.Topic),
			fmt.Sprintf("postrider trace %s --topic %s --since %s", terminal.ShellWord(e.ID),
				cmp.Or(l.Topic, "TOPIC"), l.ResolvedAt.Add(-clockMargin).UTC().Format(time.RFC3339)))
	case e.table.problem != "":
		set(NotPublished, e.table.problem, e.table.fix)
	case s.cfg.Sink.Kind == config.SinkKafka && s.index == nil && s.cfg.DeadLetter.On():
		s.judgeUnread(e, failed)
	case e.filtered:
		set(NotPublished, "skipped: the row filter of the publication does not match: "+
			e.table.filter, "")
	case e.refused != nil || e.size > s.cfg.Sink.Kafka.MaxMessageBytes:
		s.judgeRefused(e)
	case s.cfg.Sink.Kind != config.SinkKafka:
		set(Undecided, fmt.Sprintf("sink.kind is %q: there are no topics to look in",
			s.cfg.Sink.Kind), "")
	case s.topics == nil || s.topics.incomplete[e.topic]:
		s.judgeUnread(e, failed)
	default:
		s.judgeUnpublished(e)
	}
}

// judgeRefused is judge for a row that cannot be published as it is.
func (s *search) judgeRefused(e *event) {
	err := e.refused
	if err == nil {
		err = fmt.Errorf("%w: a record of %d bytes, and sink.kafka.max_message_bytes is %d",
			sink.ErrTooLarge, e.size, s.cfg.Sink.Kafka.MaxMessageBytes)
	}
	e.State = NotPublished
	what := err.Error()
	if row, ok := errors.AsType[*router.RowError](err); ok {
		what, e.Next = row.Err.Error(), row.Hint
	}
	if shape, ok := errors.AsType[*router.ShapeError](err); ok {
		e.Next = shape.Hint
	}
	cause, known := relay.CauseOf(err)
	if !known {
		e.Why = "the relay halts: " + what
		return
	}
	policy := s.cfg.DeadLetter.Policy(cause)
	rule := fmt.Sprintf("deadletter.%s = %q", cause, policy)
	switch {
	case policy == deadletter.Skip:
		e.Why = fmt.Sprintf("skipped by %s: %s", rule, what)
	case policy == deadletter.Halt:
		e.Why = fmt.Sprintf("the relay halts in front of it (%s): %s", rule, what)
	case e.Commit.Passed != nil && *e.Commit.Passed:
		e.Why = fmt.Sprintf("the slot has passed it, and topic %s has no dead letter of it (%s): %s",
			s.cfg.DeadLetter.Topic, rule, what)
	default:
		e.State = Waiting
		e.Why = fmt.Sprintf("%s; it will be a dead letter (%s): %s", s.whyWaiting(), rule, what)
	}
}

// judgeUnread is judge for a row whose topic was not read, or not to its end.
func (s *search) judgeUnread(e *event, failed error) {
	e.State = Undecided
	if failed != nil {
		e.Why = "whether it is published is not known: " + failed.Error()
		return
	}
	e.Why = fmt.Sprintf("it is not among the records of topic %s that were read, %s in all; %s",
		e.topic, units.FormatSize(s.MaxRead), s.whyWaiting())
	e.Next = fmt.Sprintf("postrider trace %s --max-read %s   # or --since TIME, a time before it "+
		"was published", s.arguments(), units.FormatSize(8*s.MaxRead))
}

// judgeUnpublished is judge for a row of which the topic has no record.
func (s *search) judgeUnpublished(e *event) {
	missing := s.topics.missing[e.topic]
	switch {
	case s.noSlot:
		e.State, e.Why = NotPublished, fmt.Sprintf("slot %q does not exist: nothing is relayed",
			s.cfg.Slot.Name)
		e.Next = "postrider recover   # which rows were not delivered, if it was dropped\n" +
			"postrider slot create"
	case e.Commit.Passed != nil && *e.Commit.Passed:
		s.judgePassed(e, missing)
	case s.slot.Lost():
		e.State, e.Next = NotPublished, "postrider recover"
		e.Why = fmt.Sprintf("slot %q is lost, and topic %s has no record of it", s.cfg.Slot.Name,
			e.topic)
	default:
		e.State, e.Why = Waiting, s.whyWaiting()
		switch {
		case missing && s.cfg.Sink.Kafka.Topics.Create:
		case missing:
			e.Why += fmt.Sprintf("; topic %s does not exist (deadletter.unknown_topic = %q)", e.topic,
				s.cfg.DeadLetter.Policy(deadletter.UnknownTopic))
			e.Next = kafka.CreateTopicCommand(s.cfg.Sink.Kafka, e.topic, len(s.cfg.Sink.Kafka.Brokers))
		case e.Parked:
			e.Why += "; its key is parked: it will follow the open dead letters of the key"
			e.Next = "postrider deadletter list"
		case !s.slot.Active:
			e.Next = "postrider status"
		}
	}
}

// judgePassed is judgeUnpublished for a row that the slot will not send any more.
func (s *search) judgePassed(e *event, missing bool) {
	e.State = NotPublished
	var reasons []string
	if s.topics.partial[e.topic] {
		reasons = append(reasons, "the record was removed: the topic lacks records by retention, "+
			"compaction or deletion")
	}
	if !s.cfg.Snapshot.On() {
		reasons = append(reasons, "the row is older than the slot, and snapshot.mode is off")
	}
	if e.table.updates {
		reasons = append(reasons, "an update has changed its id or its topic")
	}
	reasons = append(reasons, "the configuration had another topic, or another name for the header "+
		"of the id", "a policy of [deadletter] skipped it, or the publication did not have the table")
	topic := fmt.Sprintf("topic %s has no record of it", e.topic)
	if missing {
		topic = fmt.Sprintf("topic %s does not exist", e.topic)
	}
	e.Why = fmt.Sprintf("the slot has passed it, and %s. Either %s", topic,
		strings.Join(reasons, "; or "))
	e.Next = "postrider recover --id " + terminal.ShellWord(e.ID) +
		"   # a dry run; --publish publishes it"
}

// whyWaiting is what the relay is doing.
func (s *search) whyWaiting() string {
	behind := ""
	if s.result.Slot != nil {
		behind = fmt.Sprintf("slot %s is %s behind", s.cfg.Slot.Name,
			slot.Size(float64(s.result.Slot.Behind)))
	}
	switch {
	case s.relay != nil && s.relay.State.Error != "":
		return fmt.Sprintf("%s; the relay is %s: %s", behind, s.relay.State.Phase,
			s.relay.State.Error)
	case s.relay != nil:
		return fmt.Sprintf("%s; the relay is %s", behind, s.relay.State.Phase)
	case !s.slot.Active:
		return behind + ", and no process reads it: the relay does not run"
	}
	return behind + "; a process reads it"
}

// summarize makes the sentence that answers the request.
func (s *search) summarize(failed error) {
	r := &s.result
	what := fmt.Sprintf("event %s", printable(s.ID))
	if s.Key != nil {
		what = fmt.Sprintf("key %s", printable(*s.Key))
	}
	count := map[State]int{}
	for _, e := range r.Events {
		count[e.State]++
	}
	switch n := len(r.Events); {
	case n == 0:
		s.answerNothing(what, failed)
	case n == 1 && s.Key == nil:
		e := r.Events[0]
		r.State, r.Why, r.Next = e.State, e.Why, e.Next
		r.Answer = what + " " + e.answer()
	default:
		var parts []string
		for _, state := range []State{NotFound, Published, Waiting, Undecided, Discarded, DeadLetter,
			NotPublished} {
			if count[state] > 0 {
				r.State = state
				parts = append(parts, fmt.Sprintf("%d %s", count[state], words[state]))
			}
		}
		r.Answer = fmt.Sprintf("%s has %d events: %s", what, n, strings.Join(parts, ", "))
		if n == 1 {
			r.Answer = fmt.Sprintf("%s has 1 event, which is %s", what, words[r.State])
		}
	}
}

// words are the states for people.
var words = map[State]string{Published: "published", Waiting: "waiting to be published",
	DeadLetter: "in the dead-letter topic", Discarded: "discarded", NotPublished: "not published",
	Undecided: "not decided", NotFound: "not found"}

// answer is the rest of a sentence that begins with the event.
func (e *Event) answer() string {
	if e.State != Published {
		return "is " + words[e.State]
	}
	text := "is published: topic "
	if len(e.Records) > 0 {
		r := e.Records[0]
		text += fmt.Sprintf("%s, partition %d, offset %d", r.Topic, r.Partition, r.Offset)
	} else {
		text += e.Route.Topic
	}
	var committed time.Time
	for _, l := range e.Legs {
		switch l.Name {
		case "committed":
			committed = l.At
		case "appended", "acknowledged":
			if !committed.IsZero() {
				return text + fmt.Sprintf(", %s after its commit", short(l.At.Sub(committed)))
			}
		}
	}
	return text
}

// answerNothing is the answer where nothing was found: where it looked, and what that means.
func (s *search) answerNothing(what string, failed error) {
	r := &s.result
	r.State = NotFound
	if s.Topic == "" {
		s.whyNoRow(failed)
	} else {
		s.whyNoRecord(failed)
	}
	r.Answer = what + " is " + words[r.State]
}

// whyNoRecord is answerNothing for a search in one topic alone.
func (s *search) whyNoRecord(failed error) {
	r := &s.result
	switch {
	case failed != nil:
		r.State, r.Next = Undecided, exit.Explain(failed).Next
		r.Why = fmt.Sprintf("whether topic %s has it is not known: %v", s.Topic, failed)
		return
	case s.topics != nil && s.topics.missing[s.Topic]:
		r.Why = fmt.Sprintf("topic %s does not exist", s.Topic)
		r.Next = kafka.Command(s.cfg.Sink.Kafka, "kafka-topics.sh", "--list")
		return
	case s.topics == nil || s.topics.incomplete[s.Topic]:
		r.State, r.Why = Undecided, fmt.Sprintf("no record of topic %s that was read has it", s.Topic)
	default:
		r.Why = fmt.Sprintf("no record of topic %s from %s on has it", s.Topic, stamp(s.Since))
	}
	since := "24h"
	if time.Since(s.Since) > 23*time.Hour {
		since = "720h"
	}
	r.Next = fmt.Sprintf("postrider trace %s --topic %s --since %s --max-read %s", s.arguments(),
		s.Topic, since, units.FormatSize(8*s.MaxRead))
}

// whyNoRow is answerNothing for a search in the tables.
func (s *search) whyNoRow(failed error) {
	r := &s.result
	in := "no row of " + strings.Join(r.Searched.Tables, ", ") + " has it"
	if len(r.Searched.Unreadable) > 0 {
		in += ", and not all tables could be read"
	}
	if failed != nil {
		r.State, r.Next = Undecided, exit.Explain(failed).Next
		r.Why = fmt.Sprintf("%s, and whether a dead letter has it is not known: %v", in, failed)
		return
	}
	if r.Searched.DeadLetters != "" {
		in += ", and no dead letter"
	}
	r.Why = in + ". Its transaction is not committed yet, or was rolled back; or the row was " +
		"deleted: then a topic may have its record"
	r.Next = fmt.Sprintf("postrider trace %s --topic TOPIC --since 24h", s.arguments())
}

// arguments are those of the request, as typed.
func (s *search) arguments() string {
	if s.Key == nil {
		return terminal.ShellWord(s.ID)
	}
	text := "--key " + terminal.ShellWord(*s.Key)
	if s.AggregateType != "" {
		text += " --aggregate-type " + terminal.ShellWord(s.AggregateType)
	}
	return text
}

// Code is the exit code of a result: OK if it is published, Temporary if it waits.
func (r *Result) Code() int {
	switch r.State {
	case Published:
		return exit.OK
	case Waiting:
		return exit.Temporary
	}
	return exit.Runtime
}

// Redact removes what a page without a login does not show: keys and the values of columns.
func (r *Result) Redact() {
	for _, e := range r.Events {
		if e.Row != nil {
			for i := range e.Row.Columns {
				if e.Row.Columns[i].For != "id" {
					e.Row.Columns[i].Value = nil
				}
			}
		}
		if e.Route != nil {
			e.Route.Key = nil
		}
		for i := range e.Records {
			e.Records[i].Key = nil
		}
	}
}
