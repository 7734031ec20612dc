package check

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The age of a row is no sign of its delivery, whatever the table is like.
func TestGrowth_RemovesNothingByTimeAlone(t *testing.T) {
	for name, g := range map[string]growth{
		"with a time": {Size: largeSize, TimestampedBy: "created_at"},
		"without one": {Size: largeSize},
		"many rows":   {Rows: manyRows, TimestampedBy: "created_at"},
		"partitioned": {Size: largeSize, TimestampedBy: "created_at", Partitioned: true},
	} {
		fix := g.judge("public.outbox")[0].Fix
		require.Regexp(t, "^postrider prune --dry-run   # then set prune.enabled = true: ", fix, name)
		require.NotRegexp(t, "(?i)delete from|drop table|outbox_maintain", fix, name)
	}
}

func TestHolder_NamesNothingThatATerminalObeys(t *testing.T) {
	h := holder{PID: 815, Application: "app\x1b[8m", User: "role\n  fix: x", Address: "192.0.2.1"}
	require.Equal(t, "process 815 of the database, application app?[8m, role role?  fix: x, from 192.0.2.1", h.String())
}
