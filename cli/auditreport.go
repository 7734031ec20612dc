package cli

import (
	"fmt"
	"io"
	"strings"

	"postrider/audit"
)

// auditResult is the JSON of audit.
type auditResult struct {
	Result    string   `json:"result"` // clean, faults, or nothing audited
	Seconds   float64  `json:"seconds"`
	Written   []string `json:"written_to"` // tables, or the file
	Topics    []string `json:"topics"`
	OrderBy   string   `json:"order_by"`  // empty: no order was known, and none judged
	Isolation string   `json:"isolation"` // as a consumer's isolation.level
	audit.Report
}

const (
	auditClean   = "clean"
	auditFaults  = "faults"
	auditNothing = "nothing audited"
)

func (a *app) printAudit(asJSON bool, r auditResult) error {
	r.Result = auditFaults
	switch {
	case r.Report.Written == 0 && r.Phantom == 0:
		r.Result = auditNothing
	case r.Clean():
		r.Result = auditClean
	}
	if asJSON {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else {
		r.print(a.Stdout)
	}
	if r.Result != auditClean {
		return exitStatus(exitRuntime)
	}
	return nil
}

func (r *auditResult) print(w io.Writer) {
	fmt.Fprintf(w, "%s against %s\n\n", strings.Join(r.Written, ", "), strings.Join(r.Topics, ", "))
	for _, line := range []struct {
		name, text string
		count      int64
	}{
		{"written", "rows", r.Report.Written},
		{"delivered", "", r.Delivered},
		{"dead-lettered", "in the topic of dead letters, and nowhere else", r.DeadLettered},
		{"lost", "", r.Lost},
		{"duplicated", "records of rows that had arrived; longest run: " + fmt.Sprint(r.LongestRepeat), r.Duplicated},
		{"out of order", r.orderText(), r.OutOfOrder},
		{"torn replays", "repetitions that leave a row of their key out", r.TornReplays},
		{"phantom", "records of no row, or without an id", r.Phantom},
		{"torn transactions", "some rows arrived, some are lost", r.TornTransactions},
		{"partition changes", "keys in more than one partition of a topic", r.PartitionChanges},
	} {
		fmt.Fprintf(w, "%s\n", strings.TrimRight(fmt.Sprintf("%-18s %10d  %s", line.name, line.count, line.text), " "))
	}
	fmt.Fprintf(w, "\n%d records read", r.Records)
	if r.Passes > 1 {
		fmt.Fprintf(w, " in %d passes", r.Passes)
	}
	fmt.Fprintf(w, ", %s, in %.1f s", r.Isolation, r.Seconds)
	if r.NotJudged > 0 {
		fmt.Fprintf(w, "; %d rows not judged, and their records left aside", r.NotJudged)
	}
	fmt.Fprintln(w)
	for i := range r.Examples {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, exampleText(&r.Examples[i]))
	}
	fmt.Fprintf(w, "\n%s\n", r.sentence())
}

func (r *auditResult) orderText() string {
	if r.OrderBy == "" {
		return "not judged: no column tells the order; name one with --order-by"
	}
	return "rows behind a later one of their key, by " + r.OrderBy
}

func (r *auditResult) sentence() string {
	switch r.Result {
	case auditClean:
		return "clean: every row arrived exactly once" + map[bool]string{true: ", in order"}[r.OrderBy != ""] +
			map[bool]string{true: ", or is a dead letter"}[r.DeadLettered > 0]
	case auditNothing:
		return "nothing audited, nothing proven: there is no row"
	}
	return "not clean"
}

func exampleText(e *audit.Example) string {
	text := fmt.Sprintf("%-18s", strings.ReplaceAll(string(e.Kind), "_", " "))
	if e.Kind == audit.TornTransaction {
		return fmt.Sprintf("%s transaction %d: %d rows arrived, %d did not", text, e.Transaction, e.Arrived, e.Missing)
	}
	text += " id " + orNone([]string{e.ID})
	if e.KeyHash != "" {
		text += "  key hash " + e.KeyHash
	}
	if e.Topic != "" {
		text += fmt.Sprintf("  topic %s partition %d offset %d", e.Topic, e.Partition, e.Offset)
	}
	if e.Transaction != 0 {
		text += fmt.Sprintf("  transaction %d", e.Transaction)
	}
	return text
}
