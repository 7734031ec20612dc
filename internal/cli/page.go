package cli

import (
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/history"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

// page is what the status page shows, each part as the JSON of /api/NAME. All of it comes from memory.
type page struct {
	d       *daemon
	history history.History
	check   pageCheck

	mu     sync.Mutex
	before map[string]metrics.TopicReading // of the last sample
	at     time.Time                       // of the last sample
	rates  map[string]topicRate
	moment moment // of the last look
}

// moment is where everything stood when the server was looked at. The relay's own positions are known at any time; beside those of the server,
// which are some seconds old, they would show WAL that does not wait anywhere.
type moment struct {
	at                                            time.Time
	server, received, acked, confirmed, restarted pglogrepl.LSN
}

// observed takes note of a look, when it comes.
func (p *page) observed(o monitor.Observation) { p.take(o, p.d.relay.State()) }

func (p *page) take(o monitor.Observation, st relay.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.Slot.ObservedAt.Equal(p.moment.at) { // nothing new
		return
	}
	p.moment = moment{
		at: o.Slot.ObservedAt, server: max(o.Slot.CurrentWALLSN, st.ReceivedLSN), received: st.ReceivedLSN, acked: st.AckedLSN,
		confirmed: o.Slot.ConfirmedFlushLSN, restarted: o.Slot.RestartLSN,
	}
}

type topicRate struct{ messages, bytes float64 } // per second

func newPage(d *daemon) *page {
	p := &page{d: d}
	p.check.run = d.findings
	return p
}

func (p *page) parts() []httpserver.Part {
	return []httpserver.Part{
		{Name: "verdict", Get: func() any { return p.d.verdict() }},
		{Name: "pipeline", Get: func() any { return p.pipeline() }},
		{Name: "slot", Get: func() any { return p.d.observation() }},
		{Name: "history", Get: func() any { return p.pastHour() }},
		{Name: "topics", Get: func() any { return p.topics() }},
		{Name: "events", Get: func() any { return pageEvents{p.d.relay.Recent()} }},
		{Name: "errors", Get: func() any { return p.errors() }},
		{Name: "check", Get: func() any { return p.check.get(time.Now()) }},
		{Name: "config", Get: func() any { return p.config() }},
		{Name: "build", Get: func() any { return p.build() }},
	}
}

// sample is called each history.Interval.
func (p *page) sample(now time.Time) {
	st, o := p.d.relay.State(), p.d.observation()
	topics := p.d.metrics.Topics()
	published := 0.0
	rates, before := map[string]topicRate{}, map[string]metrics.TopicReading{}
	p.mu.Lock()
	seconds := now.Sub(p.at).Seconds()
	for _, t := range topics {
		published += t.Published
		before[t.Topic] = t
		if was := p.before[t.Topic]; !p.at.IsZero() && seconds > 0 {
			rates[t.Topic] = topicRate{(t.Published - was.Published) / seconds, (t.Bytes - was.Bytes) / seconds}
		}
	}
	p.before, p.rates, p.at = before, rates, now
	p.mu.Unlock()
	reading := history.Reading{
		At: now, Published: published, Failed: p.d.metrics.Failed(), InFlight: st.InFlight,
		LagBytes: o.Slot.LagBytes, RetainedBytes: o.Slot.RetainedBytes, WAL: o.Rates.WAL5m, Drain: o.Rates.Drain5m,
	}
	reading.Latency.Bounds, reading.Latency.Counts = p.d.metrics.Latency()
	p.history.Add(reading)
}

// pagePipeline is the way of a position, from the server to the slot.
type pagePipeline struct {
	Phase       relay.Phase   `json:"phase"`
	Since       time.Time     `json:"since"`
	Paused      relay.Pause   `json:"paused,omitzero"`
	NextAttempt time.Time     `json:"next_attempt,omitzero"`
	Error       string        `json:"error,omitempty"`
	Sessions    int           `json:"sessions"`
	At          time.Time     `json:"at,omitzero"` // when the positions were read, all at once
	Server      lsnText       `json:"server_wal_lsn"`
	Received    lsnText       `json:"received_lsn"`
	Acked       lsnText       `json:"acked_lsn"`
	Confirmed   lsnText       `json:"confirmed_flush_lsn"`
	Restart     lsnText       `json:"restart_lsn"`
	Distances   pageDistances `json:"distances"`
	Rates       pageRates     `json:"rates"`

	Published     uint64         `json:"published"`
	InFlight      int            `json:"in_flight"`
	InFlightBytes int64          `json:"in_flight_bytes"`
	OldestUnacked time.Time      `json:"oldest_unacked,omitzero"`
	Snapshot      relay.Snapshot `json:"snapshot,omitzero"`
}

// pageDistances are bytes of WAL between one position and the next; nil: one of the two is not known.
type pageDistances struct {
	Received  *int64 `json:"server_to_received,omitempty"`
	Acked     *int64 `json:"received_to_acked,omitempty"`
	Confirmed *int64 `json:"acked_to_confirmed,omitempty"`
	Restart   *int64 `json:"confirmed_to_restart,omitempty"`
}

type pageRates struct {
	WAL            *float64 `json:"wal_bytes_per_second,omitempty"`
	Drain          *float64 `json:"drain_bytes_per_second,omitempty"`
	Published      float64  `json:"published_per_second"`
	PublishedBytes float64  `json:"published_bytes_per_second"`
}

func (p *page) pipeline() pagePipeline {
	st, o := p.d.relay.State(), p.d.observation()
	rates := pageRates{WAL: o.Rates.WAL5m, Drain: o.Rates.Drain5m}
	p.mu.Lock()
	for _, r := range p.rates {
		rates.Published += r.messages
		rates.PublishedBytes += r.bytes
	}
	m := p.moment
	p.mu.Unlock()
	return pagePipeline{
		Phase: st.Phase, Since: st.Since, Paused: st.Paused, NextAttempt: st.NextAttempt, Error: st.Error, Sessions: st.Sessions,
		At: m.at, Server: lsnText(m.server), Received: lsnText(m.received), Acked: lsnText(m.acked), Confirmed: lsnText(m.confirmed), Restart: lsnText(m.restarted),
		Distances: pageDistances{
			Received: between(m.server, m.received), Acked: between(m.received, m.acked), Confirmed: between(m.acked, m.confirmed), Restart: between(m.confirmed, m.restarted),
		},
		Rates: rates, Published: st.Published, InFlight: st.InFlight, InFlightBytes: st.InFlightBytes, OldestUnacked: st.OldestUnacked,
		Snapshot: st.Snapshot,
	}
}

// between is never negative: a session that begins anew has received less than the slot has confirmed.
func between(ahead, behind pglogrepl.LSN) *int64 {
	if ahead == 0 || behind == 0 {
		return nil
	}
	if ahead < behind {
		return new(int64(0))
	}
	return new(int64(ahead - behind))
}

type pageHistory struct {
	Interval float64          `json:"interval_seconds"`
	Samples  []history.Sample `json:"samples"`
}

func (p *page) pastHour() pageHistory {
	return pageHistory{history.Interval.Seconds(), p.history.Samples()}
}

type pageEvents struct {
	Events []relay.Published `json:"events"`
}

type pageTopics struct {
	Topics []pageTopic `json:"topics"`
}

type pageTopic struct {
	Topic             string    `json:"topic"`
	Published         float64   `json:"published"`
	Bytes             float64   `json:"bytes"`
	PerSecond         float64   `json:"published_per_second"`
	BytesPerSecond    float64   `json:"bytes_per_second"`
	Failed            int       `json:"failed"` // refused by the broker
	LastPublished     time.Time `json:"last_published,omitzero"`
	Partitions        int       `json:"partitions,omitempty"`         // as check last saw it
	ReplicationFactor int       `json:"replication_factor,omitempty"` // the same
	Warnings          []string  `json:"warnings,omitempty"`           // what check has to say of the topic
}

func (p *page) topics() pageTopics {
	readings, refused, seen := p.d.metrics.Topics(), p.d.relay.Refused(), p.check.topics()
	rows := make([]pageTopic, 0, len(readings))
	p.mu.Lock()
	defer p.mu.Unlock()
	row := func(t metrics.TopicReading) {
		r := pageTopic{
			Topic: t.Topic, Published: t.Published, Bytes: t.Bytes, Failed: refused[t.Topic],
			PerSecond: p.rates[t.Topic].messages, BytesPerSecond: p.rates[t.Topic].bytes,
			Partitions: seen[t.Topic].partitions, ReplicationFactor: seen[t.Topic].replicas, Warnings: seen[t.Topic].warnings,
		}
		if t.Last > 0 {
			r.LastPublished = time.UnixMilli(int64(t.Last * 1e3)).UTC()
		}
		rows = append(rows, r)
		delete(refused, t.Topic)
	}
	for _, t := range readings {
		row(t)
	}
	for name := range refused {
		row(metrics.TopicReading{Topic: name})
	}
	return pageTopics{rows}
}

type pageErrors struct {
	Errors []pageError `json:"errors"`
}

type pageError struct {
	relay.Failure
	Runbook string `json:"runbook"`
}

func (p *page) errors() pageErrors {
	failures := p.d.relay.Failures()
	rows := make([]pageError, len(failures))
	for i, f := range failures {
		rows[i] = pageError{f, "docs/OPERATIONS.md#6-when-a-session-ends-or-the-relay-halts"}
	}
	return pageErrors{rows}
}

type pageConfig struct {
	File   string         `json:"file,omitempty"`
	Values []config.Value `json:"values"`
}

func (p *page) config() pageConfig {
	l := p.d.live.config()
	return pageConfig{l.Path, l.Values()}
}

type pageBuild struct {
	Version       string    `json:"version"`
	Commit        string    `json:"commit,omitempty"`
	Modified      bool      `json:"modified,omitempty"`
	GoVersion     string    `json:"go_version"`
	OS            string    `json:"os"`
	Arch          string    `json:"arch"`
	PID           int       `json:"pid"`
	StartedAt     time.Time `json:"started_at"`
	ServerVersion string    `json:"server_version,omitempty"`
}

func (p *page) build() pageBuild {
	b := currentBuild()
	return pageBuild{
		Version: b.Version, Commit: b.Revision, Modified: b.Modified, GoVersion: b.Go, OS: runtime.GOOS, Arch: runtime.GOARCH,
		PID: os.Getpid(), StartedAt: p.d.started, ServerVersion: p.d.observation().Server.Version,
	}
}
