package producer

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// The keys of all topics of a sink together are bounded, as what a topic holds is.
func TestTails_TakeLittleMemoryForAnyNumberOfTopics(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // a few MiB
	}
	for _, topics := range []int{1, 100, 7000} {
		t.Run(fmt.Sprintf("%d topics", topics), func(t *testing.T) {
			all := tails{topics: map[string]*tail{}}
			for n := range topics {
				topic := fmt.Sprint("orders-", n)
				all.topics[topic] = newTail(zerolog.Nop(), topic, 0, &all)
				all.topics[topic].newest = position{lsn: 2000}
			}
			before, each := heap(), tailKeys/topics
			for _, one := range all.topics {
				for i := range each {
					require.False(t, one.has(position{lsn: 1000}, fmt.Append(nil, one.topic, i)))
				}
			}
			t.Logf("%.1f bytes for each of %d keys", float64(heap()-before)/float64(all.keys), all.keys)
			require.Equal(t, topics*each, all.keys)
			require.LessOrEqual(t, heap()-before, int64(5<<20))
			for _, one := range all.topics {
				for i := range 2 * tailKeys / topics {
					require.False(t, one.has(position{lsn: 1000}, fmt.Append(nil, "more", one.topic, i)))
				}
			}
			require.LessOrEqual(t, all.keys, tailKeys)
			require.LessOrEqual(t, heap()-before, int64(5<<20))
			runtime.KeepAlive(&all)
		})
	}
}

// The topic for whose key there is no room is published again. The others are not, and the keys of
// a topic that the session has passed, or that was given up, leave room for others.
func TestTails_GiveUpTheTopicWhoseKeyIsOneTooMany(t *testing.T) {
	topics := []string{"orders", "payments", "returns"}
	c := parts.Cluster(t, kfake.SeedTopics(1, topics...))
	cfg := quick(c.ListenAddrs()...)
	row := func(topic string, lsn pglogrepl.LSN, key string) *sink.Message {
		return event(topic, us, lsn, 0, key)
	}
	session(t, cfg, []*sink.Message{
		row("orders", 2500, "there"), row("orders", 3000, "there"),
		row("payments", 3100, "there"), row("payments", 3200, "there"), row("returns", 9000, "there"),
	})
	s := openSink(t, cfg, newOutcomes().done)
	s.tails.limit = 3
	published := func(m *sink.Message) bool {
		got, err := s.Published(parts.Within(t, patience), us, m)
		require.NoError(t, err)
		return got
	}
	require.False(t, published(row("orders", 1000, "a")))
	require.False(t, published(row("orders", 1100, "b")))
	require.False(t, published(row("payments", 1200, "c")))
	require.Equal(t, 3, s.tails.keys)
	require.False(t, published(row("payments", 1300, "d")), "one too many")
	require.Equal(t, 2, s.tails.keys)
	require.False(t, published(row("returns", 1400, "e")), "the room of payments")
	require.True(t, published(row("orders", 2500, "there")))
	require.True(t, published(row("orders", 3000, "there")))
	require.False(t, published(row("payments", 3100, "there")), "given up")
	require.False(t, published(row("returns", 4000, "f")), "the room of orders, which was passed")
	require.False(t, published(row("returns", 4100, "g")))
	require.Equal(t, 3, s.tails.keys)
	require.True(t, published(row("returns", 9000, "there")))
}

// What was not there when a topic was read first is still not overtaken after the next reading.
func TestTails_KeepWhatIsPublishedAgainFromReadingToReading(t *testing.T) {
	var all tails
	read := func(there ...pglogrepl.LSN) *tail {
		one := newTail(zerolog.Nop(), "orders", tailRoom, &all)
		for _, lsn := range there {
			one.seen.add(position{lsn: lsn})
		}
		one.newest = position{lsn: 300}
		all.put(one)
		return one
	}
	first := read(100)
	require.True(t, first.has(position{lsn: 100}, []byte("k")), "it is there")
	require.False(t, first.has(position{lsn: 120}, []byte("k")), "it is not")
	second := read(200)
	require.False(t, second.has(position{lsn: 200}, []byte("k")), "it would overtake the row at 120")
	require.True(t, second.has(position{lsn: 200}, []byte("another")))
}

func TestTails_HaveTheRoomOfTopicsThatTheSessionHasPassed(t *testing.T) {
	all := tails{}
	passed := newTail(zerolog.Nop(), "passed", tailRoom, &all)
	passed.seen.blocks = 7
	passed.newest = position{lsn: 10_000}
	all.put(passed)
	require.Equal(t, tailRoom-7, all.room(position{lsn: 9_000}, "orders"))
	require.Equal(t, tailRoom, all.room(position{lsn: 10_001}, "orders"))
}
