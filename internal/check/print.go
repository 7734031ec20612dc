package check

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
)

// checkGroup is a part of what check prints, and of docs/CHECK.md.
type checkGroup struct {
	name  string
	codes []string
}

// checkGroups are in the order in which they are printed; a code that stands in none is one of the server's slots: the conditions are.
var checkGroups = []checkGroup{
	{"This process", []string{"configuration", "memory", "file_descriptors", "http_listen", "admin_listen", "admin_token", "alerts_command", "alerts_webhook"}},
	{"PostgreSQL", []string{"connection", "pooler", "tls", "server_version", "wal_level", "primary", "role", "role_connection_limit", "role_valid_until",
		"max_wal_senders", "replication_connection", "wal_sender_timeout", "physical_replication", "output_plugin_libraries", "clock"}},
	{"Publication and tables", []string{"publication", "publication_tables", "publication_publish", "emit_message", "table", "partitions", "row_filter",
		"column_list", "columns", "columns_nullable", "generated_columns", "primary_key", "replica_identity", "snapshot", "rows", "outbox_size", "outbox_dead_rows",
		"outbox_autovacuum"}},
	{"Slot", []string{"slot", "slot_position", "slot_holder", "slot_failover", "publication_before_slot", "max_replication_slots", "max_slot_wal_keep_size",
		"idle_replication_slot_timeout", "synchronous_standby_names", "synchronized_standby_slots", "standby_copies", "hot_standby_feedback",
		"transactions", "catalog_xmin", "monitor_rights"}},
	{"Kafka", []string{"kafka", "broker", "kafka_tls", "kafka_acl", "producer_id", "kafka_transactions", "topics", "topic", "topic_permission", "topic_leader", "topic_replicas",
		"topic_size", "topic_timestamp", "topic_cleanup", "topic_compression", "snapshot_topic", "position_topic", "message_size"}},
}

func groupOf(code string) string {
	for _, g := range checkGroups {
		if slices.Contains(g.codes, code) {
			return g.name
		}
	}
	return "Slot"
}

var severityColours = map[slot.Severity]string{
	slot.SeverityOK: "32", slot.SeverityInfo: "36", slot.SeverityWarning: "33", slot.SeverityError: "31",
}

// writeFindings prints a table for each group, and below how to fix what is not well: SQL to be copied fits in no column.
func Write(w io.Writer, findings []slot.Finding, colour bool) error {
	var b strings.Builder
	writeCheckTable(&b, findings)
	counts := map[slot.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		if f.Severity != slot.SeverityOK {
			writeFinding(&b, f)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d info, %d warning, %d error\n%s\n",
		counts[slot.SeverityOK], counts[slot.SeverityInfo], counts[slot.SeverityWarning], counts[slot.SeverityError], verdictOf(findings, counts))
	text := b.String()
	if colour {
		text = colourSeverities(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Widths of the columns of the table, which are the same in each group. What is longer stands in full below, unless it is well.
const (
	severityWidth = len("warning")
	subjectWidth  = 34
	observedWidth = 100
)

func writeCheckTable(b *strings.Builder, findings []slot.Finding) {
	code, subject := len("CHECK"), len("SUBJECT")
	for _, f := range findings {
		code, subject = max(code, len(f.Code)), min(subjectWidth, max(subject, len(subjectOf(f))))
	}
	row := func(cells ...string) {
		line := fmt.Sprintf("%-*s  %-*s  %-*s  %s", severityWidth, cells[0], code, cells[1], subject, cells[2], cells[3])
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row("", "CHECK", "SUBJECT", "OBSERVED")
	for i, g := range groups(findings) {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(g.name + "\n")
		for _, f := range g.findings {
			observed := terminal.OneLine(f.Observed)
			if r := []rune(observed); len(r) > observedWidth && f.Severity != slot.SeverityOK {
				observed = string(r[:observedWidth-1]) + "…"
			}
			row(string(f.Severity), f.Code, subjectOf(f), observed)
		}
	}
}

// subjectOf leaves out what the code says already: settings are called by their name.
func subjectOf(f slot.Finding) string {
	if f.Subject == f.Code {
		return terminal.OrDash("")
	}
	return terminal.OrDash(f.Subject)
}

// title is a finding in a few words.
func title(f slot.Finding) string {
	if f.Subject == f.Code {
		return f.Code
	}
	return strings.TrimSpace(f.Code + " " + f.Subject)
}

type groupedFindings struct {
	name     string
	findings []slot.Finding
}

// groups sorts findings by group and leaves their order within one.
func groups(findings []slot.Finding) []groupedFindings {
	var sorted []groupedFindings
	for _, g := range checkGroups {
		own := groupedFindings{name: g.name}
		for _, f := range findings {
			if groupOf(f.Code) == g.name {
				own.findings = append(own.findings, f)
			}
		}
		if len(own.findings) > 0 {
			sorted = append(sorted, own)
		}
	}
	return sorted
}

func writeFinding(b *strings.Builder, f slot.Finding) {
	fmt.Fprintf(b, "\n%s %s\n", f.Severity, title(f))
	for _, line := range []struct{ name, text string }{
		{"observed:", f.Observed}, {"required:", f.Required}, {"WAL:", f.WAL}, {"fix:", f.Fix}, {"see:", f.Docs},
	} {
		if line.text != "" {
			fmt.Fprintf(b, "  %-9s %s\n", line.name, terminal.IndentBy(line.text, "            "))
		}
	}
}

// verdictOf is the last line, in the words of the status.
func verdictOf(findings []slot.Finding, counts map[slot.Severity]int) string {
	first := func(s slot.Severity) slot.Finding {
		return findings[slices.IndexFunc(findings, func(f slot.Finding) bool { return f.Severity == s })]
	}
	switch {
	case counts[slot.SeverityError] > 0:
		f := first(slot.SeverityError)
		return fmt.Sprintf("%s: %s: %s", health.Failing, title(f), terminal.OneLine(f.Observed))
	case counts[slot.SeverityWarning] > 0:
		f := first(slot.SeverityWarning)
		return fmt.Sprintf("%s: nothing keeps the relay from starting; the first warning: %s", health.Degraded, title(f))
	}
	return health.OK + ": nothing keeps the relay from starting"
}

// colourSeverities colours the word a line starts with, after the columns were aligned: escapes have a width for tabwriter.
func colourSeverities(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		for severity, code := range severityColours {
			if rest, ok := strings.CutPrefix(line, string(severity)+" "); ok {
				lines[i] = "\x1b[" + code + "m" + string(severity) + "\x1b[0m " + rest
			}
		}
	}
	return strings.Join(lines, "\n")
}
