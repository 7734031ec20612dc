package auditor

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/terminal"
)

// compareResult is the JSON of audit compare.
type compareResult struct {
	Result        string   `json:"result"` // equal, different, or nothing compared
	Seconds       float64  `json:"seconds"`
	PublishPrefix string   `json:"publish_prefix"` // empty: nothing was published
	Topics        []string `json:"topics"`         // read, of the other relay
	audit.CompareReport
}

// The values of compareResult.Result.
const (
	ResultEqual     = "equal"
	resultDifferent = "different"
	resultNothing   = "nothing compared"
)

// result returns what has been found until now.
func (c *comparing) result() *compareResult {
	r := &compareResult{
		Result: resultDifferent, Seconds: time.Since(c.began).Seconds(),
		PublishPrefix: c.options.Prefix, Topics: c.follower.Topics(),
		CompareReport: c.comparison.Report(),
	}
	switch {
	case r.Same():
		r.Result = ResultEqual
	case r.Compared == 0:
		r.Result = resultNothing
	}
	return r
}

// Print writes the result for people.
func (r *compareResult) Print(w io.Writer) {
	fmt.Fprintf(w, "compared %d events in %.0f s: %d equal, %d differing\n", r.Compared, r.Seconds,
		r.Equal, r.Differing)
	for _, member := range slices.Sorted(maps.Keys(r.Members)) {
		fmt.Fprintf(w, "  %-30s %d\n", member, r.Members[member])
	}
	for _, line := range []struct {
		count int64
		text  string
	}{
		{r.OnlyPostrider,
			"events only from postrider: the other relay did not publish them in time"},
		{r.OnlyOther, "events only from the other relay"},
		{r.Duplicated, "duplicates from the other relay"},
		{r.OutOfOrder, "events in another order than others of their key"},
		{r.Late, "events not compared: the other relay published them later than --settle; " +
			"raise it"},
		{r.GivenUp, "messages not compared: no room to wait for their other side (raise " +
			"--max-waiting), or ended before --settle"},
		{r.LeftAside, "messages of the other relay left aside: rows from before the beginning"},
		{r.Clocks, "timestamps not compared: they are the clock's (no " +
			"router.table.field.event.timestamp)"},
		{r.NoPartition, "partitions not compared: no key, or no topic of the other relay"},
	} {
		if line.count > 0 {
			fmt.Fprintf(w, "%d %s\n", line.count, line.text)
		}
	}
	for i := range r.Differences {
		printDifference(w, &r.Differences[i])
	}
	if more := r.Differing - int64(len(r.Differences)); more > 0 && len(r.Differences) > 0 {
		fmt.Fprintf(w, "\n%d more differing events; --max-differences shows them\n", more)
	}
	for i := range r.Unmatched {
		printUnmatched(w, &r.Unmatched[i])
	}
	for i, h := range r.Hints {
		if i == 0 {
			fmt.Fprintf(w, "\nwhat may make them equal:\n")
		}
		fmt.Fprintf(w, "  %6d  %s\n", h.Count, h.Text)
	}
	fmt.Fprintf(w, "\n%s\n", r.sentence())
}

func (r *compareResult) sentence() string {
	switch {
	case r.Result == ResultEqual:
		return fmt.Sprintf("equal: %d events, byte for byte", r.Compared)
	case r.Result == resultDifferent:
		return "different"
	case r.Postrider == 0 && r.Other == 0:
		return "nothing compared, nothing proven: no row was committed to the outbox meanwhile"
	case r.Other == 0:
		return "nothing compared, nothing proven: the other relay published nothing to " +
			orNone(r.Topics)
	}
	return "nothing compared, nothing proven: no event came from both sides; topics read: " +
		orNone(r.Topics)
}

func orNone(topics []string) string {
	if len(topics) == 0 {
		return "any topic that was read"
	}
	return strings.Join(topics, ", ")
}

func printDifference(w io.Writer, d *audit.Difference) {
	fmt.Fprintf(w, "\nevent %s  %s  %s  topic %s partition %d offset %d\n", d.EventID, d.LSN,
		d.Table, d.Topic, d.Partition, d.Offset)
	for _, m := range d.Members {
		fmt.Fprintf(w, "  %s, byte %d\n    postrider  %s\n    other      %s\n", m.Name, m.At,
			m.Ours, m.Theirs)
		if m.Hint != "" {
			fmt.Fprintf(w, "    hint       %s\n", m.Hint)
		}
	}
}

func printUnmatched(w io.Writer, u *audit.Unmatched) {
	where := fmt.Sprintf("%s  %s  topic %s", u.LSN, u.Table, u.Topic)
	if u.Side == "other" {
		where = fmt.Sprintf("topic %s partition %d offset %d", u.Topic, u.Partition, u.Offset)
	}
	fmt.Fprintf(w, "\nonly %s: event %s  %s\n  key    %s\n  value  %s\n",
		strings.Replace(u.Side, "other", "other relay", 1), u.EventID, where, u.Key, u.Value)
}

func compareStarted(show *terminal.Progress, o CompareOptions) {
	where := "nothing is published"
	if o.Prefix != "" {
		where = "published to " + o.Prefix + "TOPIC"
	}
	show.Say("comparing rows that are committed from now on; " + where)
	if o.Rows == 0 && o.Duration == 0 {
		show.Say("Ctrl-C stops and reports")
	}
}

func compareProgress(elapsed time.Duration, r *audit.CompareReport, settling bool) string {
	line := fmt.Sprintf("%4.0f s  compared %d  equal %d  differing %d  waiting %d  only "+
		"postrider %d  only other %d", elapsed.Seconds(),
		r.Compared, r.Equal, r.Differing, r.Waiting, r.OnlyPostrider, r.OnlyOther)
	if r.GivenUp > 0 {
		line += fmt.Sprintf("  given up %d", r.GivenUp)
	}
	if settling {
		line += "  settling"
	}
	return line
}
