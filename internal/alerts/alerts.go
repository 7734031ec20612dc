package alerts

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/metrics"
)

// lastTries is how long the end of the process waits for receivers that have not been told everything. Together with the drain it has to
// stay below the grace period of 30 s that Kubernetes gives.
const lastTries = 3 * time.Second

// Notifier tells receivers of conditions. Update may be called from any goroutine, also before Run and after it.
type Notifier struct {
	about       About
	externalURL string
	timeout     time.Duration
	set         *metrics.Set
	log         zerolog.Logger
	receivers   []*receiver // does not change

	mu       sync.Mutex // never held while something is sent
	least    rank
	repeat   time.Duration
	episodes map[string]*episode
	stopped  <-chan struct{} // closed when Run is to end; nil before Run
}

// receiver is one of those who are told.
type receiver struct {
	name   string // label of the metrics, and in the payload
	sender sender
	wake   chan struct{} // holds at most one: something may be owed

	// Guarded by Notifier.mu.
	told      map[string]*told // by name of the condition
	notBefore time.Time        // the receiver asked to be left alone until then
}

// sender makes one attempt to deliver a payload. It returns nil if the receiver took it, and otherwise a *failure. It ends with ctx.
type sender interface {
	send(ctx context.Context, payload message) *failure
}

// failure is why an attempt failed. Neither text shows a secret.
type failure struct {
	text    string        // what happened
	next    string        // what a person can do; empty: wait
	refused bool          // the same attempt would fail again
	reached bool          // the receiver may have taken it all the same
	after   time.Duration // the receiver asks to be left alone for that long; zero: it does not
}

func (f *failure) Error() string { return f.text }

// New makes a notifier for a valid Config. It connects to nobody and starts nothing. An error says what of the configuration is wrong.
func New(cfg Config, about About, set *metrics.Set, log zerolog.Logger) (*Notifier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Notifier{
		about: about, externalURL: cfg.ExternalURL, least: rankOf(health.Severity(cfg.Severity)), repeat: cfg.RepeatInterval,
		timeout: cfg.Timeout, set: set, log: log, episodes: map[string]*episode{},
	}
	n.receivers = receivers(cfg, about)
	for _, r := range n.receivers {
		set.AlertsSent.WithLabelValues(r.name)
		set.AlertsFailed.WithLabelValues(r.name)
	}
	return n, nil
}

// Names of the receivers.
const (
	receiverWebhook = "webhook"
	receiverCommand = "command"
)

func receivers(cfg Config, about About) []*receiver {
	var rs []*receiver
	if cfg.Webhook.IsSet() {
		rs = append(rs, newReceiver(receiverWebhook, newWebhook(cfg, about.Version)))
	}
	if len(cfg.Command) > 0 {
		rs = append(rs, newReceiver(receiverCommand, newCommand(cfg)))
	}
	return rs
}

func newReceiver(name string, s sender) *receiver {
	return &receiver{name: name, sender: s, wake: make(chan struct{}, 1), told: map[string]*told{}}
}

