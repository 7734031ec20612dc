package check_test

import (
	"testing"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"
)

func TestCheck_ComparesTheLimitWithWhatElseThereIs(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := checktest.Own(t, version, map[string]string{"max_wal_size": "1GB"})
		p.Outbox()
		pre := preflight(p)
		set := func(sql string) {
			p.Exec("ALTER SYSTEM SET " + sql)
			p.Exec("SELECT pg_reload_conf()")
		}
		const code = "max_slot_wal_keep_size"
		f := p.AwaitFinding(pre, code, check.SeverityWarning)
		require.Equal(t, "-1", f.Observed)
		p.Heal(f)
		p.AwaitFinding(pre, code, check.SeverityOK)

		pre.VolumeSize = 20 << 30 // 50 GB may be kept
		f = p.AwaitFinding(pre, code, check.SeverityWarning)
		require.Contains(t, f.Required, "monitor.volume_size")
		p.Heal(f)
		p.AwaitFinding(pre, code, check.SeverityOK)

		pre.VolumeSize = 0
		set("max_slot_wal_keep_size = '256MB'")
		f = p.AwaitFinding(pre, code, check.SeverityInfo)
		require.Contains(t, f.Required, "max_wal_size")
		p.Heal(f)
		p.AwaitFinding(pre, code, check.SeverityOK)

		set("max_slot_wal_keep_size = '256MB'")
		p.AwaitFinding(pre, code, check.SeverityInfo)
		set("wal_keep_size = '8GB'")
		f = p.AwaitFinding(pre, code, check.SeverityOK)
		require.Contains(t, f.Observed, "wal_keep_size, 8192 MB, is larger")
	})
}

func TestCheck_WarnsOfSettingsThatLoseTheSlotOrHoldCommits(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "18", map[string]string{"idle_replication_slot_timeout": "1h", "synchronous_commit": "local"})
	p.Outbox()
	for _, code := range []string{"idle_replication_slot_timeout"} {
		f := p.AwaitFinding(preflight(p), code, check.SeverityWarning)
		p.Heal(f)
		p.AwaitFinding(preflight(p), code, check.SeverityOK)
	}
	for _, names := range []string{"*", "ANY 1 (sb1, \"postrider\")", "postrider"} {
		p.Exec("ALTER SYSTEM SET synchronous_standby_names = '" + names + "'")
		p.Exec("SELECT pg_reload_conf()")
		f := p.AwaitFinding(preflight(p), "synchronous_standby_names", check.SeverityWarning)
		require.Equal(t, names, f.Observed)
		p.Exec("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (sb1)'") // as the fix says, with the standby's name
		p.Exec("SELECT pg_reload_conf()")
		p.AwaitFinding(preflight(p), "synchronous_standby_names", check.SeverityOK)
	}
}
