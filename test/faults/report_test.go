package faults

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	reportFile  = "../../docs/FAULTS.md"
	readmeFile  = "../../README.md"
	tableBegins = "<!-- faults: written by go test ./test/faults -long -->\n"
	tableEnds   = "<!-- /faults -->\n"
)

// entry is a line of docs/FAULTS.md: one test, or one subtest.
type entry struct{ test, result, written, lost, duplicated, disordered, figures, run string }

const entryHead = `| test | result | written | lost | duplicated | out of order | figures | run |
|---|---|---:|---:|---:|---:|---|---|
`

func (e entry) String() string {
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", e.test, e.result, e.written, e.lost, e.duplicated, e.disordered,
		strings.ReplaceAll(e.figures, "|", "/"), e.run)
}

// parseReport reads the lines back, by test. A missing file has none.
func parseReport(text string) map[string]entry {
	found := map[string]entry{}
	for line := range strings.Lines(text) {
		c := strings.Split(line, " | ")
		if len(c) != 8 || !strings.HasPrefix(line, "| `Test") {
			continue
		}
		e := entry{test: strings.Trim(c[0], "| `"), result: c[1], written: c[2], lost: c[3], duplicated: c[4], disordered: c[5], figures: c[6],
			run: strings.TrimSuffix(strings.TrimSpace(c[7]), " |")}
		found[e.test] = e
	}
	return found
}

// report is docs/FAULTS.md. names are the tests that there are.
func report(entries map[string]entry, names []string) string {
	var b strings.Builder
	b.WriteString(`# The fault matrix, as it was run

For those who want to know, before they trust the relay, which faults it was tested with. Each row
is a fault between a real PostgreSQL server and a real Kafka broker. It says what the fault may
cost, and what it cost in the last full run. The command of a row repeats that run; without
` + "`-long`" + ` it takes seconds, and CI runs all rows in this short form.
[GUARANTEES.md](GUARANTEES.md) says what is promised.

*Window* is what was in flight (1,000 messages in these tests) and what was acknowledged since the
last confirmed position. Every test also fails if an event comes out of order within its key, if
the events of one key are in different partitions, or if an event was published that its
transaction rolled back.

`)
	b.WriteString(summary(entries, names))
	b.WriteString(`
The tables below are written by ` + "`go test ./test/faults -long`" + `: it replaces the lines of the tests
that it ran and keeps the others. Each line has its date, the versions of the servers and the seed.
"passed, 20 of 200" says that the test struck 20 times, and 200 times is the full form.
*Duplicated* counts every record of an event after the first, over the whole test.
`)
	for _, r := range rows {
		fmt.Fprintf(&b, "\n## %d. %s\n\n- Lost: %s.\n- Duplicates: %s.\n", r.number, r.fault, r.lost, r.duplicates)
		if r.also != "" {
			fmt.Fprintf(&b, "- Also: %s.\n", strings.ReplaceAll(r.also, "; ", ".\n- Also: "))
		}
		fmt.Fprintf(&b, "\n```sh\n%s\n```\n\n", r.command())
		if lines := r.entries(entries); len(lines) > 0 {
			b.WriteString(entryHead)
			for _, e := range lines {
				b.WriteString(e.String())
			}
		} else {
			b.WriteString("Not run in full yet.\n")
		}
	}
	b.WriteString(hours)
	return b.String()
}

// hours is the last section. Its test is in another package, so that no run of this one has its results.
const hours = `
## Hours

What adds up slowly shows in no row above. ` + "`test/soak`" + ` has two relays on two slots of one outbox,
with a load that follows a daily curve, twelve days in one run. A seed decides the order of the
faults: each of the above that ends by itself, kills and restarts of brokers one after the other,
outages of minutes, pauses, reloads, pruning, changes of the schema, added partitions. One relay is
killed, frozen, paused and reloaded. The other is one process from the beginning to the end.

- Lost, out of order, published without a commit: 0.
- Duplicates: each is explained by a session that began at or below the position of the event, after
  the event was published first. The run prints the sessions, what ended the one before, and how
  many records each has repeated.
- Also: no line of the log, at level info and above, comes more than once a minute for one cause,
  unless another fault strikes.
- Also: of the process that is never killed, resident memory, goroutines, descriptors, connections
  to PostgreSQL and to brokers, and the distance of the slot have no slope that is distinguishable
  from zero (least squares over medians of 20 blocks without the first tenth, t test at 1 %).

` + "```sh\ngo test ./test/soak -v -duration 3h -timeout 0\n```" + `

CI runs it for a minute, with one broker, and prints the slopes without judging them.
`

func (r row) entries(all map[string]entry) (mine []entry) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if rowOf(name) == r.number {
			mine = append(mine, all[name])
		}
	}
	return mine
}

// summary is the table of the rows.
func summary(entries map[string]entry, names []string) string {
	var b strings.Builder
	b.WriteString("| | fault | lost | duplicates | last full run | `go test ./test/faults -long -timeout 0 -run` |\n|---:|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | `%s` |\n", r.number, r.fault, r.lost, r.duplicates, r.state(entries, names), r.prefix())
	}
	return b.String()
}

