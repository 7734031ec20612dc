package trace

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
)

const longestShown = 80 // of a value in a line

// Print writes the result for people. The first line is the answer.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintln(w, r.Answer)
	for _, line := range []struct{ name, text string }{{"why", r.Why}, {"next", r.Next}} {
		if line.text != "" {
			fmt.Fprintf(w, "  %-5s %s\n", line.name+":", terminal.IndentBy(line.text, "        "))
		}
	}
	if len(r.Events) > 0 && r.Key != "" {
		if err := r.printKey(w); err != nil {
			return err
		}
	} else {
		for _, e := range r.Events {
			if err := e.print(w, len(r.Events) > 1); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	r.printSlot(t)
	r.printSearched(t)
	for _, note := range r.Notes {
		fmt.Fprintf(t, "note\t%s\n", note)
	}
	return t.Flush()
}

// print writes one event, a fact in a line.
func (e *Event) print(w io.Writer, several bool) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, terminal.Printable(fmt.Sprintf(format, args...)))
	}
	if several {
		line("state", "%s", words[e.State])
		if e.Why != "" {
			line("why", "%s", e.Why)
		}
		if e.Next != "" {
			line("next", "%s", e.Next)
		}
	}
	if row := e.Row; row != nil {
		in := row.Table
		if row.Partition != "" {
			in += ", partition " + row.Partition
		}
		line("table", "%s, xid %d", in, row.XID)
		line("columns", "%s", columnsText(row.Columns))
	}
	e.printLegs(line)
	switch c := e.Commit; {
	case c.LSN != "" && c.Index != nil:
		line("position", "%s index %d%s", c.LSN, *c.Index, passedText(c.Passed))
	case c.LSN != "":
		line("position", "%s%s", c.LSN, passedText(c.Passed))
	case c.AtMost != "":
		line("position", "at most %s%s", c.AtMost, passedText(c.Passed))
	}
	if route := e.Route; route != nil && len(e.Records) == 0 && route.Topic != "" {
		line("routed to", "topic %s%s%s", route.Topic, partitionText(route.Partition),
			keyText(route.Key))
	}
	e.printRecords(line)
	return t.Flush()
}

func (e *Event) printLegs(line func(name, format string, args ...any)) {
	for _, l := range e.Legs {
		after := ""
		if l.Seconds != nil {
			after = signed(time.Duration(*l.Seconds*float64(time.Second))) + "  "
		}
		line(l.Name, "%s  %s%s", stamp(l.At), after, l.By)
	}
}

func (e *Event) printRecords(line func(name, format string, args ...any)) {
	for i, r := range e.Records {
		name := "record"
		if i > 0 {
			name = "again"
		}
		redriven := ""
		if r.Redriven != "" {
			redriven = ", redriven from dead letter " + r.Redriven
		}
		line(name, "topic %s, partition %d, offset %d%s, %s %s%s", r.Topic, r.Partition, r.Offset,
			keyText(r.Key), r.TimestampType, stamp(r.Timestamp), redriven)
	}
	for _, l := range e.Letters {
		state := "open"
		if l.Action != "" {
			state = l.Action + " at " + stamp(l.ResolvedAt)
		}
		line("dead letter", "%s, %s, since %s: %s", l.ID, state, stamp(l.At), l.Cause)
	}
	if e.Parked {
		line("parked", "the key has open dead letters")
	}
}

