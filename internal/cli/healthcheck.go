package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/httpserver"
)

// maxAnswer bounds what is read from the daemon; a status of hundreds of topics is some tens of KiB.
const maxAnswer = 4 << 20

func newHealthcheck(a *app) *cobra.Command {
	var ready bool
	timeout := 3 * time.Second
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the relay on this machine whether it is alive, for container probes",
		Long: `healthcheck asks /livez of the relay that listens on http.listen, and exits with 0 or 1. It prints nothing if all is
well. /livez depends on neither the database nor the broker, so that a probe never restarts a relay for their sake;
--ready asks /readyz instead, which is 0 only while rows are relayed or this process stands by, and says why not. A relay that is
paused is alive and not ready.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "http")
			if err != nil {
				// A probe knows two answers; the text says which of them this is.
				return &failure{code: exitRuntime, err: err}
			}
			path := "/livez"
			if ready {
				path = "/readyz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return checkHealth(ctx, l.Config.HTTP, path)
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "ask /readyz instead of /livez")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	a.keyFlags(cmd, "http.listen")
	return cmd
}

func checkHealth(ctx context.Context, c httpserver.Config, path string) error {
	code, body, err := ask(ctx, c, path)
	if err != nil {
		return err
	}
	if code == http.StatusOK {
		return nil
	}
	var probe httpserver.Probe
	if json.Unmarshal(body, &probe) != nil || probe.Reason == "" {
		return fmt.Errorf("%s%s answered %d: is it postrider that listens there?", c.LocalURL(), path, code)
	}
	if probe.Detail == "" {
		return fmt.Errorf("%s: %s", path, probe.Reason)
	}
	return fmt.Errorf("%s: %s: %s", path, probe.Reason, probe.Detail)
}

// errNoServer says that the configuration lets nobody ask the daemon.
var errNoServer = errors.New("http.listen is empty or has port 0: there is no address to ask")

// ask gets a path from the daemon on this machine. An error means that nobody answered.
func ask(ctx context.Context, c httpserver.Config, path string) (code int, body []byte, err error) {
	base := c.LocalURL()
	if base == "" {
		return 0, nil, errNoServer
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the relay: %w", err)
	}
	// No proxy, whatever the environment says: the daemon is here. No connection kept: one question.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the relay: %w", err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s%s: %w", base, path, err)
	}
	return resp.StatusCode, body, nil
}
