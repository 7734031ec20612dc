package page

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// doc is a JSON object.
type doc = map[string]any

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// scene is what a page shows. Tests change it while the page is open.
type scene struct {
	mu    sync.Mutex
	shown map[string]any
	trace func(ctx context.Context, id string) (int, any) // nil: the page has no search
}

// pageParts are the parts in the order of the page.
var pageParts = []string{"verdict", "pipeline", "slot", "history", "topics", "events", "errors", "check", "config", "build"}

// set replaces the JSON of a part.
func (s *scene) set(part string, value any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown[part] = value
}

func (s *scene) get(part string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown[part]
}

// serve starts a listener that shows the scene, until the test ends or stop is called. An empty address is any free port.
func (s *scene) serve(t *testing.T, address string) (base string, stop func()) {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	var shown []httpserver.Part
	for _, name := range pageParts {
		shown = append(shown, httpserver.Part{Name: name, Get: func() any { return s.get(name) }})
	}
	fine := func() error { return nil }
	server := httpserver.New(httpserver.Config{Listen: address}, httpserver.Handlers{
		Live: fine, Ready: func() (string, error) { return "streaming", nil }, Parts: shown, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
		Runbook: docs.Section, Trace: s.trace,
	})
	require.NoError(t, server.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }() // ends by stop, which waits
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return "http://" + server.Addr().String(), stop
}

// healthy is a relay on a good day.
func healthy(now time.Time) *scene {
	return &scene{shown: map[string]any{
		"verdict":  health.Verdict{State: health.OK, Reason: "streaming for 3h12m"},
		"pipeline": pipeline(now),
		"slot":     observation(now),
		"history":  doc{"interval_seconds": 10, "samples": pastHour(now)},
		"topics":   doc{"topics": topics(now)},
		"events":   doc{"events": events(now)},
		"errors":   doc{"errors": []doc{}},
		"check":    doc{"running": false, "at": now.Add(-34 * time.Second), "ok": true, "findings": findings()},
		"config":   doc{"file": "/etc/postrider/postrider.toml", "values": configuration()},
		"build": doc{
			"version": "v0.9.0", "commit": "4ba6be0d1f9a", "go_version": "go1.26.8", "os": "linux", "arch": "amd64", "pid": 41,
			"started_at": now.Add(-3*time.Hour - 12*time.Minute), "server_version": "17.10",
		},
	}}
}

