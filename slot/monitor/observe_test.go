package monitor_test

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// versionsObserved are those whose views differ.
var versionsObserved = []string{"14", "16", "17", "18"}

func observe(t *testing.T, conn *pgx.Conn, name string, cfg monitor.Config) monitor.Observation {
	t.Helper()
	o, err := monitor.Observe(t.Context(), conn, name, cfg)
	require.NoError(t, err)
	return o
}

func TestObserve_FillsEveryField(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		params := map[string]string{
			"max_slot_wal_keep_size": "256MB", "wal_keep_size": "512MB", "max_wal_size": "2GB", "shared_buffers": "64MB",
			"checkpoint_timeout": "4min", "checkpoint_completion_target": "0.7",
		}
		idle := 0.0
		if version == "18" {
			params["idle_replication_slot_timeout"], idle = "90min", 5400
		}
		p, _ := onOwn(t, version, params)
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		reader := p.Reads(p.Postgres, p.Name)
		p.Exec("INSERT INTO outbox VALUES (1, 'x')")
		p.Exec("SELECT pg_create_physical_replication_slot('of_a_standby', true)")

		cfg := monitor.DefaultConfig()
		cfg.VolumeSize = 1 << 40
		var o monitor.Observation
		require.Eventually(t, func() bool { // the server reports what it decoded when it has the time
			o = observe(t, p.Conn, p.Name, cfg)
			return o.Decoding != nil && o.Decoding.TotalTransactions > 0
		}, patience, 10*time.Millisecond)

		require.Contains(t, o.Server.Version, version)
		require.False(t, o.Server.Standby)
		require.EqualValues(t, 1, o.Server.Timeline)
		require.WithinDuration(t, time.Now(), o.Server.StartedAt, 5*time.Minute)

		require.NotNil(t, o.Limit.Checkpoint)
		require.NotZero(t, o.Limit.Checkpoint.RedoLSN)
		require.False(t, o.Limit.Checkpoint.StartedAt.IsZero())
		require.Positive(t, *o.Limit.WALDirectory)
		o.Limit.Checkpoint, o.Limit.WALDirectory = nil, nil
		require.Equal(t, monitor.Limit{
			MaxSlotWALKeepSize: new(int64(256 << 20)), WALKeepSize: 512 << 20, Effective: new(int64(512 << 20)), MaxWALSize: 2 << 30, SegmentSize: 16 << 20,
			CheckpointTimeout: 240, CheckpointTarget: 0.7, SharedBuffers: 64 << 20, IdleTimeout: monitor.Seconds(idle), VolumeSize: 1 << 40,
		}, o.Limit)

		require.True(t, o.Slot.Active)
		require.EqualValues(t, reader.PID(), o.Slot.ActivePID)
		require.Equal(t, "reserved", o.Slot.WALStatus)
		require.Positive(t, *o.Slot.SafeWALSize)
		require.Positive(t, *o.Slot.RetainedBytes)
		require.WithinDuration(t, time.Now(), o.Slot.ObservedAt, time.Minute)
		require.GreaterOrEqual(t, *o.CatalogXminAge, int64(0))

		require.NotNil(t, o.Stream)
		require.EqualValues(t, reader.PID(), o.Stream.PID)
		require.Equal(t, "postrider", o.Stream.Application)
		require.Equal(t, p.Conn.Config().User, o.Stream.User)
		require.NotEmpty(t, o.Stream.State)
		require.NotZero(t, o.Stream.SentLSN)
		require.Positive(t, o.Decoding.TotalBytes)

		require.Equal(t, []string{"of_a_standby"}, names(o.Others))
		require.False(t, o.Others[0].Active)
		require.False(t, o.Others[0].InactiveSince.IsZero())
		require.Positive(t, *o.Others[0].RetainedBytes)

		require.Empty(t, o.Blockers)
		require.Empty(t, o.Standbys)
		require.Empty(t, o.Notes, "a superuser may ask for everything")
		require.NotNil(t, o.Clock)
		require.LessOrEqual(t, o.Clock.Skew.Duration().Abs(), o.Clock.Error.Duration(), "it is the same clock")
		require.NotEmpty(t, o.Forecast.Loss.Assumption)

		cfg.OtherSlots = false
		require.Empty(t, observe(t, p.Conn, p.Name, cfg).Others)

		document, err := json.Marshal(o)
		require.NoError(t, err)
		var back monitor.Observation
		require.NoError(t, json.Unmarshal(document, &back))
		require.Equal(t, o.Limit, back.Limit)
	})
}

