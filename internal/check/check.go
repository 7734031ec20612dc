package check

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

const (
	// Timeout bounds a run of check: a port that drops packets never answers.
	Timeout = time.Minute
	// kafkaTimeout is the part of Timeout that PostgreSQL leaves to Kafka.
	kafkaTimeout = 25 * time.Second
)

// All checks everything that a configuration leads to, within Timeout. topics are checked besides
// those to which rows are routed.
func All(ctx context.Context, l *config.Loaded, topics []string) []Finding {
	return checker{loaded: l, topics: topics}.run(ctx)
}

// Beside is All in the process of a relay, for its status page: it reads little of the tables, and
// leaves out what the verdict shows. Any goroutine may call it.
func Beside(ctx context.Context, l *config.Loaded, topics []string) []Finding {
	return checker{loaded: l, topics: topics, beside: true}.run(ctx)
}

// checker is one run of check.
type checker struct {
	loaded *config.Loaded
	topics []string       // named by the user
	beside bool           // in the process of the relay
	relay  *status.Report // of a relay that answers at http.listen; nil: none, or beside
	own    bool           // relay is about the same slot
}

func (c checker) run(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	cfg := c.loaded.Config
	findings := Loaded(c.loaded)
	seen := newSamples(c.topics, c.beside, cfg.Snapshot.On())
	if !c.beside {
		c.findRelay(ctx)
	}
	var writeBack func(ctx context.Context, conn *pgx.Conn) ([]Finding, error)
	if cfg.WriteBack.Enabled {
		writeBack = c.writeBack
	}
	server, done := context.WithTimeout(ctx, Timeout-kafkaTimeout)
	findings = append(findings, Server(server, Preflight{
		Postgres: cfg.Postgres, Need: cfg.Requirements(), Messages: len(cfg.Replication.Messages) > 0,
		Snapshot: cfg.Snapshot.On(), VolumeSize: cfg.Monitor.VolumeSize, Beside: c.beside,
		WriteBack: writeBack,
		Observe: func(ctx context.Context, conn *pgx.Conn) ([]Finding, error) {
			o, err := monitor.Observe(ctx, conn, cfg.Slot.Name, cfg.Monitor)
			return c.observed(o), err
		},
		Table: func(ctx context.Context, conn *pgx.Conn, t slot.Table) []Finding {
			return tableCheck{conn: conn, cfg: cfg, table: t, seen: seen}.run(ctx)
		},
	})...)
	done()
	if cfg.Sink.Kind == config.SinkKafka {
		findings = append(findings, checkKafka(ctx, cfg, seen)...)
	}
	findings = append(findings, checkRegistry(ctx, cfg)...)
	return completed(append(findings, c.process()...))
}

// Loaded returns the findings of a configuration that can be used.
func Loaded(l *config.Loaded) []Finding {
	from := l.Path
	if from == "" {
		from = "no file: defaults, environment and flags"
	}
	findings := []Finding{found("configuration", "", from)}
	for _, w := range l.Warnings {
		findings = append(findings, found("configuration", "", w).warn(
			"a configuration that leads to no warning", "postrider config print"))
	}
	return completed(findings)
}

// Invalid returns the findings of a configuration that cannot be used, one for each problem of
// err.
func Invalid(err error) []Finding {
	errs := []error{err}
	var problems config.Problems
	if errors.As(err, &problems) {
		errs = problems.Unwrap()
	}
	findings := make([]Finding, len(errs))
	for i, err := range errs {
		findings[i] = found("configuration", "", err).fail("a configuration that can be used", "")
	}
	findings[len(errs)-1].Fix = exit.FixConfiguration
	return completed(findings)
}
