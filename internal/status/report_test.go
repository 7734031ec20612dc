package status_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/status/statustest"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts"
)

func TestReport_KeepsEverythingThroughJSON(t *testing.T) {
	want := statustest.Well()
	want.Relay.OldestUnacked, want.Relay.Error, want.DaemonError = statustest.Ago(time.Second),
		"an error", "another"
	want.Relay.Rate = ratelimit.State{MaxRate: ratelimit.Rate{Rows: 500}, Messages: 7}
	want.Servers, want.Relay.SystemID = []string{"db-1:5432"}, "7300000000000000001"
	b, err := json.Marshal(want)
	require.NoError(t, err)
	var got status.Report
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, want, got)
}

func TestNew_TellsOfAMonitorThatNeverSawTheSlot(t *testing.T) {
	report := func(started time.Duration) status.Report {
		return status.New(statustest.Now, 99, statustest.Ago(started), statustest.Streaming(nil),
			monitor.Observation{}, config.Default())
	}
	require.Empty(t, report(time.Minute).Verdict.Conditions)
	verdict := report(2 * time.Minute).Verdict
	require.Equal(t, health.Degraded, verdict.State)
	require.Len(t, verdict.Conditions, 1)
	require.Equal(t, health.ObservationOld, verdict.Conditions[0].Name)
}

// The daemon's answer, with all that a monitor can know.
func TestReport_KeepsVerdictAndObservationThroughJSON(t *testing.T) {
	seconds := 600.0
	o := monitor.Observation{
		Slot: statustest.Observed(nil),
		Server: monitor.Server{Version: "17.6", Timeline: 3,
			StartedAt: statustest.Ago(time.Hour)},
		Limit: monitor.Limit{MaxSlotWALKeepSize: new(int64(1 << 30)),
			Effective: new(int64(1 << 30)), SegmentSize: 16 << 20, CheckpointTimeout: 300},
		Stream:         &monitor.Walsender{PID: 4711, Application: "postrider", State: "streaming"},
		Decoding:       &monitor.Decoding{SpillBytes: 17},
		CatalogXminAge: new(int64(42)),
		Blockers: []monitor.Blocker{{Kind: monitor.BlockerTransaction, PID: 815, Application: "psql",
			Since: statustest.Ago(time.Hour), Restart: true}},
		Standbys: []monitor.StandbySlot{{Name: "standby1", Blocks: true}},
		Others: []slot.Status{{Slot: slot.Slot{Name: "crm"},
			RetainedBytes: new(int64(5 << 30)), ObservedAt: statustest.Ago(time.Second)}},
		Rates: monitor.Rates{WAL5m: &seconds},
		Forecast: monitor.Forecast{Loss: monitor.Estimate{Seconds: &seconds,
			Assumption: "writes go on"}},
		Clock: &monitor.Clock{Skew: 2, Error: 0.5},
		Notes: []monitor.Note{{Value: "wal_directory", Text: "needs pg_monitor"}},
		Events: []monitor.Event{{At: statustest.Ago(time.Minute),
			Code: "server_restarted", Text: "the server was restarted"}},
	}
	cfg := config.Default()
	cfg.Sink.Kafka.Brokers = []string{"kafka-1:9092"}
	want := status.New(statustest.Now, 99, statustest.Ago(2*time.Hour),
		statustest.Streaming(func(r *relay.State) {
			r.InFlight, r.WaitingSince = 3, statustest.Ago(10*time.Second)
		}), o, cfg)
	b, err := json.Marshal(want)
	require.NoError(t, err)
	var got status.Report
	require.NoError(t, json.Unmarshal(b, &got))
	// how long it has to hold is for whoever tells of it, in the same process
	for i := range want.Verdict.Conditions {
		want.Verdict.Conditions[i].For = 0
	}
	require.Equal(t, want, got)

	var names []string
	for _, c := range got.Verdict.Conditions {
		names = append(names, c.Name)
	}
	require.Equal(t,
		[]string{health.TimeToLoss, health.StandbyGate, health.Stuck, health.HeldByTransaction,
			health.OtherSlot, health.ClockSkew}, names)
	require.Equal(t, "kafka at kafka-1:9092", got.Verdict.Conditions[2].Cause)

	var document struct{ Monitor map[string]any }
	require.NoError(t, json.Unmarshal(b, &document))
	require.NotContains(t, document.Monitor, "slot", "it stands beside")
	require.Contains(t, document.Monitor, "holders")
}