// printKey writes the events of a key, one in a line.
func (r *Result) printKey(w io.Writer) error {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATE\tCOMMITTED\tPOSITION\tTOPIC\tPARTITION\tOFFSET\tAFTER COMMIT")
	for _, e := range r.Events {
		topic, partition, offset, after := "-", "-", "-", "-"
		if len(e.Records) > 0 {
			first := e.Records[0]
			topic, partition = first.Topic, fmt.Sprint(first.Partition)
			offset = fmt.Sprint(first.Offset)
		} else if e.Route != nil {
			topic = terminal.OrDash(e.Route.Topic)
		}
		if n := len(e.Legs); n > 1 && e.Legs[n-2].Name == "committed" {
			after = short(e.Legs[n-1].At.Sub(e.Legs[n-2].At))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(e.ID), e.State,
			terminal.OrDash(stamp(e.Commit.Time)), terminal.OrDash(e.Commit.LSN), printable(topic),
			partition, offset, after)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, e := range r.Events {
		if e.Why != "" && !shown[e.Why] {
			shown[e.Why] = true
			fmt.Fprintf(w, "\n%s: %s\n", e.State, terminal.Printable(e.Why))
			if e.Next != "" {
				fmt.Fprintf(w, "  next: %s\n", terminal.IndentBy(e.Next, "        "))
			}
		}
	}
	if len(r.Events) > 1 {
		order := "in the order of their " + r.OrderedBy + "s"
		if r.OrderedBy == orderedByTransaction {
			order += ", in which those of concurrent transactions can be swapped"
		}
		fmt.Fprintf(w, "\n%s\n", order)
	}
	return nil
}

func (r *Result) printSlot(w io.Writer) {
	s := r.Slot
	switch {
	case s == nil:
		return
	case s.Problem != "":
		fmt.Fprintf(w, "slot\t%s %s\n", s.Name, s.Problem)
		return
	}
	reader := "no process reads it"
	if s.Active {
		reader = "in use"
	}
	if s.Relay != "" {
		reader += ", relay " + s.Relay
	}
	confirmed, _ := s.Confirmed.MarshalText()
	fmt.Fprintf(w, "slot\t%s, confirmed up to %s, %s behind, %s\n", s.Name, confirmed,
		slot.Size(float64(s.Behind)), reader)
}

func (r *Result) printSearched(w io.Writer) {
	for _, text := range r.Searched.Unreadable {
		fmt.Fprintf(w, "not read\t%s\n", terminal.OneLine(text))
	}
	where := "searched"
	add := func(format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", where, fmt.Sprintf(format, args...))
		where = ""
	}
	if len(r.Searched.Tables) > 0 {
		add("%s", strings.Join(r.Searched.Tables, ", "))
	}
	for _, l := range r.Searched.Topics {
		span := ""
		if !l.First.IsZero() {
			span = fmt.Sprintf(", of %s to %s", stamp(l.First), stamp(l.Last))
		}
		end := ""
		if !l.Complete {
			end = ": the limit of --max-read"
		}
		add("topic %s, partition %d, offsets %d to %d of %d, %d records%s%s", l.Topic, l.Partition,
			l.From, l.To, l.End, l.Records, span, end)
	}
	if r.Searched.DeadLetters != "" {
		add("dead letters in topic %s", r.Searched.DeadLetters)
	}
}

func columnsText(columns []Column) string {
	var parts []string
	for _, c := range columns {
		value := "NULL"
		if c.Value != nil {
			value = printable(*c.Value)
		}
		parts = append(parts, c.Name+"="+value)
	}
	return strings.Join(parts, " ")
}

func passedText(passed *bool) string {
	switch {
	case passed == nil:
		return ""
	case *passed:
		return ", the slot has passed it"
	}
	return ", the slot has not passed it"
}

func partitionText(partition *int32) string {
	if partition == nil {
		return ""
	}
	return fmt.Sprintf(", partition %d", *partition)
}

func keyText(key *string) string {
	if key == nil {
		return ""
	}
	return ", key " + printable(*key)
}

// printable is a value from a row in one short line.
func printable(text string) string {
	text = terminal.Printable(text)
	if runes := []rune(text); len(runes) > longestShown {
		return string(runes[:longestShown]) + "..."
	}
	return text
}

// stamp is a time for people; empty for zero.
func stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

// short is a duration with about three digits.
func short(d time.Duration) string {
	switch {
	case d.Abs() >= time.Minute:
		return d.Round(time.Second).String()
	case d.Abs() >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

func signed(d time.Duration) string {
	if d < 0 {
		return short(d)
	}
	return "+" + short(d)
}
