package auditor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
)

// CompareOptions are the flags of audit compare.
type CompareOptions struct {
	Prefix   string
	Topics   string
	Rows     int64
	Duration time.Duration
	Settle   time.Duration
	Waiting  int
	Details  int
}

// Validate returns an error of usage for values that cannot be. It connects to nothing.
func (o *CompareOptions) Validate() error {
	switch {
	case o.Rows < 0 || o.Duration < 0 || o.Details < 0:
		return exit.Usagef("--rows, --duration and --max-differences must not be negative")
	case o.Settle <= 0 || o.Waiting < 1:
		return exit.Usagef("--settle and --max-waiting must be above zero")
	case len(o.Prefix) > 200 || !topicPrefix.MatchString(o.Prefix):
		return exit.Usagef("--publish-prefix %q: a topic's name has only a-z A-Z 0-9 . _ -",
			o.Prefix)
	}
	if _, err := regexp.Compile(o.Topics); err != nil {
		return exit.Usagef("--topics: %v", err)
	}
	return nil
}

// comparing is one run of the command.
type comparing struct {
	options    CompareOptions
	comparison *audit.Comparison
	follower   *topics.Follower
	relay      *relay.Relay
	show       *terminal.Progress
	began      time.Time // when our slot began; zero: not yet

	unpublished atomic.Pointer[error] // why a message did not reach its topic with the prefix
}

// Compare blocks until the end that the options ask for, or a signal. The result has what was
// compared until then, also with an error; nil: nothing was compared.
func Compare(ctx context.Context, o CompareOptions, cfg config.Config, env daemon.Environment,
	log zerolog.Logger) (*compareResult, error) {
	kill, stop, release := daemon.Signals(ctx, log)
	defer release()
	pattern, err := topicsToRead(o.Topics, cfg.Router)
	if err != nil {
		return nil, exit.Usagef("--topics: %v", err)
	}
	rules, err := newCompareRules(cfg)
	if err != nil {
		return nil, exit.ConfigFailure(err)
	}
	// Before the slot is created: the other relay's messages of the rows that it decodes then are
	// behind these ends.
	follower, err := topics.Follow(kill, cfg.Sink.Kafka, pattern, o.Prefix,
		log.With().Str("component", "sink").Logger())
	if err != nil {
		return nil, exit.Explain(err)
	}
	defer follower.Close()
	c := &comparing{options: o, follower: follower, show: terminal.NewProgress(env.Stderr)}
	c.comparison = audit.NewComparison(audit.CompareConfig{
		Partition: follower.Partition, IDHeaders: rules.idHeaders, OneSource: rules.sources == 1,
		TimeColumn: rules.timeColumn, Settle: o.Settle,
		MaxWaiting: o.Waiting, MaxBytes: compareBytes, MaxDetails: o.Details,
	})
	c.relay = c.newRelay(cfg, env, log)
	err = c.run(kill, stop)
	switch {
	case !c.began.IsZero():
		c.show.End()
		return c.result(), err
	case err == nil && stop.Err() != nil:
		err = &exit.Error{Code: exit.Runtime,
			Err: errors.New("stopped before it streamed: nothing was compared")}
	}
	return nil, err
}

// newRelay makes a relay that hands its messages to the comparison. Its slot belongs to the
// replication connection and goes with it, however this process ends.
func (c *comparing) newRelay(cfg config.Config, env daemon.Environment,
	log zerolog.Logger) *relay.Relay {
	cfg.Slot.Name = slot.TemporaryName("compare")
	cfg.Relay.HeartbeatInterval = 0 // what is compared is rows
	p := daemon.Unmeasured(env, cfg, log)
	parts := p.Temporary()
	parts.Broker.OpenSink = c.openSink(p)
	return relay.New(cfg.Relay, parts)
}

// run blocks until the comparison has ended. The comparison has what was found until then, also
// with an error.
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
		err := c.relay.Run(kill, relayStop)
		// the report is of what was compared
		if err == nil || errors.Is(err, relay.ErrSecondSignal) {
			return
		}
		cause := c.unpublished.Load()
		if cause != nil && errors.Is(err, daemon.ErrTemporarySlotGone) {
			err = *cause
		}
		f := exit.Explain(err)
		f.WAL = "nothing changed: the other relay's slot was not touched"
		failed <- f
	})
	background.Go(func() {
		err := c.follower.Run(ctx,
			func(r *topics.Followed) { c.comparison.Theirs(&r.Message, r.Offset, time.Now()) })
		if err != nil {
			failed <- exit.Explain(fmt.Errorf("read the other relay's topics: %w", err))
		}
	})
	err := c.watch(kill, stop, failed)
	stopRelay() // it delivers what it has read, which is compared
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

// watch blocks until the end that the options ask for, and until messages under way have arrived.
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
			compareStarted(c.show, c.options)
		}
		c.comparison.Expire(now)
		report := c.comparison.Report()
		if now.Sub(looked) >= time.Second && !c.began.IsZero() {
			looked = now
			c.show.Show(compareProgress(now.Sub(c.began), &report, !closed.IsZero()))
		}
		switch {
		case closed.IsZero() && c.ends(stop, now, report.Compared):
			closed = now
			c.comparison.Close()
		case !closed.IsZero() && (c.comparison.Settled() || now.Sub(closed) >= c.options.Settle):
			return nil
		}
	}
}

func (c *comparing) ends(stop context.Context, now time.Time, compared int64) bool {
	o := &c.options
	return stop.Err() != nil || o.Rows > 0 && compared >= o.Rows ||
		o.Duration > 0 && !c.began.IsZero() && now.Sub(c.began) >= o.Duration
}

// compareBytes bounds what waits for its other side, beside the number of messages.
const compareBytes = 128 << 20

var topicPrefix = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)
