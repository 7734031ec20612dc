package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// secretPath stands in the webhook's URL, and nowhere in what the relay prints or shows.
const secretPath = "CANARY-of-the-webhook"

// pager is a receiver of notifications, in the test's own process.
type pager struct {
	url      string
	released chan struct{} // closed at the end of the test: lets go of what hangs

	mu  sync.Mutex
	got []notification
}

// notification is the part of Alertmanager's payload that tests look at.
type notification struct {
	Status       string            `json:"status"`
	CommonLabels map[string]string `json:"commonLabels"`
	Alerts       []struct {
		Annotations map[string]string `json:"annotations"`
		Fingerprint string            `json:"fingerprint"`
	} `json:"alerts"`
	at time.Time
}

// word is "firing critical PostriderSlotLost".
func (n notification) word() string {
	return n.Status + " " + n.CommonLabels["severity"] + " " + n.CommonLabels["alertname"]
}

// newPager answers each request with 200, or never if it hangs.
func newPager(t testing.TB, hangs bool) *pager {
	t.Helper()
	p := &pager{released: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		n := notification{at: time.Now()}
		if err != nil || json.Unmarshal(b, &n) != nil {
			return
		}
		p.mu.Lock()
		p.got = append(p.got, n)
		p.mu.Unlock()
		if hangs {
			<-p.released
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(p.released) })
	p.url = server.URL + "/" + secretPath
	return p
}

func (p *pager) notifications() []notification {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

func (p *pager) words() []string {
	var words []string
	for _, n := range p.notifications() {
		words = append(words, n.word())
	}
	return words
}

// has tells whether one of the words came.
func (p *pager) has(words ...string) bool {
	return slices.ContainsFunc(p.words(), func(word string) bool { return slices.Contains(words, word) })
}

// awaitLong is await for what takes its time by design, such as a condition that has to hold for a minute.
func awaitLong(t testing.TB, what string, done func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(4 * time.Minute)
	for {
		ok, err := done()
		require.NoError(t, err, "while waiting for: %s", what)
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(t, "waited in vain for: "+what)
		}
	}
}

// shopOf is newShop with servers of the test's own.
func shopOf(t testing.TB, db *parts.Database, c cluster, config string) *shop {
	t.Helper()
	s := &shop{Database: db, cluster: c, slot: parts.Unique("e2e")}
	s.Exec(t, outboxSQL)
	s.sql = s.Connect(t)
	s.file = filepath.Join(t.TempDir(), "postrider.toml")
	s.configure(t, config)
	return s
}

const insertOrder = `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'a', '{}')`

// requireNoSecret looks for the webhook's URL wherever the relay prints or shows something. Call it while the relay runs.
func requireNoSecret(t testing.TB, r *relay) {
	t.Helper()
	for _, path := range []string{"/status", "/metrics", "/api/config", "/api/errors", "/api/verdict"} {
		response, err := http.Get(r.url + path)
		require.NoError(t, err)
		b, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.NotContains(t, string(b), secretPath, path)
	}
	require.NotContains(t, r.Log.String()+r.Stdout.String(), secretPath)
}

func TestAlerts_TellOfABrokerThatIsDownAndThatItIsBack(t *testing.T) {
	t.Parallel()
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{})
	c := cluster{broker}
	topic := c.Topic(t, partitions)
	s := shopOf(t, parts.Postgres(t, parts.AnyVersion), c, routeTo(topic, `
[sink.kafka]
produce_timeout = "3s"
read_timeout = "5s"
delivery_timeout = "20s"
`))
	p := newPager(t, false)
	r := s.run(t, map[string]string{"POSTRIDER_ALERTS_WEBHOOK": p.url, "POSTRIDER_ALERTS_SEVERITY": "critical"})
	s.do(t, insertOrder)
	s.awaitConfirmed(t, r)
	require.Empty(t, p.words(), "all is well")

	broker.Kill(t)
	s.do(t, insertOrder)
	down := time.Now()
	firing := []string{"firing critical PostriderNotReady", "firing critical PostriderStuck"}
	awaitLong(t, "a notification of the broker that is down", func() (bool, error) { return p.has(firing...), nil })
	first := p.notifications()[0]
	t.Logf("%s after %.0f s", first.word(), first.at.Sub(down).Seconds())
	require.Equal(t, s.slot, first.CommonLabels["slot"])
	require.Equal(t, s.Name, first.CommonLabels["database"])
	require.NotEmpty(t, first.CommonLabels["server"])
	for _, name := range []string{"summary", "description", "wal", "next", "runbook_url"} {
		require.NotEmpty(t, first.Alerts[0].Annotations[name], name)
	}
	requireNoSecret(t, r)

	broker.Restart(t)
	back := time.Now()
	awaitLong(t, "that everything is told as resolved", func() (bool, error) {
		open := map[string]bool{}
		for _, n := range p.notifications() {
			open[n.Alerts[0].Fingerprint] = n.Status == "firing"
		}
		for _, firing := range open {
			if firing {
				return false, nil
			}
		}
		return true, nil
	})
	t.Logf("all resolved after %.0f s: %q", time.Since(back).Seconds(), p.words())
	s.awaitConfirmed(t, r)
	require.Equal(t, 2, s.count(t, topic))
	told := len(p.words())
	r.Stop(t)
	require.Len(t, p.words(), told, "the end of the process is no news")
	require.NotContains(t, r.Log.String(), secretPath)
}

