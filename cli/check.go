package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"postrider/config"
	"postrider/router"
	"postrider/slot"
)

// checkTimeout bounds the whole of check: whoever waits for it wants an answer, and a port that drops packets gives none.
const checkTimeout = time.Minute

func newCheck(a *app) *cobra.Command {
	var asJSON, offline bool
	var topics []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check everything that is needed, and say how to fix what is not",
		Long: `check looks at the configuration, PostgreSQL, publication, tables, slot and Kafka, as the relay would meet them, and
changes nothing. Run it as the relay's own login.

Topics are those of the rows that are in the table now, if the login may read it, and those named with --topic.

Exit status: 0 nothing keeps the relay from starting, 69 something cannot be reached, 77 a right is missing, 78 something
is configured wrongly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.check(cmd, offline, topics)
			for i := range findings {
				if findings[i].Severity == slot.SeverityError && findings[i].WAL == "" {
					findings[i].WAL = keptMaybe
				}
			}
			var err error
			if asJSON {
				err = a.printJSON(checkResult{OK: checkCode(findings) == exitOK, Findings: findings})
			} else {
				err = writeFindings(a.Stdout, findings, a.colour(a.Stdout))
			}
			if err != nil {
				return err
			}
			return exitStatus(checkCode(findings))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&offline, "offline", false, "check the configuration only; connect to nothing")
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "a `topic` that has to exist; may be repeated")
	a.keyFlags(cmd, "slot.name", "replication.publication", "sink.kafka.brokers")
	return cmd
}

type checkResult struct {
	OK       bool           `json:"ok"`
	Findings []slot.Finding `json:"findings"`
}

func (a *app) check(cmd *cobra.Command, offline bool, topics []string) []slot.Finding {
	l, err := a.load(cmd)
	if err != nil {
		return configFindings(err)
	}
	from := l.Path
	if from == "" {
		from = "no file: defaults, environment and flags"
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "configuration", Observed: from}}
	for _, w := range l.Warnings {
		findings = append(findings, slot.Finding{Severity: slot.SeverityWarning, Code: "configuration", Observed: w})
	}
	if offline {
		return findings
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
	defer cancel()
	return append(findings, a.checkAll(ctx, l, topics)...)
}

// checkAll asks PostgreSQL and Kafka, until ctx ends at most. It may run beside the relay.
func (a *app) checkAll(ctx context.Context, l *config.Loaded, topics []string) []slot.Finding {
	wanted := topicSet{names: topics}
	findings := slot.Check(ctx, slot.Preflight{
		Postgres: l.Config.Postgres, Need: requirements(l.Config), Messages: len(l.Config.Replication.Messages) > 0,
		Snapshot: l.Config.Snapshot.On(),
		Table: func(ctx context.Context, conn *pgx.Conn, t slot.Table) []slot.Finding {
			return checkTable(ctx, conn, l.Config, t, &wanted)
		},
	})
	if l.Config.Sink.Kind == config.SinkKafka {
		findings = append(findings, checkKafka(ctx, l.Config, wanted.names)...)
	}
	return findings
}

func configFindings(err error) []slot.Finding {
	errs := []error{err}
	var problems config.Problems
	if errors.As(err, &problems) {
		errs = problems.Unwrap()
	}
	findings := make([]slot.Finding, len(errs))
	for i, err := range errs {
		findings[i] = slot.Finding{Severity: slot.SeverityError, Code: "configuration", Observed: err.Error(), Class: slot.ClassConfiguration}
		if i == len(errs)-1 {
			findings[i].Fix = fixConfiguration
		}
	}
	return findings
}

// checkTable has the router judge the columns, and collects the topics of some rows if they can be read.
func checkTable(ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table, topics *topicSet) []slot.Finding {
	rel, err := t.Relation(ctx, conn)
	if err != nil {
		return []slot.Finding{slot.ErrorFinding("columns", t.Name, err)}
	}
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages,
		Describe: func(oid uint32) (*router.Table, error) { return describe(ctx, conn, oid) },
	})
	if err == nil {
		err = r.Check(rel)
	}
	if err != nil {
		f := slot.Finding{Severity: slot.SeverityError, Code: "columns", Subject: t.Name, Observed: err.Error(), Class: slot.ClassConfiguration}
		var shape *router.ShapeError
		if errors.As(err, &shape) {
			f.Observed = fmt.Sprintf("column %s %s (%s.%s); there are %s", shape.Column, shape.Problem, shape.Rule, shape.Key, strings.Join(shape.Existing, ", "))
			f.Fix = shape.Hint
		}
		return []slot.Finding{f}
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "columns", Subject: t.Name, Observed: "fit the router"}}
	if cfg.Snapshot.On() {
		findings = append(findings, checkSnapshot(ctx, conn, cfg, t))
	}
	return append(findings, topics.sample(ctx, conn, r, rel)...)
}

// checkCode is the exit code of the first error: the later ones may follow from it.
func checkCode(findings []slot.Finding) int {
	for _, f := range findings {
		if f.Severity != slot.SeverityError {
			continue
		}
		switch f.Class {
		case slot.ClassUnreachable:
			return exitUnavailable
		case slot.ClassPermission:
			return exitPermission
		default:
			return exitConfig
		}
	}
	return exitOK
}

var severityColours = map[slot.Severity]string{
	slot.SeverityOK: "32", slot.SeverityInfo: "36", slot.SeverityWarning: "33", slot.SeverityError: "31",
}

// writeFindings prints a table, and below it how to fix what is not well: SQL to be copied fits in no column.
func writeFindings(w io.Writer, findings []slot.Finding, colour bool) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SEVERITY\tCHECK\tSUBJECT\tOBSERVED")
	for _, f := range findings {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Severity, f.Code, orDash(f.Subject), oneLine(f.Observed))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	counts := map[slot.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
		if f.Required == "" && f.Fix == "" || f.Severity == slot.SeverityOK {
			continue
		}
		fmt.Fprintf(&b, "\n%s %s\n", f.Severity, strings.TrimSpace(f.Code+" "+f.Subject))
		fmt.Fprintf(&b, "  observed: %s\n", indentBy(f.Observed, "            "))
		if f.Required != "" {
			fmt.Fprintf(&b, "  required: %s\n", indentBy(f.Required, "            "))
		}
		if f.WAL != "" {
			fmt.Fprintf(&b, "  WAL:      %s\n", f.WAL)
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "  fix:      %s\n", indentBy(f.Fix, "            "))
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d info, %d warning, %d error\n",
		counts[slot.SeverityOK], counts[slot.SeverityInfo], counts[slot.SeverityWarning], counts[slot.SeverityError])
	text := b.String()
	if colour {
		text = colourSeverities(text)
	}
	_, err := io.WriteString(w, text)
	return err
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
