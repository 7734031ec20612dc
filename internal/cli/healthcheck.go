package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/internal/terminal"
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
not. A paused relay is alive and not ready.

A configuration that cannot be used is a warning: the relay may have been started before it was
changed. The address is then that of the flag, the environment or the file, as far as it can be
read, else the default.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := a.source(cmd)
			if err != nil {
				return &exit.Error{Code: exit.Runtime, Err: err} // a probe has two results
			}
			http := config.ReadHTTP(src)
			if _, err := config.LoadValid(src, "http"); err != nil {
				// The relay that runs has read the file before it was changed, and one that is started in
				// its place would end.
				a.warn([]string{terminal.Indent(err.Error())})
			}
			path := "/livez"
			if ready {
				path = "/readyz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return status.Probe(ctx, http, path)
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "request /readyz instead of /livez")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to wait for the answer")
	a.keyFlags(cmd, "http.listen")
	return cmd
}
