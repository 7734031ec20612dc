package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
)

func newRun(a *app) *cobra.Command {
	printOnly := false
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Relay until a signal comes",
		Long: `run streams the slot, publishes and confirms until SIGTERM or SIGINT comes: then it
finishes the open transaction, waits for the broker, confirms and exits with 0. A second signal
ends it at once. SIGHUP reads the configuration again: log.level, [health], relay.max_rate,
[[relay.rate]], alerts.severity and alerts.repeat_interval change at once, for the rest it says
what needs a restart. SIGUSR1 writes the state as one line of JSON. 'postrider pause' releases the
slot for a while.

Exit status: 0 stopped cleanly, 1 halted by a row, 70 a lost slot or another server, 75 the drain
timeout struck, 77 permission, 78 configuration. While a host, a topic or a certificate is not in
order, run waits and tries again; 'postrider check' says at once what is missing.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			log, level := a.newLeveledLogger(l.Config.Log)
			for _, w := range l.Warnings {
				log.Warn().Msg(w)
			}
			if printOnly {
				return daemon.DryRun(ctx, l.Config, a.environment(), time.Time{}, log)
			}
			return daemon.Run(ctx, l, a.environment(), level, log)
		}),
	}
	cmd.Flags().BoolVar(&printOnly, "dry-run", false,
		"route and print as JSON lines from a temporary slot; publish and confirm nothing")
	a.keyFlags(cmd, "slot.name", "replication.publication", "sink.kind", "sink.kafka.brokers",
		"http.listen", "log.level", "log.format")
	return cmd
}
