package page

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

func TestPage_IsDrawnInEveryWidthAndTheme(t *testing.T) {
	for name, make := range map[string]func(time.Time) *scene{"healthy": healthy, "trouble": inTrouble, "empty": empty} {
		base, _ := make(time.Now()).serve(t, "")
		p := open(t, base, 1280, 900)
		for _, scheme := range []string{"light", "dark"} {
			p.colours(scheme)
			for _, width := range []int64{1280, 768, 380} {
				what := fmt.Sprintf("%s-%s-%d", name, scheme, width)
				p.resize(width, 900)
				p.screenshot(what)
				require.LessOrEqual(t, eval[int64](p, "document.scrollingElement.scrollWidth"), width, "%s scrolls sideways", what)
				require.Empty(t, eval[[]string](p, poorContrast), what)
			}
		}
		p.requireQuiet()
	}
}

// empty is a relay that has just started and knows nothing yet: every value that can be absent is.
func empty(time.Time) *scene {
	return &scene{shown: map[string]any{
		"verdict": health.Verdict{State: health.Degraded, Reason: "the first session is not open yet"},
		"pipeline": doc{
			"phase": relay.Starting, "since": time.Time{}, "sessions": 0, "server_wal_lsn": "0/0", "received_lsn": "0/0", "acked_lsn": "0/0", "confirmed_flush_lsn": "0/0",
			"restart_lsn": "0/0", "distances": doc{}, "rates": doc{"published_per_second": 0, "published_bytes_per_second": 0}, "published": 0, "in_flight": 0, "in_flight_bytes": 0,
		},
		"slot": monitor.Observation{}, "history": doc{"interval_seconds": 10, "samples": []doc{}}, "topics": doc{"topics": []doc{}}, "events": doc{"events": []doc{}},
		"errors": doc{"errors": []doc{}}, "check": doc{"running": true, "ok": false, "findings": []doc{}}, "config": doc{"values": []doc{}}, "build": doc{"version": "dev"},
	}}
}

// poorContrast lists visible texts that WCAG AA would not have: below 4.5, or 3 for large ones, against what lies behind them.
const poorContrast = `(() => {
	const read = (colour) => {
		const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
		return { r, g, b, a };
	};
	const over = (top, below) => ({ r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a), b: top.b * top.a + below.b * (1 - top.a), a: 1 });
	const luminance = ({ r, g, b }) => {
		const [x, y, z] = [r, g, b].map((c) => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
		return 0.2126 * x + 0.7152 * y + 0.0722 * z;
	};
	const behind = (node) => {
		const layers = [];
		for (let n = node; n; n = n.parentElement) {
			const c = read(getComputedStyle(n).backgroundColor);
			if (c.a > 0) layers.push(c);
			if (c.a === 1) break;
		}
		return layers.reduceRight((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
	};
	const poor = [];
	for (const node of document.body.querySelectorAll('*')) {
		const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim());
		if (!own || node.closest('.hear, .skip, script, noscript') || !node.checkVisibility()) continue;
		const style = getComputedStyle(node);
		const ground = behind(node);
		const [a, b] = [luminance(over(read(style.color), ground)), luminance(ground)];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(style.fontSize);
		if (ratio < (size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5)) poor.push(ratio.toFixed(2) + ' ' + node.className + ' ' + node.textContent.slice(0, 40));
	}
	return poor;
})()`

