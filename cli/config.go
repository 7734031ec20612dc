package cli

import "github.com/spf13/cobra"

func newConfig(*app) *cobra.Command {
	return &cobra.Command{Use: "config", Short: "Print, validate and describe the configuration"}
}
