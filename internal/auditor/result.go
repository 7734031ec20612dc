package auditor

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audit"
)

// Result is the JSON of audit.
type Result struct {
	Result  string   `json:"result"` // clean, faults, not proven, or nothing audited
	Seconds float64  `json:"seconds"`
	Written []string `json:"written_to"` // tables, or the file
	Topics  []string `json:"topics"`
	// OrderBy is what gives the order of commits: positions, slot NAME, line, or a column. Empty:
	// nothing does, and no order was judged.
	OrderBy   string `json:"order_by"`
	Isolation string `json:"isolation"` // as a consumer's isolation.level
	// NotFound are rows in no topic, where records of a topic were removed, or cannot be read behind
	// an open transaction: they do not count as lost.
	NotFound int64    `json:"not_found"`
	Removed  []string `json:"records_removed_from"` // topics
	Hidden   []string `json:"open_transactions_in"` // topics
	// records without a value and an id: not judged
	Tombstones int64 `json:"tombstones"`
	// TransactionsJudged: where a row is lost, the other rows of its transaction are known.
	TransactionsJudged bool `json:"torn_transactions_judged"`
	audit.Report

	claimed bool // the order is that of a column or a file, by the user's word
}

// The values of Result.Result.
const (
	Clean    = "clean"
	faults   = "faults"
	unproven = "not proven"
	nothing  = "nothing audited"
)

func newAuditResult(o Options, written writtenRows, topics *auditTopics, report audit.Report,
	took time.Duration) Result {
	r := Result{
		Seconds: took.Seconds(), Written: written.Names(), Topics: topics.names(),
		Removed: topics.removed, Hidden: topics.hidden, OrderBy: written.Order(),
		Isolation: o.Isolation, Report: report,
		claimed: written.Order() != "", TransactionsJudged: true, Tombstones: topics.tombstones,
	}
	switch {
	case r.claimed || r.OrderJudged == 0:
	case o.Slot != "":
		r.OrderBy = "slot " + o.Slot
	default:
		r.OrderBy = "positions"
	}
	if len(r.Removed)+len(r.Hidden) > 0 {
		r.NotFound, r.Lost = r.Lost, 0
		r.leaveOut(audit.Lost)
		if r.NotFound > 0 {
			r.judgeNoTransactions()
		}
	}
	switch {
	case r.Report.Written == 0 && r.Phantom == 0:
		r.Result = nothing
	case !r.Clean():
		r.Result = faults
	case r.NotFound > 0 || o.WantsOrder && r.OrderNotJudged > 0:
		r.Result = unproven
	default:
		r.Result = Clean
	}
	return r
}

// judgeNoTransactions is for rows whose inserting transaction is not known. The verdict stays: a
// partial transaction has a lost row.
func (r *Result) judgeNoTransactions() {
	r.TransactionsJudged, r.PartialTransactions = false, 0
	r.leaveOut(audit.PartialTransaction)
}

func (r *Result) leaveOut(kind audit.Kind) {
	r.Examples = slices.DeleteFunc(r.Examples,
		func(e audit.Example) bool { return e.Kind == kind })
}

// Print writes the result for people.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "%s against %s\n\n", strings.Join(r.Written, ", "),
		strings.Join(r.Topics, ", "))
	count := func(judged bool, n int64) string {
		if !judged {
			return "not judged"
		}
		return strconv.FormatInt(n, 10)
	}
	partial := r.TransactionsJudged || r.Lost+r.NotFound == 0 // without a lost row there is none
	partialText := "some rows arrived, some are lost"
	if !partial && r.NotFound == 0 {
		partialText = "rows were updated, which changes their xmin; " +
			"--transaction-column names a column that stays"
	}
	for _, line := range []struct{ name, count, text string }{
		{"written", count(true, r.Report.Written), "rows"},
		{"delivered", count(true, r.Delivered), ""},
		{"dead-lettered", count(true, r.DeadLettered),
			"in the topic of dead letters, and nowhere else"},
		{"lost", count(r.NotFound == 0, r.Lost), r.lostText()},
		{"duplicated", count(true, r.Duplicated),
			fmt.Sprintf("records of rows that had arrived; longest run: %d", r.LongestRepeat)},
		{"out of order", count(r.OrderJudged > 0 || r.OrderNotJudged == 0, r.OutOfOrder),
			r.orderText()},
		{"partial replays", count(true, r.PartialReplays),
			"repetitions that leave a row of their key out"},
		{"unexpected", count(true, r.Phantom), "records of no row, or without an id"},
		{"partial transactions", count(partial, r.PartialTransactions), partialText},
		{"partition changes", count(true, r.PartitionChanges), r.partitionText()},
	} {
		text := fmt.Sprintf("%-20s %10s  %s", line.name, line.count, line.text)
		fmt.Fprintln(w, strings.TrimRight(text, " "))
	}
	fmt.Fprintf(w, "\n%d records read", r.Records)
	if r.Passes > 1 {
		fmt.Fprintf(w, " in %d passes", r.Passes)
	}
	fmt.Fprintf(w, ", %s, in %.1f s", r.Isolation, r.Seconds)
	if r.Tombstones > 0 {
		fmt.Fprintf(w, "; %d tombstones without an id left aside", r.Tombstones)
	}
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

