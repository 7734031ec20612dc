package router

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
)

// Shapes of JSON that cost the square of their size, or became it, when members were looked for one by one, schemas were merged
// into new ones, and nothing bounded what they are expanded to.

// wideObject has many members.
func wideObject(n int) string {
	return "{" + list(n, func(i int) string { return fmt.Sprintf(`"member%d":%d`, i, i) }) + "}"
}

// unlikeObjects is an array of objects of which no two have a member in common: each gets those of all others.
func unlikeObjects(n int) string {
	return `{"list":[` + list(n, func(i int) string { return fmt.Sprintf(`{"member%d":%d}`, i, i) }) + "]}"
}

// likeObjects is an array of objects of two shapes, in turns.
func likeObjects(n int) string {
	return `{"list":[` + list(n, func(i int) string { return fmt.Sprintf(`{"a":{"member%d":%d}}`, i%2, i) }) + "]}"
}

// deepObject has a long path to its end.
func deepObject(depth int) string {
	return strings.Repeat(`{"`+strings.Repeat("x", 500)+`":`, depth) + "1" + strings.Repeat("}", depth)
}

func list(n int, item func(i int) string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item(i)
	}
	return strings.Join(items, ",")
}

// expanding routes a payload, with table.expand.json.payload.
func expanding(t testing.TB, valueFormat, payload string) (value []byte, err error) {
	t.Helper()
	f := DefaultFormat()
	f.Value = valueFormat
	m, err := newRouter(t, f, func(c *Config) { c.ExpandJSONPayload = true }).Route(insert(outbox(), baseID, "User", "k", "T", payload))
	if err != nil {
		return nil, err
	}
	return m.Value, nil
}

func TestExpand_TakesManyMembersInOnePass(t *testing.T) {
	const n = 20_000
	payload := wideObject(n)
	value, err := expanding(t, "json", payload)
	require.NoError(t, err)
	require.Equal(t, payload, string(value))

	payload = likeObjects(n)
	before := allocated()
	value, err = expanding(t, "json", payload)
	require.NoError(t, err)
	require.Less(t, allocated()-before, uint64(200*len(payload)), "bytes allocated for %d", len(payload))
	require.True(t, strings.HasPrefix(string(value), `{"list":[{"a":{"member0":0,"member1":null}},{"a":{"member0":null,"member1":1}},`), "%.100s", value)
}

func TestExpand_RefusesWhatBecomesManyTimesLarger(t *testing.T) {
	for name, c := range map[string]struct{ format, payload string }{
		"objects without a member in common": {"json", unlikeObjects(20_000)},
		"long names of schemas":              {"json+schema", deepObject(900)},
	} {
		t.Run(name, func(t *testing.T) {
			before := allocated()
			_, err := expanding(t, c.format, c.payload)
			var row *RowError
			require.ErrorAs(t, err, &row)
			require.Equal(t, ReasonUnconvertible, row.Reason)
			require.ErrorContains(t, err, "many times larger")
			require.Less(t, allocated()-before, uint64(100*len(c.payload)), "bytes allocated for %d", len(c.payload))
		})
	}
	// Where no schema is written, its name is nothing.
	payload := deepObject(900)
	value, err := expanding(t, "json", payload)
	require.NoError(t, err)
	require.Equal(t, payload, string(value))
}

// A logical message is a JSON document of which most members may be nobody's.
func TestRoute_TakesALogicalMessageOfManyMembersInOnePass(t *testing.T) {
	r, err := New([]Config{DefaultConfig()}, DefaultFormat(), Options{MessagePrefixes: []string{"outbox"}})
	require.NoError(t, err)
	content := `{"id":"1","aggregate_type":"User","aggregate_id":"k","payload":` + deepObject(900) + "," + wideObject(20_000)[1:]
	before := allocated()
	m, err := r.Route(&replication.Event{Kind: replication.Message, Prefix: "outbox", Content: []byte(content), Time: committed})
	require.NoError(t, err)
	require.Equal(t, "outbox.event.User", m.Topic)
	require.Less(t, allocated()-before, uint64(100*len(content)), "bytes allocated for %d", len(content))
}

// allocated is how many bytes were allocated, ever.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func BenchmarkShape_ExpandedJSON(b *testing.B) {
	for name, shape := range map[string]func(int) string{"wide": wideObject, "like": likeObjects} {
		for _, n := range []int{10_000, 40_000} {
			payload := shape(n)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(payload)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := expanding(b, "json", payload); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
