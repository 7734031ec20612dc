package backfill

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

func TestFingerprints_AgreeWithANaiveMultiset(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	few := make([]digest, 200) // so that some are equal, and others share their first byte
	for i := range few {
		few[i] = digest{byte(r.IntN(8)), byte(r.IntN(30))}
	}
	var c fingerprints
	candidate, found := map[digest]int{}, map[digest]int{}
	for range 2000 {
		f := few[r.IntN(len(few)/2)]
		c.add(f)
		candidate[f]++
	}
	c.seal()
	require.Equal(t, 2000, c.total)
	for range 3000 {
		f := few[r.IntN(len(few))]
		c.mark(f)
		found[f] = min(found[f]+1, candidate[f])
	}
	marked := 0
	for f, n := range found {
		marked += n
		require.Equal(t, candidate[f]-n, c.unmarkedOf(f))
	}
	require.Equal(t, 2000-marked, c.unmarked())
	for f, n := range candidate {
		for i := range n {
			require.Equal(t, i < found[f], c.unmark(f), "%x, %d of %d found", f, found[f], n)
		}
	}
}

// A row without a time of its own is an event of the time when it is read.
func TestFingerprint_IsWithoutTheTimeOfACloudEvent(t *testing.T) {
	of := func(time, id string) digest {
		return fingerprint(&sink.Message{Value: []byte(`{"specversion":"1.0","time":"` + time + `","id":"` + id + `"}`)})
	}
	require.Equal(t, of("2026-01-15T09:30:00.123Z", "1"), of("2027-01-15T09:30:00.124Z", "1"))
	require.NotEqual(t, of("2026-01-15T09:30:00.123Z", "1"), of("2026-01-15T09:30:00.123Z", "2"))
}

func TestFingerprints_FindEachMessageOnce(t *testing.T) {
	message := func(change func(*sink.Message)) *sink.Message {
		m := &sink.Message{Topic: "t", Key: []byte("k"), Value: []byte("v"), Headers: []sink.Header{{Key: "id", Value: []byte("1")}, {Key: "x"}}}
		change(m)
		return m
	}
	same := func(*sink.Message) {}
	var p fingerprints
	p.add(fingerprint(message(same)))
	p.add(fingerprint(message(same)))
	p.seal()
	for _, change := range []func(*sink.Message){
		func(m *sink.Message) { m.Topic = "u" },
		func(m *sink.Message) { m.Key, m.Value = []byte("kv"), nil },
		func(m *sink.Message) { m.Value = []byte("w") },
		func(m *sink.Message) { m.Headers[0].Value = []byte("2") },
		func(m *sink.Message) { m.Headers = m.Headers[:1] },
		func(m *sink.Message) { m.Headers[1].Key = "y" },
	} {
		require.False(t, p.mark(fingerprint(message(change))))
	}
	require.True(t, p.mark(fingerprint(message(func(m *sink.Message) { // what differs from run to run
		m.Partition = 3
		m.Headers = append(m.Headers, sink.Header{Key: router.HeaderLSN, Value: []byte("0/1")}, sink.Header{Key: router.HeaderIndex, Value: []byte("7")},
			sink.Header{Key: sink.HeaderSource, Value: []byte("7/1/s/p@1")}, sink.Header{Key: sink.HeaderRedriven, Value: []byte("0f")},
			sink.Header{Key: "__debezium.context.runId", Value: []byte("a uuid")}, sink.Header{Key: router.HeaderTraceParent, Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}, sink.Header{Key: router.HeaderTime, Value: []byte("2026-01-15T09:30:00.123Z")})
	}))))
	require.True(t, p.mark(fingerprint(message(same))))
	require.False(t, p.mark(fingerprint(message(same))))
	require.Zero(t, p.unmarked())
	require.Zero(t, (*fingerprints)(nil).unmarked())
}