// Adopt takes severity and repeat_interval of another valid Config; whom it tells, and how, stays as it was made. What was told already is
// followed to its end, whatever its severity. Safe for concurrent use.
func (n *Notifier) Adopt(cfg Config) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.least, n.repeat = rankOf(health.Severity(cfg.Severity)), cfg.RepeatInterval
	for _, r := range n.receivers {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Update says which conditions hold now. The caller looks about once a second; what is absent is over, after a while. It never blocks, and
// keeps nothing of the slice. Once the context of Run has ended it does nothing: the process that stops heals nothing.
func (n *Notifier) Update(now time.Time, conditions []health.Condition) {
	n.look(now, conditions, false)
}

// Last is Update for a process that is about to end by itself, as a relay that halts: what holds is told at once, since nobody will be
// there when its For has passed. Nothing is over. Call it before the context of Run ends; Run then sends it.
func (n *Notifier) Last(now time.Time, conditions []health.Condition) { n.look(now, conditions, true) }

func (n *Notifier) look(now time.Time, conditions []health.Condition, urgent bool) {
	if len(n.receivers) == 0 {
		return
	}
	for _, m := range n.apply(now, gravest(conditions), urgent) { // without the lock: a log may be slow
		n.set.AlertsDropped.Inc()
		n.log.Warn().Str("receiver", m.receiver).Str("condition", m.condition).Msg("condition ended before the receiver could be told of it")
	}
	for _, r := range n.receivers {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// miss is a condition that a receiver will not hear of.
type miss struct{ receiver, condition string }

// apply takes how things are into the episodes, and returns who has missed something for good.
func (n *Notifier) apply(now time.Time, present map[string]*health.Condition, urgent bool) (missed []miss) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.stopped:
		return nil
	default:
	}
	for name := range present {
		if n.episodes[name] == nil {
			n.episodes[name] = &episode{}
		}
	}
	for name, e := range n.episodes {
		e.look(now, present[name], urgent)
		for _, r := range n.receivers {
			if t := r.told[name]; t != nil && t.lost(e) {
				missed = append(missed, miss{r.name, name})
			}
		}
	}
	return missed
}

// Run tells the receivers until ctx ends, then tries once, for three seconds in all, what they have not taken. It blocks; no goroutine is left
// when it returns. Call it once.
func (n *Notifier) Run(ctx context.Context) {
	sending, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	n.mu.Lock()
	n.stopped = ctx.Done()
	n.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range n.receivers {
		// One for each receiver: it alone sends to it, and ends with ctx and its last attempt. Run waits for it.
		wg.Go(func() { n.serve(ctx, sending, r) })
	}
	<-ctx.Done()
	limit := time.AfterFunc(lastTries, cut)
	defer limit.Stop()
	wg.Wait()
	n.leave()
}

// serve sends to one receiver, one word at a time.
func (n *Notifier) serve(ctx, sending context.Context, r *receiver) {
	for ctx.Err() == nil {
		name, w, wait := n.choose(r, time.Now())
		if name != "" {
			n.attempt(sending, r, name, w)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	for _, name := range n.pending(r) {
		if w, ok := n.last(r, name); ok && sending.Err() == nil {
			n.attempt(sending, r, name, w)
		}
	}
}

// asleep is how long a receiver sleeps to whom nothing is owed; an Update wakes it.
const asleep = time.Hour

// choose returns the word that is to be sent now; if there is none, name is empty and wait tells for how long. The gravest comes first, and
// firing before resolved.
func (n *Notifier) choose(r *receiver, now time.Time) (name string, w word, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wait = asleep
	for candidate, e := range n.episodes {
		owed, due, ok := n.toldLocked(r, candidate).owed(e, n.least, n.repeat)
		if !ok {
			continue
		}
		if r.notBefore.After(due) {
			due = r.notBefore
		}
		if pause := due.Sub(now); pause > 0 {
			wait = min(wait, pause)
			continue
		}
		if name == "" || before(candidate, owed, name, w) {
			name, w = candidate, owed
		}
	}
	return name, w, wait
}

func before(name string, w word, otherName string, other word) bool {
	switch {
	case w.resolved != other.resolved:
		return other.resolved
	case w.severity != other.severity:
		return w.severity > other.severity
	}
	return name < otherName
}

func (n *Notifier) toldLocked(r *receiver, name string) *told {
	t := r.told[name]
	if t == nil {
		t = &told{}
		r.told[name] = t
	}
	return t
}

// attempt sends one word and notes what became of it. While it is sent, things may change: that is owed afterwards.
func (n *Notifier) attempt(sending context.Context, r *receiver, name string, w word) {
	ctx, cancel := context.WithTimeout(sending, n.timeout)
	defer cancel()
	start := time.Now()
	failed := r.sender.send(ctx, w.message(n.about, r.name, n.externalURL))
	now := time.Now()
	event := func(e *zerolog.Event) *zerolog.Event {
		return e.Str("receiver", r.name).Str("condition", name).Str("status", w.status()).Stringer("severity", w.severity).Dur("duration", now.Sub(start))
	}
	n.mu.Lock()
	t := n.toldLocked(r, name)
	if failed == nil {
		t.took(w, now)
		n.mu.Unlock()
		n.set.AlertsSent.WithLabelValues(r.name).Inc()
		event(n.log.Info()).Bool("repeated", w.repeated).Msg("notification sent")
		return
	}
	pause := t.failed(w, failed, n.repeat, now)
	attempts := t.attempts
	if failed.after > 0 {
		r.notBefore = now.Add(failed.after)
	}
	n.mu.Unlock()

	n.set.AlertsFailed.WithLabelValues(r.name).Inc()
	line := n.log.Debug()
	switch {
	case failed.refused:
		n.set.AlertsDropped.Inc()
		line = n.log.Error()
	case attempts == 1 || pause > backoffMax/2: // the first, and then a few an hour
		line = n.log.Warn()
	}
	line = event(line).Int("attempt", attempts).Dur("backoff", pause).Str("error", failed.text)
	if failed.next != "" {
		line = line.Str("next", failed.next)
	}
	line.Msg("notification not sent")
}

// pending names what the receiver has not been told and would take, the gravest first.
func (n *Notifier) pending(r *receiver) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	words := map[string]word{}
	for name, e := range n.episodes {
		if w, _, ok := n.toldLocked(r, name).owed(e, n.least, 0); ok {
			words[name] = w
		}
	}
	names := make([]string, 0, len(words))
	for name := range words {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if before(a, words[a], b, words[b]) {
			return -1
		}
		return 1
	})
	return names
}

// last returns the word for a last try: without a wait for its pause, but not against what the receiver said.
func (n *Notifier) last(r *receiver, name string) (word, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.toldLocked(r, name)
	w, _, ok := t.owed(n.episodes[name], n.least, 0)
	refused := t.refused && t.tried == w.key()
	return w, ok && !refused && !r.notBefore.After(time.Now())
}

// leave counts what nobody will hear of any more.
func (n *Notifier) leave() {
	for _, r := range n.receivers {
		for _, name := range n.pending(r) {
			n.set.AlertsDropped.Inc()
			n.log.Warn().Str("receiver", r.name).Str("condition", name).Msg("process ended before the receiver could be told")
		}
	}
}