func TestPage_FillsAllTenParts(t *testing.T) {
	s := inTrouble(time.Now())
	v := s.get("verdict").(health.Verdict)
	require.Equal(t, health.Failing, v.State)
	require.Greater(t, len(v.Conditions), 3)
	verdict := []string{"Failing", v.Reason, "Means " + v.WAL, "Do ", "Runbook: " + v.Conditions[0].Name}
	for _, c := range v.Conditions {
		verdict = append(verdict, c.Name, c.Reason, c.Cause)
	}
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	for part, texts := range map[string][]string{
		"verdict": verdict,
		"pipeline": {
			"streaming for 3h", "Server WAL 5/A3B113C8 writes 605.0 KiB/s", "12.0 MiB to be read", "500 in flight", "1.6 GiB for Kafka", "Published 5/3B113C88 0 messages/s",
			"Confirmed 5/3B113C88", "49.0 MiB held back", "Restart 5/38000028", "oldest not acknowledged: 47m",
		},
		"slot": {
			"orders observed", "1.3 GiB left before the slot can be lost · 43 % of 3.0 GiB · 1.7 GiB retained", "Slot lost in 37m 39s · 33m to 48m", "while nothing is confirmed", "pid 21733 · postrider", "failover yes", "synced no", "catalog_xmin age 812,733 transactions",
			"transaction of pid 4711", "prepared transaction 'billing-2026-11-20'", "idle in transaction", "replica_1 no", "analytics", "replica_2 inactive", "1 value not known", "the server was restarted",
		},
		"history": {"Published", "Commit to acknowledgement", "p99", "Lag", "Retained WAL", "limit 3.0 GiB", "written 605.0 KiB/s", "drained 0 B/s"},
		"topics":  {"outbox.event.order 812 555.4 KiB 9,310,442", "24 × 3", "min.insync.replicas is 1"},
		"events":  {"outbox.event.shipment", "public.outbox", "5/A3B113C8", "1.8 ms", "612 B"},
		"errors":  {"delivery_timeout", "9 ×", "dial tcp 10.1.2.3:9092: i/o timeout", "postrider check", "Runbook: when a session ends or the relay halts"},
		"check":   {"something is missing", "1 error", "1 warning", "13 ok", "Needed: a broker that answers", "nc -vz kafka-2 9092", "13 in order"},
		"config":  {"postrider.toml", "sink.kafka.brokers", `"kafka-1:9092"`, "postrider.toml:11", `"***"`, "secrets masked"},
		"build":   {"v0.9.0", "4ba6be0d1f9a", "go1.26.8", "linux/amd64", "17.10", "3h 12m ago"},
	} {
		said := p.text("#" + part)
		for _, text := range texts {
			require.Contains(t, said, text, part)
		}
	}
	require.Equal(t, "43", eval[string](p, "document.querySelector('[role=meter]').getAttribute('aria-valuenow')"))
	require.Equal(t, "extended", p.text(`#slot [aria-current="step"]`))
	for _, path := range []string{".line.a", ".area", ".limit"} {
		require.NotEmpty(t, eval[string](p, fmt.Sprintf("document.querySelector('[data-key=\"Retained WAL\"] %s').getAttribute('d')", path)))
	}
	require.Equal(t, "runbook/"+v.Conditions[0].Name, eval[string](p, "document.querySelector('#verdict a.runbook').getAttribute('href')"))
	defer http.DefaultClient.CloseIdleConnections()
	links := eval[[]string](p, "[...document.querySelectorAll('a.runbook')].map((a) => a.href)")
	require.Greater(t, len(links), 3)
	for _, link := range links {
		response, err := http.Get(link)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, "a runbook that is not there: %s", link)
	}
	p.requireQuiet()
}

func TestPage_StateIsInTitleAndIcon(t *testing.T) {
	s := healthy(time.Now())
	base, _ := s.serve(t, "")
	p := open(t, base, 1280, 900)
	icons := map[string]bool{}
	for _, c := range [][2]string{{health.Degraded, "Degraded"}, {health.Failing, "Failing"}, {health.Standby, "Standby"}, {health.OK, "OK"}} {
		state, title := c[0], c[1]
		s.set("verdict", health.Verdict{State: state, Reason: "it is " + state})
		p.await("title "+title, fmt.Sprintf("document.title === %q", title+" · orders · postrider"))
		icon := eval[string](p, "document.getElementById('icon').href")
		require.Contains(t, icon, "data:image/svg+xml,")
		icons[icon] = true
		p.await("words for those who hear", fmt.Sprintf("document.getElementById('hear').textContent === %q", title+": it is "+state))
	}
	require.Len(t, icons, 4)
	// A slot of the default name, and whole segments left beyond a small limit.
	o := observation(time.Now())
	o.Slot.Name, o.Limit.Effective, o.Slot.SafeWALSize, o.Slot.RetainedBytes = "postrider", new(64*mib), new(78*mib), new(2*mib)
	s.set("slot", o)
	p.await("a part of what it is", "document.getElementById('slot').textContent.includes('78.0 MiB left before the slot can be lost · 97 % of 80.0 MiB')")
	s.set("verdict", health.Verdict{State: health.Failing, Reason: "it is failing"})
	p.await("the name once", "document.title === 'Failing · postrider'")
	p.requireQuiet()
}

func TestPage_IsSmallAndThereAtOnce(t *testing.T) {
	base, _ := inTrouble(time.Now()).serve(t, "")
	through := countBytes(t, strings.TrimPrefix(base, "http://"))
	p := open(t, "http://"+through.address, 1280, 900)
	t.Logf("%d bytes over the network with the first data", through.sent.Load())
	require.Less(t, through.sent.Load(), int64(150_000))
	p.await("a first paint", "performance.getEntriesByType('paint').length > 0")
	t.Logf("paint: %s", eval[string](p, "performance.getEntriesByType('paint').map((e) => e.name + ' ' + e.startTime.toFixed(0) + ' ms').join(', ')"))
	p.requireQuiet()
}

// counted passes connections on and counts what the server sends.
type counted struct {
	address string
	sent    atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.sent.Add(int64(len(b)))
	return len(b), nil
}

func countBytes(t *testing.T, target string) *counted {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &counted{address: listener.Addr().String()}
	var connections sync.WaitGroup
	// Accepts until the listener is closed; each connection has two goroutines, which end with either side. The cleanup waits for all.
	connections.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			end := func() { _, _ = client.Close(), server.Close() }
			connections.Go(func() { defer end(); _, _ = io.Copy(server, client) })
			connections.Go(func() { defer end(); _, _ = io.Copy(io.MultiWriter(client, c), server) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		connections.Wait()
	})
	return c
}
