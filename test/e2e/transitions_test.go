package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts"
)

// monitorInterval is the default of monitor.interval: what is said of the slot is never older, while the server answers.
var monitorInterval = monitor.DefaultConfig().Interval

// A slot that nobody reads goes from reserved to extended, unreserved and lost. Whoever looks at the relay sees each, wherever he looks.
func TestTransitions_OfASlotAreSeenEverywhere(t *testing.T) {
	for _, version := range []string{"14", "16", "17", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t, version)
			w.until(t, "reserved", "")
			w.pause(t)
			w.until(t, "extended", "firing info "+health.SlotExtended)
			w.until(t, "unreserved", "firing critical "+health.SlotNearLoss)
			require.False(t, w.pager.has("firing critical "+health.SlotLost))
			w.until(t, "lost", "firing critical "+health.SlotLost)

			parts.Await(t, "that it is neither near loss nor extended any more", func() (bool, error) {
				return w.pager.has("resolved critical "+health.SlotNearLoss) && w.pager.has("resolved info "+health.SlotExtended), nil
			})
			told := w.pager.words()
			require.NoError(t, w.relay.Signal(syscall.SIGTERM))
			<-w.relay.Done
			require.Equal(t, told, w.pager.words(), "the end of the process is no news")
			require.NotContains(t, told, "resolved critical "+health.SlotLost)
			require.NotContains(t, w.relay.Log.String(), "recreated", "it is the slot of before")
		})
	}
}

// watched is a relay whose slot loses its WAL, with all that tells of it.
type watched struct {
	*shop
	relay *relay
	pager *pager
	admin string // URL of the listener
	sql   *pgx.Conn
}

const adminToken = "token-of-the-test"

// newWatched starts a relay on a server that keeps little WAL. Segments have 16 MiB: more than 5 of them are over max_wal_size, more than 8 over
// max_slot_wal_keep_size, and a checkpoint, which would take the slot away, begins by itself only 3 after the last.
func newWatched(t testing.TB, version string) *watched {
	t.Helper()
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: map[string]string{
		"max_wal_size": "64MB", "min_wal_size": "32MB", "checkpoint_completion_target": "0", "checkpoint_timeout": "1h",
		"max_slot_wal_keep_size": "128MB",
	}})
	c := newCluster(t)
	port, err := child.FreePort()
	require.NoError(t, err)
	w := &watched{
		shop:  shopOf(t, parts.NewDatabase(t, server.DSN()), c, routeTo(c.Topic(t, partitions), "")),
		pager: newPager(t, false), admin: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
	}
	w.sql = w.Connect(t)
	w.relay = w.run(t, map[string]string{
		"POSTRIDER_ALERTS_WEBHOOK": w.pager.url,
		"POSTRIDER_ADMIN_LISTEN":   strings.TrimPrefix(w.admin, "http://"), "POSTRIDER_ADMIN_TOKEN": adminToken,
	})
	w.do(t, insertOrder)
	w.awaitConfirmed(t, w.relay)
	return w
}

// pause has the relay let go of the slot.
func (w *watched) pause(t testing.TB) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.admin+"/pause", strings.NewReader("{}"))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", b)
	parts.Await(t, "a relay that is paused", func() (bool, error) { return w.relay.state(t).Phase == "paused", nil })
}

// until writes WAL, or has it taken away, until the slot has the status, and wants everybody to see that: metrics, status, the page's JSON, and
// unless it is empty, the word told to the webhook.
func (w *watched) until(t testing.TB, status, word string) {
	t.Helper()
	for has := w.walStatus(t); has != status; has = w.walStatus(t) {
		w.step(t, status, has)
	}
	at := time.Now()
	var seen []string
	for _, place := range []struct {
		name string
		look func(testing.TB) (walStatus string, observed time.Time)
	}{{"/metrics", w.inMetrics}, {"/status", w.inStatus}, {"/api/slot", w.inPage}} {
		parts.Await(t, status+" in "+place.name, func() (bool, error) {
			is, observed := place.look(t)
			if is != status && observed.After(at.Add(monitorInterval)) {
				return false, fmt.Errorf("it says %s, as of %s after the slot was %s", is, observed.Sub(at), status)
			}
			return is == status, nil
		})
		seen = append(seen, fmt.Sprintf("%s %.1f s", place.name, time.Since(at).Seconds()))
	}
	if word == "" {
		require.Empty(t, w.pager.words())
		return
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(word, "firing "), " ")
	var v health.Verdict
	_, err := getJSON(w.relay.url+"/api/verdict", &v)
	require.NoError(t, err)
	require.Contains(t, conditionNames(v), name, "what the slot's part shows, the verdict knows")
	parts.Await(t, word, func() (bool, error) { return w.pager.has(word), nil })
	for _, n := range w.pager.notifications() {
		if n.word() == word {
			seen = append(seen, fmt.Sprintf("webhook %.1f s", n.at.Sub(at).Seconds()))
		}
	}
	t.Logf("%s, seen within: %s", status, strings.Join(seen, ", "))
}

// step fills up a segment, or lets a checkpoint take the WAL away. The checkpoint before each segment is so that none comes by itself while
// the slot is unreserved, which would be over before anybody saw it.
func (w *watched) step(t testing.TB, wanted, has string) {
	t.Helper()
	if wanted == "lost" {
		w.do(t, "CHECKPOINT")
		return
	}
	require.Contains(t, []string{"reserved", "extended"}, has, "it should have been %s", wanted)
	w.do(t, "CHECKPOINT")
	writeSegment(t, w.shop)
}

func (w *watched) walStatus(t testing.TB) (status string) {
	t.Helper()
	require.NoError(t, w.sql.QueryRow(t.Context(), "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", w.slot).Scan(&status))
	return status
}

var (
	walStatusSeries = regexp.MustCompile(`(?m)^postrider_slot_wal_status\{.*status="(\w+)"\} 1$`)
	observedSeries  = regexp.MustCompile(`(?m)^postrider_slot_observed_timestamp_seconds\{.*\} (\S+)$`)
)

func (w *watched) inMetrics(t testing.TB) (string, time.Time) {
	t.Helper()
	response, err := http.Get(w.relay.url + "/metrics")
	require.NoError(t, err)
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	status, observed := walStatusSeries.FindSubmatch(b), observedSeries.FindSubmatch(b)
	if status == nil || observed == nil {
		return "", time.Time{}
	}
	seconds, err := strconv.ParseFloat(string(observed[1]), 64)
	require.NoError(t, err)
	return string(status[1]), time.UnixMicro(int64(seconds * 1e6))
}

func (w *watched) inStatus(t testing.TB) (string, time.Time) {
	t.Helper()
	var report struct{ Slot slot.Status }
	_, err := getJSON(w.relay.url+"/status", &report)
	require.NoError(t, err)
	return report.Slot.WALStatus, report.Slot.ObservedAt
}

func (w *watched) inPage(t testing.TB) (string, time.Time) {
	t.Helper()
	var o monitor.Observation
	_, err := getJSON(w.relay.url+"/api/slot", &o)
	require.NoError(t, err)
	return o.Slot.WALStatus, o.Slot.ObservedAt
}

func conditionNames(v health.Verdict) []string {
	var names []string
	for _, c := range v.Conditions {
		names = append(names, c.Name)
	}
	return names
}
