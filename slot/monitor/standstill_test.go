package monitor

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

func TestStandstills_CountFromTheLastMove(t *testing.T) {
	var s standstills
	begin := time.Unix(1_000_000, 0)
	still := func(seconds int, position, wal pglogrepl.LSN) Seconds {
		s.round()
		return s.still("standby", position, wal, begin.Add(time.Duration(seconds)*time.Second))
	}
	require.Zero(t, still(0, 100*mib, 200*mib), "seen for the first time")
	require.EqualValues(t, 5, still(5, 100*mib, 205*mib))
	require.EqualValues(t, 90, still(90, 100*mib, 290*mib))
	require.Zero(t, still(95, 101*mib, 295*mib), "it moved")
	require.Zero(t, still(100, 101*mib, 295*mib+stillNoise-1), "nothing to speak of was written since")
	require.EqualValues(t, 10, still(105, 101*mib, 295*mib+stillNoise))
	require.Zero(t, still(110, 101*mib, 200*mib), "the WAL went backwards: another server")
	require.EqualValues(t, 5, still(115, 101*mib, 300*mib))
	require.Zero(t, still(120, 0, 300*mib), "it has no position")

	require.Zero(t, still(125, 300*mib, 300*mib))
	require.Zero(t, still(185, 300*mib, 300*mib+stillNoise-1), "it keeps next to nothing")
	s.round()
	require.Zero(t, still(190, 300*mib, 400*mib), "it was gone in between")
}

func TestStandstills_AreOfEachPosition(t *testing.T) {
	var s standstills
	begin := time.Unix(1_000_000, 0)
	for i := range 3 {
		s.round()
		at, wal := begin.Add(time.Duration(i)*time.Minute), pglogrepl.LSN(200+100*i)*mib
		require.EqualValues(t, 60*i, s.still("a", 100*mib, wal, at))
		require.Zero(t, s.still("b", wal-10*mib, wal, at))
	}
}
