package slot_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestSlot_LivesFromCreateToDrop(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		_, err := slot.Get(t.Context(), p.Conn, p.Name)
		require.ErrorIs(t, err, slot.ErrNotFound)

		created, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		require.NotZero(t, created.ConfirmedFlushLSN)
		require.Equal(t, "pgoutput", created.Plugin)
		require.Equal(t, p.Name, created.Database)
		require.NoError(t, slot.Verify(created, p.Name))
		_, err = slot.Create(t.Context(), p.Conn, p.Config())
		require.ErrorIs(t, err, slot.ErrExists)

		p.Exec("CREATE TABLE moves_the_wal (a int)")
		before, err := slot.Get(t.Context(), p.Conn, p.Name)
		require.NoError(t, err)
		require.Equal(t, "reserved", before.WALStatus)
		require.Positive(t, *before.LagBytes)
		require.GreaterOrEqual(t, *before.RetainedBytes, *before.LagBytes)
		require.Nil(t, before.SafeWALSize, "no limit is set")

		end, err := slot.Advance(t.Context(), p.Conn, p.Name, before.CurrentWALLSN)
		require.NoError(t, err)
		after, err := slot.Get(t.Context(), p.Conn, p.Name)
		require.NoError(t, err)
		require.Equal(t, end, after.ConfirmedFlushLSN)
		require.Greater(t, after.ConfirmedFlushLSN, before.ConfirmedFlushLSN)

		// another session may have moved it since it was looked at
		_, err = slot.Advance(t.Context(), p.Conn, p.Name, before.ConfirmedFlushLSN)
		var refused *slot.Error
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, "minimum is")
		require.NotContains(t, refused.WAL, "there is no slot")

		all, err := slot.List(t.Context(), p.Conn)
		require.NoError(t, err)
		require.Contains(t, names(all), p.Name)

		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		require.ErrorIs(t, slot.Drop(t.Context(), p.Conn, p.Name), slot.ErrNotFound)
	})
}

func names(all []slot.Status) []string {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

func TestCreate_WithFailoverNeeds17(t *testing.T) {
	testdb.Versions(t, []string{"16", "17"}, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		cfg := p.Config()
		cfg.Failover = true
		s, err := slot.Create(t.Context(), p.Conn, cfg)
		if version == "16" {
			require.ErrorIs(t, err, slot.ErrServer)
			return
		}
		require.NoError(t, err)
		require.True(t, s.Failover)
	})
}

func TestCreate_SaysWhomItWaitsFor(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec("CREATE TABLE held (a int)")
		holder := parts.Connect(t, p.DSN)
		_, err := holder.Exec(t.Context(), "SET application_name = 'nightly'; BEGIN; INSERT INTO held VALUES (1)")
		require.NoError(t, err)
		_, err = slot.CreateWithin(t.Context(), p.Conn, p.Config(), 300*time.Millisecond)
		require.ErrorIs(t, err, slot.ErrBlocked)
		require.ErrorContains(t, err, "application nightly")
		_, err = slot.Get(t.Context(), p.Conn, p.Name)
		require.ErrorIs(t, err, slot.ErrNotFound, "a creation that was given up leaves nothing behind")

		_, err = holder.Exec(t.Context(), "COMMIT")
		require.NoError(t, err)
		_, err = slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
	})
}

func TestCreate_NeedsAFreeSlot(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, map[string]string{"max_replication_slots": "1"})
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		second := p.Config()
		second.Name += "_second"
		_, err = slot.Create(t.Context(), p.Conn, second)
		require.ErrorIs(t, err, slot.ErrNoFreeSlot)
		require.Contains(t, advice(t, err), "max_replication_slots")

		need := p.Need()
		need.Slot = second
		p.Outbox()
		f := checktest.Finding(t, check.Server(t.Context(), check.Preflight{Postgres: p.Postgres, Need: need}), "slot")
		require.Equal(t, check.SeverityError, f.Severity)
		require.Contains(t, f.Observed, "1 of 1")
	})
}