// inTrouble is a relay whose broker is down, whose slot nears its loss, with somebody else's transactions in the way as well.
func inTrouble(now time.Time) *scene {
	s := healthy(now)
	since := now.Add(-47 * time.Minute)
	p := pipeline(now)
	p["phase"], p["since"] = relay.Streaming, now.Add(-3*time.Hour)
	p["received_lsn"], p["acked_lsn"], p["confirmed_flush_lsn"], p["restart_lsn"] = "5/A2F01C40", "5/3B113C88", "5/3B113C88", "5/38000028"
	p["distances"] = doc{"server_to_received": 12 * mib, "received_to_acked": 1655 * mib, "acked_to_confirmed": 0, "confirmed_to_restart": 49 * mib}
	p["rates"] = doc{"wal_bytes_per_second": 619520.0, "drain_bytes_per_second": 0, "published_per_second": 0, "published_bytes_per_second": 0}
	p["in_flight"], p["in_flight_bytes"], p["oldest_unacked"] = 500, 4*mib, since
	s.set("pipeline", p)

	o := observation(now)
	left, limit, restart, wal := 1335*mib, 3*gib, 1737*mib, 619520.0
	o.Slot.WALStatus, o.Slot.SafeWALSize, o.Slot.RetainedBytes, o.Slot.LagBytes = "extended", &left, &restart, new(1655*mib)
	o.Limit.MaxSlotWALKeepSize, o.Limit.Effective = &limit, &limit
	o.Rates = monitor.Rates{WAL5m: &wal, WAL1h: new(101376.0), Drain5m: new(0.0), Drain1h: new(12288.0)}
	o.Forecast.Loss = monitor.Estimate{Seconds: new(2259.0), Earliest: new(1980.0), Latest: new(2880.0), Assumption: "at the 605.0 KiB/s of the last 5 minutes, while nothing is confirmed; the checkpoint after that takes it away"}
	o.Forecast.CatchUp = monitor.Estimate{Assumption: "not catching up: nothing is confirmed"}
	o.Blockers = []monitor.Blocker{
		{Kind: monitor.BlockerTransaction, PID: 4711, Application: "psql", User: "report", Database: "shop", State: "idle in transaction", XID: 812733, Since: now.Add(-41 * time.Minute), Restart: true},
		{Kind: monitor.BlockerPrepared, GID: "billing-2026-11-20", User: "billing", Database: "shop", XID: 812790, Since: now.Add(-35 * time.Minute), Restart: true},
		{Kind: monitor.BlockerStandby, Application: "replica-2", PID: 977, Since: now.Add(-12 * time.Hour)},
	}
	o.Standbys = []monitor.StandbySlot{{Name: "replica_1", Exists: true, Active: true, WALStatus: "reserved"}}
	o.Slot.Failover = true
	o.CatalogXminAge = new(int64(812_733))
	o.Notes = []monitor.Note{{Value: "wal_directory", Text: "pg_ls_waldir() needs pg_monitor: GRANT pg_monitor TO postrider"}}
	o.Events = []monitor.Event{{At: now.Add(-2 * time.Hour), Code: "server_restarted", Text: "the server was restarted"}}
	s.set("slot", o)
	// In the words that the relay has for it.
	s.set("verdict", health.Judge(health.Input{
		Now: now, Observation: o, Sink: "kafka at kafka-1:9092, kafka-2:9092", Config: health.DefaultConfig(),
		Relay: relay.State{Phase: relay.Streaming, Since: now.Add(-3 * time.Hour), Sessions: 2, InFlight: 500, OldestUnacked: since, WaitingSince: since, LastProgress: now},
	}))

	samples := pastHour(now)
	for i := range samples {
		if i < 78 {
			continue
		}
		samples[i].PublishedPerSecond, samples[i].LatencyP50, samples[i].LatencyP99, samples[i].DrainPerSecond = 0, nil, nil, new(0.0)
		samples[i].WALBytesPerSecond = new(619520.0)
		samples[i].LagBytes, samples[i].RetainedBytes = new(int64(i-78)*5886*1024), new(int64(i-78)*5886*1024+49*mib)
		if i == 79 {
			samples[i].FailedPerSecond = 50
		}
	}
	s.set("history", doc{"interval_seconds": 10, "samples": samples})
	s.set("errors", doc{"errors": []doc{
		{
			"reason": "delivery_timeout", "class": "transient", "count": 9, "first_seen": since.Add(5 * time.Minute), "last_seen": now.Add(-80 * time.Second),
			"text": "sink kafka: no acknowledgement for 5m0s: kafka-2:9092 dial tcp 10.1.2.3:9092: i/o timeout", "wal": "kept from 5/38000028 on, more with every write",
			"next": "postrider check", "runbook": "docs/RUNBOOKS.md#when-a-session-ends-or-the-relay-halts",
		},
		{
			"reason": "connection_lost", "class": "transient", "count": 1, "first_seen": now.Add(-2 * time.Hour), "last_seen": now.Add(-2 * time.Hour),
			"text": "replication: unexpected EOF", "wal": "kept meanwhile", "next": "nothing; the next session goes on where it was", "runbook": "docs/RUNBOOKS.md#when-a-session-ends-or-the-relay-halts",
		},
	}})
	bad := append([]check.Finding{
		{
			Severity: check.SeverityError, Code: "kafka", Subject: "kafka-2:9092", Observed: "dial tcp 10.1.2.3:9092: i/o timeout", Required: "a broker that answers",
			Docs: "docs/CHECK.md#kafka", WAL: "kept until it does", Fix: "nc -vz kafka-2 9092   # from here; then the broker's log",
		},
		{
			Severity: check.SeverityWarning, Code: "max_slot_wal_keep_size", Observed: "3.0 GiB, of which 43 % is left", Required: "room for the longest outage",
			Fix: "ALTER SYSTEM SET max_slot_wal_keep_size = '16GB'; SELECT pg_reload_conf();",
		},
	}, findings()...)
	s.set("check", doc{"running": true, "at": now.Add(-58 * time.Second), "ok": false, "findings": bad})
	list := topics(now)
	list[1]["failed"], list[1]["warnings"] = 9, []string{"min.insync.replicas is 1: an acknowledged message can be lost with one broker"}
	s.set("topics", doc{"topics": list})
	return s
}

