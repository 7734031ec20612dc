package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/status"
	"github.com/postrider/postrider/relay"
)

func newPause(a *app) *cobra.Command {
	limit, reason := httpserver.DefaultPause, ""
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Release the slot for a while",
		Long: `pause has the relay on admin.listen finish the open transaction, wait for the
broker, confirm and close its connection to the slot, as a stop does, but to stay: its monitor,
its metrics and its page go on. It returns when the slot is free. A relay that stands by has no
slot to release, and does not take over while it is paused.

While the relay is paused PostgreSQL keeps WAL for the slot. So a pause ends by itself after
--for, and is not kept over a restart of the relay. A standby takes over if there is one: pause
it first.

Exit status: 0 paused, 69 no relay answers, 75 the relay stops, 77 the token is wrong, 78 there
is no admin.listen.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			answer, err := status.Pause(ctx, l.Config.Admin, limit, reason)
			if err != nil {
				return err
			}
			return a.print(answer, func(io.Writer) error { return a.printPause(answer) })
		}, "admin"),
	}
	cmd.Flags().DurationVar(&limit, "for", limit, "how long at most; 0 for no limit")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look at the status meanwhile")
	a.jsonFlag(cmd, "")
	a.keyFlags(cmd, "admin.listen")
	return cmd
}

func newResume(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `resume has the relay on admin.listen relay again from where the slot stands. If
it was not paused it says so, and that is no error.

Exit status: 0 resumed, 69 no relay answers, 77 the token is wrong, 78 there is no admin.listen.`,
		RunE: a.configured(func(ctx context.Context, l *config.Loaded) error {
			answer, err := status.Resume(ctx, l.Config.Admin)
			if err != nil {
				return err
			}
			return a.print(answer, func(io.Writer) error {
				if answer.WasPaused {
					return a.printf("resumed\n")
				}
				return a.printf("the relay was not paused: it is %s\n", answer.Phase)
			})
		}, "admin"),
	}
	a.jsonFlag(cmd, "")
	a.keyFlags(cmd, "admin.listen")
	return cmd
}

func (a *app) printPause(answer status.AdminAnswer) error {
	if answer.Phase != relay.Paused {
		return a.printf("the relay was resumed meanwhile: it is %s\n", answer.Phase)
	}
	text := "paused until it is resumed"
	if until := answer.Paused.Until; !until.IsZero() {
		text = fmt.Sprintf("paused until %s, for %s", until.Local().Format("15:04:05"),
			health.Duration(time.Until(until).Round(time.Second)))
	}
	meanwhile := "PostgreSQL keeps WAL for the slot meanwhile"
	if answer.Paused.StoodBy {
		meanwhile = "another process held the slot when this relay was paused, and this one " +
			"does not take over meanwhile"
	}
	return a.printf("%s; %s\n%s\n", text, meanwhile, a.typed("next: postrider resume"))
}
