package check

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/memory"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
	"github.com/postrider/postrider/test/parts"
)

func TestMemoryLimit_IsTheLeastOfTheGroupAndThoseAboveIt(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups": {nil, 0},
		"version 2, a container": {map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "134217728\n"}, 128 << 20},
		"version 2, no limit": {map[string]string{"proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "max\n"}, 0},
		"version 2, systemd": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/postrider.service\n",
			"sys/fs/cgroup/system.slice/postrider.service/memory.max":  "max\n",
			"sys/fs/cgroup/system.slice/memory.max":                    "1073741824\n",
			"sys/fs/cgroup/system.slice/another.service/memory.max":    "1\n",
			"sys/fs/cgroup/system.slice/postrider.service/memory.high": "1\n",
		}, 1 << 30},
		"version 2, two limits": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1000\n",
			"sys/fs/cgroup/a/b/memory.max": "2000\n",
		}, 1000},
		"version 1": {map[string]string{
			"proc/self/cgroup": "11:cpu,cpuacct:/docker/x\n7:memory:/docker/x\n0::/\n",
			"sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "268435456\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
		}, 256 << 20},
		"version 1, no limit": {map[string]string{
			"proc/self/cgroup":                           "7:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
		"nonsense": {map[string]string{"proc/self/cgroup": "?\n:::\n0::/x\n",
			"sys/fs/cgroup/x/memory.max": "a lot\n"}, 0},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, memory.Limit(root), name)
	}
	require.GreaterOrEqual(t, memory.Limit(os.DirFS("/")), int64(0),
		"this machine's, whatever it is")
}

func TestJudgeMemory_ComparesWithTheBudget(t *testing.T) {
	const inFlight = 16 << 20 // 64 MiB are needed
	require.Equal(t, SeverityOK, judgeMemory(0, math.MaxInt64, inFlight).Severity)
	require.Equal(t, SeverityOK, judgeMemory(64<<20, math.MaxInt64, inFlight).Severity)
	require.Equal(t, SeverityOK, judgeMemory(0, 48<<20, inFlight).Severity)
	f := judgeMemory(52<<20, math.MaxInt64, inFlight)
	require.Equal(t, SeverityWarning, f.Severity)
	require.Contains(t, f.Required, "64.0 MiB: 32 MiB and twice relay.in_flight_bytes, 16.0 MiB")
	require.Contains(t, f.Fix, `relay.in_flight_bytes = "10240KiB"`)
	require.Equal(t, SeverityOK, judgeMemory(52<<20, math.MaxInt64, 10240<<10).Severity,
		"which is the fix")
	require.Equal(t, SeverityWarning, judgeMemory(30<<20, math.MaxInt64, inFlight).Severity)
	f = judgeMemory(0, 40<<20, inFlight)
	require.Equal(t, SeverityWarning, f.Severity)
	require.Contains(t, f.Fix, "GOMEMLIMIT=48MiB")
}

func TestJudgeDescriptors(t *testing.T) {
	require.Equal(t, SeverityWarning, judgeDescriptors(64, 3).Severity)
	require.Equal(t, SeverityOK, judgeDescriptors(1024, 3).Severity)
	require.Equal(t, SeverityOK, judgeDescriptors(0, 3).Severity, "not known")
	require.Positive(t, descriptorLimit())
}

func TestCheckAlertsCommand_DoesNotRunIt(t *testing.T) {
	require.Empty(t, checkAlertsCommand(nil))
	dir := t.TempDir()
	program, ran := filepath.Join(dir, "page"), filepath.Join(dir, "ran")
	f := checkAlertsCommand([]string{program})[0]
	require.Equal(t, SeverityWarning, f.Severity)
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ntouch "+ran+"\n"), 0o600))
	f = checkAlertsCommand([]string{program, "--now"})[0]
	require.Equal(t, SeverityWarning, f.Severity)
	require.Contains(t, f.Fix, "chmod +x "+program)
	require.NoError(t, os.Chmod(program, 0o700)) //nolint:gosec // which is the fix
	require.Equal(t, SeverityOK, checkAlertsCommand([]string{program, "--now"})[0].Severity)
	require.NoFileExists(t, ran)
}

func TestReadable_NeedsTheFileOfASecret(t *testing.T) {
	require.Empty(t, readable("admin_token", "admin.token", secret.Of("t0ken-canary"), "a token"))
	path := filepath.Join(t.TempDir(), "token")
	f := readable("admin_token", "admin.token", secret.File(path), "a token")[0]
	require.Equal(t, SeverityWarning, f.Severity)
	require.Contains(t, f.Fix, "admin.token_file")
	require.NoError(t, os.WriteFile(path, []byte("t0ken-canary\n"), 0o600))
	f = readable("admin_token", "admin.token", secret.File(path), "a token")[0]
	require.Equal(t, SeverityOK, f.Severity)
	require.NotContains(t, f.Observed, "canary")
}

