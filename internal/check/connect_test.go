package check_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

func TestCheck_WarnsOfARoleThatSoonCannotConnect(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		pre := preflight(p)
		role := "relay_" + p.Name
		pre.Postgres = p.Role(role)
		p.Exec(`ALTER ROLE "` + role + `" REPLICATION`)
		findings := check.Server(t.Context(), pre)
		for _, code := range []string{"role_connection_limit", "role_valid_until"} {
			require.Equal(t, gone, severityOf(findings, code))
		}
		p.Exec(`ALTER ROLE "` + role + `" CONNECTION LIMIT 3 VALID UNTIL '` + "tomorrow" + `'`)
		findings = check.Server(t.Context(), pre)
		require.Empty(t, errorsOf(findings))
		for _, code := range []string{"role_connection_limit", "role_valid_until"} {
			f := checktest.Finding(t, findings, code)
			require.Equal(t, check.SeverityWarning, f.Severity)
			p.Heal(f)
		}
		findings = check.Server(t.Context(), pre)
		for _, code := range []string{"role_connection_limit", "role_valid_until"} {
			require.Equal(t, gone, severityOf(findings, code))
		}
	})
}

// severityOf is gone if nothing was found.
func severityOf(findings []check.Finding, code string) check.Severity {
	for _, f := range findings {
		if f.Code == code {
			return f.Severity
		}
	}
	return gone
}

func TestCheck_LeavesARelayThatStreamsInPeace(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, map[string]string{"max_wal_senders": "1", "max_replication_slots": "1"})
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		p.Reads(p.Postgres, p.Name)

		findings := check.Server(t.Context(), preflight(p))
		require.Empty(t, errorsOf(findings), "the relay has all that it needs")
		f := checktest.Finding(t, findings, "slot")
		require.Equal(t, check.SeverityOK, f.Severity)
		require.Contains(t, f.Observed, "active, pid")
		require.Equal(t, gone, severityOf(findings, "slot_holder"), "it is a relay")
		for code, want := range map[string]check.Severity{
			"max_wal_senders": check.SeverityWarning, "replication_connection": check.SeverityWarning, "max_replication_slots": check.SeverityInfo,
		} {
			require.Equal(t, want, severityOf(findings, code), code)
			require.Contains(t, checktest.Finding(t, findings, code).Fix, "max_", code)
		}

		beside := preflight(p)
		beside.Beside = true
		findings = check.Server(t.Context(), beside)
		require.Equal(t, check.SeverityOK, severityOf(findings, "replication_connection"), "its own stream is the proof")
		require.Equal(t, gone, severityOf(findings, "physical_replication"))
	})
}

func TestCheck_SaysWhoElseHasTheSlot(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		_, err := slot.Create(t.Context(), p.Conn, p.Config())
		require.NoError(t, err)
		p.Reads(testdb.ConfigOf(p.DSN+"&application_name=Debezium"), p.Name)
		// Without any right to see other sessions.
		pre := preflight(p)
		pre.Postgres = p.Role("relay_" + p.Name)
		p.Exec(`ALTER ROLE "relay_` + p.Name + `" REPLICATION`)
		f := checktest.Finding(t, check.Server(t.Context(), pre), "slot_holder")
		require.Equal(t, check.SeverityWarning, f.Severity)
		require.Regexp(t, `^is held by process \d+ of the database, application Debezium, role postgres`, f.Observed)
		p.Heal(f)
		p.AwaitFinding(pre, "slot_holder", gone)
	})
}

func TestCheck_SaysHowLongASlotStaysTaken(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	found := func(param string) check.Finding {
		pre := preflight(p)
		pre.Postgres = testdb.ConfigOf(p.DSN + param)
		return checktest.Finding(t, check.Server(t.Context(), pre), "wal_sender_timeout")
	}
	require.Equal(t, check.SeverityOK, found("").Severity)
	for param, want := range map[string]check.Severity{"0": check.SeverityWarning, "2s": check.SeverityWarning, "5min": check.SeverityInfo, "1min": check.SeverityOK} {
		f := found("&wal_sender_timeout=" + param)
		require.Equal(t, want, f.Severity, param)
		require.Equal(t, want != check.SeverityOK, strings.Contains(f.Fix, "15s"), param)
	}
}

