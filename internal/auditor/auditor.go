package auditor

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/slot"
)

// Options are the flags of the command, besides those of Plan.
type Options struct {
	Tables      []string
	Topics      []string
	Log         string
	IDColumn    string
	KeyColumn   string
	OrderBy     string
	Slot        string
	WantsOrder  bool // --require-order
	TimeColumn  string
	Transaction string
	Isolation   string
	DeadLetters string
	Examples    int
}

// Plan has the flags that need parsing, parsed.
type Plan struct {
	Pattern      *regexp.Regexp // nil: none was given
	ID           EventID
	Since, Until time.Time // zero: no limit
	Memory       int64     // bytes
	Committed    bool
}

// OnlyTables reduces the configuration to these tables. A table that is not configured follows the
// only rule set, or the defaults.
func OnlyTables(cfg config.Config, tables []string) config.Config {
	fallback := router.DefaultConfig()
	if len(cfg.Router) == 1 {
		fallback = cfg.Router[0]
	}
	var rules []router.Config
	var names []string
	for _, table := range tables {
		schema, rest := slot.SplitTable(table)
		name := schema + "." + rest
		rule, ok := cfg.Rule(name)
		if !ok {
			rule = fallback
		}
		rule.Tables, rule.Messages = []string{name}, nil
		rules, names = append(rules, rule), append(names, name)
	}
	cfg.Router, cfg.Replication.Tables, cfg.Replication.Messages = rules, names, nil
	return cfg
}

// writtenRows is what was written, with its names and its order.
type writtenRows interface {
	audit.Written
	Names() []string // tables, or the file
	Order() string   // what has the order of the commits, as the user says; empty: nothing
}

// Run blocks until topics and tables were read, or until a signal.
func Run(ctx context.Context, o Options, plan Plan, cfg config.Config,
	log zerolog.Logger) (*Result, error) {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	began := time.Now()
	var tables *auditTables // nil: a write log takes their place
	since := recordsOfLogSince(plan.Since, cfg.Router)
	if o.Log == "" {
		var err error
		if tables, err = openAuditTables(ctx, o, plan, cfg); err != nil {
			return nil, auditFailure(err)
		}
		defer tables.close()
		since = tables.since
	}
	topics, err := openAuditTopics(ctx, o, plan, cfg, since)
	if err != nil {
		return nil, auditFailure(err)
	}
	defer topics.Close()
	judge := audit.JudgeConfig{Memory: plan.Memory, Examples: o.Examples}
	var written writtenRows
	if tables == nil {
		written = &writeLog{path: o.Log, since: plan.Since, until: plan.Until}
	} else {
		// After the topics' ends were read, so that their records have a row in the snapshot.
		if err := tables.begin(ctx, o, plan, cfg); err != nil {
			return nil, auditFailure(err)
		}
		written, topics.own = tables, tables.deadLetters
		if o.Slot != "" {
			commits, err := tables.commits(ctx, o.Slot, cfg, log)
			if err != nil {
				return nil, auditFailure(err)
			}
			judge.Commits = commits.read
		}
	}
	judge.Ordered = written.Order() != ""
	report, err := audit.Judge(ctx, judge, written, topics)
	if err == nil && report.Lost > 0 {
		err = topics.noteRemoved(ctx)
	}
	if err != nil {
		return nil, auditFailure(err)
	}
	r := newAuditResult(o, written, topics, report, time.Since(began))
	if tables != nil && tables.changed {
		r.judgeNoTransactions()
	}
	return &r, nil
}

// failures are those that an audit explains in its own way.
var failures = []struct {
	err  error
	code int
	next string
}{
	{audit.ErrMemory, exit.Runtime, "raise --memory, or shorten the time with --since"},
	{audit.ErrSameID, exit.Runtime,
		"audit one table at a time with --table, or name the column with unique ids: --id-column"},
	{replication.ErrSlotInUse, exit.Temporary,
		"postrider audit --slot NAME   # a slot that no process reads: postrider slot list"},
	{replication.ErrSlotMissing, exit.Config,
		"postrider audit --slot NAME   # a slot that is there: postrider slot list"},
	{sink.ErrUnknownTopic, exit.Config, "postrider audit --topic TOPIC   # one that is there"},
	{sink.ErrPermission, exit.Permission, "grant the ACLs Describe and Read on the topics"},
}

// auditFailure is exit.Explain for an audit, for which no WAL is retained.
func auditFailure(err error) error {
	if explained := new(exit.Error); errors.As(err, &explained) {
		return err
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return &exit.Error{Code: f.code, Err: err, Next: f.next}
		}
	}
	f := exit.Explain(err)
	f.WAL = ""
	return f
}
