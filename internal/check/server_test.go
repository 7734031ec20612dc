package check_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

func preflight(p *checktest.DB) check.Preflight {
	return check.Preflight{Postgres: p.Postgres, Need: p.Need(), Messages: true}
}

func errorsOf(findings []check.Finding) []check.Finding {
	var bad []check.Finding
	for _, f := range findings {
		if f.Severity == check.SeverityError {
			bad = append(bad, f)
		}
	}
	return bad
}

func TestCheck_FindsNothingWrongWithItsOwnRole(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		p.Exec(sql.Role())
		p.Exec(sql.Role())
		own := preflight(p)
		own.Postgres = p.Login("postrider")
		findings := check.Server(t.Context(), own)
		require.Empty(t, errorsOf(findings))
		require.Equal(t, check.SeverityOK, checktest.Finding(t, findings, "replication_connection").Severity)
		require.Equal(t, check.SeverityOK, checktest.Finding(t, findings, "role").Severity)
		require.Equal(t, check.SeverityInfo, checktest.Finding(t, findings, "slot").Severity)

		conn, err := postgres.Connect(t.Context(), own.Postgres)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		_, err = slot.Create(t.Context(), conn, p.Config())
		require.NoError(t, err)
		require.Equal(t, check.SeverityOK, checktest.Finding(t, check.Server(t.Context(), own), "slot").Severity)

		emit := checktest.Finding(t, findings, "emit_message")
		require.Equal(t, check.SeverityWarning, emit.Severity)
		revoke, _, _ := strings.Cut(emit.Fix, ";")
		p.Exec(revoke)
		require.Equal(t, check.SeverityOK, checktest.Finding(t, check.Server(t.Context(), own), "emit_message").Severity)
	})
}

func TestCheck_FindsAMissingRight(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		weak := preflight(p)
		weak.Postgres = p.Role("weak_" + p.Name)
		findings := check.Server(t.Context(), weak)
		f := checktest.Finding(t, findings, "role")
		require.Equal(t, check.SeverityError, f.Severity)
		require.Equal(t, check.ClassPermission, f.Class)
		require.Len(t, errorsOf(findings), 1)
		_, err := postgres.ConnectReplication(t.Context(), weak.Postgres)
		require.ErrorIs(t, err, postgres.ErrPermission)

		p.Exec(`ALTER ROLE "weak_` + p.Name + `" REPLICATION`)
		require.Empty(t, errorsOf(check.Server(t.Context(), weak)))
	})
}

func TestCheck_FindsTheWrongWALLevel(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, map[string]string{"wal_level": "replica"})
		p.Outbox()
		f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "wal_level")
		require.Equal(t, check.SeverityError, f.Severity)
		require.Equal(t, check.ClassConfiguration, f.Class)
		require.Equal(t, "is replica, and a logical slot needs logical", f.Observed)
		require.Contains(t, f.Fix, "ALTER SYSTEM SET wal_level = logical")
	})
}

func TestCheck_FindsNoWalsenderLeft(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "17", map[string]string{"max_wal_senders": "1"})
	p.Outbox()
	first, err := postgres.ConnectReplication(t.Context(), p.Postgres)
	require.NoError(t, err)
	defer first.Close(context.Background())
	f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "replication_connection")
	require.Equal(t, check.SeverityError, f.Severity)
	require.Contains(t, f.Fix, "max_wal_senders")
}

func TestCheck_WarnsOfDangerousSettings(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "18", map[string]string{"synchronous_standby_names": "*", "idle_replication_slot_timeout": "1h", "synchronous_commit": "local"})
	p.Outbox()
	findings := check.Server(t.Context(), preflight(p))
	require.Empty(t, errorsOf(findings))
	for _, code := range []string{"synchronous_standby_names", "idle_replication_slot_timeout", "max_slot_wal_keep_size"} {
		require.Equal(t, check.SeverityWarning, checktest.Finding(t, findings, code).Severity, code)
	}
}

func TestCheck_FindsASlotOlderThanItsPublication(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		p.Outbox()
		f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "publication_before_slot")
		require.Equal(t, check.SeverityWarning, f.Severity)

		require.NoError(t, slot.Drop(t.Context(), p.Conn, p.Name))
		_, err = slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		for _, f := range check.Server(t.Context(), preflight(p)) {
			require.NotEqual(t, "publication_before_slot", f.Code)
		}
	})
}

