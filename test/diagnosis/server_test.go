package diagnosis

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// standby has the server come up as one, without a primary.
func (s *site) standby(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(s.signal(), nil, 0o666))
	s.restart(t)
}

func (s *site) signal() string { return filepath.Join(s.server.DataDir(), "standby.signal") }

func (s *site) dropSlots(t *testing.T) {
	t.Helper()
	s.do(t, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
}

// limit gives the server a setting with which it would not start while there are slots.
func (s *site) limit(t *testing.T, setting string) {
	t.Helper()
	s.dropSlots(t)
	s.do(t, "ALTER SYSTEM SET "+setting)
	s.restart(t)
}

// lose has the server remove WAL that the slot needs.
func (s *site) lose(t *testing.T) {
	t.Helper()
	s.do(t, "ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
	state := "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '" + s.slot + "'"
	await(t, "a lost slot", func() bool {
		s.do(t, "SELECT pg_logical_emit_message(true, '', 'x')", "SELECT pg_switch_wal()", "CHECKPOINT")
		return query[string](t, s, state) == "lost"
	})
	s.do(t, "ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
}

// onOwnServer are conditions of a whole server; they run one after the other.
func onOwnServer() []condition {
	return []condition{
		{
			name: "wal_level",
			make: func(t *testing.T, s *site) {
				s.limit(t, "wal_level = replica")
				s.do(t, outboxSQL)
			},
			cause: `wal_level is replica, and a logical slot needs logical`,
			not:   []string{"replication slot is lost", "may not replicate"},
			unmet: reasons{noServer: {audit}, noDatabase: {letters}},
		},
		{
			name: "no free slot",
			make: func(t *testing.T, s *site) {
				s.limit(t, "max_replication_slots = 3")
				s.do(t, outboxSQL,
					`SELECT pg_create_physical_replication_slot('taken_' || i) FROM generate_series(1, 3) i`)
				t.Cleanup(func() { s.dropSlots(t) })
			},
			cause: `no free replication slot`,
			not:   []string{"replication slot is lost"},
			unmet: reasons{
				"makes no slot without --publish":             {recovering},
				"makes no slot, and shows that there is none": {status, slotShow},
				noServer: {audit}, noDatabase: {letters},
			},
		},
		{
			name:  "lost slot",
			make:  func(t *testing.T, s *site) { s.install(t); s.lose(t) },
			cause: `slot slot_[0-9a-f]+ is lost`,
			alike: []string{run, check, initialise, status},
			unmet: reasons{
				"is the remedy, and its report begins with the state of the slot": {recovering},
				noServer: {audit}, noDatabase: {letters}, ownSlot: {tail, dryRun, compare}, showsSlot: {slotShow},
			},
		},
		{
			name: "wrong password",
			make: func(t *testing.T, s *site) {
				s.do(t, "CREATE ROLE locked LOGIN REPLICATION PASSWORD 'right'")
				t.Cleanup(func() { s.do(t, "DROP ROLE locked") })
				s.database(t, func(u *url.URL) { u.User = url.UserPassword("locked", "wrong") })
			},
			cause: `password authentication failed for user locked`,
			unmet: reasons{noDatabase: {letters}},
			prose: "user and password are corrected in postgres.url",
		},
		{
			name:  "standby",
			make:  func(t *testing.T, s *site) { s.do(t, outboxSQL); s.standby(t) },
			cause: `the server is a standby, and rows are relayed from the primary`,
			not:   []string{"replication slot is lost"},
			unmet: reasons{noServer: {audit}, noDatabase: {letters}},
			prose: "postgres.url is made to name the primary, or the standby is promoted",
			cure:  func(t *testing.T, s *site) { s.do(t, "SELECT pg_promote()") },
		},
		{
			name: "server starting",
			make: func(t *testing.T, s *site) {
				require.NoError(t, s.server.SetParam("hot_standby", "off"))
				s.standby(t)
				t.Cleanup(func() {
					require.NoError(t, s.server.SetParam("hot_standby", "on"))
					require.NoError(t, os.Remove(s.signal()))
					s.restart(t)
				})
			},
			cause: `the database system is (starting up|not (yet )?accepting connections)`,
			unmet: reasons{noDatabase: {letters}},
			prose: "it starts by itself",
		},
	}
}

// outboxSQL is an installation without a slot.
const outboxSQL = `
	CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL,
		aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb);
	CREATE PUBLICATION postrider FOR TABLE outbox
		WITH (publish = 'insert', publish_via_partition_root = true)`

// hba asks one role for its password.
const hba = "host all locked 127.0.0.1/32 scram-sha-256\n" +
	"host all all 127.0.0.1/32 trust\nlocal all all trust\n"

func TestMatrix_ConditionsOfTheServer(t *testing.T) {
	t.Parallel()
	versions := []string{embedded.DefaultVersion}
	if *long {
		versions = embedded.Versions()
	}
	for _, version := range versions {
		server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, HBA: hba})
		for _, c := range onOwnServer() {
			t.Run(c.name+" "+version, func(t *testing.T) {
				c.walk(t, func(t *testing.T) *site {
					s := newSite(t, parts.NewDatabase(t, server.DSN()))
					s.server = server
					s.usesBroker(t)
					return s
				})
			})
		}
	}
}
