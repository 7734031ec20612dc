package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

type auditOptions struct {
	tables      []string
	topics      []string
	pattern     string
	log         string
	id          string
	idColumn    string
	keyColumn   string
	orderBy     string
	slot        string
	wantsOrder  bool
	timeColumn  string
	transaction string
	since       string
	until       string
	isolation   string
	deadLetters string
	memory      string
	examples    int
	json        bool
}

func newAudit(a *app) *cobra.Command {
	o := auditOptions{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare an outbox table with topics, whatever relay filled them: lost, duplicated, out of order, phantom",
		Long: `audit reads the outbox tables (or, with --log, a write log) and the topics, and says what is lost, duplicated, out of order, phantom
or torn. It works on what any relay has published, as long as a record carries the id of its row. It writes nothing, and takes no
slot and no consumer group. The rows have to be in the table still.

The topics are read from their beginnings to their ends as they are at the start; then the tables, in one snapshot. So a row that is
not published yet counts as lost: beside a relay at work, leave the newest out with --until 1m.

The rows of a key have to arrive in the order of their commits, which no column of theirs tells: writers fill created_at, and take
numbers, before they commit. It is judged by the position headers of the records (router.position_headers), by
the WAL that a slot keeps (--slot), or by a column of which you know that it has this order (--order-by). Where nothing tells it, it is
not judged, and the report says so.

Exit status: 0 nothing that was judged is wrong; 1 something is, or is not proven, or there was nothing to audit; otherwise as for run.
docs/AUDIT.md explains the rest.`,
		Args: knownSubcommand,
		Example: `  postrider audit
  postrider audit --until 1m --json
  postrider audit --table outbox --topic orders --topic payments --id value:/payload/id
  postrider audit --log written.jsonl --topic orders --set sink.kafka.brokers=kafka:9092`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := o.plan(time.Now())
			if err != nil {
				return err
			}
			sections := []string{"sink", "log"}
			switch {
			case o.log != "":
			case len(o.tables) > 0:
				sections = append(sections, "postgres")
			default:
				sections = append(sections, "postgres", "replication", "router")
			}
			if o.slot != "" && !slices.Contains(sections, "replication") {
				sections = append(sections, "replication")
			}
			l, err := a.load(cmd, sections...)
			if err != nil {
				return err
			}
			if l.Config.Sink.Kind != config.SinkKafka {
				return &failure{code: exitConfig, err: fmt.Errorf("sink.kind is %q: there are no topics to audit", l.Config.Sink.Kind),
					next: "postrider audit --set sink.kind=kafka --set sink.kafka.brokers=HOST:PORT"}
			}
			cfg := l.Config
			if len(o.tables) > 0 {
				cfg = onlyTables(cfg, o.tables)
			}
			return a.audit(cmd.Context(), o, plan, cfg, a.newLogger(l.Config.Log))
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.topics, "topic", nil, "`topic` to read; may be repeated (default: all that match --topics)")
	f.StringVar(&o.pattern, "topics", "", "topics that match this `pattern` (default: made of route.topic.replacement)")
	f.StringArrayVar(&o.tables, "table", nil, "outbox `table` to read; may be repeated (default: replication.tables)")
	f.StringVar(&o.log, "log", "", "`file` with a write log instead of a table: a JSON object per line")
	f.StringVar(&o.id, "id", "", "where a record has the id of its row: header:NAME, key or value:/JSON/POINTER (default header:id, or router.header_id)")
	f.StringVar(&o.idColumn, "id-column", "", "`column` with the id (default table.field.event.id)")
	f.StringVar(&o.keyColumn, "key-column", "", "`column` with the key (default table.field.event.key)")
	f.StringVar(&o.orderBy, "order-by", "", "`column` that has the order in which the rows of a key were committed, as you know")
	f.StringVar(&o.slot, "slot", "", "read the order of commits from the WAL that this `slot` keeps, which nobody else reads; it stays as it is")
	f.BoolVar(&o.wantsOrder, "require-order", false, "exit with 1 unless the order of every row was judged")
	f.StringVar(&o.timeColumn, "time-column", "", "`column` for --since and --until (default table.field.event.timestamp, else created_at)")
	f.StringVar(&o.transaction, "transaction-column", rowTransaction, "integer `column` with the transaction of a row")
	f.StringVar(&o.since, "since", "", "judge only rows from this time on, and read topics from there: a `duration` (1h) or time (2026-01-31T12:00:00Z)")
	f.StringVar(&o.until, "until", "", "judge only rows before this time: a `duration` or time")
	f.StringVar(&o.isolation, "isolation", "read_committed", "read_committed or read_uncommitted, as a consumer's isolation.level")
	f.StringVar(&o.deadLetters, "dead-letters", "", "`topic` of dead letters: rows there are not lost (default deadletter.topic, if a policy uses it)")
	f.StringVar(&o.memory, "memory", "256MiB", "`size` of memory to use; with more rows than fit, the topics are read several times")
	f.IntVar(&o.examples, "examples", 5, "faults of each kind to show")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	for _, name := range []string{"topic", "topics", "table", "id", "id-column", "key-column", "order-by", "time-column", "transaction-column", "since", "until", "dead-letters", "memory", "examples"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	must(cmd.RegisterFlagCompletionFunc("slot", a.slotNamesOfFlag))
	must(cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions([]string{"read_committed", "read_uncommitted"}, cobra.ShellCompDirectiveNoFileComp)))
	cmd.AddCommand(newAuditCompare(a))
	return cmd
}

// auditPlan is what the flags mean.
type auditPlan struct {
	pattern      *regexp.Regexp // nil: none was given
	id           eventID
	since, until time.Time // zero: no limit
	memory       int64     // bytes
	committed    bool
}

