package alerts

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/health"
)

// script makes a program of a shell script. It finds its directory in $0.
func script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return path
}

func run(t testing.TB, timeout time.Duration, args ...string) *failure {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Command, cfg.Timeout = args, timeout
	require.NoError(t, cfg.Validate())
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	w := notification{
		condition: condition("PostriderNotReady", health.Critical, 0), severity: critical,
		startsAt: time.Now(),
	}
	return newCommand(cfg).send(ctx, w.message(about, receiverCommand, ""))
}

func TestCommand_GetsThePayloadAndItsArgumentsAsTheyAre(t *testing.T) {
	path := script(t, `cd "$(dirname "$0")" && cat > stdin && printf '%s|' "$@" > args && env > env`)
	t.Setenv("POSTRIDER_POSTGRES_URL", canary)
	t.Setenv("PGPASSWORD", canary)
	t.Setenv("CREDENTIALS_DIRECTORY", canary)
	t.Setenv("NOTIFY_SOCKET", canary)
	t.Setenv("PAGER_TEAM", "orders")
	require.Nil(t, run(t, time.Minute, path, "--team", "$HOME; rm x", "*"))
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		require.NoError(t, err)
		return string(b)
	}
	p := decode(t, []byte(read("stdin")))
	require.Equal(t, "command", p.Receiver)
	require.Equal(t, "PostriderNotReady", p.CommonLabels["alertname"])
	require.Equal(t, "--team|$HOME; rm x|*|", read("args"))
	require.NotContains(t, read("env"), canary)
	require.Contains(t, read("env"), "PAGER_TEAM=orders", "what is not ours is left to it")
	require.Contains(t, read("env"), "PATH=")
}

func TestCommand_SaysWhyItFailed(t *testing.T) {
	f := run(t, time.Minute, script(t, "echo nothing >&1; printf '\\n  no pager:\\033[31m "+
		"down\\nsecond\\n' >&2; exit 3"))
	require.Equal(t, "alerts.command: exit status 3: no pager: [31m down", f.text)
	require.False(t, f.refused)
	require.True(t, f.reached, "it may have told somebody before it failed")

	f = run(t, time.Minute, script(t, "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1"))
	require.LessOrEqual(t, len(f.text), maxLine+100)
}

// An argument may be a password. A shell with -x repeats it, and so does the error of a program
// that is not there.
func TestCommand_ShowsNoArgument(t *testing.T) {
	path := script(t, `printf '%s ' "$@" "${2##* }" "${3#*=}" >&2; exit 3`)
	f := run(t, time.Minute, path, "-H", "Authorization: Bearer "+canary, "--token="+canary,
		strings.Repeat("x", maxLine)+canary)
	require.Contains(t, f.text, "alerts.command: exit status 3: -H ")
	require.NotContains(t, f.text, canary)
	require.NotContains(t, run(t, time.Minute, "/nothing there/curl -H "+canary).text, canary)
	require.NotContains(t, run(t, time.Minute, "https://me:"+canary+"@host/x").text, canary)
	require.ErrorContains(t, LookProgram([]string{"no-such-program"}),
		"no-such-program: executable file not found")
	require.NotContains(t, LookProgram([]string{"curl -H " + canary}).Error(), canary)
	cfg := DefaultConfig()
	cfg.ExternalURL = "ftp://me:" + canary + "@host/"
	require.NotContains(t, cfg.Validate().Error(), canary)
}

func TestCommand_DoesNotNeedToReadItsInput(t *testing.T) {
	require.Nil(t, run(t, time.Minute, script(t, "exit 0")))
}

func TestCommand_ThatIsNotThereIsRefused(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	f := run(t, time.Minute, missing)
	require.True(t, f.refused)
	require.False(t, f.reached)
	require.Contains(t, f.text, missing)
	require.NotEmpty(t, f.next)
	require.True(t, run(t, time.Minute, "postrider-no-such-program").refused)

	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte("not executable"), 0o600))
	require.True(t, run(t, time.Minute, path).refused)
	require.NoError(t, os.Chmod(path, 0o700))
	require.True(t, run(t, time.Minute, path).refused, "no program and no script")
}

func TestCommand_IsKilledWithAllThatItStarted(t *testing.T) {
	path := script(t, `sleep 1000 & echo $! > "$(dirname "$0")/child"; wait`)
	before := time.Now()
	f := run(t, 500*time.Millisecond, path)
	require.Contains(t, f.text, "killed after 500ms (alerts.timeout)")
	require.Less(t, time.Since(before), 100*time.Second)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "child"))
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return gone(child) }, 30*time.Second, 10*time.Millisecond)
}

// gone reports whether a process has ended; its new parent may not have waited for it yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(state), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestCommand_MayLeaveSomethingBehind(t *testing.T) {
	path := script(t, `sleep 1000 & echo $! > "$(dirname "$0")/child"; exit 0`)
	before := time.Now()
	require.Nil(t, run(t, 10*time.Minute, path), "it did its work")
	require.Less(t, time.Since(before), time.Minute, "nobody waits for what it left")
	b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "child"))
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(child, syscall.SIGKILL))
}
