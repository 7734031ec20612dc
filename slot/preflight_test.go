package slot_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

func preflight(p *place) slot.Preflight {
	return slot.Preflight{Postgres: p.Postgres, Need: p.Need(), Messages: true}
}

func errorsOf(findings []slot.Finding) []slot.Finding {
	var bad []slot.Finding
	for _, f := range findings {
		if f.Severity == slot.SeverityError {
			bad = append(bad, f)
		}
	}
	return bad
}

func TestCheck_FindsNothingWrongWithItsOwnRole(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Outbox()
		p.Exec(sql.Role())
		p.Exec(sql.Role())
		own := preflight(p)
		own.Postgres = p.Login("postrider")
		findings := slot.Check(t.Context(), own)
		require.Empty(t, errorsOf(findings))
		require.Equal(t, slot.SeverityOK, finding(t, findings, "replication_connection").Severity)
		require.Equal(t, slot.SeverityOK, finding(t, findings, "role").Severity)
		require.Equal(t, slot.SeverityInfo, finding(t, findings, "slot").Severity)

		conn, err := postgres.Connect(t.Context(), own.Postgres)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = slot.Create(t.Context(), conn, p.Config())
		require.NoError(t, err)
		require.Equal(t, slot.SeverityOK, finding(t, slot.Check(t.Context(), own), "slot").Severity)

		emit := finding(t, findings, "emit_message")
		require.Equal(t, slot.SeverityWarning, emit.Severity)
		revoke, _, _ := strings.Cut(emit.Fix, ";")
		p.Exec(revoke)
		require.Equal(t, slot.SeverityOK, finding(t, slot.Check(t.Context(), own), "emit_message").Severity)
	})
}

func TestCheck_FindsAMissingRight(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Outbox()
		weak := preflight(p)
		weak.Postgres = p.Role("weak_" + p.Name)
		findings := slot.Check(t.Context(), weak)
		f := finding(t, findings, "role")
		require.Equal(t, slot.SeverityError, f.Severity)
		require.Equal(t, slot.ClassPermission, f.Class)
		require.Len(t, errorsOf(findings), 1)
		_, err := postgres.ConnectReplication(t.Context(), weak.Postgres)
		require.ErrorIs(t, err, postgres.ErrPermission)

		p.Exec(`ALTER ROLE "weak_` + p.Name + `" REPLICATION`)
		require.Empty(t, errorsOf(slot.Check(t.Context(), weak)))
	})
}

func TestCheck_FindsTheWrongWALLevel(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, map[string]string{"wal_level": "replica"})
		p.Outbox()
		f := finding(t, slot.Check(t.Context(), preflight(p)), "wal_level")
		require.Equal(t, slot.SeverityError, f.Severity)
		require.Equal(t, slot.ClassConfiguration, f.Class)
		require.Equal(t, "is replica, and a logical slot needs logical", f.Observed)
		require.Contains(t, f.Fix, "ALTER SYSTEM SET wal_level = logical")
	})
}

func TestCheck_FindsNoWalsenderLeft(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "17", map[string]string{"max_wal_senders": "1"})
	p.Outbox()
	first, err := postgres.ConnectReplication(t.Context(), p.Postgres)
	require.NoError(t, err)
	defer first.Close(context.Background())
	f := finding(t, slot.Check(t.Context(), preflight(p)), "replication_connection")
	require.Equal(t, slot.SeverityError, f.Severity)
	require.Contains(t, f.Fix, "max_wal_senders")
}

func TestCheck_WarnsOfDangerousSettings(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "18", map[string]string{"synchronous_standby_names": "*", "idle_replication_slot_timeout": "1h", "synchronous_commit": "local"})
	p.Outbox()
	findings := slot.Check(t.Context(), preflight(p))
	require.Empty(t, errorsOf(findings))
	for _, code := range []string{"synchronous_standby_names", "idle_replication_slot_timeout", "max_slot_wal_keep_size"} {
		require.Equal(t, slot.SeverityWarning, finding(t, findings, code).Severity, code)
	}
}

func TestCheck_FindsASlotOlderThanItsPublication(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := onShared(t, version)
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		p.Outbox()
		f := finding(t, slot.Check(t.Context(), preflight(p)), "publication_before_slot")
		require.Equal(t, slot.SeverityWarning, f.Severity)

		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		_, err = slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		for _, f := range slot.Check(t.Context(), preflight(p)) {
			require.NotEqual(t, "publication_before_slot", f.Code)
		}
	})
}

func TestCheck_AsksForTheTables(t *testing.T) {
	p := onShared(t, "17")
	p.Outbox()
	pre := preflight(p)
	pre.Need.Tables = append(pre.Need.Tables, "public.absent")
	var asked []string
	pre.Table = func(ctx context.Context, conn *pgx.Conn, table slot.Table) []slot.Finding {
		var n int
		require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_attribute WHERE attrelid = $1", table.OID).Scan(&n))
		require.Positive(t, n)
		asked = append(asked, table.Name)
		return []slot.Finding{{Severity: slot.SeverityOK, Code: "columns", Subject: table.Name}}
	}
	findings := slot.Check(t.Context(), pre)
	require.Equal(t, []string{"public.outbox"}, asked)
	finding(t, findings, "columns")
	bad := errorsOf(findings)
	require.Len(t, bad, 1)
	require.Equal(t, "public.absent", bad[0].Subject)
}

func TestCheck_ClassifiesWhyItCannotConnect(t *testing.T) {
	s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17", Password: "right"})
	good := s.DSN()
	check := func(dsn string) slot.Finding {
		findings := slot.Check(t.Context(), slot.Preflight{Postgres: testdb.ConfigOf(dsn), Need: slot.Requirements{Slot: slot.DefaultConfig(), Publication: "postrider"}})
		require.Len(t, findings, 1, "%+v", findings)
		require.Equal(t, slot.SeverityError, findings[0].Severity)
		require.NotEmpty(t, findings[0].Fix)
		require.NotContains(t, findings[0].Observed, "canary")
		return findings[0]
	}
	require.Equal(t, slot.ClassPermission, check(strings.Replace(good, ":right@", ":canary@", 1)).Class)
	require.Equal(t, slot.ClassConfiguration, check(strings.Replace(good, "/postgres?", "/absent?", 1)).Class)
	require.Equal(t, slot.ClassConfiguration, check(strings.Replace(good, "sslmode=disable", "sslmode=require", 1)).Class)
	require.Equal(t, slot.ClassUnreachable, check("postgres://u:canary@127.0.0.1:1/db?sslmode=disable").Class)
	require.Equal(t, slot.ClassUnreachable, check("postgres://u:canary@no-such-host.invalid/db?sslmode=disable").Class)
	require.NoError(t, s.Stop(t.Context()))
	require.Equal(t, slot.ClassUnreachable, check(good).Class)
}