// What may not be seen is absent, and a note says what to type. The rest is as it is for others.
func TestObserve_NeedsNoMoreThanToReplicate(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, versionsObserved, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, nil)
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		login := p.Lean()
		reader := p.Reads(login, p.Name)
		p.Exec("REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC")
		cfg := monitor.DefaultConfig()
		cfg.VolumeSize = 1 << 40
		conn := parts.Connect(t, mustReveal(t, login))
		o := observe(t, conn, p.Name, cfg)
		require.Equal(t, []string{"checkpoint", "wal_directory", "activity"}, notes(o))
		require.Nil(t, o.Limit.Checkpoint)
		require.Nil(t, o.Limit.WALDirectory)
		require.NotNil(t, o.Slot.RetainedBytes)
		require.NotZero(t, o.Limit.SharedBuffers)
		require.NotNil(t, o.CatalogXminAge)
		require.NotNil(t, o.Clock)
		require.EqualValues(t, reader.PID(), o.Stream.PID)
		require.Equal(t, "lean_"+p.Name, o.Stream.User)
		require.Empty(t, o.Stream.State, "not even of a walsender of its own")
		require.Zero(t, o.Stream.SentLSN)

		for _, n := range o.Notes { // each says what to type
			require.Regexp(t, `GRANT .* TO "lean_`+p.Name+`";$`, n.Text)
			p.Exec(grant.FindString(n.Text))
		}
		o = observe(t, conn, p.Name, cfg)
		require.Empty(t, o.Notes)
		require.NotNil(t, o.Limit.Checkpoint)
		require.NotNil(t, o.Limit.WALDirectory)
		require.NotEmpty(t, o.Stream.State)
		require.NotZero(t, o.Stream.SentLSN)
	})
}

// A login that may read the size of pg_wal, and not what waits for the archiver, has all but that.
func TestObserve_DoesWithoutTheArchiver(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	login := p.Lean()
	p.Exec("GRANT EXECUTE ON FUNCTION pg_ls_waldir() TO lean_" + p.Name)
	cfg := monitor.DefaultConfig()
	cfg.VolumeSize = 1 << 40
	o := observe(t, parts.Connect(t, mustReveal(t, login)), p.Name, cfg)
	require.Equal(t, []string{"archive", "activity"}, notes(o))
	require.Contains(t, o.Notes[0].Text, `pg_ls_archive_statusdir() may not be called`)
	require.NotNil(t, o.Limit.WALDirectory)
	require.Nil(t, o.Archive)
}

func TestMonitor_SeesAGrant(t *testing.T) {
	t.Parallel()
	p := onShared(t, "17")
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	w := newWatched(t, p.Lean(), p.Need(), quick())
	w.RenewEvery(time.Second)
	w.start()
	require.Equal(t, []string{"activity"}, notes(w.Observation()))
	p.Exec("GRANT pg_monitor TO lean_" + p.Name)
	w.observes(func(o monitor.Observation) bool { return len(o.Notes) == 0 })
}

