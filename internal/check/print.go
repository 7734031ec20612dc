package check

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/terminal"
)

var severityColours = map[Severity]string{
	SeverityOK: "32", SeverityInfo: "36", SeverityWarning: "33", SeverityError: "31",
}

var severityAtStart = regexp.MustCompile(`(?m)^(ok|info|warning|error) `)

// Write writes a table of all findings in groups, and below it those that are not ok in full: SQL
// to copy fits in no column.
func Write(w io.Writer, findings []Finding, colour bool) error {
	var b strings.Builder
	findings = printable(findings)
	writeTable(&b, findings)
	counts := map[Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		if f.Severity != SeverityOK {
			writeFinding(&b, f)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d info, %d warning, %d error\n%s\n", counts[SeverityOK],
		counts[SeverityInfo], counts[SeverityWarning], counts[SeverityError],
		verdictOf(findings, counts))
	text := b.String()
	if colour { // after the columns are aligned
		text = severityAtStart.ReplaceAllStringFunc(text, func(s string) string {
			s = strings.TrimSpace(s)
			return "\x1b[" + severityColours[Severity(s)] + "m" + s + "\x1b[0m "
		})
	}
	_, err := io.WriteString(w, text)
	return err
}

// printable is findings that cannot command a terminal: they have names that others have given.
// A subject stays in its column. writeFinding does so for what has several lines.
func printable(findings []Finding) []Finding {
	findings = slices.Clone(findings)
	for i := range findings {
		findings[i].Subject = terminal.OneLine(findings[i].Subject)
	}
	return findings
}

// Widths of the columns, the same in each group. What is cut stands in full below the table.
const (
	severityWidth = len("warning")
	subjectWidth  = 34
	observedWidth = 100
)

func writeTable(b *strings.Builder, findings []Finding) {
	code, subject := len("CHECK"), len("SUBJECT")
	for _, f := range findings {
		code = max(code, len(f.Code))
		subject = min(subjectWidth, max(subject, len(subjectOf(f))))
	}
	row := func(cells ...string) {
		line := fmt.Sprintf("%-*s  %-*s  %-*s  %s",
			severityWidth, cells[0], code, cells[1], subject, cells[2], cells[3])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row("", "CHECK", "SUBJECT", "OBSERVED")
	before := ""
	for _, g := range checkGroups {
		heading := before + g.name + "\n"
		for _, f := range findings {
			if groupOf(f.Code) != g.name {
				continue
			}
			b.WriteString(heading)
			heading, before = "", "\n"
			observed := terminal.OneLine(f.Observed)
			if r := []rune(observed); len(r) > observedWidth && f.Severity != SeverityOK {
				observed = string(r[:observedWidth-1]) + "…"
			}
			row(string(f.Severity), f.Code, subjectOf(f), observed)
		}
	}
}

// subjectOf leaves out a subject that repeats the code, as that of a setting does.
func subjectOf(f Finding) string {
	if f.Subject == f.Code {
		f.Subject = ""
	}
	return terminal.OrDash(f.Subject)
}

// title is code and subject.
func title(f Finding) string {
	return strings.TrimSuffix(f.Code+" "+subjectOf(f), " "+terminal.OrDash(""))
}

func writeFinding(b *strings.Builder, f Finding) {
	fmt.Fprintf(b, "\n%s %s\n", f.Severity, title(f))
	for _, line := range []struct{ name, text string }{
		{"observed:", f.Observed}, {"required:", f.Required}, {"WAL:", f.WAL}, {"fix:", f.Fix},
		{"see:", f.Docs},
	} {
		if line.text != "" {
			fmt.Fprintf(b, "  %-9s %s\n", line.name, terminal.IndentBy(line.text, "            "))
		}
	}
}

// verdictOf is the last line, in the words of the status.
func verdictOf(findings []Finding, counts map[Severity]int) string {
	first := func(s Severity) Finding {
		return findings[slices.IndexFunc(findings, func(f Finding) bool { return f.Severity == s })]
	}
	switch {
	case counts[SeverityError] > 0:
		f := first(SeverityError)
		return fmt.Sprintf("%s: %s: %s", health.Failing, title(f), terminal.OneLine(f.Observed))
	case counts[SeverityWarning] > 0:
		f := first(SeverityWarning)
		return fmt.Sprintf("%s: nothing keeps the relay from starting; the first warning: %s",
			health.Degraded, title(f))
	}
	return health.OK + ": nothing keeps the relay from starting"
}

// checkGroup is a part of the output of check, and of docs/CHECK.md.
type checkGroup struct {
	name  string
	codes []string
}

// checkGroups are in the order of the output. A code in none of them belongs to Slot, as those of
// conditions do.
var checkGroups = []checkGroup{
	{"This process", []string{
		"configuration", "memory", "file_descriptors", "http_listen", "admin_listen",
		"admin_token", "alerts_command", "alerts_webhook",
	}},
	{"PostgreSQL", []string{
		"connection", "pooler", "tls", "server_version", "wal_level", "primary", "role",
		"role_connection_limit", "role_valid_until", "max_wal_senders", "replication_connection",
		"wal_sender_timeout", "physical_replication", "output_plugin_libraries", "clock",
	}},
	{"Publication and tables", []string{
		"publication", "publication_tables", "publication_publish", "emit_message", "table",
		"partitions", "row_filter", "column_list", "columns", "columns_nullable",
		"generated_columns", "primary_key", "replica_identity", "snapshot", "rows", "outbox_size",
		"outbox_dead_rows", "outbox_autovacuum", "write_back",
	}},
	{"Slot", []string{
		"slot", "slot_position", "slot_holder", "slot_failover", "publication_before_slot",
		"max_replication_slots", "max_slot_wal_keep_size", "idle_replication_slot_timeout",
		"synchronous_standby_names", "synchronized_standby_slots", "standby_copies",
		"hot_standby_feedback", "transactions", "catalog_xmin", "monitor_rights",
	}},
	{"Kafka", []string{
		"kafka", "broker", "kafka_tls", "kafka_acl", "producer_id", "registry", "kafka_transactions",
		"topics",
		"topic", "topic_permission", "topic_leader", "topic_replicas", "topic_size",
		"topic_timestamp", "topic_cleanup", "topic_compression", "snapshot_topic",
		"position_topic", "message_size",
	}},
}

func groupOf(code string) string {
	for _, g := range checkGroups {
		if slices.Contains(g.codes, code) {
			return g.name
		}
	}
	return "Slot"
}