func TestCreate_NeedsTheRightToReplicate(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Exec("CREATE ROLE plain_" + p.Name + " LOGIN")
		conn := parts.Connect(t, p.DSN)
		_, err := conn.Exec(t.Context(), "SET ROLE plain_"+p.Name)
		require.NoError(t, err)
		_, err = slot.Create(t.Context(), conn, p.Config())
		require.ErrorIs(t, err, postgres.ErrPermission)
		require.Contains(t, advice(t, err), "REPLICATION")
	})
}

func TestCreate_NeedsLogicalWAL(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "17", map[string]string{"wal_level": "replica"})
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.ErrorIs(t, err, slot.ErrServer)
	require.Contains(t, advice(t, err), "ALTER SYSTEM SET wal_level = logical;")
}

func TestDrop_RefusesAnActiveSlot(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	reader, err := postgres.ConnectReplication(t.Context(), p.Postgres)
	require.NoError(t, err)
	defer reader.Close(context.Background())
	require.NoError(t, pglogrepl.StartReplication(t.Context(), reader, p.Name, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", `publication_names 'postrider'`},
	}))
	require.ErrorIs(t, slot.Drop(t.Context(), p.Conn, p.Name), replication.ErrSlotInUse)
	s, err := slot.Get(t.Context(), p.Conn, p.Name)
	require.NoError(t, err)
	require.True(t, s.Active)
	require.Equal(t, reader.PID(), uint32(s.ActivePID))
}

func TestVerify_RefusesWhatCannotBeRead(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Exec(`SELECT pg_create_logical_replication_slot($1 || '_two', 'pgoutput', false, true)`, p.Name)
	p.Exec(`SELECT pg_create_logical_replication_slot($1 || '_test', 'test_decoding')`, p.Name)
	p.Exec(`SELECT pg_create_physical_replication_slot($1 || '_phys')`, p.Name)
	defer p.Exec(`SELECT pg_drop_replication_slot($1 || '_phys')`, p.Name)
	for suffix, text := range map[string]string{"_two": "two_phase", "_test": "test_decoding", "_phys": "physical"} {
		s, err := slot.Get(t.Context(), p.Conn, p.Name+suffix)
		require.NoError(t, err)
		err = slot.Verify(s.Slot, p.Name)
		require.ErrorIs(t, err, replication.ErrSlotUnusable, suffix)
		require.ErrorContains(t, err, text)
		advised, ok := errors.AsType[*slot.Error](err)
		require.True(t, ok)
		require.Equal(t, suffix == "_two", strings.Contains(advised.Fix, "postrider recover --from-xmin"), "it may be the relay's own")
	}
	s, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	require.ErrorContains(t, slot.Verify(s, "elsewhere"), "elsewhere")
	s.ConfirmedFlushLSN = 0
	require.ErrorIs(t, slot.Verify(s, p.Name), replication.ErrSlotInUse)
}

func TestVerify_StatesTheGapOfALostSlot(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, map[string]string{
			"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "48MB", "wal_keep_size": "0",
		})
		created, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		for range 6 {
			p.Exec("CREATE TABLE IF NOT EXISTS fill (a int); INSERT INTO fill VALUES (1)")
			p.Exec("SELECT pg_switch_wal()")
		}
		p.Exec("CHECKPOINT")
		s, err := slot.Get(t.Context(), p.Conn, p.Name)
		require.NoError(t, err)
		require.True(t, s.Lost(), "wal_status is %s", s.WALStatus)
		err = slot.Verify(s.Slot, p.Name)
		var lost *slot.LostError
		require.ErrorAs(t, err, &lost)
		require.ErrorIs(t, err, replication.ErrSlotLost)
		require.Equal(t, created.ConfirmedFlushLSN, lost.ConfirmedFlushLSN)
		require.ErrorContains(t, err, created.ConfirmedFlushLSN.String())

		pg, err := postgres.ReplicationConfig(p.Postgres)
		require.NoError(t, err)
		_, refused := replication.Open(t.Context(), pg, replication.DefaultConfig(), p.Name, zerolog.Nop())
		refused = slot.RefusedStream(t.Context(), p.Postgres, p.Name, refused)
		require.EqualError(t, refused, lost.Error(), "with the position")

		_, again := slot.Create(t.Context(), p.Conn, p.Config())
		require.ErrorIs(t, again, slot.ErrExists)
		require.ErrorContains(t, again, lost.Error(), "who makes it anew has to know that it is lost")

		_, err = slot.Advance(t.Context(), p.Conn, p.Name, s.CurrentWALLSN)
		require.ErrorIs(t, err, replication.ErrSlotLost, "not that there is no slot")
		require.NotErrorIs(t, err, slot.ErrServer)
	})
}

