package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/status"
)

func newHealthcheck(a *app) *cobra.Command {
	var ready bool
	timeout := 3 * time.Second
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check that the relay on this machine is alive, for container probes",
		Long: `healthcheck requests /livez of the relay that listens on http.listen, and exits
with 0 or 1. It prints nothing if all is well. /livez depends on neither the database nor the
broker, so that a probe never restarts a relay for their sake; --ready requests /readyz instead,
which is 0 only while rows are relayed or this process stands by, and says why
not. A paused relay is alive and not ready.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "http")
			if err != nil {
				// A probe has two results: a configuration that cannot be used fails it too.
				return &exit.Error{Code: exit.Runtime, Err: err}
			}
			path := "/livez"
			if ready {
				path = "/readyz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return status.Probe(ctx, l.Config.HTTP, path)
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "request /readyz instead of /livez")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	a.keyFlags(cmd, "http.listen")
	return cmd
}
