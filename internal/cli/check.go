package cli

import (
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/exit"
)

func newCheck(a *app) *cobra.Command {
	var asJSON, offline bool
	var topics []string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check everything that is needed, and say how to fix what is not",
		Long: `check looks at the configuration, PostgreSQL, publication, tables, slot and Kafka,
as the relay would meet them, and changes nothing. Run it as the relay's own login, where the
relay runs; it may run meanwhile.

Topics are those of the newest rows in the table, if the login may read it, and those named with
--topic.

Exit status: 0 nothing keeps the relay from starting, 69 something cannot be reached, 77 a right
is missing, 78 something is configured wrongly.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := a.check(cmd, offline, topics)
			var err error
			if asJSON {
				err = a.printJSON(checkResult{OK: check.Code(findings) == exit.OK,
					Findings: findings})
			} else {
				err = check.Write(a.Stdout, findings, a.colour(a.Stdout))
			}
			if err != nil {
				return err
			}
			return exit.Status(check.Code(findings))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, jsonHelp)
	cmd.Flags().BoolVar(&offline, "offline", false,
		"check the configuration only; connect to nothing")
	cmd.Flags().StringArrayVar(&topics, "topic", nil,
		"a `topic` that has to exist; may be repeated")
	a.keyFlags(cmd, "slot.name", "replication.publication", "sink.kafka.brokers")
	return cmd
}

type checkResult struct {
	OK       bool            `json:"ok"`
	Findings []check.Finding `json:"findings"`
}

func (a *app) check(cmd *cobra.Command, offline bool, topics []string) []check.Finding {
	l, err := a.load(cmd)
	switch {
	case err != nil:
		return a.typedFindings(check.Invalid(err))
	case offline:
		return a.typedFindings(check.Loaded(l))
	}
	return a.typedFindings(check.All(cmd.Context(), l, topics))
}