func TestReport_WritesPositionsAsText(t *testing.T) {
	b, err := json.Marshal(statustest.Well())
	require.NoError(t, err)
	var document struct{ Relay, Slot map[string]any }
	require.NoError(t, json.Unmarshal(b, &document))
	require.Equal(t, "0/2000", document.Relay["received_lsn"])
	require.Equal(t, "0/2000", document.Relay["acked_lsn"])
	require.Equal(t, "0/1F00", document.Relay["confirmed_flush_lsn"])
	require.Equal(t, "0/1F00", document.Slot["confirmed_flush_lsn"])
}

func TestReport_LeavesOutWhatNobodyKnows(t *testing.T) {
	b, err := json.Marshal(status.Report{Source: status.SourceDatabase})
	require.NoError(t, err)
	var document map[string]any
	require.NoError(t, json.Unmarshal(b, &document))
	require.NotContains(t, document, "relay")
	require.NotContains(t, document, "slot")
	require.NotContains(t, document, "monitor")
	require.NotContains(t, document, "started_at")
}

func TestWriteReport_ShowsWhatGoesWrong(t *testing.T) {
	r := statustest.Well()
	r.Relay = statustest.Streaming(func(r *relay.State) {
		r.Phase, r.Error, r.InFlight, r.InFlightBytes, r.OldestUnacked = relay.BackingOff,
			"broker\nunreachable", 3, 3000, statustest.Ago(time.Minute)
	})
	r.Slot = statustest.Observed(func(s *slot.Status) {
		s.SafeWALSize, s.PublicationOK, s.Error = new(int64(-1<<20)), new(false),
			"read slot: no connection"
	})
	r.Verdict = health.Judge(health.Input{Now: statustest.Now, Relay: r.Relay,
		Observation: monitor.Observation{Slot: r.Slot}, Config: health.DefaultConfig()})
	var b strings.Builder
	require.NoError(t, status.Write(&b, r, statustest.Now, true))
	for _, want := range []string{
		"\x1b[1;31mfailing\x1b[0m: ", "last error    broker unreachable\n",
		"in flight     3 messages, 2.9 KiB, the oldest committed 1m0s ago\n",
		"wal_status    reserved, -1.0 MiB until the slot can be lost\n",
		"publication   does not publish every table\n",
		"not since     read slot: no connection\n",
	} {
		require.Contains(t, b.String(), want)
	}
}

func TestWriteReport_ShowsALimitOfTheRate(t *testing.T) {
	r := statustest.Well()
	var b strings.Builder
	require.NoError(t, status.Write(&b, r, statustest.Now, false))
	require.NotContains(t, b.String(), "max_rate")
	for want, change := range map[string]func(*ratelimit.State){
		"max_rate      500 rows/s, holds nothing back\n": func(s *ratelimit.State) { s.Limiting = "" },
		"max_rate      500 rows/s, holds rows back\n":    func(*ratelimit.State) {},
		"max_rate      none; relay.rate[1] holds rows back, which is 7 rows/s\n": func(s *ratelimit.State) {
			*s = ratelimit.State{Limiting: "relay.rate[1]", Limit: ratelimit.Rate{Rows: 7}}
		},
		"caught up     in about 10m0s: 300000 rows wait\n": func(*ratelimit.State) {},
	} {
		r.Relay.Rate = ratelimit.State{MaxRate: ratelimit.Rate{Rows: 500}, Limiting: "relay.max_rate"}
		change(&r.Relay.Rate)
		r.Monitor.Forecast.CatchUp = monitor.Estimate{Seconds: new(600.0),
			Assumption: "300000 rows wait"}
		b.Reset()
		require.NoError(t, status.Write(&b, r, statustest.Now, false))
		require.Contains(t, b.String(), want)
	}
}

func TestWriteReport_DoesWithoutASlot(t *testing.T) {
	r := statustest.Well()
	r.Slot = slot.Status{}
	var b strings.Builder
	require.NoError(t, status.Write(&b, r, statustest.Now, false))
	require.Contains(t, b.String(), "slot        not observed yet\n")
	require.Contains(t, b.String(), "received    0/2000\n")
}

// The name of a database is that of its owner.
func TestWriteReport_CommandsNoTerminal(t *testing.T) {
	const hostile = "shop\x1b[2K\u202e\u009b\nok"
	r := statustest.Well()
	r.Slot = statustest.Observed(func(s *slot.Status) { s.Database = hostile })
	r.Verdict.Reason, r.Verdict.Next, r.Verdict.WAL = hostile, hostile, hostile
	var b strings.Builder
	require.NoError(t, status.Write(&b, r, statustest.Now, false))
	require.Contains(t, b.String(), " in database shop [2K   ok, active")
	require.False(t, strings.ContainsAny(b.String()+status.Line(r, statustest.Now), "\x1b\u202e\u009b"), "%q", b.String())
}

