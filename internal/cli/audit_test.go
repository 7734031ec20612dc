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
		{[]string{"--id", "header:"}, exit.Usage,
			"expected header:NAME, key or value:/JSON/POINTER"},
		{[]string{"--isolation", "serializable"}, exit.Usage,
			"read_committed or read_uncommitted"},
		{[]string{"--memory", "1MiB"}, exit.Usage, "expected a size of 48MiB or more"},
		{[]string{"--memory", "1GB"}, exit.Usage, "expected a size of 48MiB or more"},
		{[]string{"--since", "yesterday"}, exit.Usage, "neither a duration"},
		{[]string{"--until", "tomorrow"}, exit.Usage, "neither a duration"},
		{[]string{"--topics", "("}, exit.Usage, "--topics"},
		{[]string{"--log", "gone.jsonl"}, exit.Usage, "name them with --topic or --topics"},
		{[]string{"--slot", "kept", "--order-by", "number"}, exit.Usage,
			"each give the order of commits: use one"},
		{[]string{"--log", "gone.jsonl", "--topic", "x", "--order-by", "number"}, exit.Usage,
			"--order-by is for a table"},
		{[]string{"--set", "sink.kind=stdout", "--log", "gone.jsonl", "--topic", "x"}, exit.Config,
			"there are no topics to audit"},
		{[]string{"--topic", "x"}, exit.Config, "sink.kafka.brokers"},
	} {
		got := execute(t, nil, append([]string{"audit"}, c.args...)...)
		require.Equal(t, c.code, got.code, "%v: %s", c.args, got.stderr)
		require.Contains(t, got.stderr, c.stderr, c.args)
	}
}

func TestAuditCompare_RefusesWhatCannotBe(t *testing.T) {
	env := []string{"POSTRIDER_POSTGRES_URL=postgres://localhost/shop",
		"POSTRIDER_SINK_KAFKA_BROKERS=localhost:1"}
	for _, args := range [][]string{
		{"--rows", "-1"}, {"--duration", "-1s"}, {"--max-differences", "-1"}, {"--settle", "0s"},
		{"--max-waiting", "0"},
		{"--publish-prefix", "a b"}, {"--topics", "("}, {"surplus"},
	} {
		r := execute(t, env, append([]string{"audit", "compare"}, args...)...)
		require.Equal(t, exit.Usage, r.code, "%v: %s", args, r.stderr)
	}
	r := execute(t, env, "audit", "compare", "--set", "sink.kind=stdout")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, "no topics to compare with")
	r = execute(t, env, "audit", "compare")
	require.Equal(t, exit.Unavailable, r.code, r.stderr)
	require.Contains(t, r.stderr, "localhost:1")
}
