package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/catalog"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// checkTimeout bounds the whole of check: whoever waits for it wants an answer, and a port that drops packets gives none.
// Kafka has kafkaTimeout of it to itself.
const (
	Timeout      = time.Minute
	kafkaTimeout = 25 * time.Second
)

// checkAll checks everything that a configuration leads to. It takes a minute at most. topics are those that the user names.
func All(ctx context.Context, l *config.Loaded, topics []string) []slot.Finding {
	return checker{loaded: l, topics: topics}.run(ctx)
}

// checkBeside is what the status page shows of check: it runs beside a relay of this process, asks the server for little, and takes a minute
// at most. It may be called from any goroutine.
func Beside(ctx context.Context, l *config.Loaded, topics []string) []slot.Finding {
	return checker{loaded: l, topics: topics, beside: true}.run(ctx)
}

// checker is one run of check.
type checker struct {
	loaded *config.Loaded
	topics []string       // named by the user
	beside bool           // in the process of the relay
	relay  *status.Report // of a relay that answers at http.listen; nil: none, or beside
}

func (c checker) run(ctx context.Context) []slot.Finding {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	cfg := c.loaded.Config
	findings := Loaded(c.loaded)
	seen := newSamples(c.topics, c.beside, cfg.Snapshot.On())
	if !c.beside {
		c.relay = relayAt(ctx, cfg.HTTP.LocalURL())
	}
	ours := c
	if c.relay != nil && c.relay.Slot.Name != cfg.Slot.Name {
		ours.relay = nil
	}
	// What is left of the minute when the server hangs is enough for Kafka.
	server, done := context.WithTimeout(ctx, Timeout-kafkaTimeout)
	findings = append(findings, slot.Check(server, slot.Preflight{
		Postgres: cfg.Postgres, Need: cfg.Requirements(), Messages: len(cfg.Replication.Messages) > 0, Snapshot: cfg.Snapshot.On(),
		VolumeSize: cfg.Monitor.VolumeSize, Beside: c.beside,
		Observe: func(ctx context.Context, conn *pgx.Conn) ([]slot.Finding, error) {
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
	return completed(findings)
}

// completed gives every finding what it has by its code and severity alone.
func completed(findings []slot.Finding) []slot.Finding {
	for i := range findings {
		f := &findings[i]
		if f.Severity == slot.SeverityError && f.WAL == "" {
			f.WAL = exit.KeptMaybe
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
		return "docs/RUNBOOKS.md#" + strings.ToLower(code)
	}
	return "docs/CHECK.md#" + code
}

// loadedFindings are those of a configuration that can be used.
func Loaded(l *config.Loaded) []slot.Finding {
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
	return completed(findings)
}

func Invalid(err error) []slot.Finding {
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
			findings[i].Fix = exit.FixConfiguration
		}
	}
	return completed(findings)
}

// checkTable has the router judge the columns, and collects the topics of some rows if they can be read.
func checkTable(ctx context.Context, conn *pgx.Conn, cfg config.Config, t slot.Table, seen *samples) []slot.Finding {
	rel, err := t.Relation(ctx, conn)
	if err != nil {
		return []slot.Finding{slot.ErrorFinding("columns", t.Name, err)}
	}
	r, err := router.New(cfg.Router, cfg.Format, router.Options{
		Tables: cfg.Replication.Tables, MessagePrefixes: cfg.Replication.Messages, OwnTopics: cfg.OwnTopics(),
		Describe: func(oid, _ uint32) (*router.Table, error) { return catalog.Describe(ctx, conn, oid) },
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
func Code(findings []slot.Finding) int {
	first := slices.IndexFunc(findings, func(f slot.Finding) bool { return f.Severity == slot.SeverityError })
	if first < 0 {
		return exit.OK
	}
	switch findings[first].Class {
	case slot.ClassUnreachable:
		return exit.Unavailable
	case slot.ClassPermission:
		return exit.Permission
	default:
		return exit.Config
	}
}