func TestCheckAdmin_WarnsAsRunDoes(t *testing.T) {
	require.Equal(t, SeverityOK,
		adminToken(secret.Of("t0ken-canary, and long enough to keep")).Severity)
	f := adminToken(secret.Of("t0ken-canary"))
	require.Equal(t, SeverityWarning, f.Severity)
	require.NotContains(t, f.Observed, "canary")
	require.Contains(t, f.Fix, "/dev/urandom")
	require.Contains(t, adminToken(secret.File(filepath.Join(t.TempDir(), "none"))).Fix,
		"admin.token_file")
	require.Empty(t, adminExposed("127.0.0.1:8433"))
	require.Empty(t, adminExposed("localhost:8433"))
	for _, address := range []string{":8433", "0.0.0.0:8433", "10.0.0.1:8433",
		"relay.example:8433"} {
		require.Equal(t, SeverityWarning, adminExposed(address)[0].Severity, address)
	}
}

// answering is a relay's listener, or somebody else's, on a free port.
func answering(t *testing.T, report *status.Report) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if report == nil || r.URL.Path != "/status" {
			http.NotFound(w, r)
			return
		}
		require.NoError(t, json.NewEncoder(w).Encode(report))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func (c *checker) at(t *testing.T, address string) Finding {
	t.Helper()
	c.loaded.Config.HTTP.Listen = address
	c.findRelay(t.Context())
	found := c.listen("http_listen", address)
	require.Len(t, found, 1)
	return found[0]
}

func TestListen_TellsOurRelayFromOthers(t *testing.T) {
	c := &checker{loaded: &config.Loaded{Config: config.Default()}}
	require.Empty(t, c.listen("admin_listen", ""))
	require.Equal(t, SeverityOK, c.at(t, "127.0.0.1:0").Severity)

	require.Equal(t, "free", c.at(t, parts.Nobody(t)).Observed)

	f := c.at(t, answering(t, nil))
	require.Equal(t, SeverityError, f.Severity)
	require.Equal(t, ClassConfiguration, f.Class)
	require.Contains(t, f.Fix, "http.listen")

	own := &status.Report{Source: status.SourceDaemon, PID: 4711,
		Slot: slot.Status{Slot: slot.Slot{Name: "postrider"}}}
	f = c.at(t, answering(t, own))
	require.Equal(t, SeverityOK, f.Severity)
	require.Contains(t, f.Observed, "4711")
	require.Equal(t, SeverityOK, c.listen("admin_listen", answering(t, nil))[0].Severity,
		"the same process'")

	f = c.at(t, answering(t,
		&status.Report{Source: status.SourceDaemon, PID: 4711,
			Slot: slot.Status{Slot: slot.Slot{Name: "another"}}}))
	require.Equal(t, SeverityError, f.Severity)
	require.Contains(t, f.Observed, `slot "another"`)

	c.loaded.Config.Postgres.URL = secret.Of("postgres://127.0.0.1:1/crm")
	own.Slot.Database = "shop"
	f = c.at(t, answering(t, own))
	require.Equal(t, SeverityError, f.Severity)
	require.Equal(t, `the relay of slot "postrider" in another database (shop) answers`, f.Observed)
}

// A relay that answers has watched for longer than one look.
func TestObserved_TakesTheConditionsOfTheRelay(t *testing.T) {
	c := &checker{loaded: &config.Loaded{Config: config.Default()}, own: true}
	c.relay = &status.Report{PID: 1, Slot: slot.Status{Slot: slot.Slot{Name: "postrider"}}, Verdict: health.Verdict{Conditions: []health.Condition{
		{Name: health.TimeToLoss, Severity: health.Critical,
			Reason: "slot \"postrider\" can be lost in about 20m", WAL: "1 GiB",
			Next: "postrider resume", Cause: "paused relay"},
		{Name: health.SlotExtended, Severity: health.Info, Reason: "more is kept"},
		{Name: health.SlotLost, Severity: health.Critical,
			Reason: "said by the slot's own finding"},
	}}}
	findings := completed(c.observed(monitor.Observation{}))
	require.Equal(t, Finding{
		Severity: SeverityWarning, Code: "PostriderTimeToLoss", Subject: "paused relay",
		Observed: "slot \"postrider\" can be lost in about 20m",
		Required: "more than 6h0m (health.loss_warning)", WAL: "1 GiB", Fix: "postrider resume",
		Docs: "docs/RUNBOOKS.md#postridertimetoloss",
	}, findings[0])
	require.Equal(t, SeverityInfo, findings[1].Severity)
	require.Equal(t, "transactions", findings[2].Code)

	c.beside = true
	require.Len(t, c.observed(monitor.Observation{}), 1, "its page has a verdict of its own")
}
