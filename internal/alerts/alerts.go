package alerts

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/metrics"
)

// Notifier sends conditions to receivers. All methods are safe for concurrent use; Update may also
// be called before Run and after it.
type Notifier struct {
	about       About
	externalURL string
	timeout     time.Duration
	set         *metrics.Set
	log         zerolog.Logger
	receivers   []*receiver // does not change

	mu        sync.Mutex // guards what follows, and a receiver's state; never held while sending
	least     rank       // lowest severity to send
	repeat    time.Duration
	incidents map[string]*incident // by condition
	stopped   <-chan struct{}      // the Done of Run's context; nil before Run
}

type receiver struct {
	name   string // in the payload, and as a label of the metrics
	sender sender
	wake   chan struct{} // holds at most one: something may be pending

	// Guarded by Notifier.mu.
	deliveries map[string]*delivery // by condition
	notBefore  time.Time            // no attempt earlier: the receiver sent Retry-After
}

// sender makes one attempt to deliver a payload, and returns nil if the receiver accepted it. It
// ends with ctx.
type sender interface {
	send(ctx context.Context, payload message) *failure
}

// failure is why an attempt failed. Neither text shows a secret.
type failure struct {
	text       string        // the error
	next       string        // what to do; empty: wait
	refused    bool          // the same attempt would fail again
	reached    bool          // the receiver may have accepted it
	retryAfter time.Duration // that the receiver requests; zero: none
}

// Names of the receivers.
const (
	receiverWebhook = "webhook"
	receiverCommand = "command"
)

// New returns a notifier that is not running. Errors are those of cfg.Validate.
func New(cfg Config, about About, set *metrics.Set, log zerolog.Logger) (*Notifier, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Notifier{
		about: about, externalURL: cfg.ExternalURL, timeout: cfg.Timeout, set: set, log: log,
		receivers: receivers(cfg, about), least: rankOf(health.Severity(cfg.Severity)),
		repeat: cfg.RepeatInterval, incidents: map[string]*incident{},
	}
	for _, r := range n.receivers {
		set.AlertsSent.WithLabelValues(r.name)
		set.AlertsFailed.WithLabelValues(r.name)
	}
	return n, nil
}

func receivers(cfg Config, about About) (rs []*receiver) {
	if cfg.Webhook.IsSet() {
		rs = append(rs, newReceiver(receiverWebhook, newWebhook(cfg, about.Version)))
	}
	if len(cfg.Command) > 0 {
		rs = append(rs, newReceiver(receiverCommand, newCommand(cfg)))
	}
	return rs
}

func newReceiver(name string, s sender) *receiver {
	return &receiver{
		name: name, sender: s, wake: make(chan struct{}, 1), deliveries: map[string]*delivery{},
	}
}

// Adopt takes severity and repeat_interval over from another valid Config. A receiver
// that has accepted a condition still gets its end, whatever its severity.
func (n *Notifier) Adopt(cfg Config) {
	n.mu.Lock()
	n.least, n.repeat = rankOf(health.Severity(cfg.Severity)), cfg.RepeatInterval
	n.mu.Unlock()
	n.wake()
}

func (n *Notifier) wake() {
	for _, r := range n.receivers {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Update sets the present conditions. Call it about once a second: an absent one ends after a
// while. It does not block or keep the slice. After the context of Run has ended it does nothing.
func (n *Notifier) Update(now time.Time, conditions []health.Condition) {
	n.update(now, mostSevere(conditions), false)
}

// Last is Update for a process that is about to exit, as when the relay halts: it fires each
// condition at once, whatever its For, and resolves none. Call it before the context of Run ends:
// Run sends the notifications.
func (n *Notifier) Last(now time.Time, conditions []health.Condition) {
	n.update(now, mostSevere(conditions), true)
}

func (n *Notifier) update(now time.Time, present map[string]*health.Condition, urgent bool) {
	if len(n.receivers) == 0 {
		return
	}
	n.mu.Lock()
	select {
	case <-n.stopped:
		n.mu.Unlock()
		return
	default:
	}
	for name := range present {
		if n.incidents[name] == nil {
			n.incidents[name] = &incident{}
		}
	}
	missed := map[*receiver][]string{} // names of conditions
	for name, i := range n.incidents {
		i.update(now, present[name], urgent)
		for _, r := range n.receivers {
			if d := r.deliveries[name]; d != nil && d.missed(i) {
				missed[r] = append(missed[r], name)
			}
		}
	}
	n.mu.Unlock() // logging may block
	for r, names := range missed {
		n.dropped(r, names, "condition ended before the receiver could be notified")
	}
	n.wake()
}

// dropped counts and logs conditions of which the receiver accepted no notification.
func (n *Notifier) dropped(r *receiver, conditions []string, why string) {
	for _, name := range conditions {
		n.set.AlertsDropped.Inc()
		n.log.Warn().Str("receiver", r.name).Str("condition", name).Msg(why)
	}
}
