package cli

import (
	"cmp"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/exit"
)

func newCheck(a *app) *cobra.Command {
	offline := false
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			var findings []check.Finding
			wrong := (*exit.Error)(nil)
			switch l, err := a.load(cmd); {
			case errors.As(err, &wrong) && wrong.Code == exit.Usage:
				return err
			case err != nil:
				findings = check.Invalid(err)
			case offline:
				findings = check.Loaded(l)
			default:
				findings = check.All(cmd.Context(), l, topics)
			}
			for i := range findings {
				findings[i].Fix = a.typed(findings[i].Fix)
			}
			code := check.Code(findings)
			err := a.printColoured(checkResult{code == exit.OK, findings}, func(w io.Writer) error {
				return check.Write(w, findings, a.colour(w))
			})
			return cmp.Or(err, exit.Status(code))
		},
	}
	a.jsonFlag(cmd, "")
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
