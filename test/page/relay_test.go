package page

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// run starts `postrider run`.
func run(t *testing.T, config, listen string) *parts.Relay {
	t.Helper()
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return parts.StartRelay(t, parts.RelayConfig{}, "run", "--config", file, "--http-listen", listen)
}

const table = `
	CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text, payload jsonb);
	CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`

// One relay between real servers, through what an operator is called for: a broker that stalls, a slot that nears its loss, a relay
// that is restarted.
func TestRelay_ShowsAStalledBrokerAndASlotNearItsLoss(t *testing.T) {
	broker := parts.ExclusiveKafka(t, parts.KafkaConfig{ThroughProxy: true})
	broker.CreateTopic(t, "outbox.event.order", 3, nil)
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17", Params: map[string]string{
		"max_slot_wal_keep_size": "128MB", "checkpoint_timeout": "1h", "max_wal_size": "4GB",
	}})
	db := parts.NewDatabase(t, server.DSN())
	db.Exec(t, table)
	port, err := child.FreePort()
	require.NoError(t, err)
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	config := fmt.Sprintf("[postgres]\nurl = %q\n[slot]\nname = \"orders\"\n[sink.kafka]\nbrokers = [%q]\n[log]\nformat = \"json\"\n", db.DSN(), broker.Brokers()[0])
	relay := run(t, config, listen)
	insert := func() {
		db.Exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, payload) SELECT 'order', n::text, '{}' FROM generate_series(1, 20) n")
	}

	p := blank(t, "http://"+listen, 1280, 900)
	require.Eventually(t, func() bool { return chromedp.Do(p.ctx, chromedp.Navigate(p.base+"/")) == nil }, parts.Patience, 50*time.Millisecond, "the listener")
	p.await("streaming", "document.getElementById('pipeline').textContent.includes('streaming')")
	insert()
	for part, shown := range map[string]string{
		"verdict":  "document.querySelector('#verdict .reason')",
		"pipeline": "document.querySelectorAll('#pipeline .lsn').length === 5 && ![...document.querySelectorAll('#pipeline .lsn')].some((l) => l.textContent === '–')",
		"slot":     "document.querySelector('#slot [role=meter]') && document.querySelector('#slot .at-reserved')",
		"history":  "document.querySelectorAll('#history .line').length === 8",
		"topics":   "/outbox\\.event\\.order.*20/.test(document.querySelector('#topics tbody')?.textContent)",
		"events":   "document.querySelector('#events tbody')?.textContent.includes('public.outbox')",
		"errors":   "document.getElementById('errors').textContent.includes('no session has ended')",
		"check":    "document.getElementById('check').textContent.includes('in order')",
		"config":   "document.getElementById('config').textContent.includes('slot.name')",
		"build":    "document.getElementById('build').textContent.includes('17.')",
	} {
		p.await("the part "+part, shown)
	}
	p.await("a relay that is well", "document.querySelector('#verdict.ok')")
	require.NotContains(t, eval[string](p, "document.documentElement.innerHTML"), "password")
	p.screenshot("relay-ok")

	id := "5f0b0bd2-6a3e-4b49-8a0a-0a2b9f1f7c01"
	db.Exec(t, "INSERT INTO outbox VALUES ('"+id+"', 'order', 'secret-key', 'OrderCreated', '{\"canary\": 1}')")
	p.find(id, "is published: topic outbox.event.order, partition")
	require.Contains(t, p.text("#trace"), "public.outbox")
	require.NotContains(t, p.text("#trace"), "secret-key")
	require.NotContains(t, p.text("#trace"), "canary")
	p.screenshot("relay-traced")
	p.console() // of searches that followed at once

	broker.Proxy.Stall()
	began := time.Now()
	insert()
	p.await("a stalled broker", "!document.querySelector('#verdict.ok') && document.getElementById('verdict').textContent.includes('PostriderStuck')")
	t.Logf("the stalled broker was shown after %s", time.Since(began).Round(10*time.Millisecond))
	p.await("what waits for Kafka", "document.getElementById('pipeline').textContent.includes('20 in flight')")
	p.screenshot("relay-stalled")

	// Eight megabytes at a time, of which the relay wants nothing.
	for range 14 {
		db.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 8 * 1024 * 1024))")
	}
	p.await("a slot near its loss", "document.getElementById('verdict').textContent.includes('PostriderSlotNearLoss')")
	p.await("how near", "Number(document.querySelector('#slot [role=meter]').getAttribute('aria-valuenow')) < 20 && document.querySelector('#slot .used.critical')")
	p.await("the gravest state", "document.querySelector('#verdict.failing') && document.title.startsWith('Failing')")
	p.screenshot("relay-near-loss")

	broker.Proxy.Resume()
	p.await("a relay that is well again", "document.querySelector('#verdict.ok') && document.title.startsWith('OK')")
	p.requireQuiet()

	relay.Stop(t)
	p.await("a word that nobody answers", "!document.getElementById('banner').hidden && document.title.startsWith('No data')")
	run(t, config, listen)
	p.await("the relay after its restart", "document.documentElement.dataset.stream === 'live' && document.querySelector('#verdict.ok')")
	for _, line := range p.console() {
		require.Contains(t, line, "net::ERR_", "only the browser's own words about the connection")
	}
	p.requireQuiet()
}