func TestCheck_AsksForTheTables(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	pre := preflight(p)
	pre.Need.Tables = append(pre.Need.Tables, "public.absent")
	var asked []string
	pre.Table = func(ctx context.Context, conn *pgx.Conn, table slot.Table) []check.Finding {
		var n int
		require.NoError(t, conn.QueryRow(ctx, "SELECT count(*) FROM pg_attribute WHERE attrelid = $1", table.OID).Scan(&n))
		require.Positive(t, n)
		asked = append(asked, table.Name)
		return []check.Finding{{Severity: check.SeverityOK, Code: "columns", Subject: table.Name}}
	}
	findings := check.Server(t.Context(), pre)
	require.Equal(t, []string{"public.outbox"}, asked)
	checktest.Finding(t, findings, "columns")
	bad := errorsOf(findings)
	require.Len(t, bad, 1)
	require.Equal(t, "public.absent", bad[0].Subject)
}

func TestCheck_ClassifiesWhyItCannotConnect(t *testing.T) {
	s := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17", Password: "right"})
	good := s.DSN()
	connect := func(dsn string) check.Finding {
		findings := check.Server(t.Context(), check.Preflight{Postgres: testdb.ConfigOf(dsn), Need: slot.Requirements{Slot: slot.DefaultConfig(), Publication: "postrider"}})
		require.Len(t, findings, 1, "%+v", findings)
		require.Equal(t, check.SeverityError, findings[0].Severity)
		require.NotEmpty(t, findings[0].Fix)
		require.NotContains(t, findings[0].Observed, "canary")
		return findings[0]
	}
	require.Equal(t, check.ClassPermission, connect(strings.Replace(good, ":right@", ":canary@", 1)).Class)
	require.Equal(t, check.ClassConfiguration, connect(strings.Replace(good, "/postgres?", "/absent?", 1)).Class)
	require.Equal(t, check.ClassConfiguration, connect(strings.Replace(good, "sslmode=disable", "sslmode=require", 1)).Class)
	require.Equal(t, check.ClassUnreachable, connect("postgres://u:canary@127.0.0.1:1/db?sslmode=disable").Class)
	require.Equal(t, check.ClassUnreachable, connect("postgres://u:canary@no-such-host.invalid/db?sslmode=disable").Class)
	require.NoError(t, s.Stop(t.Context()))
	require.Equal(t, check.ClassUnreachable, connect(good).Class)
}

// What changed while no relay ran is told from the slot's horizon, as the monitor does when it begins.
func TestCheck_FindsWhatIsYoungerThanTheSlot(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, nil)
		p.Exec("CREATE TABLE outbox (id serial PRIMARY KEY, payload text)")
		p.Exec("CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')")
		p.Exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.Name)
		found := func() (findings []check.Finding) {
			for _, f := range check.Server(t.Context(), preflight(p)) {
				if f.Code == "publication_before_slot" {
					findings = append(findings, f)
				}
			}
			return findings
		}
		for _, f := range found() {
			require.Equal(t, check.SeverityOK, f.Severity, "of a fresh slot: %+v", f)
		}
		p.Exec("ALTER PUBLICATION postrider SET (publish = 'update')")
		p.Exec("INSERT INTO outbox (payload) VALUES ('lost')")
		p.Exec("ALTER PUBLICATION postrider SET (publish = 'insert')")
		var xmin string
		require.NoError(t, p.Conn.QueryRow(t.Context(),
			"SELECT catalog_xmin::text FROM pg_replication_slots WHERE slot_name = $1", p.Name).Scan(&xmin))
		changed := found()
		require.Len(t, changed, 1)
		require.Equal(t, check.SeverityWarning, changed[0].Severity)
		require.Contains(t, changed[0].Fix, "postrider recover --from-xmin "+xmin)

		// A slot that is made beside one that lags is not older than its publication.
		p.Exec("SELECT pg_copy_logical_replication_slot($1, 'lags')", p.Name)
		p.Exec("SELECT pg_drop_replication_slot($1)", p.Name)
		p.Exec("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", p.Name)
		changed = found()
		require.Len(t, changed, 1)
		require.Equal(t, check.SeverityInfo, changed[0].Severity)
	})
}
