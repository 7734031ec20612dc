package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// notMeasured stands where there is no figure.
const notMeasured = "not measured"

// column of a table.
type column struct {
	title string
	cell  func(m *Measured) string
}

// WriteTables prints reports as Markdown, which reads well in a terminal too: median, and [least – greatest] of several runs.
func WriteTables(w io.Writer, reports ...*Report) {
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, r.Environment)
		r.section(w, "Drain", Drain, drainColumns)
		r.latencySection(w)
		r.section(w, "Idle", Idle, idleColumns)
		r.costSection(w)
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
	{"rows/s", figure("rows_per_second", func(r *Result) *float64 { return r.RowsPerSecond }, 1)},
	{"start to first record, ms", figure("start_to_first_seconds", func(r *Result) *float64 { return r.StartToFirstSeconds }, 1000)},
	{"start to last, s", figure("total_seconds", func(r *Result) *float64 { return r.TotalSeconds }, 1)},
}

var idleColumns = []column{
	{"other rows/s", func(m *Measured) string { return grouped(float64(m.Rate)) }},
	{"seconds", figure("seconds", func(r *Result) *float64 { return r.Seconds }, 1)},
	{"WAL written, MiB", figure("wal_bytes", func(r *Result) *float64 { return r.WALBytes }, mebi)},
	{"kept for the slot at the end, MiB", figure("retained_bytes", func(r *Result) *float64 { return r.RetainedBytes }, mebi)},
	{"at most, MiB", figure("retained_max_bytes", func(r *Result) *float64 { return r.RetainedMaxBytes }, mebi)},
	{"not confirmed at most, MiB", figure("lag_max_bytes", func(r *Result) *float64 { return r.LagMaxBytes }, mebi)},
	{"received, MiB", figure("received_bytes", func(r *Result) *float64 { return r.ReceivedBytes }, mebi)},
	{"relay CPU, ms/s", figure("cpu_per_second", func(r *Result) *float64 { return r.CPUPerSecond }, 1000)},
	{"walsender CPU, ms/s", figure("walsender_cpu_per_second", func(r *Result) *float64 { return r.WalsenderCPUPerSecond }, 1000)},
	{"first row afterwards, p50 ms", figure("latency_ms.p50", func(r *Result) *float64 { return r.LatencyMS.P50 }, 1)},
}

var costColumns = []column{
	{"workload", func(m *Measured) string { return m.String() }},
	{"relay CPU, s per million rows", figure("cpu_seconds_per_million", func(r *Result) *float64 { return r.RelayCPUPerM }, 1)},
	{"walsender", figure("walsender_cpu_seconds_per_million", func(r *Result) *float64 { return r.WalsenderCPUPerM }, 1)},
	{"broker", figure("broker_cpu_seconds_per_million", func(r *Result) *float64 { return r.BrokerCPUPerM }, 1)},
	{"allocations per row", figure("allocs_per_row", func(r *Result) *float64 { return r.AllocsPerRow }, 1)},
	{"bytes allocated per row", figure("alloc_bytes_per_row", func(r *Result) *float64 { return r.AllocBytesPerRow }, 1)},
	{"peak RSS, MiB", figure("max_rss_bytes", func(r *Result) *float64 { return r.MaxRSSBytes }, mebi)},
	{"produce requests", figure("produce_requests", func(r *Result) *float64 { return r.ProduceRequests }, 1)},
	{"their MB", figure("produce_bytes", func(r *Result) *float64 { return r.ProduceBytes }, 1e-6)},
}

const mebi = 1.0 / (1 << 20)

// figure is a cell with a median and its spread.
func figure(name string, of func(r *Result) *float64, factor float64) func(m *Measured) string {
	return func(m *Measured) string {
		v := of(&m.Result)
		if v == nil {
			return notMeasured
		}
		text := number(*v * factor)
		if spread, ok := m.Spread[name]; ok && m.Runs > 1 {
			text += fmt.Sprintf(" [%s – %s]", number(spread[0]*factor), number(spread[1]*factor))
		}
		return text
	}
}

func (r *Report) section(w io.Writer, title string, kind Kind, columns []column) {
	var cells [][]string
	for i := range r.Workloads {
		if m := &r.Workloads[i]; m.Kind == kind {
			cells = append(cells, line(columns, m))
		}
	}
	writeTable(w, title, titles(columns), cells)
}

func (r *Report) costSection(w io.Writer) {
	var cells [][]string
	for i := range r.Workloads {
		if m := &r.Workloads[i]; m.Kind != Idle {
			cells = append(cells, line(costColumns, m))
		}
	}
	writeTable(w, "Cost", titles(costColumns), cells)
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
		for _, way := range []struct {
			name, json string
			of         func(r *Result) *Latency
		}{
			{"intended time to consumer", "intended_latency_ms", func(r *Result) *Latency { return r.IntendedLatencyMS }},
			{"commit to consumer", "latency_ms", func(r *Result) *Latency { return r.LatencyMS }},
			{"commit to broker ack (histogram)", "ack_latency_ms", func(r *Result) *Latency { return r.AckLatencyMS }},
		} {
			cell := func(name string, of func(l *Latency) *float64) string {
				return figure(way.json+"."+name, func(r *Result) *float64 {
					if l := way.of(r); l != nil {
						return of(l)
					}
					return nil
				}, 1)(m)
			}
			cells = append(cells, []string{
				grouped(float64(m.Rate)), figure("written_per_second", func(r *Result) *float64 { return r.WrittenPerSecond }, 1)(m), way.name,
				cell("p50", func(l *Latency) *float64 { return l.P50 }), cell("p95", func(l *Latency) *float64 { return l.P95 }),
				cell("p99", func(l *Latency) *float64 { return l.P99 }), cell("p999", func(l *Latency) *float64 { return l.P999 }),
				cell("max", func(l *Latency) *float64 { return l.Max }),
			})
		}
		if m.NotCarried != "" {
			remarks = append(remarks, m.NotCarried)
		}
	}
	writeTable(w, "Latency", []string{"rows/s asked for", "written", "ms from", "p50", "p95", "p99", "p99.9", "max"}, cells)
	for _, remark := range remarks {
		fmt.Fprintf(w, "\n%s.\n", remark)
	}
}

// audit is one line when all is well, else one for each workload.
func (r *Report) audit(w io.Writer) {
	var written, delivered int64
	fmt.Fprintln(w)
	for i := range r.Workloads {
		m := &r.Workloads[i]
		written, delivered = written+m.Written, delivered+m.Delivered
		if !m.Clean() {
			fmt.Fprintf(w, "audit of %s: written %d, delivered %d, lost %d, duplicated %d, out of order %d, phantom %d, torn %d\n", m,
				m.Written, m.Delivered, m.Lost, m.Duplicated, m.OutOfOrder, m.Phantom, m.Partial)
		}
	}
	if r.Clean() {
		fmt.Fprintf(w, "audit: written %d, delivered %d, lost 0, duplicated 0, out of order 0\n", written, delivered)
	}
}

func titles(columns []column) (titles []string) {
	for _, c := range columns {
		titles = append(titles, c.title)
	}
	return titles
}

func line(columns []column, m *Measured) (cells []string) {
	for _, c := range columns {
		cells = append(cells, c.cell(m))
	}
	return cells
}

// writeTable prints nothing for a table without lines. Columns are aligned; the first is text.
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
			fmt.Fprintf(w, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
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
