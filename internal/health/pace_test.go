package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/slot/monitor"
)

// limited is a relay that relay.max_rate holds back.
func limited(in *Input) {
	in.Relay.Rate = ratelimit.State{MaxRate: ratelimit.Rate{Rows: 500}, Limiting: "relay.max_rate", Limit: ratelimit.Rate{Rows: 500}}
	in.Observation.Forecast.CatchUp = monitor.Estimate{Seconds: new(3600.0), Assumption: "about 1800000 rows wait"}
}

func neverCaughtUp(in *Input) {
	in.Observation.Forecast.CatchUp = monitor.Estimate{Assumption: "never at this rate: about 900 rows/s come in"}
}

const raiseRate = "raise relay.max_rate in the configuration, as far as consumers can take it\n" +
	"systemctl reload postrider   # or kill -HUP of its process: no session ends"

// What is late, far behind or in danger because of a limit says so, and how to raise it.
func TestJudge_NamesTheLimitOfTheRate(t *testing.T) {
	late := inRelay(func(r *relay.State) { r.OldestUnacked = ago(time.Hour) })
	for _, c := range []struct {
		condition string
		change    []func(*Input)
		says      string
	}{
		{Backlog, []func(*Input){retained(5<<30, 5<<30)}, "5.0 GiB of WAL behind the server: relay.max_rate holds rows back, which is 500 rows/s; caught up in about 1h0m"},
		{Backlog, []func(*Input){retained(5<<30, 5<<30), neverCaughtUp}, "holds rows back, which is 500 rows/s; never at this rate: about 900 rows/s come in"},
		{LagHigh, []func(*Input){late}, "committed 1h0m ago: relay.max_rate holds rows back, which is 500 rows/s"},
		{LagHigh, []func(*Input){late, retained(5<<30, 5<<30)}, "relay.max_rate holds rows back"},
		{SlotNearLoss, []func(*Input){retained(5<<30, 5<<30), inSlot(unreserved)}, "can be lost at the next checkpoint: relay.max_rate holds rows back"},
		{TimeToLoss, []func(*Input){retained(5<<30, 5<<30), lossIn(1800, 1800, 3000)}, "relay.max_rate holds rows back"},
		{TimeToDiskFull, []func(*Input){retained(5<<30, 5<<30), diskFullIn(1800)}, "relay.max_rate holds rows back"},
	} {
		v := Judge(input(append([]func(*Input){limited}, c.change...)...))
		found := find(v, c.condition)
		require.Contains(t, found.Reason, c.says, c.condition)
		require.Equal(t, "relay.max_rate", found.Cause, c.condition)
		require.Equal(t, raiseRate, found.Next, c.condition)
		require.Nil(t, findOrNil(v, Stuck), "the broker is not silent")
	}
}

func findOrNil(v Verdict, name string) *Condition {
	for i := range v.Conditions {
		if v.Conditions[i].Name == name {
			return &v.Conditions[i]
		}
	}
	return nil
}

func TestJudge_SaysThatTheLimitSetsThePace(t *testing.T) {
	v := Judge(input(limited))
	require.Equal(t, Verdict{State: OK, Reason: "streaming for 1h12m, at relay.max_rate, which is 500 rows/s; caught up in about 1h0m"}, v)
	v = Judge(input(limited, func(in *Input) { in.Observation.Forecast.CatchUp.Seconds = new(0.0) }))
	require.Contains(t, v.Reason, "500 rows/s; caught up")
	v = Judge(input(limited, func(in *Input) { in.Observation.Forecast.CatchUp = monitor.Estimate{} }))
	require.Contains(t, v.Reason, "when it is caught up is not known yet")
	v = Judge(input(limited, func(in *Input) { in.Relay.Rate.Limiting = "" }))
	require.Equal(t, "streaming for 1h12m", v.Reason)
}
