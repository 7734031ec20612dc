package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// checkTimeout bounds the whole of check: whoever waits for it wants an answer, and a port that drops packets gives none.
// Kafka has kafkaTimeout of it to itself.
const (
	checkTimeout = time.Minute
	kafkaTimeout = 25 * time.Second
)

func newCheck(a *app) *cobra.Command {
	var asJSON, offline bool
	var topics []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check everything that is needed, and say how to fix what is not",
		Long: `check looks at the configuration, PostgreSQL, publication, tables, slot and Kafka, as the relay would meet them, and
changes nothing. Run it as the relay's own login, where the relay runs; it may run meanwhile.

Topics are those of the newest rows in the table, if the login may read it, and those named with --topic.

Exit status: 0 nothing keeps the relay from starting, 69 something cannot be reached, 77 a right is missing, 78 something
is configured wrongly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.check(cmd, offline, topics)
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
		return a.typedFindings(completed(configFindings(err)))
	}
	if offline {
		return a.typedFindings(completed(loadedFindings(l)))
	}
	return a.checkWith(cmd.Context(), checker{loaded: l, topics: topics})
}

// checkAll is what the status page shows of check: it runs beside a relay of this process, asks the server for little, and takes a minute
// at most. It may be called from any goroutine.
func (a *app) checkAll(ctx context.Context, l *config.Loaded, topics []string) []slot.Finding {
	return a.checkWith(ctx, checker{loaded: l, topics: topics, beside: true})
}

// checker is one run of check.
type checker struct {
	loaded *config.Loaded
	topics []string // named by the user
	beside bool     // in the process of the relay
	relay  *Report  // of a relay that answers at http.listen; nil: none, or beside
}

func (a *app) checkWith(ctx context.Context, c checker) []slot.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cfg := c.loaded.Config
	findings := loadedFindings(c.loaded)
	seen := newSamples(c.topics, c.beside, cfg.Snapshot.On())
	if !c.beside {
		c.relay = relayAt(ctx, cfg.HTTP.LocalURL())
	}
	ours := c
	if c.relay != nil && c.relay.Slot.Name != cfg.Slot.Name {
		ours.relay = nil
	}
	// What is left of the minute when the server hangs is enough for Kafka.
	server, done := context.WithTimeout(ctx, checkTimeout-kafkaTimeout)
	findings = append(findings, slot.Check(server, slot.Preflight{
		Postgres: cfg.Postgres, Need: requirements(cfg), Messages: len(cfg.Replication.Messages) > 0, Snapshot: cfg.Snapshot.On(),
		VolumeSize: cfg.Monitor.VolumeSize, Beside: c.beside, Observe: func(ctx context.Context, conn *pgx.Conn) ([]slot.Finding, error) {
			o, err := monitor.Observe(ctx, conn, cfg.Slot.Name, cfg.Monitor)
			return ours.observed(o), err
		},
		Table: func(ctx context.Context, conn *pgx.Conn, t slot.Table) []slot.Finding {
			return checkTable(ctx, conn, cfg, t, seen)
		},
	})...)
	done()
	if cfg.Sink.Kind == config.SinkKafka {
		findings = append(findings, checkKafka(ctx, cfg, seen)...)
	}
	findings = append(findings, c.process()...)
	return a.typedFindings(completed(findings))
}

// completed gives every finding what it has by its code and severity alone.
func completed(findings []slot.Finding) []slot.Finding {
	for i := range findings {
		f := &findings[i]
		if f.Severity == slot.SeverityError && f.WAL == "" {
			f.WAL = keptMaybe
		}
		if f.Severity != slot.SeverityOK {
			f.Docs = docsOf(f.Code)
		}
	}
	return findings
}

// docsOf is the page and heading that explain a code. Conditions have the name of the alert, and its runbook.
func docsOf(code string) string {
	if strings.HasPrefix(code, "Postrider") {
		return "docs/OPERATIONS.md#" + strings.ToLower(code)
	}
	return "docs/CHECK.md#" + code
}

// loadedFindings are those of a configuration that can be used.
func loadedFindings(l *config.Loaded) []slot.Finding {
	from := l.Path
	if from == "" {
		from = "no file: defaults, environment and flags"
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "configuration", Observed: from}}
	for _, w := range l.Warnings {
		findings = append(findings, slot.Finding{
			Severity: slot.SeverityWarning, Code: "configuration", Observed: w, Required: "a configuration that says what is meant", Fix: "postrider config print",
		})
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
		findings[i] = slot.Finding{
			Severity: slot.SeverityError, Code: "configuration", Observed: err.Error(), Class: slot.ClassConfiguration,
			Required: "a configuration that can be used",
		}
		if i == len(errs)-1 {
			findings[i].Fix = fixConfiguration
		}
	}
	return findings
}

// checkTable has the router judge the columns, and collects the topics of some rows if they can be read.
func checkTable(ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table, seen *samples) []slot.Finding {
	rel, err := t.Relation(ctx, conn)
	if err != nil {
		return []slot.Finding{slot.ErrorFinding("columns", t.Name, err)}
	}
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages, OwnTopics: cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) { return describe(ctx, conn, oid) },
	})
	if err == nil {
		err = r.Check(rel)
	}
	if err != nil {
		f := slot.Finding{
			Severity: slot.SeverityError, Code: "columns", Subject: t.Name, Observed: err.Error(), Class: slot.ClassConfiguration,
			Required: "the columns that the router is to use, of types that it can", Fix: "postrider config validate",
		}
		var shape *router.ShapeError
		if errors.As(err, &shape) {
			f.Observed = strings.TrimPrefix(err.Error(), t.Name+" cannot be routed: ")
			f.Fix = shape.Hint
		}
		return []slot.Finding{f}
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "columns", Subject: t.Name, Observed: "fit the router"}}
	findings = append(findings, checkNullable(ctx, conn, cfg, t, rel)...)
	if cfg.Snapshot.On() {
		findings = append(findings, checkSnapshot(ctx, conn, cfg, t))
	}
	return append(findings, seen.table(ctx, conn, r, t, rel)...)
}

// checkCode is the exit code of the first error: the later ones may follow from it.
func checkCode(findings []slot.Finding) int {
	first := slices.IndexFunc(findings, func(f slot.Finding) bool { return f.Severity == slot.SeverityError })
	if first < 0 {
		return exitOK
	}
	switch findings[first].Class {
	case slot.ClassUnreachable:
		return exitUnavailable
	case slot.ClassPermission:
		return exitPermission
	default:
		return exitConfig
	}
}
