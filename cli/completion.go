package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"postrider/config"
)

// completeFlags makes the shell know the values that only we know. The completion command itself is cobra's.
func (a *app) completeFlags(root *cobra.Command) {
	descriptions := config.Descriptions(a.Example)
	keys := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, name := range config.Names() {
			help, _, _ := strings.Cut(descriptions[name], ". ")
			out = append(out, name+"=\t"+help)
		}
		return out, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	// The errors say that there is no such flag or that it has a completion already: a mistake of ours.
	must(root.RegisterFlagCompletionFunc("set", keys))
	must(root.MarkPersistentFlagFilename("config", "toml"))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