func TestCheck_FindsThatTheRoleMayCopyTheCluster(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, s := checktest.Own(t, version, nil)
		p.Outbox()
		f := checktest.Finding(t, check.Server(t.Context(), preflight(p)), "physical_replication")
		require.Equal(t, check.SeverityInfo, f.Severity)

		line := regexp.MustCompile(`(?m)^host .*reject$`).FindString(f.Fix)
		require.NotEmpty(t, line, f.Fix)
		hba := filepath.Join(s.DataDir(), "pg_hba.conf")
		text, err := os.ReadFile(hba)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(hba, append([]byte(line+"\n"), text...), 0o600))
		p.Exec("SELECT pg_reload_conf()")
		p.AwaitFinding(preflight(p), "physical_replication", check.SeverityOK)
		require.Equal(t, check.SeverityOK, severityOf(check.Server(t.Context(), preflight(p)), "replication_connection"), "logical replication still works")
	})
}

// What may not be looked at is missing, with a word about it; the rest is there.
func TestCheck_GoesOnWithoutARight(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		p.Outbox()
		pre := preflight(p)
		pre.Postgres = p.Role("relay_" + p.Name)
		p.Exec(`ALTER ROLE "relay_` + p.Name + `" REPLICATION`)
		p.Exec(`REVOKE SELECT ON pg_catalog.pg_stat_replication, pg_catalog.pg_stat_all_tables, pg_catalog.pg_stat_ssl FROM PUBLIC`)
		findings := check.Server(t.Context(), pre)
		require.Empty(t, errorsOf(findings))
		for _, code := range []string{"max_wal_senders", "tls"} {
			f := checktest.Finding(t, findings, code)
			require.Equal(t, check.SeverityInfo, f.Severity)
			require.Contains(t, f.Observed, "not known: ")
			require.Contains(t, f.Fix, `GRANT pg_monitor TO "relay_`)
		}
		tables := 0
		for _, f := range findings {
			if f.Code == "table" && f.Subject == "public.outbox" {
				tables++
			}
		}
		require.Equal(t, 2, tables, "it is published; its size is not known")
		require.Equal(t, check.SeverityInfo, severityOf(findings, "slot"))
		require.Equal(t, check.SeverityWarning, severityOf(findings, "max_slot_wal_keep_size"))
	})
}

func TestCheck_DoesNotWaitForALockedTable(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	_, err := slot.Create(t.Context(), p.Conn, p.Config())
	require.NoError(t, err)
	p.Exec("BEGIN")
	p.Exec("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
	findings := check.Server(t.Context(), preflight(p))
	require.Empty(t, errorsOf(findings))
	require.Equal(t, check.SeverityOK, severityOf(findings, "publication"), "the catalog has what it says")
	locked := slices.IndexFunc(findings, func(f check.Finding) bool { return strings.Contains(f.Observed, "lock timeout") })
	require.GreaterOrEqual(t, locked, 0, "%+v", findings)
	require.Equal(t, "table", findings[locked].Code)
	require.Equal(t, check.SeverityInfo, findings[locked].Severity)
	require.Contains(t, findings[locked].Fix, "ALTER TABLE")
	require.Equal(t, check.SeverityOK, severityOf(findings, "slot"), "what comes after it is looked at")
	p.Exec("ROLLBACK")
}

func TestCheck_EndsWithAServerThatHangs(t *testing.T) {
	p := checktest.Shared(t, "17")
	p.Outbox()
	hanging, hang := context.WithCancel(context.Background())
	answered := 0
	pre := preflight(p)
	pre.Postgres = testdb.ConfigOf(testdb.Between{Answer: func(m pgproto3.BackendMessage) {
		if _, ok := m.(*pgproto3.ReadyForQuery); ok {
			answered++
		}
		if answered == 20 { // some of its questions, and then nothing any more
			hang()
			<-t.Context().Done()
		}
	}}.Start(t, p.DSN))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { // ends the check as its time limit would, once the server hangs
		<-hanging.Done()
		cancel(context.DeadlineExceeded)
	}()
	findings := check.Server(ctx, pre)
	require.Greater(t, len(findings), 3, "%+v", findings)
	require.NotEmpty(t, errorsOf(findings), "it says that there was no answer")
	require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
}

func TestCheck_GivesUpOnAServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	p, s := checktest.Own(t, "17", nil)
	require.NoError(t, s.Pause())
	defer func() { require.NoError(t, s.Resume()) }()
	pre := preflight(p)
	pre.Postgres = testdb.ConfigOf(p.DSN + "&connect_timeout=1")
	findings := check.Server(t.Context(), pre)
	require.Len(t, findings, 1)
	require.Equal(t, check.ClassUnreachable, findings[0].Class)
	_, err := postgres.Connect(t.Context(), pre.Postgres)
	require.ErrorIs(t, err, postgres.ErrUnreachable)
}

// gone is the severity of what is not found at all.
const gone check.Severity = ""
