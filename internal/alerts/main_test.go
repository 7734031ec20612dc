package alerts

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// condition fires after wait.
func condition(name string, severity health.Severity, wait time.Duration) health.Condition {
	return health.Condition{
		Name: name, Severity: severity, For: wait, Reason: "reason of " + name, WAL: "kept",
		Next: "postrider check", Cause: "kafka",
	}
}

var about = About{
	Slot: "orders", Database: "shop", Server: "db:5432", Instance: "relay-0", Version: "1.2.3",
}

// heard is a notification that reached a receiver.
type heard struct {
	message
	at   time.Time
	took bool
}

// fake is a receiver with scripted answers.
type fake struct {
	mu     sync.Mutex
	heard  []heard
	answer func(ctx context.Context, m message) *failure // nil: takes everything
}

func (f *fake) send(ctx context.Context, m message) *failure {
	f.mu.Lock()
	answer := f.answer
	f.mu.Unlock()
	var failed *failure
	if answer != nil {
		failed = answer(ctx, m)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = append(f.heard, heard{m, time.Now(), failed == nil})
	return failed
}

func (f *fake) answers(answer func(context.Context, message) *failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// words are "firing warning PostriderX", in the order in which they came; with a "?" if they were
// not taken.
func (f *fake) words() []string {
	var words []string
	for _, h := range f.all() {
		word := h.Status + " " + h.CommonLabels["severity"] + " " + h.CommonLabels["alertname"]
		if !h.took {
			word += "?"
		}
		words = append(words, word)
	}
	return words
}

func (f *fake) all() []heard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.heard)
}

func (f *fake) last() heard {
	all := f.all()
	return all[len(all)-1]
}

// bench is a running notifier that is updated once a second, as by the daemon.
type bench struct {
	*Notifier
	stop func() // ends Run and waits for it

	mu    sync.Mutex
	holds []health.Condition
}

// start runs a notifier inside of a bubble of synctest.
func start(t testing.TB, cfg Config, receivers ...*receiver) *bench {
	t.Helper()
	n, err := New(cfg, about, metrics.New(prometheus.NewRegistry(), "orders"), zerolog.Nop())
	require.NoError(t, err)
	n.receivers = receivers
	ctx, cancel := context.WithCancel(t.Context())
	b := &bench{Notifier: n}
	var looking, running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	ticks, endTicks := context.WithCancel(t.Context())
	looking.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.mu.Lock()
				holds := b.holds
				b.mu.Unlock()
				n.Update(time.Now(), holds)
			case <-ticks.Done():
				return
			}
		}
	})
	b.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		endTicks()
		looking.Wait()
	})
	t.Cleanup(b.stop)
	return b
}

// set says what holds from the next look on.
func (b *bench) set(conditions ...health.Condition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = conditions
}

func (b *bench) sent(receiver string) float64 {
	return testutil.ToFloat64(b.Notifier.set.AlertsSent.WithLabelValues(receiver))
}

func (b *bench) failed(receiver string) float64 {
	return testutil.ToFloat64(b.Notifier.set.AlertsFailed.WithLabelValues(receiver))
}

func (b *bench) dropped() float64 { return testutil.ToFloat64(b.Notifier.set.AlertsDropped) }