func (o *auditOptions) plan(now time.Time) (p auditPlan, err error) {
	if o.pattern != "" {
		if p.pattern, err = regexp.Compile("^(?:" + o.pattern + ")$"); err != nil {
			return p, usagef("--topics: %v", err)
		}
	}
	if o.id != "" {
		if p.id, err = parseEventID(o.id); err != nil {
			return p, usagef("--id %s: %v", o.id, err)
		}
	}
	if o.since != "" {
		if p.since, err = sinceTime(o.since, now); err != nil {
			return p, usagef("--since %s: %v", o.since, err)
		}
	}
	if o.until != "" {
		if p.until, err = sinceTime(o.until, now); err != nil {
			return p, usagef("--until %s: %v", o.until, err)
		}
	}
	if p.memory, err = config.ParseSize(o.memory); err != nil || p.memory < audit.MinMemory {
		return p, usagef("--memory %s: expected a size of %dMiB or more", o.memory, audit.MinMemory>>20)
	}
	switch {
	case o.isolation != "read_committed" && o.isolation != "read_uncommitted":
		return p, usagef("--isolation %s: expected read_committed or read_uncommitted", o.isolation)
	case o.examples < 0:
		return p, usagef("--examples must not be negative")
	case o.slot != "" && (o.log != "" || o.orderBy != ""):
		return p, usagef("--slot, --order-by and --log each say in what order rows were committed: give one")
	case o.log != "" && o.orderBy != "":
		return p, usagef("--order-by is for a table: the lines of a write log are in the order of commits")
	case o.log != "" && len(o.topics) == 0 && o.pattern == "":
		return p, usagef("--log says nothing of topics: name them with --topic or --topics")
	}
	p.committed = o.isolation == "read_committed"
	return p, nil
}

// onlyTables leaves of the configuration what is for these tables. One that is not configured goes by the only rule set, or by the defaults.
func onlyTables(cfg config.Config, tables []string) config.Config {
	fallback := router.DefaultConfig()
	if len(cfg.Router) == 1 {
		fallback = cfg.Router[0]
	}
	var rules []router.Config
	var names []string
	for _, table := range tables {
		name := strings.Join(splitTable(table), ".")
		rule, ok := ruleOf(cfg, name)
		if !ok {
			rule = fallback
		}
		rule.Tables, rule.Messages = []string{name}, nil
		rules, names = append(rules, rule), append(names, name)
	}
	cfg.Router, cfg.Replication.Tables, cfg.Replication.Messages = rules, names, nil
	return cfg
}

// writtenRows is what was written, and what is known of it.
type writtenRows interface {
	audit.Written
	Names() []string // tables, or the file
	Order() string   // what has the order of the commits, as the user says; empty: nothing
}

func (a *app) audit(ctx context.Context, o auditOptions, plan auditPlan, cfg config.Config, log zerolog.Logger) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if a.env("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(plan.memory) // garbage is no excuse
	}
	began := time.Now()
	var tables *auditTables
	if o.log == "" {
		var err error
		if tables, err = openAuditTables(ctx, cfg); err != nil {
			return auditFailure(err)
		}
		defer tables.close(ctx)
	}
	topics, err := openAuditTopics(ctx, o, plan, cfg)
	if err != nil {
		return auditFailure(err)
	}
	defer topics.Close()
	judge := audit.JudgeConfig{Memory: plan.memory, Examples: o.examples}
	var written writtenRows
	if tables == nil {
		written = &writeLog{path: o.log, since: plan.since, until: plan.until}
	} else {
		if err := tables.begin(ctx, o, plan, cfg); err != nil { // behind the topics' ends: what they hold has its row in the snapshot
			return auditFailure(err)
		}
		written, topics.own = tables, tables.letters
		if o.slot != "" {
			commits, err := tables.commits(ctx, o.slot, cfg, log)
			if err != nil {
				return auditFailure(err)
			}
			judge.Commits = commits.read
		}
	}
	judge.Ordered = written.Order() != ""
	report, err := audit.Judge(ctx, judge, written, topics)
	if err != nil {
		return auditFailure(err)
	}
	r := newAuditResult(o, written, topics, report, time.Since(began))
	if tables, ok := written.(*auditTables); ok && tables.changed {
		r.judgeNoTransactions()
	}
	return a.printAudit(o, r)
}

// auditFailure is explain for an audit, which no WAL waits for.
func auditFailure(err error) error {
	var told *failure
	switch {
	case errors.As(err, &told):
		return err
	case errors.Is(err, audit.ErrMemory):
		return &failure{code: exitRuntime, err: err, next: "raise --memory, or shorten the time with --since"}
	case errors.Is(err, audit.ErrSameID):
		return &failure{code: exitRuntime, err: err, next: "audit one table at a time with --table, or name the column with unique ids: --id-column"}
	case errors.Is(err, replication.ErrSlotInUse):
		return &failure{code: exitTemporary, err: err, next: "postrider audit --slot NAME   # a slot that no process reads: postrider slot list"}
	case errors.Is(err, replication.ErrSlotMissing):
		return &failure{code: exitConfig, err: err, next: "postrider audit --slot NAME   # a slot that is there: postrider slot list"}
	case errors.Is(err, sink.ErrUnknownTopic):
		return &failure{code: exitConfig, err: err, next: "postrider audit --topic TOPIC   # one that is there"}
	case errors.Is(err, sink.ErrPermission):
		return &failure{code: exitPermission, err: err, next: "grant the ACLs Describe and Read on the topics"}
	}
	f := explain(err)
	f.wal = ""
	return f
}