// A long transaction holds WAL, of which both receivers are to be told, and the webhook never answers. Rows flow all the same.
func TestAlerts_AWebhookThatHangsDelaysNothing(t *testing.T) {
	t.Parallel()
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17", Params: map[string]string{"max_wal_size": "32MB", "min_wal_size": "32MB"}})
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := shopOf(t, parts.NewDatabase(t, server.DSN()), c, routeTo(topic, ""))
	hangs := newPager(t, true)
	told := filepath.Join(t.TempDir(), "told")
	program := filepath.Join(t.TempDir(), "notify")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n(cat && echo) >> "+told+"\n"), 0o700))
	r := s.run(t, map[string]string{
		"POSTRIDER_ALERTS_WEBHOOK": hangs.url, "POSTRIDER_ALERTS_TIMEOUT": "2s", "POSTRIDER_ALERTS_COMMAND": program,
		"POSTRIDER_MONITOR_INTERVAL": "1s",
	})
	s.do(t, "CREATE TABLE other (n int)")
	tx := s.begin(t)
	_, err := tx.Exec(t.Context(), "INSERT INTO other VALUES (1)") // one that writes nothing would not hold restart_lsn
	require.NoError(t, err)
	status := ""
	for range 10 {
		writeSegment(t, s)
		require.NoError(t, s.sql.QueryRow(t.Context(), "SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", s.slot).Scan(&status))
	}
	require.Equal(t, "extended", status)

	parts.Await(t, "a request that hangs", func() (bool, error) { return hangs.has("firing info PostriderSlotExtended"), nil })
	parts.Await(t, "what the command was given", func() (bool, error) {
		b, err := os.ReadFile(told)
		if os.IsNotExist(err) {
			return false, nil
		}
		return strings.Contains(string(b), "PostriderSlotExtended"), err
	})
	for n := 1; n <= 5; n++ {
		requests := len(hangs.words())
		s.do(t, insertOrder)
		s.awaitConfirmed(t, r)
		require.Equal(t, n, s.count(t, topic))
		if n < 3 {
			parts.Await(t, "another request that hangs", func() (bool, error) { return len(hangs.words()) > requests, nil })
		}
	}
	require.Equal(t, 1, r.state(t).Sessions)
	parts.Await(t, "the log says that the webhook does not answer", func() (bool, error) {
		return strings.Contains(r.Log.String(), "no answer within 2s"), nil
	})
	requireNoSecret(t, r)
	r.Stop(t)
	b, err := os.ReadFile(told)
	require.NoError(t, err)
	require.NotContains(t, string(b), "resolved", "the end of the process is no news")
	require.NoError(t, tx.Rollback(t.Context()))
}

// writeSegment fills up the server's present WAL segment.
func writeSegment(t testing.TB, s *shop) {
	t.Helper()
	s.do(t, "SELECT pg_logical_emit_message(false, 'e2e', 'x')", "SELECT pg_switch_wal()")
}

// A relay that halts is gone before anything can have held for a while.
func TestAlerts_ARelayThatHaltsTellsSoBeforeItEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(c.Topic(t, partitions), ""))
	p := newPager(t, false)
	r := s.run(t, map[string]string{"POSTRIDER_ALERTS_WEBHOOK": p.url})
	s.do(t, `INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', NULL, '{}')`)
	require.Equal(t, 1, r.Wait(t))
	require.Equal(t, []string{"firing critical PostriderNotReady"}, p.words())
	require.Contains(t, p.notifications()[0].Alerts[0].Annotations["summary"], "aggregate_id")
	require.NotContains(t, r.Log.String(), secretPath)
}