// state says in a few words what the last full run of a row has found. names are the tests that there are.
func (r row) state(entries map[string]entry, names []string) string {
	lines := r.entries(entries)
	if len(lines) == 0 {
		return "not yet"
	}
	var written, lost, duplicated, passed int
	state := ""
	for _, name := range names {
		ran := slices.ContainsFunc(lines, func(e entry) bool { return e.test == name || strings.HasPrefix(e.test, name+"/") })
		if rowOf(name) == r.number && !ran {
			state = ", in part"
		}
	}
	for _, e := range lines {
		var w, l, d int
		if _, err := fmt.Sscan(e.written, &w); err == nil {
			_, _ = fmt.Sscan(e.lost+" "+e.duplicated, &l, &d) // numbers, as the first
		}
		written, lost, duplicated = written+w, lost+l, duplicated+d
		switch {
		case e.result == "FAILED":
			return "**failed**"
		case e.result == "not run":
			state = ", in part"
		case strings.Contains(e.result, " of "):
			state, passed = ", in part", passed+1
		default:
			passed++
		}
	}
	switch {
	case passed == 0:
		return "not yet"
	case written == 0:
		return "passed" + state
	default:
		return fmt.Sprintf("%d of %d lost, %d repeated%s", lost, written, duplicated, state)
	}
}

// sentence is what README.md says of all rows.
func sentence(entries map[string]entry) string {
	var written, lost int64
	for _, e := range entries {
		var w, l int64
		if _, err := fmt.Sscan(e.written, &w); err == nil {
			_, _ = fmt.Sscan(e.lost, &l) // a number, as the first
		}
		written, lost = written+w, lost+l
	}
	return fmt.Sprintf("%d faults, from `kill -9` to a full disk, between a real PostgreSQL server and a real Kafka\n"+
		"broker: **%d of %.1f million events lost** in the last full runs.\n"+
		"[docs/FAULTS.md](docs/FAULTS.md) has each fault, with the command that repeats it.\n", len(rows), lost, float64(written)/1e6)
}

// withSummary puts the sentence into README.md.
func withSummary(readme, table string) (string, error) {
	before, rest, begins := strings.Cut(readme, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("README.md has no %q", strings.TrimSpace(tableBegins))
	}
	return before + tableBegins + "\n" + table + "\n" + tableEnds + after, nil
}

// writeReport brings docs/FAULTS.md and README.md up to what this run has found.
func writeReport(found map[string]*outcome) error {
	old, err := os.ReadFile(reportFile)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	entries := parseReport(string(old))
	for name, o := range found {
		if rowOf(name) != 0 && !o.isParent(found) {
			entries[name] = o.line()
		}
	}
	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		return err
	}
	names, err := tests()
	if err != nil {
		return err
	}
	text, err := withSummary(string(readme), sentence(entries))
	if err != nil {
		return err
	}
	if err := replaceFile(reportFile, report(entries, names)); err != nil {
		return err
	}
	return replaceFile(readmeFile, text)
}

// isParent tells whether subtests speak for the test.
func (o *outcome) isParent(all map[string]*outcome) bool {
	if len(o.verdicts) > 0 || len(o.figures) > 0 {
		return false
	}
	for name := range all {
		if strings.HasPrefix(name, o.test+"/") {
			return true
		}
	}
	return false
}

// replaceFile leaves the old file or the new one, whatever happens.
func replaceFile(path, text string) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func TestReport_IsReadBackAsItWasWritten(t *testing.T) {
	t.Parallel()
	e := entry{"TestFault07_X/18", "passed, 2 of 3", "100", "0", "7", "0", "3 s; a/b", "2026-01-02, PostgreSQL 18.6, seed 5, 3s"}
	failed := entry{"TestFault08_Y", "FAILED", "-", "-", "-", "-", "", "2026-01-02, , seed 5, 3s"}
	entries := map[string]entry{e.test: e, failed.test: failed}
	require.Equal(t, entries, parseReport(report(entries, nil)))
	require.Contains(t, summary(entries, nil), "| 0 of 100 lost, 7 repeated, in part | `TestFault07` |")
	require.Contains(t, summary(entries, nil), "| **failed** | `TestFault08` |")
	require.Contains(t, summary(entries, nil), "| not yet | `TestFault09` |")
}

func TestReport_IsWhatTheFrontPageShows(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(readmeFile)
	require.NoError(t, err)
	text, err := os.ReadFile(reportFile)
	require.NoError(t, err)
	entries := parseReport(string(text))
	exist, err := tests()
	require.NoError(t, err)
	for name := range entries {
		top, _, _ := strings.Cut(name, "/")
		require.Contains(t, exist, top, "docs/FAULTS.md has a test that does not exist")
	}
	require.Equal(t, report(entries, exist), string(text), "docs/FAULTS.md is not written by hand")
	wanted, err := withSummary(string(readme), sentence(entries))
	require.NoError(t, err)
	require.Equal(t, wanted, string(readme), "README.md does not show what docs/FAULTS.md says")
}
