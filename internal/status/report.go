// Package status is what a relay reports of itself: the report of /status, the parts of the status
// page, and the client that gets them. Where no relay answers, the report comes from the database.
//
//	parts.go  the parts of the page, /api/NAME
//	client.go requests to the relay on this machine, and a report from the database
//	admin.go  requests to the admin listener: pause and resume
//	text.go   a report for people
package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/writeback"
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
	Servers     []string         // host:port of each in postgres.url; nil: not known
	WriteBack   *writeback.State // nil: it is off, or the daemon does not answer
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
		Now: now, Started: r.StartedAt, Relay: st, Observation: o, Sink: r.Sink.String(),
		StartError: start, Config: cfg,
	})
}

// About reports whether r is about the slot of cfg in the database of cfg, and not of another
// relay that has the address. What r does not tell may be about any. It asks the database, within
// requestTimeout, only if the two write server or database differently: localhost and 127.0.0.1
// can be one server, and a pooler can have a name of its own for a database.
func (r *Report) About(ctx context.Context, cfg config.Config) bool {
	return new(Answers).About(ctx, r, cfg)
}

// Answers keeps what the database has answered to About, for one that asks about the reports of a
// relay again and again with one configuration. The zero value has none. It is safe for concurrent
// use.
type Answers struct {
	mu    sync.Mutex
	of    process // zero: none yet
	about bool
}

// process is what the database's answer is about.
type process struct {
	pid                int
	startedAt          int64 // in nanoseconds
	systemID, database string
}

// About is Report.About, and asks the database once for each process of a relay.
func (a *Answers) About(ctx context.Context, r *Report, cfg config.Config) bool {
	if r.Slot.Name != "" && r.Slot.Name != cfg.Slot.Name {
		return false
	}
	servers, given, user := cfg.Postgres.Place()
	named := func(database string) bool {
		return r.Slot.Database == "" || database == "" || r.Slot.Database == database
	}
	if named(cmp.Or(given, user)) && (len(r.Servers) == 0 || slices.Equal(r.Servers, servers)) {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	of := process{r.PID, r.StartedAt.UnixNano(), r.Relay.SystemID, r.Slot.Database}
	if a.of == of {
		return a.about
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id, err := postgres.IdentifySystem(ctx, cfg.Postgres)
	if err != nil {
		return named(given)
	}
	a.of, a.about = of, named(id.DBName) &&
		(r.Relay.SystemID == "" || r.Relay.SystemID == id.SystemID)
	return a.about
}

// Whose names the relay that r is about for one of the slot of that name: by its slot, and by its
// database if the slots have the same name.
func (r *Report) Whose(slotName string) string {
	text := fmt.Sprintf("the relay of slot %q", r.Slot.Name)
	if r.Slot.Name != slotName {
		return text
	}
	text += " in another database (" + r.Slot.Database
	if len(r.Servers) > 0 {
		text += " at " + strings.Join(r.Servers, ",")
	}
	return text + ")"
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
		Relay       relayJSON      `json:"relay,omitzero"`
		Slot        slot.Status    `json:"slot,omitzero"`
		Monitor     monitorJSON    `json:"monitor,omitzero"`
		Sink        SinkReport     `json:"sink"`
		Servers     []string       `json:"servers,omitempty"`

		WriteBack *writeback.State `json:"write_back,omitempty"`
	}
	// monitorJSON is an observation without the slot: its field hides the embedded one.
	monitorJSON struct {
		monitor.Observation
		Slot *struct{} `json:"slot,omitempty"`
	}
)

// MarshalJSON implements json.Marshaler.
func (r Report) MarshalJSON() ([]byte, error) {
	st := r.Relay
	return json.Marshal(reportJSON{
		r.Verdict, r.Version, r.PID, r.StartedAt, r.Source, r.DaemonError,
		relayJSON{st, LSN(st.ReceivedLSN), LSN(st.AckedLSN), LSN(st.ConfirmedFlushLSN)},
		r.Slot, monitorJSON{Observation: r.Monitor}, r.Sink, r.Servers, r.WriteBack,
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Report) UnmarshalJSON(b []byte) error {
	var in reportJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	st := in.Relay.State
	st.ReceivedLSN = pglogrepl.LSN(in.Relay.ReceivedLSN)
	st.AckedLSN = pglogrepl.LSN(in.Relay.AckedLSN)
	st.ConfirmedFlushLSN = pglogrepl.LSN(in.Relay.ConfirmedFlushLSN)
	*r = Report{in.Verdict, in.Version, in.PID, in.StartedAt, in.Source, in.DaemonError, st, in.Slot,
		in.Monitor.Observation, in.Sink, in.Servers, in.WriteBack}
	return nil
}