func pipeline(now time.Time) doc {
	return doc{
		"phase": relay.Streaming, "since": now.Add(-3*time.Hour - 12*time.Minute), "sessions": 2,
		"server_wal_lsn": "5/A3B113C8", "received_lsn": "5/A3B11308", "acked_lsn": "5/A3B0E1A0", "confirmed_flush_lsn": "5/A3B0A8F0", "restart_lsn": "5/A1F00028",
		"distances": doc{"server_to_received": 192, "received_to_acked": 12648, "acked_to_confirmed": 14512, "confirmed_to_restart": 28 * mib},
		"rates":     doc{"wal_bytes_per_second": 2415919.0, "drain_bytes_per_second": 2411724.0, "published_per_second": 1264.3, "published_bytes_per_second": 884736.0},
		"published": 14518223, "in_flight": 12, "in_flight_bytes": 8704, "oldest_unacked": now.Add(-40 * time.Millisecond),
	}
}

func observation(now time.Time) monitor.Observation {
	left, limit := int64(7900)*mib, 8*gib
	parse := func(s string) pglogrepl.LSN { lsn, _ := pglogrepl.ParseLSN(s); return lsn }
	return monitor.Observation{
		Slot: slot.Status{
			Slot: slot.Slot{
				Name: "orders", Plugin: "pgoutput", Database: "shop", Active: true, ActivePID: 21733, WALStatus: "reserved", SafeWALSize: &left,
				RestartLSN: parse("5/A1F00028"), ConfirmedFlushLSN: parse("5/A3B0A8F0"),
			},
			CurrentWALLSN: parse("5/A3B113C8"), LagBytes: new(int64(27352)), RetainedBytes: new(28 * mib), PublicationOK: new(true), ObservedAt: now.Add(-2 * time.Second),
		},
		Server: monitor.Server{Version: "17.10", Timeline: 1, StartedAt: now.Add(-200 * time.Hour)},
		Limit: monitor.Limit{
			MaxSlotWALKeepSize: &limit, Effective: &limit, MaxWALSize: gib, SegmentSize: 16 * mib, CheckpointTimeout: 300, CheckpointTarget: 0.9,
		},
		Stream:   &monitor.Walsender{PID: 21733, Application: "postrider", User: "postrider", State: "streaming"},
		Decoding: &monitor.Decoding{SpillTransactions: 3, SpillBytes: 214 * mib, TotalTransactions: 14518223, TotalBytes: 90 * gib},
		Others: []slot.Status{
			{Slot: slot.Slot{Name: "analytics", Plugin: "pgoutput", Database: "shop", Active: true, ActivePID: 3021, WALStatus: "reserved", SafeWALSize: new(int64(7600) * mib)}, RetainedBytes: new(310 * mib)},
			{Slot: slot.Slot{Name: "replica_2", WALStatus: "extended", SafeWALSize: new(6 * gib)}, RetainedBytes: new(2 * gib)},
		},
		Rates: monitor.Rates{WAL5m: new(2415919.0), WAL1h: new(2201000.0), Drain5m: new(2411724.0), Drain1h: new(2200400.0)},
		Forecast: monitor.Forecast{
			Loss:     monitor.Estimate{Assumption: "the relay drains as fast as the server writes"},
			DiskFull: monitor.Estimate{Assumption: "monitor.volume_size is not set"},
			CatchUp:  monitor.Estimate{Seconds: new(0.4), Earliest: new(0.2), Latest: new(1.0), Assumption: "at the rates of the last 5 minutes"},
		},
		Clock: &monitor.Clock{Skew: 0.0021, Error: 0.0004},
	}
}

