package cli

import (
	"encoding/json"
	"time"

	"github.com/jackc/pglogrepl"

	"postrider/config"
	"postrider/health"
	"postrider/relay"
	"postrider/slot"
)

// Report is the answer of /status and of `postrider status --json`. In JSON an LSN has PostgreSQL's text form.
type Report struct {
	Verdict     health.Verdict
	Version     string
	PID         int       // zero if the daemon did not answer
	StartedAt   time.Time // zero if the daemon did not answer
	Source      string    // who answered: "daemon", or "database" when the daemon did not
	DaemonError string    // why the daemon did not answer
	Relay       relay.State
	Slot        slot.Status // zero until it was observed
	Sink        SinkReport
}

// The values of Report.Source.
const (
	sourceDaemon   = "daemon"
	sourceDatabase = "database"
)

// SinkReport says where messages go. No credentials are in it.
type SinkReport struct {
	Kind    string   `json:"kind"`
	Targets []string `json:"targets,omitempty"` // brokers, host:port
}

// sinkReport is what the configuration says.
func sinkReport(c config.Sink) SinkReport {
	r := SinkReport{Kind: c.Kind}
	if c.Kind == config.SinkKafka {
		r.Targets = c.Kafka.Brokers
	}
	return r
}

// newReport is the report of the running daemon. It is the only place that joins what relay and slot know of themselves.
func newReport(now time.Time, pid int, startedAt time.Time, r relay.State, s slot.Status, to SinkReport) Report {
	return Report{
		Version: currentBuild().Version, PID: pid, StartedAt: startedAt, Source: sourceDaemon,
		Relay: r, Slot: s, Sink: to, Verdict: health.Judge(health.Input{Now: now, Relay: r, Observation: slot.Observation{Slot: s}, Config: health.DefaultConfig()}),
	}
}

// lsnText is an LSN in PostgreSQL's text form: a script can hand it back to psql, and no JSON parser rounds it.
type lsnText pglogrepl.LSN

func (l lsnText) MarshalText() ([]byte, error) { return []byte(pglogrepl.LSN(l).String()), nil }

func (l *lsnText) UnmarshalText(b []byte) error {
	lsn, err := pglogrepl.ParseLSN(string(b))
	*l = lsnText(lsn)
	return err
}

type (
	// relayJSON has the positions as text: the outer fields hide the embedded ones of the same name.
	relayJSON struct {
		relay.State
		ReceivedLSN       lsnText `json:"received_lsn"`
		AckedLSN          lsnText `json:"acked_lsn"`
		ConfirmedFlushLSN lsnText `json:"confirmed_flush_lsn"`
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
		Sink        SinkReport     `json:"sink"`
	}
)

// MarshalJSON implements json.Marshaler.
func (r Report) MarshalJSON() ([]byte, error) {
	out := reportJSON{
		Verdict: r.Verdict, Version: r.Version, PID: r.PID, StartedAt: r.StartedAt,
		Source: r.Source, DaemonError: r.DaemonError, Slot: r.Slot, Sink: r.Sink,
	}
	if r.Relay != (relay.State{}) {
		out.Relay = &relayJSON{r.Relay, lsnText(r.Relay.ReceivedLSN), lsnText(r.Relay.AckedLSN), lsnText(r.Relay.ConfirmedFlushLSN)}
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
	if in.Relay != nil {
		r.Relay = in.Relay.State
		r.Relay.ReceivedLSN = pglogrepl.LSN(in.Relay.ReceivedLSN)
		r.Relay.AckedLSN = pglogrepl.LSN(in.Relay.AckedLSN)
		r.Relay.ConfirmedFlushLSN = pglogrepl.LSN(in.Relay.ConfirmedFlushLSN)
	}
	return nil
}