func (r *Result) lostText() string {
	if r.NotFound == 0 {
		return ""
	}
	text := fmt.Sprintf("%d rows are in no topic", r.NotFound)
	if len(r.Removed) > 0 {
		text += fmt.Sprintf("; %s does not hold all of its records any more (retention, compaction): "+
			"--since judges younger rows", strings.Join(r.Removed, ", "))
	}
	if len(r.Hidden) > 0 {
		text += fmt.Sprintf("; what follows an open transaction in %s cannot be read: audit again when "+
			"it has ended", strings.Join(r.Hidden, ", "))
	}
	return text
}

// orderText names the source of the order, and how much of it was judged.
func (r *Result) orderText() string {
	var by string
	switch {
	case r.OrderJudged == 0 && r.OrderNotJudged == 0:
		return "no row with a key arrived"
	case r.OrderJudged == 0:
		return "no record says when its row was committed; " +
			"router.position_headers does, --slot or --order-by can"
	case r.OrderBy == "line":
		by = "by the lines of the write log"
	case r.claimed:
		by = "by " + r.OrderBy + ", as --order-by says"
	case r.OrderBy == "positions":
		by = "by the position headers of the records"
	default:
		by = "by the WAL of " + r.OrderBy
	}
	text := "rows behind a later one of their key, " + by
	if r.OrderNotJudged > 0 {
		text += fmt.Sprintf("; %d rows not judged", r.OrderNotJudged)
	}
	return text
}

func (r *Result) partitionText() string {
	text := "keys in more than one partition of a topic"
	if r.KeysMoved > 0 {
		text += fmt.Sprintf("; not judged: %d more, which added partitions or a placement of "+
			"their own explain", r.KeysMoved)
	}
	return text
}

func (r *Result) sentence() string {
	order := "order not judged"
	switch {
	case r.OrderJudged == 0 && r.OrderNotJudged == 0:
		order = ""
	case r.OrderJudged > 0 && r.OrderNotJudged > 0:
		order = fmt.Sprintf("order judged of %d of %d rows", r.OrderJudged,
			r.OrderJudged+r.OrderNotJudged)
	case r.OrderJudged > 0:
		order = "in order"
	}
	switch r.Result {
	case Clean:
		text := "clean: every row arrived exactly once"
		if r.DeadLettered > 0 {
			text += ", or is a dead letter"
		}
		if order != "" {
			text += ", " + order
		}
		return text
	case nothing:
		return "nothing audited, nothing proven: there is no row"
	case unproven:
		if r.NotFound > 0 {
			why := "and may have been removed"
			if len(r.Hidden) > 0 {
				why = "and may follow an open transaction"
			}
			return fmt.Sprintf("not proven: %d rows are in no topic, %s", r.NotFound, why)
		}
		return "not proven: " + order
	}
	return "not clean"
}

// kindText is the name of a kind in text. The JSON keeps the names that scripts read.
func kindText(kind audit.Kind) string {
	switch kind {
	case audit.PartialReplay:
		return "partial replay"
	case audit.PartialTransaction:
		return "partial transaction"
	case audit.Phantom:
		return "unexpected"
	}
	return strings.ReplaceAll(string(kind), "_", " ")
}

func exampleText(e *audit.Example) string {
	text := fmt.Sprintf("%-20s", kindText(e.Kind))
	if e.Kind == audit.PartialTransaction {
		return fmt.Sprintf("%s transaction %d: %d rows arrived, %d did not", text, e.Transaction,
			e.Arrived, e.Missing)
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
