// Package statustest makes reports for tests of what shows them.
package statustest

import (
	"time"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// Now is the time of the reports.
var Now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

// Ago is a time before Now.
func Ago(d time.Duration) time.Time { return Now.Add(-d) }

// Streaming is the state of a relay that is well, after change, which may be nil.
func Streaming(change func(*relay.State)) relay.State {
	r := relay.State{
		Phase: relay.Streaming, Since: Ago(72 * time.Minute), Sessions: 1, ReceivedLSN: 0x2000,
		AckedLSN:          0x2000,
		ConfirmedFlushLSN: 0x1f00, Published: 42, LastProgress: Ago(time.Second),
	}
	if change != nil {
		change(&r)
	}
	return r
}

// Observed is the slot of Streaming, after change, which may be nil.
func Observed(change func(*slot.Status)) slot.Status {
	s := slot.Status{
		Slot: slot.Slot{
			Name: "postrider", Plugin: "pgoutput", Database: "shop", Active: true, ActivePID: 4711,
			WALStatus:         "reserved",
			ConfirmedFlushLSN: 0x1f00, RestartLSN: 0x1000,
		},
		CurrentWALLSN: 0x2100, LagBytes: new(int64(0x200)), RetainedBytes: new(int64(0x1100)),
		PublicationOK: new(true),
		ObservedAt:    Ago(2 * time.Second),
	}
	if change != nil {
		change(&s)
	}
	return s
}

// Well is the report of Streaming and Observed.
func Well() status.Report {
	return status.Report{
		Version: "v1.2.3", PID: 99, StartedAt: Ago(2 * time.Hour), Source: status.SourceDaemon,
		Relay: Streaming(nil), Slot: Observed(nil),
		Sink: status.SinkReport{Kind: "kafka",
			Targets: []string{"kafka-1:9092", "kafka-2:9092"}},
		Verdict: health.Judge(health.Input{Now: Now, Relay: Streaming(nil),
			Observation: monitor.Observation{Slot: Observed(nil)}, Config: health.DefaultConfig()}),
	}
}
