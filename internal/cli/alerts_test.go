package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/alerts"
	"github.com/postrider/postrider/internal/exit"
)

func TestAlertsTest_SaysWhoTookIt(t *testing.T) {
	t.Chdir(t.TempDir())
	var got []string
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			Status       string
			CommonLabels map[string]string
		}
		b, _ := io.ReadAll(r.Body)
		if json.Unmarshal(b, &m) == nil {
			got = append(got,
				fmt.Sprintf("%s %s %s %s", m.Status, m.CommonLabels["alertname"],
					m.CommonLabels["slot"], m.CommonLabels["database"]))
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	program := filepath.Join(t.TempDir(), "notify")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ncat > /dev/null\n"), 0o700))
	file := func(program string) string {
		return fmt.Sprintf("[postgres]\nurl = \"postgres://db/shop\"\n[slot]\nname = "+
			"\"orders\"\n[alerts]\nseverity = \"critical\"\nwebhook = \"%s/CANARY\"\ncommand = "+
			"[%q]\n",
			server.URL, program)
	}

	status, stdout, stderr := command(t, file(program), "alerts", "test")
	require.Equal(t, exit.OK, status, stderr)
	require.Equal(t, "webhook   took it\ncommand   took it\n", stdout)
	require.Equal(t,
		[]string{"firing PostriderTest orders shop", "resolved PostriderTest orders shop"}, got)

	code = http.StatusForbidden
	status, stdout, stderr = command(t, file(program+"-missing"), "alerts", "test")
	require.Equal(t, exit.Unavailable, status)
	require.Contains(t, stdout, "webhook   the receiver answered 403 Forbidden\n          next: ")
	require.Contains(t, stdout, "command   alerts.command: ")
	require.Contains(t, stderr, "warning: alerts.command: ")
	require.NotContains(t, stdout+stderr, "CANARY")

	status, stdout, _ = command(t, file(program), "alerts", "test", "--json")
	require.Equal(t, exit.Unavailable, status)
	var report struct{ Receivers []alerts.Result }
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Len(t, report.Receivers, 2)
	require.False(t, report.Receivers[0].Taken)
	require.Equal(t, alerts.Result{Receiver: "command", Taken: true}, report.Receivers[1])

	status, _, stderr = command(t, "", "alerts", "test")
	require.Equal(t, exit.Config, status)
	require.Contains(t, stderr, "neither alerts.webhook nor alerts.command is set")
}
