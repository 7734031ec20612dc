package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

// catalog_xmin follows the oldest running transaction: what holds it back is about as old. To end a
// younger one, or a query on a standby, moves nothing.
func TestJudge_FindsWhatHoldsCatalogXminBack(t *testing.T) {
	const age = 300_000_000
	standby := monitor.Blocker{Kind: monitor.BlockerStandby, Application: "replica1", Age: age, Since: ago(26 * time.Hour)}
	lagging := retained(400<<30, 400<<30)
	younger := aged(299_500_000, transaction(25*time.Hour))
	younger.Restart = false
	for name, c := range map[string]struct {
		change []func(*Input)
		cause  string
	}{
		"a transaction":                       {[]func(*Input){held(aged(299_000_000, transaction(26*time.Hour)))}, "transaction of pid 815 (psql)"},
		"a transaction beside a lag":          {[]func(*Input){held(aged(299_000_000, transaction(26*time.Hour))), lagging}, "transaction of pid 815 (psql)"},
		"a prepared transaction":              {[]func(*Input){held(aged(299_000_000, prepared(26*time.Hour))), held(younger)}, "prepared transaction pay_42"},
		"a lag beside a young transaction":    {[]func(*Input){held(aged(1_000_000, transaction(20*time.Minute))), lagging}, "backlog"},
		"a pause beside a young transaction":  {[]func(*Input){held(aged(1_000_000, transaction(20*time.Minute))), retained(1<<20, 5<<30), paused(time.Hour, "")}, "paused relay"},
		"a broker beside a young transaction": {[]func(*Input){held(aged(1_000_000, transaction(20*time.Minute))), retained(1<<20, 5<<30), silentFor(time.Hour)}, "kafka at kafka-1:9092"},
		"one that has only just begun":        {[]func(*Input){held(aged(299_000_000, transaction(time.Minute))), lagging}, "backlog"},
		"no feedback of a standby":            {[]func(*Input){held(standby)}, unknownCause},
		"a lag beside a standby":              {[]func(*Input){held(standby), lagging}, "backlog"},
		"no relay beside a standby":           {[]func(*Input){held(standby), func(in *Input) { in.Relay = relay.State{} }, inactive(time.Hour)}, "no relay"},
	} {
		got := find(Judge(input(append(c.change, xminAge(age))...)), CatalogXminAge)
		require.Equal(t, c.cause, got.Cause, name)
		if c.cause == "backlog" || c.cause == unknownCause {
			require.Equal(t, "postrider check", got.Next, name)
		}
	}
}
