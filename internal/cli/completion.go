package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// completionTimeout is how long a shell waits for the names of slots.
const completionTimeout = 2 * time.Second

// completeFlags completes the values of --set and --config. The completion command is cobra's.
func (a *app) completeFlags(root *cobra.Command) {
	descriptions := config.Descriptions(a.Example)
	keys := func(
		_ *cobra.Command, _ []string, begun string,
	) (out []string, directive cobra.ShellCompDirective) {
		if key, _, found := strings.Cut(begun, "="); found {
			for _, word := range config.Accepted(key) {
				out = append(out, key+"="+word)
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		}
		for _, name := range config.Names() {
			help, _, _ := strings.Cut(descriptions[name], ". ")
			out = append(out, name+"=\t"+help)
		}
		return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	must(root.RegisterFlagCompletionFunc("set", keys))
	must(root.MarkPersistentFlagFilename("config", "toml"))
}

// slotNames completes an argument with the slots of the server. If the server is not reachable
// there are none: a shell has no place for an error.
func (a *app) slotNames(cmd *cobra.Command, args []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.listSlots(cmd), cobra.ShellCompDirectiveNoFileComp
}

// slotNamesOfFlag completes a flag with the slots of the server.
func (a *app) slotNamesOfFlag(cmd *cobra.Command, _ []string, _ string) ([]string,
	cobra.ShellCompDirective) {
	return a.listSlots(cmd), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) listSlots(cmd *cobra.Command) []string {
	l, err := a.load(cmd, "postgres")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	conn, err := postgres.Connect(ctx, l.Config.Postgres)
	if err != nil {
		return nil
	}
	defer postgres.Close(conn)
	slots, err := slot.List(ctx, conn)
	if err != nil {
		return nil
	}
	names := make([]string, len(slots))
	for i, s := range slots {
		names[i] = s.Name + "\tinactive"
		if s.Active {
			names[i] = s.Name + "\tactive"
		}
	}
	return names
}

// must panics if a flag does not exist or has a completion already.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
