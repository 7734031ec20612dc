package status

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// Report is the answer of /status and of `postrider status --json`. In JSON an LSN has
// PostgreSQL's text form.
type Report struct {
	Verdict     health.Verdict
	Version     string
	PID         int       // zero from the database
	StartedAt   time.Time // zero from the database
	Source      string    // SourceDaemon, or SourceDatabase if the daemon does not answer
	DaemonError string    // why the daemon does not answer
	Relay       relay.State
	Slot        slot.Status         // zero until the first observation
	Monitor     monitor.Observation // the rest of the observation; its Slot is zero
	Sink        SinkReport
}

// The values of Report.Source.
const (
	SourceDaemon   = "daemon"
	SourceDatabase = "database"
)

// SinkReport is where messages go. It has no credentials.
type SinkReport struct {
	Kind    string   `json:"kind"`
	Targets []string `json:"targets,omitempty"` // brokers, host:port
}

// SinkOf reports the sink of a configuration.
func SinkOf(c config.Sink) SinkReport {
	r := SinkReport{Kind: c.Kind}
	if c.Kind == config.SinkKafka {
		r.Targets = c.Kafka.Brokers
	}
	return r
}

// String is the sink for people: "kafka at kafka-1:9092, kafka-2:9092".
func (s SinkReport) String() string {
	if len(s.Targets) == 0 {
		return s.Kind
	}
	return s.Kind + " at " + strings.Join(s.Targets, ", ")
}

// New is the report of the running daemon: the one place that joins relay and monitor.
func New(
	now time.Time, pid int, startedAt time.Time, r relay.State, o monitor.Observation,
	cfg config.Config,
) Report {
	report := Report{
		Version: build.Current().Version, PID: pid, StartedAt: startedAt,
		Source: SourceDaemon, Sink: SinkOf(cfg.Sink),
	}
	report.Judge(now, r, o, health.StartError{}, cfg.Health)
	return report
}

// Judge fills in state, observation, and the verdict that follows. For a relay that does not
// answer st is zero, and start is why one that starts now cannot stream.
func (r *Report) Judge(
	now time.Time, st relay.State, o monitor.Observation, start health.StartError, cfg health.Config,
) {
	r.Relay, r.Slot, r.Monitor = st, o.Slot, o
	r.Monitor.Slot = slot.Status{}
	r.Verdict = health.Judge(health.Input{
		Now: now, Relay: st, Observation: o, Sink: r.Sink.String(), StartError: start, Config: cfg,
	})
}

// LSN is an LSN in PostgreSQL's text form: psql takes it, and no JSON parser rounds it.
type LSN pglogrepl.LSN

// MarshalText implements encoding.TextMarshaler.
func (l LSN) MarshalText() ([]byte, error) { return []byte(pglogrepl.LSN(l).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *LSN) UnmarshalText(b []byte) error {
	lsn, err := postgres.ParseLSN(string(b))
	*l = LSN(lsn)
	return err
}

type (
	// relayJSON has the positions as text: its fields hide the embedded ones of the same name.
	relayJSON struct {
		relay.State
		ReceivedLSN       LSN `json:"received_lsn"`
		AckedLSN          LSN `json:"acked_lsn"`
		ConfirmedFlushLSN LSN `json:"confirmed_flush_lsn"`
	}
	// reportJSON is a Report in the order in which a person wants to read it.
	reportJSON struct {
		Verdict     health.Verdict `json:"verdict"`
		Version     string         `json:"version"`
		PID         int            `json:"pid,omitempty"`
		StartedAt   time.Time      `json:"started_at,omitzero"`
		Source      string         `json:"source"`
		DaemonError string         `json:"daemon_error,omitempty"`
		Relay       *relayJSON     `json:"relay,omitempty"`
		Slot        slot.Status    `json:"slot,omitzero"`
		Monitor     *monitorJSON   `json:"monitor,omitempty"`
		Sink        SinkReport     `json:"sink"`
	}
	// monitorJSON is an observation without the slot: its field hides the embedded one.
	monitorJSON struct {
		monitor.Observation
		Slot *struct{} `json:"slot,omitempty"`
	}
)

// MarshalJSON implements json.Marshaler.
func (r Report) MarshalJSON() ([]byte, error) {
	out := reportJSON{
		Verdict: r.Verdict, Version: r.Version, PID: r.PID, StartedAt: r.StartedAt,
		Source: r.Source, DaemonError: r.DaemonError, Slot: r.Slot, Sink: r.Sink,
	}
	if r.Relay != (relay.State{}) {
		out.Relay = &relayJSON{
			r.Relay, LSN(r.Relay.ReceivedLSN), LSN(r.Relay.AckedLSN),
			LSN(r.Relay.ConfirmedFlushLSN),
		}
	}
	if !reflect.ValueOf(r.Monitor).IsZero() {
		out.Monitor = &monitorJSON{Observation: r.Monitor}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Report) UnmarshalJSON(b []byte) error {
	var in reportJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*r = Report{
		Verdict: in.Verdict, Version: in.Version, PID: in.PID, StartedAt: in.StartedAt,
		Source: in.Source, DaemonError: in.DaemonError, Slot: in.Slot, Sink: in.Sink,
	}
	if in.Monitor != nil {
		r.Monitor = in.Monitor.Observation
	}
	if in.Relay != nil {
		r.Relay = in.Relay.State
		r.Relay.ReceivedLSN = pglogrepl.LSN(in.Relay.ReceivedLSN)
		r.Relay.AckedLSN = pglogrepl.LSN(in.Relay.AckedLSN)
		r.Relay.ConfirmedFlushLSN = pglogrepl.LSN(in.Relay.ConfirmedFlushLSN)
	}
	return nil
}
