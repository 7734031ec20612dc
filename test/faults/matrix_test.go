package faults

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
)

var (
	long   = flag.Bool("long", false, "the full form of every row, and docs/FAULTS.md and the table in README.md written from what it found")
	seed   = flag.Uint64("seed", 0, "what random choices are made from; 0 takes another one each time")
	rounds = flag.Int("rounds", 0, "how often a fault strikes, in place of what the form says")
)

// full is how much of a row a test runs: short in CI, all with -long. It is the count of the faults, or of whatever the row counts.
// -rounds beats both, and a row that ran less than all says so.
func full(t testing.TB, short, all int) int {
	t.Helper()
	n := short
	if *long {
		n = all
	}
	if *rounds > 0 {
		n = *rounds
	}
	if n < all {
		recorder.with(t, func(o *outcome) { o.reduced = fmt.Sprintf("%d of %d", n, all) })
	}
	return n
}

// fullFor is full for times.
func fullFor(t testing.TB, short, all time.Duration) time.Duration {
	t.Helper()
	if *long {
		return all
	}
	return short
}

// random makes a source of random numbers of a test's own: the same for the same seed, test and stream.
func random(t testing.TB, stream uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(*seed^h.Sum64(), stream))
}

// matrix reports what a test of a row has found: figures as people read them, such as "200 kills: at most 812 repeated by one".
// Variant tells apart what one test reports several times, and may be empty. What judge found is reported by itself. Call it at the end.
func matrix(t testing.TB, number int, variant, figures string) {
	t.Helper()
	require.Equal(t, number, rowOf(t.Name()), "the name of a test says which row it belongs to")
	if variant != "" {
		figures = variant + ": " + figures
	}
	t.Logf("row %d: %s", number, figures)
	recorder.with(t, func(o *outcome) { o.figures = append(o.figures, figures) })
}

// outcome is what is known about one test or subtest.
type outcome struct {
	test     string
	began    time.Time
	ended    time.Time
	failed   bool
	skipped  bool
	reduced  string
	versions []string // of the servers
	verdicts []audit.Verdict
	figures  []string
}

var recorder = recording{outcomes: map[string]*outcome{}}

type recording struct {
	mu       sync.Mutex
	outcomes map[string]*outcome
}

// with changes the outcome of a test, which is kept from the first call on, also if the test fails before its end.
func (r *recording) with(t testing.TB, change func(*outcome)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.outcomes[t.Name()]
	if o == nil {
		o = &outcome{test: t.Name(), began: time.Now()}
		r.outcomes[t.Name()] = o
		t.Cleanup(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			o.ended, o.failed, o.skipped = time.Now(), t.Failed(), t.Skipped()
		})
	}
	change(o)
}

// use notes what a test ran against.
func (r *recording) use(t testing.TB, server string) {
	r.with(t, func(o *outcome) {
		if !slices.Contains(o.versions, server) {
			o.versions = append(o.versions, server)
		}
	})
}

// line is the outcome as a line of the row's table, without its first cell.
func (o *outcome) line() entry {
	var sum audit.Verdict
	for _, v := range o.verdicts {
		sum.Written += v.Written
		sum.Lost += v.Lost
		sum.Duplicated += v.Duplicated
		sum.OutOfOrder += v.OutOfOrder
	}
	e := entry{test: o.test, written: "-", lost: "-", duplicated: "-", disordered: "-", result: "passed"}
	if len(o.verdicts) > 0 {
		e.written, e.lost, e.duplicated, e.disordered = fmt.Sprint(sum.Written), fmt.Sprint(sum.Lost), fmt.Sprint(sum.Duplicated), fmt.Sprint(sum.OutOfOrder)
	}
	if o.reduced != "" {
		e.result = "passed, " + o.reduced
	}
	if o.skipped {
		e.result = "not run"
	}
	if o.failed {
		e.result = "FAILED"
	}
	e.figures = strings.Join(o.figures, "; ")
	e.run = fmt.Sprintf("%s, %s, seed %d, %s", o.began.UTC().Format(time.DateOnly), strings.Join(o.versions, ", "), *seed, o.ended.Sub(o.began).Round(time.Second))
	return e
}
