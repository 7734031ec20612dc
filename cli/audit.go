package cli

import "github.com/spf13/cobra"

func newAudit(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare what postrider publishes with what another relay does",
	}
	cmd.AddCommand(newAuditCompare(a))
	return cmd
}
