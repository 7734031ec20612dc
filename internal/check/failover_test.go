package check_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// standby receives WAL through a physical slot, as a standby's walreceiver does, and keeps none of it.
func standby(p *checktest.DB, name string) *pgconn.PgConn {
	p.T.Helper()
	p.Exec(`SELECT pg_create_physical_replication_slot($1, true)`, name)
	cfg, err := postgres.PhysicalConfig(p.Postgres)
	require.NoError(p.T, err)
	cfg.RuntimeParams["application_name"] = name
	conn, err := pgconn.ConnectConfig(p.T.Context(), cfg)
	require.NoError(p.T, err)
	p.T.Cleanup(func() { _ = conn.Close(context.Background()) })
	id, err := pglogrepl.IdentifySystem(p.T.Context(), conn)
	require.NoError(p.T, err)
	require.NoError(p.T, pglogrepl.StartReplication(p.T.Context(), conn, name, id.XLogPos, pglogrepl.StartReplicationOptions{Mode: pglogrepl.PhysicalReplication}))
	return conn
}

// feedback sends what a standby with hot_standby_feedback sends: the oldest transaction that it still needs.
func feedback(p *checktest.DB, standby *pgconn.PgConn) {
	p.T.Helper()
	var xid uint64
	require.NoError(p.T, p.Conn.QueryRow(p.T.Context(), `SELECT txid_current()`).Scan(&xid))
	message := []byte{'h'}
	message = binary.BigEndian.AppendUint64(message, uint64(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds())) //nolint:gosec // positive
	message = binary.BigEndian.AppendUint32(message, uint32(xid))                                                                    //nolint:gosec // its lower half
	message = binary.BigEndian.AppendUint32(message, uint32(xid>>32))                                                                //nolint:gosec // its upper half
	message = append(message, make([]byte, 8)...)
	standby.Frontend().Send(&pgproto3.CopyData{Data: message})
	require.NoError(p.T, standby.Frontend().Flush())
}

func TestCheck_SaysWhetherTheSlotSurvivesAFailover(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, []string{"17", "18"}, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, nil)
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		pre := preflight(p)
		require.Equal(t, gone, severityOf(check.Server(t.Context(), pre), "slot_failover"), "there is no standby")

		standby := standby(p, "sb1")
		f := p.AwaitFinding(pre, "slot_failover", check.SeverityInfo)
		require.Contains(t, f.Observed, "sb1")
		pre.Need.Slot.Failover = true
		f = p.AwaitFinding(pre, "slot_failover", check.SeverityWarning)

		own := p.Conn.Config()
		require.Contains(t, f.Fix, fmt.Sprintf("\npsql 'host=%s port=%d user=%s dbname=%s replication=database' -c '", own.Host, own.Port, own.User, own.Database))
		command := f.Fix[strings.Index(f.Fix, "ALTER_"):strings.Index(f.Fix, "'\nand")]
		conn, err := postgres.ConnectReplication(t.Context(), p.Postgres)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), command).ReadAll()
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
		p.AwaitFinding(pre, "slot_failover", check.SeverityOK)

		findings := check.Server(t.Context(), pre)
		require.Equal(t, check.SeverityInfo, severityOf(findings, "standby_copies"))
		f = checktest.Finding(t, findings, "hot_standby_feedback")
		require.Equal(t, check.SeverityWarning, f.Severity)
		require.Equal(t, "sb1", f.Subject)
		feedback(p, standby)
		p.AwaitFinding(pre, "hot_standby_feedback", gone)

		f = checktest.Finding(t, findings, "synchronized_standby_slots")
		require.Equal(t, check.SeverityInfo, f.Severity)
		require.Contains(t, f.Fix, "'sb1'")
		p.Heal(f)
		p.AwaitFinding(pre, "synchronized_standby_slots", check.SeverityOK)
	})
}

func TestPrepare_WarnsOfASlotThatAFailoverLoses(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	need := p.Need()
	for _, failover := range []bool{false, true} {
		cfg := p.Config()
		cfg.Failover = failover
		_, err := slot.Create(t.Context(), p.Conn, cfg)
		require.NoError(t, err)
		need.Slot.Failover = true
		var log bytes.Buffer
		s, err := slot.Prepare(t.Context(), p.Conn, need, false, zerolog.New(&log))
		require.NoError(t, err)
		require.Equal(t, failover, s.Failover)
		require.Equal(t, !failover, strings.Contains(log.String(), "a failover loses it"))
		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
	}
}

func TestCheck_SaysBefore17WhoCopiesSlots(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "14", nil)
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	standby(p, "sb1")
	f := p.AwaitFinding(preflight(p), "slot_failover", check.SeverityInfo)
	require.Contains(t, f.Fix, "pg_failover_slots")
	pre := preflight(p)
	pre.Need.Slot.Failover = true
	require.Equal(t, check.SeverityError, severityOf(check.Server(t.Context(), pre), "slot_failover"))
}

// A slot whose position the server has not reached comes from another server, or from another branch of its history.
func TestCheck_FindsASlotAheadOfItsServer(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		state := func(s *embedded.Postgres, name string) string {
			return filepath.Join(s.DataDir(), "pg_replslot", name, "state")
		}
		start := func() (*checktest.DB, *embedded.Postgres) {
			s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			return &checktest.DB{DB: &testdb.DB{T: t, Conn: parts.Connect(t, s.DSN()), DSN: s.DSN(), Postgres: testdb.ConfigOf(s.DSN()), Name: "moved"}}, s
		}
		far, ahead := start()
		for range 3 {
			far.Exec(`SELECT pg_logical_emit_message(false, '', 'x'), pg_switch_wal()`)
		}
		far.Exec(`SELECT pg_create_logical_replication_slot('moved', 'pgoutput')`)
		far.Exec(`CHECKPOINT`)
		taken, err := os.ReadFile(state(ahead, "moved"))
		require.NoError(t, err)

		p, s := start()
		p.Outbox()
		p.Exec(`SELECT pg_create_logical_replication_slot('moved', 'pgoutput')`)
		require.Equal(t, gone, severityOf(check.Server(t.Context(), preflight(p)), "slot_position"))
		require.NoError(t, s.Stop(t.Context()))
		require.NoError(t, os.WriteFile(state(s, "moved"), taken, 0o600))
		require.NoError(t, s.Start(t.Context()))

		f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "slot_position")
		require.Equal(t, check.SeverityError, f.Severity)
		require.Contains(t, f.Fix, "postrider slot drop moved --yes; postrider slot create moved")
		require.NotEmpty(t, f.WAL)
	})
}
