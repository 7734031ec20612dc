package cli

import (
	"github.com/spf13/cobra"
)

// keyAnnotation marks a flag that sets a configuration key, and says which.
const keyAnnotation = "postrider/key"

func (a *app) globalFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.configPath, "config", "", "configuration `file` (default postrider.toml, then /etc/postrider/postrider.toml)")
	f.StringArrayVar(&a.set, "set", nil, "set a configuration key, as `key=value`; may be repeated")
}