// Managed servers refuse some functions although nothing says that they may not be called.
func TestMonitor_DoesWithoutWhatIsRefused(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "17", map[string]string{"allow_system_table_mods": "on"})
	p.Outbox()
	p.Exec(`ALTER FUNCTION pg_catalog.pg_ls_waldir() RENAME TO pg_ls_waldir_of_stock`)
	p.Exec(`CREATE FUNCTION pg_catalog.pg_ls_waldir(OUT name text, OUT size bigint) RETURNS SETOF record LANGUAGE plpgsql AS
		$$ BEGIN PERFORM nextval('public.calls'); RAISE 'not on this service'; END $$`)
	p.Exec("CREATE SEQUENCE calls")
	p.Exec(`ALTER FUNCTION pg_catalog.pg_control_checkpoint() RENAME TO pg_control_checkpoint_of_stock`)
	cfg := quick()
	cfg.VolumeSize = 1 << 40
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	w := newWatched(t, p.Postgres, p.Need(), cfg)
	w.start()
	o := w.Observation()
	require.Equal(t, []string{"checkpoint", "wal_directory"}, notes(o))
	require.Contains(t, o.Notes[1].Text, "not on this service")
	require.NotNil(t, o.CatalogXminAge, "the rest is there")
	// It is not asked again and again.
	w.observes(func(later monitor.Observation) bool {
		return later.Slot.ObservedAt.After(o.Slot.ObservedAt.Add(time.Second))
	})
	var calls int
	require.NoError(t, p.Conn.QueryRow(t.Context(), "SELECT last_value FROM calls").Scan(&calls))
	require.Equal(t, 2, calls, "once more without what waits for the archiver, which may have been the reason")
}

func TestObserve_NamesWhatBlocksTheSlot(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, versionsObserved, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, map[string]string{"max_prepared_transactions": "5"})
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		p.Exec("CREATE TABLE busy (a int)")

		for xid := 0; xid < 990; { // 1000 is younger than 999, although its text is less
			require.NoError(t, p.Conn.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::int").Scan(&xid))
		}

		nightly, pid := p.begins("nightly", "INSERT INTO busy VALUES (1)")
		for i := range 20 { // each subtransaction has an id of its own
			_, err := nightly.Exec(t.Context(), "SAVEPOINT s"+strconv.Itoa(i)+"; INSERT INTO busy VALUES (2)")
			require.NoError(t, err)
		}
		prepared, _ := p.begins("two phases", "INSERT INTO busy VALUES (3)")
		_, err = prepared.Exec(t.Context(), "PREPARE TRANSACTION 'of the bank'")
		require.NoError(t, err)
		p.begins("reader", "SELECT * FROM busy") // has no id, and holds nothing back
		var xid uint64
		require.NoError(t, nightly.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::bigint").Scan(&xid))

		login := p.Lean()
		w := newWatched(t, login, p.Need(), quick())
		w.start()
		o := w.observes(func(o monitor.Observation) bool { return len(o.Blockers) == 2 })
		first, second := o.Blockers[0], o.Blockers[1]
		require.WithinDuration(t, time.Now(), first.Since, time.Minute)
		require.Equal(t, monitor.Blocker{
			Kind: monitor.BlockerTransaction, PID: pid, Application: "nightly", User: p.Conn.Config().User, Database: p.Name, XID: xid, Age: first.Age, Since: first.Since, Restart: true,
		}, first)
		require.Equal(t, monitor.BlockerPrepared, second.Kind)
		require.Equal(t, "of the bank", second.GID)
		require.Equal(t, p.Name, second.Database)
		require.Equal(t, p.Conn.Config().User, second.User)
		require.Greater(t, second.XID, first.XID)
		require.Greater(t, first.Age, second.Age)
		require.Positive(t, second.Age)
		require.False(t, second.Restart, "the oldest one comes first")

		p.Exec("GRANT pg_monitor TO lean_" + p.Name)
		o = observe(t, parts.Connect(t, mustReveal(t, login)), p.Name, quick())
		require.Equal(t, "idle in transaction", o.Blockers[0].State)
		require.True(t, o.Blockers[0].Since.Before(first.Since), "it began before it was seen")

		_, err = nightly.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		o = w.observes(func(o monitor.Observation) bool { return len(o.Blockers) == 1 })
		require.True(t, o.Blockers[0].Restart)
		p.Exec("ROLLBACK PREPARED 'of the bank'")
		w.observes(func(o monitor.Observation) bool { return len(o.Blockers) == 0 })
	})
}

// begins leaves a transaction open.
func (p *place) begins(application, sql string) (conn *pgx.Conn, pid int32) {
	p.T.Helper()
	conn = parts.Connect(p.T, p.DSN)
	_, err := conn.Exec(p.T.Context(), "SET application_name = '"+application+"'; BEGIN; "+sql)
	require.NoError(p.T, err)
	return conn, int32(conn.PgConn().PID())
}

