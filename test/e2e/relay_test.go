package e2e

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// shop is a database with an outbox, and the relay that is to read it.
type shop struct {
	*parts.Database
	cluster
	sql  *pgx.Conn
	slot string
	file string // the configuration, which says nothing of connections
}

// newShop makes a database from the SQL, which creates tables and a publication, and keeps the configuration for the relay.
func newShop(t testing.TB, version, sql, config string) *shop {
	t.Helper()
	s := &shop{Database: parts.Postgres(t, version), cluster: newCluster(t), slot: parts.Unique("e2e")}
	s.Exec(t, sql)
	s.sql = s.Connect(t)
	s.file = filepath.Join(t.TempDir(), "postrider.toml")
	s.configure(t, config)
	return s
}

// configure replaces the configuration of relays that are started from now on.
func (s *shop) configure(t testing.TB, config string) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.file, []byte(config), 0o600))
}

// environment is what a configuration file leaves open: the connections.
func (s *shop) environment() map[string]string {
	return map[string]string{
		"POSTRIDER_POSTGRES_URL":       s.DSN(),
		"POSTRIDER_SINK_KAFKA_BROKERS": s.list(),
		"POSTRIDER_SLOT_NAME":          s.slot,
		"POSTRIDER_HTTP_LISTEN":        "127.0.0.1:0",
	}
}

var errEnded = errors.New("the relay has ended")

// relay is a running postrider run.
type relay struct {
	*parts.Relay
	url  string
	peak float64 // resident bytes, as seen in the metrics
}

// run starts the relay and waits until it is ready: streaming, with its listener on a port that was free.
func (s *shop) run(t testing.TB, more ...map[string]string) *relay {
	t.Helper()
	r := s.launch(t, more...)
	address, ok := r.AwaitLog(t, "http listener started")["listen"].(string)
	require.True(t, ok)
	r.url = "http://" + address
	parts.Await(t, "a relay that is ready", func() (bool, error) {
		if !r.Running() {
			return false, errEnded
		}
		var answer struct{}
		status, err := getJSON(r.url+"/readyz", &answer)
		return status == 200 && r.state(t).Phase == "streaming", err
	})
	return r
}

// launch starts the relay and waits for nothing.
func (s *shop) launch(t testing.TB, more ...map[string]string) *relay {
	t.Helper()
	env := s.environment()
	for _, m := range more {
		maps.Copy(env, m)
	}
	return &relay{Relay: start(t, env, "run", "--config", s.file)}
}

// relayState is the part of /status that tests look at.
type relayState struct {
	Phase    string `json:"phase"`
	Sessions int    `json:"sessions"`
}

func (r *relay) state(t testing.TB) relayState {
	t.Helper()
	var status struct {
		Relay relayState `json:"relay"`
	}
	_, err := getJSON(r.url+"/status", &status)
	require.NoError(t, err)
	return status.Relay
}

// awaitConfirmed waits until the slot is confirmed beyond everything that is committed now. What the relay makes of that is in the
// topics then.
func (s *shop) awaitConfirmed(t testing.TB, r *relay) {
	t.Helper()
	target := s.lsn(t, "SELECT pg_current_wal_flush_lsn()")
	parts.Await(t, "a slot confirmed up to "+target.String(), func() (bool, error) {
		if r != nil && !r.Running() {
			return false, errEnded
		}
		return s.confirmed(t) >= target, nil
	})
}

// confirmed is the position of the slot.
func (s *shop) confirmed(t testing.TB) pglogrepl.LSN {
	t.Helper()
	return s.lsn(t, "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '"+s.slot+"'")
}

func (s *shop) lsn(t testing.TB, query string) pglogrepl.LSN {
	t.Helper()
	var text string
	require.NoError(t, s.sql.QueryRow(t.Context(), "SELECT ("+query+")::text").Scan(&text))
	lsn, err := pglogrepl.ParseLSN(text)
	require.NoError(t, err)
	return lsn
}

// do runs statements one after the other, each its own transaction.
func (s *shop) do(t testing.TB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		_, err := s.sql.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, "%s", statement)
	}
}
