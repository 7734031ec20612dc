package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

const notMeasured = "not measured"

// column of a table.
type column struct {
	title string
	cell  func(m *Measured) string
}

// WriteTables prints reports as Markdown, with the columns aligned for a terminal: medians, and
// [least – greatest] of several runs.
func WriteTables(w io.Writer, reports ...*Report) {
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, r.Environment)
		r.section(w, "Drain", drainColumns, func(k Kind) bool { return k == Drain })
		r.latencySection(w)
		r.section(w, "Idle", idleColumns, func(k Kind) bool { return k == Idle })
		r.section(w, "Cost", costColumns, func(k Kind) bool { return k != Idle })
		r.audit(w)
	}
}

// String is one line.
func (e Environment) String() string {
	line := "postrider " + e.Version
	if e.Revision != "" {
		line += " (" + e.Revision[:min(12, len(e.Revision))] + ")"
	}
	line += ", PostgreSQL " + e.Postgres + ", Kafka " + e.Kafka
	line += fmt.Sprintf(", %s, %d cores", e.Platform, e.Cores)
	if e.CPU != "" {
		line += " of " + e.CPU
	}
	return line + ", " + e.Date.Format("2006-01-02")
}

var drainColumns = []column{
	{"rows per transaction", func(m *Measured) string { return m.txText() }},
	{"payload", func(m *Measured) string { return sizeText(m.Size) }},
	{"rows", func(m *Measured) string { return grouped(float64(m.Rows)) }},
	{"rows/s", figure("rows_per_second", 1)},
	{"start to first record, ms", figure("start_to_first_seconds", 1000)},
	{"start to last, s", figure("total_seconds", 1)},
}

var idleColumns = []column{
	{"other rows/s", func(m *Measured) string { return grouped(float64(m.Rate)) }},
	{"seconds", figure("seconds", 1)},
	{"WAL written, MiB", figure("wal_bytes", mebi)},
	{"kept for the slot at the end, MiB", figure("retained_bytes", mebi)},
	{"at most, MiB", figure("retained_max_bytes", mebi)},
	{"not confirmed at most, MiB", figure("lag_max_bytes", mebi)},
	{"received, MiB", figure("received_bytes", mebi)},
	{"relay CPU, ms/s", figure("cpu_per_second", 1000)},
	{"walsender CPU, ms/s", figure("walsender_cpu_per_second", 1000)},
	{"first row afterwards, p50 ms", figure("latency_ms.p50", 1)},
}

var costColumns = []column{
	{"workload", func(m *Measured) string { return m.String() }},
	{"relay CPU, s per million rows", figure("cpu_seconds_per_million", 1)},
	{"walsender", figure("walsender_cpu_seconds_per_million", 1)},
	{"broker", figure("broker_cpu_seconds_per_million", 1)},
	{"allocations per row", figure("allocs_per_row", 1)},
	{"bytes allocated per row", figure("alloc_bytes_per_row", 1)},
	{"peak RSS, MiB", figure("max_rss_bytes", mebi)},
	{"produce requests", figure("produce_requests", 1)},
	{"their MB", figure("produce_bytes", 1e-6)},
}

const mebi = 1.0 / (1 << 20)

// figure is a cell with the median of a figure, by its name in JSON, and its spread.
func figure(name string, factor float64) func(m *Measured) string {
	return func(m *Measured) string {
		v, ok := m.figures()[name]
		if !ok {
			return notMeasured
		}
		text := number(v * factor)
		if spread, ok := m.Spread[name]; ok && m.Runs > 1 {
			text += fmt.Sprintf(" [%s – %s]", number(spread[0]*factor), number(spread[1]*factor))
		}
		return text
	}
}

// section prints a table of the workloads that are wanted.
func (r *Report) section(w io.Writer, title string, columns []column, wanted func(Kind) bool) {
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	var cells [][]string
	for i := range r.Workloads {
		if m := &r.Workloads[i]; wanted(m.Kind) {
			line := make([]string, len(columns))
			for i, c := range columns {
				line[i] = c.cell(m)
			}
			cells = append(cells, line)
		}
	}
	writeTable(w, title, titles, cells)
}

// latencySection has a line for each rate and each way to measure.
func (r *Report) latencySection(w io.Writer) {
	var cells [][]string
	var remarks []string
	for i := range r.Workloads {
		m := &r.Workloads[i]
		if m.Kind != Rate {
			continue
		}
		for _, way := range [][2]string{
			{"intended time to consumer", "intended_latency_ms"},
			{"commit to consumer", "latency_ms"},
			{"commit to broker ack (histogram)", "ack_latency_ms"},
		} {
			line := []string{grouped(float64(m.Rate)), figure("written_per_second", 1)(m), way[0]}
			for _, quantile := range []string{"p50", "p95", "p99", "p999", "max"} {
				line = append(line, figure(way[1]+"."+quantile, 1)(m))
			}
			cells = append(cells, line)
		}
		if m.NotCarried != "" {
			remarks = append(remarks, m.NotCarried)
		}
	}
	titles := []string{"rows/s requested", "written", "ms from",
		"p50", "p95", "p99", "p99.9", "max"}
	writeTable(w, "Latency", titles, cells)
	for _, remark := range remarks {
		fmt.Fprintf(w, "\n%s.\n", remark)
	}
}

// audit prints one line when all rows are exact, else one for each workload that is not.
func (r *Report) audit(w io.Writer) {
	var written, delivered int64
	fmt.Fprintln(w)
	for i := range r.Workloads {
		m := &r.Workloads[i]
		written, delivered = written+m.Written, delivered+m.Delivered
		if !m.Clean() {
			fmt.Fprintf(w, "audit of %s: written %d, delivered %d, lost %d, duplicated %d, "+
				"out of order %d, unexpected %d, partial %d\n", m,
				m.Written, m.Delivered, m.Lost, m.Duplicated, m.OutOfOrder, m.Phantom, m.Partial)
		}
	}
	if r.Clean() {
		fmt.Fprintf(w, "audit: written %d, delivered %d, lost 0, duplicated 0, out of order 0\n",
			written, delivered)
	}
}

// writeTable prints nothing for a table without lines.
func writeTable(w io.Writer, title string, titles []string, cells [][]string) {
	if len(cells) == 0 {
		return
	}
	widths := make([]int, len(titles))
	for _, line := range append([][]string{titles}, cells...) {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	write := func(line []string) {
		for i, cell := range line {
			fmt.Fprintf(w, "| %s%s ", cell,
				strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w, "|")
	}
	fmt.Fprintf(w, "\n**%s**\n\n", title)
	write(titles)
	for _, width := range widths {
		fmt.Fprint(w, "|", strings.Repeat("-", width+2))
	}
	fmt.Fprintln(w, "|")
	for _, line := range cells {
		write(line)
	}
}

// number has three significant digits, and groups thousands.
func number(v float64) string {
	if v != 0 {
		unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
		v = math.Round(v/unit) * unit
	}
	switch magnitude := math.Abs(v); {
	case magnitude >= 100:
		return grouped(v)
	case magnitude >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func grouped(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
