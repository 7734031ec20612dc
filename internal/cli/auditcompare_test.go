package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/exit"
)

func TestAuditCompare_RefusesWhatCannotBe(t *testing.T) {
	env := []string{"POSTRIDER_POSTGRES_URL=postgres://localhost/shop", "POSTRIDER_SINK_KAFKA_BROKERS=localhost:1"}
	for _, args := range [][]string{
		{"--rows", "-1"}, {"--duration", "-1s"}, {"--max-differences", "-1"}, {"--settle", "0s"}, {"--max-waiting", "0"},
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
