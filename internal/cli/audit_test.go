package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/exit"
)

func TestAudit_RefusesWhatItCannotDo(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"compair"}, exit.Usage, "Did you mean this?\n  \tcompare"},
		{[]string{"--id", "header:"}, exit.Usage, "expected header:NAME, key or value:/JSON/POINTER"},
		{[]string{"--isolation", "serializable"}, exit.Usage, "read_committed or read_uncommitted"},
		{[]string{"--memory", "1MiB"}, exit.Usage, "expected a size of 48MiB or more"},
		{[]string{"--memory", "1GB"}, exit.Usage, "expected a size of 48MiB or more"},
		{[]string{"--since", "yesterday"}, exit.Usage, "neither a duration"},
		{[]string{"--until", "tomorrow"}, exit.Usage, "neither a duration"},
		{[]string{"--topics", "("}, exit.Usage, "--topics"},
		{[]string{"--log", "gone.jsonl"}, exit.Usage, "name them with --topic or --topics"},
		{[]string{"--slot", "kept", "--order-by", "number"}, exit.Usage, "each say in what order rows were committed"},
		{[]string{"--log", "gone.jsonl", "--topic", "x", "--order-by", "number"}, exit.Usage, "--order-by is for a table"},
		{[]string{"--set", "sink.kind=stdout", "--log", "gone.jsonl", "--topic", "x"}, exit.Config, "there are no topics to audit"},
		{[]string{"--topic", "x"}, exit.Config, "sink.kafka.brokers"},
	} {
		got := execute(t, nil, append([]string{"audit"}, c.args...)...)
		require.Equal(t, c.code, got.code, "%v: %s", c.args, got.stderr)
		require.Contains(t, got.stderr, c.stderr, c.args)
	}
}