func TestStatus_SurvivesJSON(t *testing.T) {
	p := checktest.Shared(t, "18")
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	s, err := slot.Get(t.Context(), p.Conn, p.Name)
	require.NoError(t, err)
	ok := true
	s.PublicationOK, s.Error = &ok, "why"
	document, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(document), `"confirmed_flush_lsn":"`+s.ConfirmedFlushLSN.String()+`"`)
	var back slot.Status
	require.NoError(t, json.Unmarshal(document, &back))
	require.True(t, s.ObservedAt.Equal(back.ObservedAt))
	require.True(t, s.InactiveSince.Equal(back.InactiveSince))
	s.ObservedAt, s.InactiveSince = back.ObservedAt, back.InactiveSince
	require.Equal(t, s, back)
}

func TestPrepare_CreatesTheSlotOnlyWithConsent(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		_, err := slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
		var missing *slot.PublicationError
		require.ErrorAs(t, err, &missing)
		require.Contains(t, missing.SQL, "postrider init")
		p.Outbox()

		refused := p.Need()
		refused.Slot.Create = false
		_, err = slot.Prepare(t.Context(), p.Conn, refused, true, zerolog.Nop())
		require.ErrorIs(t, err, slot.ErrNotFound)
		_, err = slot.Prepare(t.Context(), p.Conn, p.Need(), false, zerolog.Nop())
		require.ErrorIs(t, err, replication.ErrSlotLost, "a session has used it")

		created, err := slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
		require.NoError(t, err)
		again, err := slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
		require.NoError(t, err)
		require.Equal(t, created.ConfirmedFlushLSN, again.ConfirmedFlushLSN)
	})
}

func TestPrepare_DoesNotMakeASlotForATableThatHasHeldRows(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		_, err := slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
		require.NoError(t, err, "nothing was ever written")
		p.Exec("INSERT INTO public.outbox VALUES (1, 'x')")
		p.Exec("DELETE FROM public.outbox")
		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Config().Name))

		_, err = slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
		var refused *slot.Error
		require.ErrorAs(t, err, &refused, "a new process cannot know of the dropped slot, but must not make it anew in silence")
		require.ErrorIs(t, err, slot.ErrNotFound)
		require.Contains(t, refused.Fix, "postrider slot create "+p.Config().Name)

		_, err = slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		_, err = slot.Prepare(t.Context(), p.Conn, p.Need(), true, zerolog.Nop())
		require.NoError(t, err, "that was the consent")
	})
}

func TestConfig_ValidatesNames(t *testing.T) {
	require.NoError(t, slot.DefaultConfig().Validate())
	for _, name := range []string{"", "Upper", "dash-ed", "with space", "quote\"d", string(make([]byte, 64))} {
		cfg := slot.DefaultConfig()
		cfg.Name = name
		require.ErrorContains(t, cfg.Validate(), "slot.name", name)
	}
	cfg := slot.DefaultConfig()
	cfg.CheckInterval = 0
	require.ErrorContains(t, cfg.Validate(), "slot.check_interval")
}

func advice(t *testing.T, err error) string {
	t.Helper()
	var advised interface{ Advice() (wal, fix string) }
	require.ErrorAs(t, err, &advised)
	_, fix := advised.Advice()
	return fix
}
