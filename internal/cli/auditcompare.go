package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

type compareOptions struct {
	prefix   string
	topics   string
	rows     int64
	duration time.Duration
	settle   time.Duration
	waiting  int
	details  int
	json     bool
}

// compareBytes bounds what waits for its other side, beside the number of messages.
const compareBytes = 128 << 20

func newAuditCompare(a *app) *cobra.Command {
	o := compareOptions{}
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Run beside Debezium, or any other relay, and report every byte that differs",
		Long: `compare routes new rows the way run would, from a temporary slot of its own, reads what the other relay publishes of
the same rows, and compares topic, partition, key, value, headers and timestamp of each event. It publishes nothing, or, with
--publish-prefix, everything to topics of its own. The other relay, its slot, its topics and its consumer groups stay as they are.

Events are matched by the header that carries their id (router.header_id), else by the order per key. Not compared are
timestamps that are nobody's but the clock's (without router.table.field.event.timestamp), and the values of the headers runId, taskId and
connectorName of __debezium.context.

It ends after --rows or --duration, or with Ctrl-C, and then waits up to --settle for what is under way; a second Ctrl-C ends
it at once. What the other relay publishes of rows from before the beginning is left aside.

Exit status: 0 everything was equal; 1 something differed, or nothing was compared, so that nothing is proven;
otherwise as for run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			l, err := a.load(cmd, "postgres", "replication", "router", "format", "sink", "relay", "log")
			if err != nil {
				return err
			}
			if l.Config.Sink.Kind != config.SinkKafka {
				return &failure{code: exitConfig, err: fmt.Errorf("sink.kind is %q: there are no topics to compare with", l.Config.Sink.Kind),
					next: "postrider audit compare --set sink.kind=kafka --set sink.kafka.brokers=HOST:PORT"}
			}
			return a.compare(cmd.Context(), o, l.Config, a.newLogger(l.Config.Log))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.prefix, "publish-prefix", "", "publish to topics with this `prefix`, like shadow. (default: publish nothing)")
	f.StringVar(&o.topics, "topics", "", "also read topics that match this `pattern` and that we route nothing to (default: made of route.topic.replacement)")
	f.Int64Var(&o.rows, "rows", 0, "stop after so many compared events (0: no limit)")
	f.DurationVar(&o.duration, "duration", 0, "stop after so long (0: no limit)")
	f.DurationVar(&o.settle, "settle", 30*time.Second, "how long an event may be missing on one side")
	f.IntVar(&o.waiting, "max-waiting", 50_000, "messages that may wait for their other side; together at most 128 MiB")
	f.IntVar(&o.details, "max-differences", 10, "differing and missing events to show in detail")
	f.BoolVar(&o.json, "json", false, "print the report as JSON")
	for _, name := range []string{"publish-prefix", "topics", "rows", "duration", "settle", "max-waiting", "max-differences"} {
		must(cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions))
	}
	return cmd
}

var topicPrefix = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)

func (o *compareOptions) validate() error {
	switch {
	case o.rows < 0 || o.duration < 0 || o.details < 0:
		return usagef("--rows, --duration and --max-differences must not be negative")
	case o.settle <= 0 || o.waiting < 1:
		return usagef("--settle and --max-waiting must be above zero")
	case len(o.prefix) > 200 || !topicPrefix.MatchString(o.prefix):
		return usagef("--publish-prefix %q: a topic's name has only a-z A-Z 0-9 . _ -", o.prefix)
	}
	if _, err := regexp.Compile(o.topics); err != nil {
		return usagef("--topics: %v", err)
	}
	return nil
}

// comparing is one run of the command.
type comparing struct {
	options    compareOptions
	comparison *audit.Comparison
	follower   *topics.Follower
	relay      *relay.Relay
	show       *compareShow
	began      time.Time // when our slot began; zero: not yet

	unpublished atomic.Pointer[error] // why a message did not reach its topic with the prefix
}

func (a *app) compare(ctx context.Context, o compareOptions, cfg config.Config, log zerolog.Logger) error {
	kill, stop, release := signals(ctx, log)
	defer release()
	pattern, err := topicsToRead(o.topics, cfg.Router)
	if err != nil {
		return usagef("--topics: %v", err)
	}
	rules, err := newCompareRules(cfg)
	if err != nil {
		return configFailure(err)
	}
	// Before the slot, which sees what commits from its creation on: what the other relay makes of that stands behind these ends.
	follower, err := topics.Follow(kill, cfg.Sink.Kafka, pattern, o.prefix, log.With().Str("component", "sink").Logger())
	if err != nil {
		return explain(err)
	}
	defer follower.Close()
	c := &comparing{options: o, follower: follower, show: a.newCompareShow(), comparison: audit.NewComparison(audit.CompareConfig{
		Partition: follower.Partition, IDHeaders: rules.idHeaders, OneSource: rules.sources == 1, TimeColumn: rules.timeColumn,
		Settle: o.settle, MaxWaiting: o.waiting, MaxBytes: compareBytes, MaxDetails: o.details,
	})}
	c.relay = a.compareRelay(c, cfg, log)
	err = c.run(kill, stop)
	if c.began.IsZero() && err == nil && stop.Err() != nil {
		return &failure{code: exitRuntime, err: errors.New("stopped before it streamed: nothing was compared")}
	}
	if !c.began.IsZero() {
		err = firstError(err, a.printCompared(c))
	}
	return err
}

// compareRelay is a relay that hands its messages to the comparison. Its slot belongs to the replication connection, so it is gone with it,
// however this process ends.
func (a *app) compareRelay(c *comparing, cfg config.Config, log zerolog.Logger) *relay.Relay {
	cfg.Slot.Name = slot.TemporaryName("compare")
	cfg.Relay.HeartbeatInterval = 0 // what is compared is rows
	p := a.newPipeline(cfg, metrics.New(prometheus.NewRegistry(), cfg.Slot.Name), log)
	parts := p.temporary()
	parts.OpenSink = c.openSink(p)
	return relay.New(cfg.Relay, parts)
}

// run blocks until the comparison has ended; what has been found until then is in it, whatever the error.
func (c *comparing) run(kill, stop context.Context) error {
	ctx, cancel := context.WithCancel(kill)
	defer cancel()
	relayStop, stopRelay := context.WithCancel(context.WithoutCancel(kill))
	defer stopRelay()
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()

	failed := make(chan error, 2) // room for both: they never block
	relayEnded := make(chan struct{})
	background.Go(func() {
		defer close(relayEnded)
		if err := c.relay.Run(kill, relayStop); err != nil && !errors.Is(err, relay.ErrSecondSignal) { // then the report is of what was there
			if cause := c.unpublished.Load(); cause != nil && errors.Is(err, errTemporarySlotGone) {
				err = *cause
			}
			f := explain(err)
			f.wal = "nothing changed: the other relay's slot was not touched"
			failed <- f
		}
	})
	background.Go(func() {
		err := c.follower.Run(ctx, func(r *topics.Followed) { c.comparison.Theirs(&r.Message, r.Offset, time.Now()) })
		if err != nil {
			failed <- explain(fmt.Errorf("read the other relay's topics: %w", err))
		}
	})
	err := c.watch(kill, stop, failed)
	stopRelay() // what it has read is compared
	<-relayEnded
	if err == nil {
		select {
		case err = <-failed:
		default:
		}
	}
	c.comparison.Expire(time.Now())
	c.comparison.Finish()
	return err
}

// watch lets time pass until the end that was asked for has come and what was under way has arrived.
func (c *comparing) watch(kill, stop context.Context, failed <-chan error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var closed time.Time
	looked := time.Now()
	for {
		select {
		case err := <-failed:
			return err
		case <-kill.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		if c.began.IsZero() && c.relay.State().Phase == relay.Streaming {
			c.began = now
			c.show.began(c)
		}
		c.comparison.Expire(now)
		report := c.comparison.Report()
		if now.Sub(looked) >= time.Second && !c.began.IsZero() {
			looked = now
			c.show.progress(now.Sub(c.began), &report, !closed.IsZero())
		}
		switch {
		case closed.IsZero() && c.ends(stop, now, report.Compared):
			closed = now
			c.comparison.Close()
		case !closed.IsZero() && (c.comparison.Settled() || now.Sub(closed) >= c.options.settle):
			return nil
		}
	}
}

func (c *comparing) ends(stop context.Context, now time.Time, compared int64) bool {
	o := &c.options
	return stop.Err() != nil || o.rows > 0 && compared >= o.rows ||
		o.duration > 0 && !c.began.IsZero() && now.Sub(c.began) >= o.duration
}
