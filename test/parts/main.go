package parts

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// run is the state of one test binary. The testing package gives a run no other place to keep what
// its tests share.
var run = struct {
	mu       sync.Mutex
	missing  []string
	stops    []func() error // of the shared servers, in the order they were started
	postgres map[string]func() (dsn string, err error)
}{postgres: map[string]func() (string, error){}}

// Main runs the tests of a package, six parallel ones at once, ends the shared servers, looks for
// leaked goroutines with the given options, lists what was missing, and exits. Call it from
// TestMain.
func Main(m *testing.M, leakOptions ...goleak.Option) {
	recordStatements()
	runAtOnce()
	status := m.Run()
	check := func(err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "parts: %v\n", err)
			status = max(status, 1)
		}
	}
	if status == 0 {
		check(compareStatements())
	}
	run.mu.Lock()
	stops, missing := run.stops, run.missing
	run.mu.Unlock()
	for _, stop := range slices.Backward(stops) {
		check(stop())
	}
	// After a failed test, goroutines that it left behind would only hide the failure.
	if status == 0 {
		check(findLeaks(leakOptions))
	}
	if len(missing) > 0 {
		fmt.Fprintf(os.Stderr, "\nMISSING PARTS, not everything was tested:\n  - %s\n",
			strings.Join(missing, "\n  - "))
	}
	os.Exit(status)
}

// atOnce is how many parallel tests of a package run at once, also with fewer cores: they
// wait for servers more than they compute.
const atOnce = 6

// runAtOnce sets atOnce, unless the command line has -parallel.
func runAtOnce() {
	if !flag.Parsed() {
		flag.Parse()
	}
	f := flag.Lookup("test.parallel")
	if f.Value.String() != f.DefValue || runtime.GOMAXPROCS(0) >= atOnce {
		return
	}
	if err := f.Value.Set(strconv.Itoa(atOnce)); err != nil {
		panic(err)
	}
}

// leakPatience is how long goroutines may take to end: on a busy machine longer than the half
// second that goleak waits.
const leakPatience = 20 * time.Second

// findLeaks returns nil as soon as no goroutine is left.
func findLeaks(options []goleak.Option) error {
	for began := time.Now(); ; {
		err := goleak.Find(options...)
		if err == nil || time.Since(began) > leakPatience {
			return err
		}
	}
}

// lacking notes that a part is missing and why. With the part in POSTRIDER_TEST_REQUIRE the test
// fails. Otherwise the caller decides whether to skip or to go on with something lesser.
func lacking(t testing.TB, part, reason string) {
	t.Helper()
	line := part + ": " + reason
	run.mu.Lock()
	if !slices.Contains(run.missing, line) {
		run.missing = append(run.missing, line)
	}
	run.mu.Unlock()
	if required := strings.Split(os.Getenv("POSTRIDER_TEST_REQUIRE"), ","); slices.ContainsFunc(
		required, func(name string) bool { return strings.TrimSpace(name) == part }) {
		t.Fatalf("%s, and POSTRIDER_TEST_REQUIRE has it", line)
	}
	t.Logf("MISSING PART %s", line)
}

// Lacking skips a test without a part, such as the right to mount a file system. With the part in
// POSTRIDER_TEST_REQUIRE the test fails instead.
func Lacking(t testing.TB, part, reason string) {
	t.Helper()
	lacking(t, part, reason)
	t.Skipf("no %s: %s", part, reason)
}

// AtEnd has Main call stop after the last test, for what the tests of a package share.
func AtEnd(stop func() error) {
	run.mu.Lock()
	defer run.mu.Unlock()
	run.stops = append(run.stops, stop)
}
