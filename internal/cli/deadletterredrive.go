package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

// redriveWait is how long the relay may take to say that a key is no longer parked: it reads the topic all the time.
const redriveWait = 10 * time.Second

func newDeadLetterRedrive(a *app) *cobra.Command {
	var yes, dryRun, all, changed bool
	var chosen letterFilter
	cmd := &cobra.Command{
		Use:   "redrive (ID... | --key KEY | --all | other filters)",
		Short: "Publish dead letters where they belong",
		Long: `redrive publishes dead letters to the topics that they belong to, and writes down who did. Rows that could not be routed are routed
again with the configuration as it is now; those that were too large are read from the table, which takes the right to SELECT.

The letters of a parked key are published in order, also those that come meanwhile, until the relay publishes the rows of the key
itself again. One that still cannot be delivered stops its key there. Letters of keys that are not parked come behind what was published since.

Publishing and writing down are one Kafka transaction: whoever reads committed records sees each once, also if redrive is killed and run again.
A letter that was redriven is not redriven again. A second redrive ends the first one.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDeadLetters(cmd, !dryRun, func(ctx context.Context, cfg config.Config, store *producer.DeadLetters, x *deadletter.Index) error {
				letters, err := chosenLetters(x, args, all, &chosen)
				if err != nil {
					return err
				}
				if len(letters) == 0 {
					_, err := fmt.Fprintln(a.Stdout, "nothing to redrive")
					return err
				}
				if dryRun {
					return writeLetters(a.Stdout, letters, false)
				}
				if err := a.confirmWord("redrive", fmt.Sprintf("publishes %s", lettersText(letters)), yes); err != nil {
					return err
				}
				again := a.newRerouting(cfg)
				defer again.close()
				r := deadletter.Redriver{
					Topic: cfg.DeadLetter.Topic, Store: store, Route: again.route, Row: again.row, Who: whoami(), Changed: changed, Wait: redriveWait,
					Log: a.newLogger(cfg.Log),
				}
				out, err := r.Redrive(ctx, x, letters)
				return a.redriven(out, err)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "all that are open")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.BoolVar(&dryRun, "dry-run", false, "list what would be redriven, and change nothing")
	flags.BoolVar(&changed, "changed", false, "publish a row that was too large even if it is no longer what it was when it was committed")
	chosen.flags(cmd)
	return cmd
}

func newDeadLetterDiscard(a *app) *cobra.Command {
	var yes, dryRun, all bool
	var chosen letterFilter
	cmd := &cobra.Command{
		Use:   "discard (ID... | --key KEY | --all | other filters)",
		Short: "Let dead letters go: consumers never get them",
		Long: `discard writes down that dead letters are not to be published, and by whom that was decided. They stay in the topic. A key is no longer
parked when none of its letters is open.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDeadLetters(cmd, false, func(ctx context.Context, cfg config.Config, store *producer.DeadLetters, x *deadletter.Index) error {
				letters, err := chosenLetters(x, args, all, &chosen)
				if err != nil {
					return err
				}
				if len(letters) == 0 {
					_, err := fmt.Fprintln(a.Stdout, "nothing to discard")
					return err
				}
				if dryRun {
					return writeLetters(a.Stdout, letters, false)
				}
				if err := a.confirmWord("discard", fmt.Sprintf("lets %s go: consumers never get them", lettersText(letters)), yes); err != nil {
					return err
				}
				r := deadletter.Redriver{Topic: cfg.DeadLetter.Topic, Store: store, Who: whoami(), Log: a.newLogger(cfg.Log)}
				done, err := r.Discard(ctx, letters)
				if len(done) > 0 {
					fmt.Fprintf(a.Stdout, "%s discarded\n", lettersText(done))
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&all, "all", false, "all that are open")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.BoolVar(&dryRun, "dry-run", false, "list what would be discarded, and change nothing")
	chosen.flags(cmd)
	return cmd
}

// chosenLetters are open. What was named and is not open is left out: doing it twice does nothing.
func chosenLetters(x *deadletter.Index, ids []string, all bool, chosen *letterFilter) ([]*deadletter.Entry, error) {
	ways := 0
	for _, used := range []bool{len(ids) > 0, all, chosen.given()} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, exit.Usagef("say which: IDs, or --all, or filters like --key")
	}
	if len(ids) == 0 {
		f, err := chosen.filter()
		return x.List(f), err
	}
	var letters []*deadletter.Entry
	for _, id := range ids {
		e, err := x.Find(id)
		if err != nil {
			return nil, exit.Usagef("%v", err)
		}
		if e.Open() {
			letters = append(letters, e)
		}
	}
	return letters, nil
}

// quantity is a number of things: 1 row, 2 rows.
func quantity[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func lettersText(letters []*deadletter.Entry) string {
	return quantity(len(letters), "dead letter")
}

// confirmWord is confirm, with the name of the action.
func (a *app) confirmWord(word, what string, yes bool) error {
	if yes {
		return nil
	}
	fmt.Fprintf(a.Stderr, "This %s.\nType %s to go on: ", what, word)
	line, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if strings.TrimSpace(line) == word {
		return nil
	}
	if errors.Is(err, io.EOF) && strings.TrimSpace(line) == "" {
		return exit.Usagef("nothing was changed: no answer on standard input; without a terminal add --yes")
	}
	return exit.Usagef("nothing was changed: that is not %s", word)
}

// redriven says what became of it.
func (a *app) redriven(out deadletter.Outcome, err error) error {
	if len(out.Redriven) > 0 {
		fmt.Fprintf(a.Stdout, "%s redriven\n", lettersText(out.Redriven))
	}
	for _, at := range out.Unparked {
		fmt.Fprintf(a.Stdout, "key %s of topic %s is no longer parked\n", terminal.Printable(at.Key), terminal.Printable(at.Topic))
	}
	for _, at := range out.Waiting {
		a.progress("key %s of topic %s: the relay has not said that it publishes it again. If it runs it may be behind: list after a while, "+
			"and redrive what has come; else it goes on when it is started", terminal.Printable(at.Key), terminal.Printable(at.Topic))
	}
	for _, f := range out.Failed {
		a.progress("dead letter %s not redriven: %s", f.Entry.ID, terminal.Printable(f.Err.Error()))
		if f.Behind > 0 {
			a.progress("  nor the %d behind it, of the same key", f.Behind)
		}
	}
	switch {
	case err != nil:
		f := exit.Explain(err)
		f.Next = strings.TrimSpace(f.Next + "\nrun it again: what was redriven is not redriven twice")
		return f
	case len(out.Failed) > 0:
		return &exit.Error{Code: exit.Runtime, Err: fmt.Errorf("%s not redriven", quantity(len(out.Failed), "dead letter")), Next: afterFailures(out.Failed)}
	}
	return nil
}

// afterFailures says what to type next. Letters that others stand in front of are not to be let go: they wait for nothing but their turn.
func afterFailures(failed []deadletter.Failure) string {
	var next []string
	wrong := false
	for _, f := range failed {
		if !errors.Is(f.Err, deadletter.ErrNotFirst) {
			wrong = true
			continue
		}
		line := "all of the key, in order: postrider deadletter redrive --key " + shellWord(f.Entry.Key)
		if !slices.Contains(next, line) {
			next = append(next, line)
		}
	}
	if wrong {
		next = append(next, "correct what is wrong, or let them go: postrider deadletter discard ID")
	}
	return strings.Join(next, "\n")
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9._:@%+/][a-zA-Z0-9._:@%+/-]*$`)

// shellWord is a key as it is typed; KEY if it cannot be.
func shellWord(key []byte) string {
	text := string(key)
	switch {
	case plainWord.MatchString(text):
		return text
	case terminal.Printable(text) != text:
		return "KEY"
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// rerouting routes rows again, as the relay would. It connects to the database when it first needs it.
type rerouting struct {
	pipeline *daemon.Pipeline
	conn     *pgx.Conn
	router   *router.Router
}

func (a *app) newRerouting(cfg config.Config) *rerouting {
	return &rerouting{pipeline: daemon.NewPipeline(a.environment(), cfg, metrics.New(prometheus.NewRegistry(), cfg.Slot.Name), a.newLogger(cfg.Log))}
}

func (r *rerouting) close() {
	if r.conn != nil {
		postgres.Close(r.conn)
	}
}

func (r *rerouting) open(ctx context.Context) (err error) {
	if r.conn == nil {
		if r.conn, err = postgres.ConnectRows(ctx, r.pipeline.Config.Postgres); err != nil {
			return err
		}
	}
	if r.router == nil {
		if err := r.pipeline.PrepareTables(ctx); err != nil {
			return err
		}
		r.router, err = r.pipeline.NewRouter()
	}
	return err
}

func (r *rerouting) route(ctx context.Context, ev *replication.Event) (*sink.Message, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r.router.Route(ev)
}

// row reads the row that a claim points to.
func (r *rerouting) row(ctx context.Context, l *deadletter.Letter, d deadletter.Document) (*replication.Event, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	rel, err := r.relation(ctx, d.Relation)
	if err != nil {
		return nil, err
	}
	where, values := r.condition(l, d, rel)
	if len(values) == 0 {
		return nil, fmt.Errorf("nothing is known by which its row in %s could be found", d.Relation)
	}
	query := "SELECT " + check.ColumnList(rel) + " FROM " + pgx.Identifier{rel.Namespace, rel.Name}.Sanitize() + " WHERE " + where + " LIMIT 2"
	result := r.conn.PgConn().ExecParams(ctx, query, values, nil, nil, nil).Read() // in text, as the stream brings it
	if err := result.Err; err != nil {
		err = fmt.Errorf("read the row from %s: %w", d.Relation, postgres.Error(err))
		if errors.Is(err, postgres.ErrPermission) { // which streaming does not need
			return nil, &exit.Error{Code: exit.Permission, Err: err,
				Next: fmt.Sprintf("as the owner of the table: GRANT SELECT ON %s TO %s;", d.Relation, pgx.Identifier{r.conn.Config().User}.Sanitize())}
		}
		return nil, err
	}
	switch len(result.Rows) {
	case 0:
		return nil, fmt.Errorf("its row is no longer in %s", d.Relation)
	case 1:
		return &replication.Event{Kind: replication.Insert, XID: d.XID, Relation: rel, Values: result.Rows[0]}, nil
	}
	return nil, fmt.Errorf("several rows of %s could be it", d.Relation)
}

// relation is that of a table as it is published, if it is.
func (r *rerouting) relation(ctx context.Context, name string) (*replication.Relation, error) {
	for _, t := range r.pipeline.Tables {
		if t.Name == name {
			return t.Relation(ctx, r.conn)
		}
	}
	return slot.Relation(ctx, r.conn, name)
}

// condition finds the row of a claim: by its key, else by the id of the event.
func (r *rerouting) condition(l *deadletter.Letter, d deadletter.Document, rel *replication.Relation) (where string, values [][]byte) {
	var conditions []string
	for _, c := range d.Columns {
		if c.Value != nil {
			values = append(values, *c.Value)
			conditions = append(conditions, equals(rel, c.Name, len(values)))
		}
	}
	if len(values) > 0 || l.EventID == "" {
		return strings.Join(conditions, " AND "), values
	}
	cfg := r.pipeline.Config
	column := cfg.Router[0].FieldID
	rules, err := router.Divide(cfg.Router, cfg.Replication.Tables, cfg.Replication.Messages)
	for i := range rules {
		for _, t := range rules[i].Tables {
			if err == nil && t == d.Relation {
				column = rules[i].FieldID
			}
		}
	}
	return equals(rel, column, 1), [][]byte{[]byte(l.EventID)}
}

// equals compares a column with a parameter. One of a type of somebody's own is compared as text: a cast that its owner made could be chosen.
func equals(rel *replication.Relation, column string, parameter int) string {
	for _, c := range rel.Columns {
		if c.Name == column && !slot.Builtin(c) {
			return fmt.Sprintf("%s = $%d", slot.TextSQL(c), parameter)
		}
	}
	return fmt.Sprintf("%s = $%d", pgx.Identifier{column}.Sanitize(), parameter)
}
