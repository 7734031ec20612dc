package producer

import (
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A set of positions with little room has of everything before until what a map has.
func TestEvents_AgreeWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.Custom(func(t *rapid.T) position {
			return position{
				lsn: pglogrepl.LSN(1 + rapid.IntRange(0, 8).Draw(t,
					"lsn")*rapid.SampledFrom([]int{1, 1 << 40}).Draw(t, "scale")),
				index: rapid.SampledFrom([]uint32{0, 1, 63, 64, 200, 1<<32 - 1}).Draw(t, "index"),
				time:  rapid.SampledFrom([]int64{0, -5, 1_800_000_000_123_456}).Draw(t, "time"),
			}
		})
		e, model := events{room: rapid.IntRange(1, 40).Draw(t, "room")}, map[position]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "n") {
			p := place.Draw(t, "add")
			e.add(p)
			model[p] = true
			if rapid.Bool().Draw(t, "pack") {
				e.pack()
			}
		}
		ascending := rapid.SliceOfN(place, 0, 60).Draw(t, "ask")
		slices.SortFunc(ascending, func(p, q position) int {
			switch {
			case p.before(q):
				return -1
			case q.before(p):
				return 1
			}
			return 0
		})
		for _, p := range append(ascending, rapid.SliceOfN(place, 0, 10).Draw(t, "in any order")...) {
			has := e.has(p)
			if e.until.lsn != 0 && !p.before(e.until) {
				if has && !model[p] {
					t.Fatalf("%v was never added", p)
				}
			} else if has != model[p] {
				t.Fatalf("%v: %v, a map has %v; until %v", p, has, model[p], e.until)
			}
		}
		if e.blocks > e.room {
			t.Fatalf("%d blocks with room for %d", e.blocks, e.room)
		}
	})
}

func TestEvents_TakeLittleMemoryAndNoMoreThanThereIsRoom(t *testing.T) {
	const room = 1 << 17
	seen, at := events{room: room}, committed.UnixMicro()
	for i := range 3 * room { // from the newest back, as a partition is read
		seen.add(position{lsn: pglogrepl.LSN(1000 + 200*(3*room-i)), time: at - int64(i)*150})
	}
	require.True(t, seen.has(position{lsn: 1200, time: at - int64(3*room-1)*150}))
	require.Equal(t, room, seen.blocks)
	require.Equal(t, pglogrepl.LSN(1000+200*(room+1)), seen.until.lsn)
	require.Less(t, len(seen.packed), 8*room, "one-row transactions")
	require.Nil(t, seen.unpacked)

	large := events{}
	for i := range uint32(1_000_000) {
		large.add(position{lsn: 1000, index: i})
	}
	require.True(t, large.has(position{lsn: 1000, index: 999_999}))
	require.False(t, large.has(position{lsn: 1000, index: 1_000_000}))
	require.False(t, large.has(position{lsn: 1001, index: 1}))
	require.Less(t, len(large.packed), 1_000_000/4, "a large transaction")
}

func TestTail_AsksWithoutAllocating(t *testing.T) {
	seen := events{}
	for i := range 100_000 {
		seen.add(position{lsn: pglogrepl.LSN(1000 + i)})
	}
	seen.has(position{lsn: 1})
	next := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		require.True(t, seen.has(position{lsn: pglogrepl.LSN(1000 + next)}))
		next++
	}))
}