func TestObserve_SeesTheStandbysThatAreWaitedFor(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, []string{"17", "18"}, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, map[string]string{"synchronized_standby_slots": `standby_a, "standby_b"`})
		p.Outbox()
		cfg := p.Config()
		_, err := slot.Create(t.Context(), p.Conn, cfg)
		require.NoError(t, err)
		require.Empty(t, observe(t, p.Conn, p.Name, quick()).Standbys, "a slot without failover waits for nobody")
		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		cfg.Failover = true
		_, err = slot.Create(t.Context(), p.Conn, cfg)
		require.NoError(t, err)

		p.Exec("SELECT pg_create_physical_replication_slot('standby_b', true)")
		gate := observe(t, p.Conn, p.Name, quick()).Standbys
		require.Len(t, gate, 2)
		require.Equal(t, monitor.StandbySlot{Name: "standby_a", Blocks: true}, gate[0])
		require.False(t, gate[1].InactiveSince.IsZero())
		require.Equal(t, monitor.StandbySlot{Name: "standby_b", Exists: true, Blocks: true, WALStatus: "reserved", InactiveSince: gate[1].InactiveSince}, gate[1])

		standby, err := pgconn.Connect(t.Context(), p.DSN+"&replication=true")
		require.NoError(t, err)
		defer standby.Close(context.Background())
		at, err := pglogrepl.IdentifySystem(t.Context(), standby)
		require.NoError(t, err)
		require.NoError(t, pglogrepl.StartReplication(t.Context(), standby, "standby_b", at.XLogPos, pglogrepl.StartReplicationOptions{Mode: pglogrepl.PhysicalReplication}))
		gate = observe(t, p.Conn, p.Name, quick()).Standbys
		require.Equal(t, monitor.StandbySlot{Name: "standby_b", Exists: true, Active: true, WALStatus: "reserved"}, gate[1])
	})
}

// The server waits for a logical slot of synchronized_standby_slots for ever, whoever reads from it.
func TestObserve_ALogicalSlotIsNoStandby(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, []string{"17", "18"}, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, map[string]string{"synchronized_standby_slots": "copy"})
		p.Outbox()
		cfg := p.Config()
		cfg.Failover = true
		_, err := slot.Create(t.Context(), p.Conn, cfg)
		require.NoError(t, err)
		p.Exec("SELECT pg_create_logical_replication_slot('copy', 'pgoutput')")
		p.Reads(p.Postgres, "copy")
		var gate []monitor.StandbySlot
		require.Eventually(t, func() bool {
			gate = observe(t, p.Conn, p.Name, quick()).Standbys
			return len(gate) == 1 && gate[0].Active
		}, patience, 10*time.Millisecond)

		p.Exec("SELECT pg_create_logical_replication_slot('plain', 'test_decoding')")
		p.Exec("SELECT pg_create_logical_replication_slot('waiting', 'test_decoding', failover => true)")
		p.Exec("INSERT INTO outbox VALUES (1, 'x')")
		conn := parts.Connect(t, p.DSN)
		decode := func(name string) error {
			_, err := conn.Exec(t.Context(), "SELECT pg_logical_slot_get_changes($1, NULL, NULL)", name)
			return err
		}
		require.NoError(t, decode("plain"), "a slot without failover waits for nobody")
		_, err = conn.Exec(t.Context(), "SET statement_timeout = '1s'")
		require.NoError(t, err)
		require.Equal(t, "57014", postgres.SQLState(decode("waiting")), "it waits until the timeout")
		require.True(t, gate[0].Blocks)
	})
}

func notes(o monitor.Observation) []string {
	var values []string
	for _, n := range o.Notes {
		values = append(values, n.Value)
	}
	return values
}

// grant is the statement in a note.
var grant = regexp.MustCompile(`GRANT .*`)

func mustReveal(t *testing.T, cfg postgres.Config) string {
	t.Helper()
	dsn, err := cfg.URL.Reveal()
	require.NoError(t, err)
	return dsn
}