func pastHour(now time.Time) []history.Sample {
	samples := make([]history.Sample, 360)
	for i := range samples {
		wave := 1 + 0.35*math.Sin(float64(i)/37) + 0.08*math.Sin(float64(i)*1.7) + 0.05*math.Sin(float64(i)*5.3)
		samples[i] = history.Sample{
			At: now.Add(time.Duration(i-359) * 10 * time.Second), PublishedPerSecond: 1180 * wave,
			LatencyP50: new(0.0019 * (0.8 + 0.2*wave)), LatencyP99: new(0.0048 * (0.6 + 0.4*wave + 0.15*math.Abs(math.Sin(float64(i)*2.1)))),
			LagBytes: new(int64(26_000 * wave)), RetainedBytes: new(int64(12*mib) + int64(i%60)*mib/2), WALBytesPerSecond: new(2.3e6 * wave), DrainPerSecond: new(2.29e6 * wave), InFlight: 12,
		}
	}
	return samples
}

func topics(now time.Time) []doc {
	topic := func(name string, perSecond, published float64, partitions int, ago time.Duration) doc {
		return doc{
			"topic": name, "published": published, "bytes": published * 700, "published_per_second": perSecond, "bytes_per_second": perSecond * 700, "failed": 0,
			"last_published": now.Add(-ago), "partitions": partitions, "replication_factor": 3,
		}
	}
	return []doc{
		topic("outbox.event.order", 812.4, 9_310_442, 24, 80*time.Millisecond), topic("outbox.event.payment", 401.9, 4_611_004, 12, 120*time.Millisecond),
		topic("outbox.event.shipment", 49.8, 580_210, 12, 700*time.Millisecond), topic("outbox.event.customer", 0.2, 16_567, 6, 9*time.Second),
	}
}

func events(now time.Time) []relay.Published {
	list := make([]relay.Published, 100)
	names := []string{"order", "order", "payment", "order", "shipment", "payment"}
	for i := range list {
		at := now.Add(-time.Duration(i) * 31 * time.Millisecond)
		list[i] = relay.Published{
			At: at, Topic: "outbox.event." + names[i%len(names)], Relation: "public.outbox", EventID: fmt.Sprintf("%08x-3f0c-4b1e-9a55-%012x", 0x9e3779b1*uint32(i+1), 4518223-i),
			LSN: pglogrepl.LSN(0x5A3B113C8 - i*1432).String(), CommitTime: at.Add(-3 * time.Millisecond), LatencySeconds: 0.0018 + 0.0004*float64(i%7), Bytes: 612 + i*13%170,
		}
	}
	return list
}

func findings() []check.Finding {
	var list []check.Finding
	for _, f := range []string{
		"configuration /etc/postrider/postrider.toml", "server_version 17.10", "wal_level logical", "replication_slots 3 of 10 in use", "role LOGIN, REPLICATION",
		"publication postrider publishes inserts", "columns fit the router", "slot orders is healthy", "kafka 3 brokers", "topic outbox.event.order: 24 partitions, 3 replicas",
		"topic outbox.event.payment: 12 partitions, 3 replicas", "acl Describe, Write, IdempotentWrite", "clock 2 ms apart",
	} {
		code, observed, _ := strings.Cut(f, " ")
		list = append(list, check.Finding{Severity: check.SeverityOK, Code: code, Observed: observed})
	}
	return list
}

func configuration() []doc {
	var list []doc
	for _, v := range [][3]string{
		{"postgres.url", `"postgres://postrider:***@db:5432/shop"`, "env POSTRIDER_POSTGRES_URL"}, {"postgres.connect_timeout", `"10s"`, "default"}, {"slot.name", `"orders"`, "/etc/postrider/postrider.toml:4"},
		{"slot.create", "false", "/etc/postrider/postrider.toml:5"}, {"slot.failover", "false", "default"}, {"replication.tables", `["public.outbox"]`, "default"},
		{"router.route.topic.replacement", `"outbox.event.${routedByValue}"`, "default"}, {"sink.kafka.brokers", `["kafka-1:9092", "kafka-2:9092"]`, "/etc/postrider/postrider.toml:11"},
		{"sink.kafka.sasl.password", `"***"`, "env POSTRIDER_SINK_KAFKA_SASL_PASSWORD"}, {"sink.kafka.compression", `"none"`, "default"}, {"http.listen", `":8432"`, "flag --http-listen"}, {"log.level", `"info"`, "default"},
	} {
		list = append(list, doc{"key": v[0], "toml": v[1], "origin": v[2]})
	}
	return list
}
