package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/router"
)

func TestAuditCompare_RefusesWhatCannotBe(t *testing.T) {
	env := []string{"POSTRIDER_POSTGRES_URL=postgres://localhost/shop", "POSTRIDER_SINK_KAFKA_BROKERS=localhost:1"}
	for _, args := range [][]string{
		{"--rows", "-1"}, {"--duration", "-1s"}, {"--max-differences", "-1"}, {"--settle", "0s"}, {"--max-waiting", "0"},
		{"--publish-prefix", "a b"}, {"--topics", "("}, {"surplus"},
	} {
		r := execute(t, env, append([]string{"audit", "compare"}, args...)...)
		require.Equal(t, exitUsage, r.code, "%v: %s", args, r.stderr)
	}
	r := execute(t, env, "audit", "compare", "--set", "sink.kind=stdout")
	require.Equal(t, exitConfig, r.code)
	require.Contains(t, r.stderr, "no topics to compare with")
	r = execute(t, env, "audit", "compare")
	require.Equal(t, exitUnavailable, r.code, r.stderr)
	require.Contains(t, r.stderr, "localhost:1")
}

func TestTopicsToRead_FollowsTheReplacement(t *testing.T) {
	for replacement, c := range map[string]struct{ read, not []string }{
		"outbox.event.${routedByValue}": {[]string{"outbox.event.order"}, []string{"outboxXevent.order", "other", "shadow.outbox.event.order"}},
		`$1.events\$x`:                  {[]string{"order.events$x"}, []string{"order.events"}},
		"orders":                        {[]string{"orders"}, []string{"orders2"}},
		"${routedByValue}":              {nil, []string{"orders"}},
		"$1.$2":                         {nil, []string{"a.b"}},
	} {
		pattern, err := topicsToRead("", []router.Config{{TopicReplacement: replacement}})
		require.NoError(t, err)
		require.Equal(t, c.read == nil, pattern == nil, replacement)
		for _, topic := range c.read {
			require.True(t, pattern.MatchString(topic), "%s: %s", replacement, topic)
		}
		for _, topic := range c.not {
			require.False(t, pattern != nil && pattern.MatchString(topic), "%s: %s", replacement, topic)
		}
	}
	pattern, err := topicsToRead("a|b", nil)
	require.NoError(t, err)
	require.True(t, pattern.MatchString("b"))
	require.False(t, pattern.MatchString("ab"))
}

func TestCompareRules_KnowSourcesIDsAndTimes(t *testing.T) {
	cfg := config.Default()
	cfg.Replication.Tables = []string{"public.a", "public.b"}
	cfg.Replication.Messages = []string{router.AnyPrefix}
	other := router.DefaultConfig()
	other.Tables, other.HeaderID, other.FieldTimestamp = []string{"public.b"}, "event", "at"
	other.Messages = []string{router.AnyPrefix}
	cfg.Router = append(cfg.Router, other)
	rules, err := newCompareRules(cfg)
	require.NoError(t, err)
	require.Greater(t, rules.sources, 1)
	require.Contains(t, rules.idHeaders, "event")
	require.Contains(t, rules.idHeaders, "id")
	require.False(t, rules.timeColumn("public.a"))
	require.True(t, rules.timeColumn("public.b"))
	require.True(t, rules.timeColumn("message:whatever"))
}

func TestCompareResult_SaysWhatDiffers(t *testing.T) {
	var out bytes.Buffer
	r := compareResult{Result: resultDifferent, Seconds: 12, CompareReport: audit.CompareReport{
		Compared: 3, Equal: 1, Differing: 2, Members: map[string]int64{"value": 2, "header id": 1}, OnlyPostrider: 1, Duplicated: 4,
		Hints: []audit.Hint{{Text: `format.value = "json"`, Count: 2}},
		Differences: []audit.Difference{{
			EventID: "e1", LSN: "0/16", Table: "public.outbox", Topic: "orders", Partition: 2, Offset: 7,
			Members: []audit.Member{{Name: "value", At: 1, Ours: `"a"`, Theirs: `"b"`, Hint: `format.value = "json"`}},
		}},
		Unmatched: []audit.Unmatched{{Side: "postrider", EventID: "e2", LSN: "0/17", Table: "public.outbox", Topic: "orders", Key: `"k"`, Value: "null"}},
	}}
	r.print(&out)
	require.Equal(t, `compared 3 events in 12 s: 1 equal, 2 differing
  header id                      1
  value                          2
1 events only from postrider: the other relay did not publish them in time
4 duplicates from the other relay

event e1  0/16  public.outbox  topic orders partition 2 offset 7
  value, byte 1
    postrider  "a"
    other      "b"
    hint       format.value = "json"

1 more differing events; --max-differences shows them

only postrider: event e2  0/17  public.outbox  topic orders
  key    "k"
  value  null

what may make them equal:
       2  format.value = "json"

different
`, out.String())
}