// Two relays with the default slot.name and http.listen, of two databases.
func TestAbout_TellsDatabasesApart(t *testing.T) {
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	cfg := config.Default()
	cfg.Postgres.URL = secret.Of(server.DSN())
	servers, database, _ := cfg.Postgres.Place()
	id, err := postgres.IdentifySystem(t.Context(), cfg.Postgres)
	require.NoError(t, err)
	nobody := config.Default()
	nobody.Postgres.URL = secret.Of("postgres://" + parts.Nobody(t) + "/" + database)
	report := func(change func(*status.Report)) *status.Report {
		r := statustest.Well()
		r.Slot.Database, r.Servers, r.Relay.SystemID = database, servers, id.SystemID
		change(&r)
		return &r
	}
	for name, test := range map[string]struct {
		change        func(*status.Report)
		want, unasked bool // with the database, and where it does not answer
	}{
		"the same":               {func(*status.Report) {}, true, true},
		"another slot":           {func(r *status.Report) { r.Slot.Name = "billing" }, false, false},
		"another database":       {func(r *status.Report) { r.Slot.Database = "crm" }, false, false},
		"another name of a host": {func(r *status.Report) { r.Servers = []string{"db:1"} }, true, true},
		"another server": {func(r *status.Report) {
			r.Servers, r.Relay.SystemID = []string{"db:1"}, "1"
		}, false, true},
		"a server without a session": {func(r *status.Report) {
			r.Servers, r.Relay.SystemID = []string{"db:1"}, ""
		}, true, true},
		"an older relay":   {func(r *status.Report) { r.Servers, r.Relay.SystemID = nil, "" }, true, true},
		"nothing observed": {func(r *status.Report) { r.Slot = slot.Status{} }, true, true},
	} {
		require.Equal(t, test.want, report(test.change).About(t.Context(), cfg), name)
		require.Equal(t, test.unasked, report(test.change).About(t.Context(), nobody), name)
	}
	// Without a database in the URL the user's name is that of the database.
	byUser := config.Default()
	byUser.Postgres.URL = secret.Of("postgres://shop@" + servers[0] + "/")
	require.True(t, report(func(r *status.Report) {
		r.Slot.Database, r.Relay.SystemID = "shop", "1"
	}).About(t.Context(), byUser), "the same, which is not asked")
	require.True(t, report(func(r *status.Report) { r.Slot.Database = "crm" }).About(t.Context(), byUser),
		"not known: there is no such database")
	u, err := url.Parse(server.DSN())
	require.NoError(t, err)
	u.Path = ""
	byUser.Postgres.URL = secret.Of(u.String())
	require.False(t, report(func(r *status.Report) { r.Slot.Database = "crm" }).About(t.Context(), byUser))

	r := report(func(r *status.Report) { r.Slot.Database, r.Servers = "crm", []string{"db:1"} })
	require.Equal(t, `the relay of slot "postrider" in another database (crm at db:1)`,
		r.Whose("postrider"))
	require.Equal(t, `the relay of slot "postrider"`, r.Whose("billing"))

	none := config.Default() // the environment of the relay, and not that of the command, has postgres.url
	require.True(t, report(func(*status.Report) {}).About(t.Context(), none))
}

// status --watch asks at each refresh, and each question is a replication connection.
func TestAnswers_AreKeptForTheProcess(t *testing.T) {
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	cfg, nobody := config.Default(), config.Default()
	cfg.Postgres.URL = secret.Of(server.DSN())
	_, database, _ := cfg.Postgres.Place()
	nobody.Postgres.URL = secret.Of("postgres://" + parts.Nobody(t) + "/" + database)
	r := statustest.Well()
	r.PID, r.StartedAt = 7, time.Now()
	r.Slot.Database, r.Servers, r.Relay.SystemID = database, []string{"db:1"}, "1"
	var answers status.Answers
	require.True(t, answers.About(t.Context(), &r, nobody), "not known")
	require.False(t, answers.About(t.Context(), &r, cfg), "a guess is not kept")
	require.False(t, answers.About(t.Context(), &r, nobody), "not asked again")
	for name, change := range map[string]func(r *status.Report){
		"restarted":             func(r *status.Report) { r.StartedAt = r.StartedAt.Add(time.Second) },
		"another process":       func(r *status.Report) { r.PID++ },
		"with a session":        func(r *status.Report) { r.Relay.SystemID = "2" },
		"the slot is not known": func(r *status.Report) { r.Slot.Database = "" },
	} {
		changed := r
		change(&changed)
		require.True(t, answers.About(t.Context(), &changed, nobody), name)
	}
}
