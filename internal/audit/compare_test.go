package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// bench feeds a comparison by a clock of its own.
type bench struct {
	*Comparison
	now    time.Time
	offset int64
}

func newBench(change func(*CompareConfig)) *bench {
	cfg := CompareConfig{
		Partition: func(m *sink.Message) (int32, bool) {
			return m.Partition, m.Partition != sink.ByKey
		},
		IDHeaders: []string{"id"}, OneSource: true,
		TimeColumn: func(relation string) bool { return relation == "public.timed" },
		Settle:     30 * time.Second, MaxWaiting: 100, MaxBytes: 1 << 20, MaxDetails: 5,
	}
	if change != nil {
		change(&cfg)
	}
	return &bench{Comparison: NewComparison(cfg), now: noon}
}

func (b *bench) ours(m *sink.Message) { b.Ours(m, b.now) }

func (b *bench) theirs(m *sink.Message) {
	b.offset++
	b.Theirs(m, b.offset, b.now)
}

func (b *bench) both(m *sink.Message) {
	b.ours(m)
	b.theirs(m)
}

func (b *bench) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.Expire(b.now)
}

// message is an event of one key.
func message(id string, change ...func(*sink.Message)) *sink.Message {
	m := &sink.Message{
		Topic: "orders", Partition: 1, Key: []byte("k"), Value: []byte(`{"n": 1}`),
		Timestamp: noon,
		Headers: []sink.Header{{Key: "id", Value: []byte(id)},
			{Key: "eventType", Value: []byte("made")}},
		Origin: sink.Origin{EventID: id, LSN: 0x1600000, Relation: "public.outbox"},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func TestCompare_NamesWhatDiffersAndTheKeyThatMendsIt(t *testing.T) {
	value := func(v []byte) func(*sink.Message) { return func(m *sink.Message) { m.Value = v } }
	header := func(h ...sink.Header) func(*sink.Message) {
		return func(m *sink.Message) { m.Headers = append(m.Headers, h...) }
	}
	timed := func(at time.Time) func(*sink.Message) {
		return func(m *sink.Message) { m.Origin.Relation, m.Timestamp = "public.timed", at }
	}
	none := func(*sink.Message) {}
	for name, c := range map[string]struct {
		ours, theirs func(*sink.Message)
		members      []string
		at           int
		hint         string
	}{
		"nothing": {none, none, nil, 0, ""},
		"quoted value": {value([]byte(`{"a": 1}`)), value([]byte(`"{\"a\": 1}"`)),
			[]string{"value"}, 0, `format.value = "json"`},
		"unquoted value": {value([]byte(`"a"`)), value([]byte(`a`)), []string{"value"}, 0,
			`format.value = "string"`},
		"schema": {value([]byte(`"a"`)),
			value([]byte(`{"schema":{"type":"string"},"payload":"a"}`)), []string{"value"}, 0,
			`format.value = "json+schema"`},
		"no schema": {value([]byte(`{"schema":null,"payload":"a"}`)), value([]byte(`a`)),
			[]string{"value"}, 0, `format.value = "json"`},
		"one byte": {value([]byte("abc")), value([]byte("abd")), []string{"value"}, 2,
			""},
		"expanded": {value([]byte(`{"n": 1}`)), value([]byte(`{"n":1}`)),
			[]string{"value"}, 5, "router.table.expand.json.payload"},
		"default inside": {value([]byte(`{"n":null}`)), value([]byte(`{"n":7}`)),
			[]string{"value"}, 5, "router.null_defaults = true"},
		"default": {value(nil), value([]byte(`7`)), []string{"value"}, 0,
			"router.null_defaults = true"},
		"tombstone": {value([]byte{}), value(nil), []string{"value"}, 0,
			"router.route.tombstone.on.empty.payload"},
		"bytes": {value([]byte{1}),
			value([]byte("java.nio.HeapByteBuffer[pos=0 lim=1 cap=1]")), []string{"value"}, 0,
			"router.java_text"},
		"topic": {none, func(m *sink.Message) { m.Topic = "Orders" },
			[]string{"topic"}, 0, "router.topic_case"},
		"key": {none,
			func(m *sink.Message) { m.Key = []byte(`"k"`); m.Partition = 2 },
			[]string{"key", "partition"}, 0, `format.key = "json"`},
		"partition": {none, func(m *sink.Message) { m.Partition = 3 },
			[]string{"partition"}, 0, "additional.placement"},
		"no partition known": {func(m *sink.Message) { m.Partition = sink.ByKey }, none, nil, 0,
			""},
		"header value": {header(sink.Header{Key: "h", Value: []byte("a")}),
			header(sink.Header{Key: "h",
				Value: []byte(`"a"`)}), []string{"header h"}, 0, `format.headers = "json"`},
		"header missing": {none, header(sink.Header{Key: "h"}), []string{"header h"}, 0,
			"only the other relay has a header h"},
		"header too many": {header(sink.Header{Key: "h"}), none, []string{"header h"}, 0,
			"only postrider has a header h"},
		"header twice": {header(sink.Header{Key: "h"}, sink.Header{Key: "h"}),
			header(sink.Header{Key: "h"}), []string{"header h"}, 0, ""},
		"header order": {
			header(sink.Header{Key: "a"}, sink.Header{Key: "b"}),
			header(sink.Header{Key: "b"}, sink.Header{Key: "a"}), []string{"header order"}, 0,
			"",
		},
		"context missing": {none, header(sink.Header{Key: "__debezium.context.taskId"}),
			[]string{"header __debezium.context.taskId"}, 0, "router.extended.headers.enabled = " +
				"true"},
		"context too many": {
			header(sink.Header{Key: "__debezium.context.taskId"}), none,
			[]string{"header __debezium.context.taskId"}, 0,
			"router.extended.headers.enabled = false",
		},
		"run of the connector": {
			header(sink.Header{Key: "__debezium.context.runId", Value: []byte("a")}),
			header(sink.Header{Key: "__debezium.context.runId", Value: []byte("b")}), nil, 0,
			"",
		},
		"clock": {none,
			func(m *sink.Message) { m.Timestamp = noon.Add(time.Second) }, nil, 0, ""},
		"time column": {timed(noon), timed(noon.Add(time.Millisecond)),
			[]string{"timestamp"}, 22, "router.table.field.event.timestamp"},
		"same time": {timed(noon), timed(noon.Local()), nil, 0, ""},
		"time column that is NULL": {func(m *sink.Message) {
			timed(noon)(m)
			m.Origin.CommitTime = noon
		}, timed(noon.Add(time.Second)), nil, 0, ""},
		"another span": {
			header(sink.Header{Key: "traceparent",
				Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}),
			header(sink.Header{Key: "traceparent",
				Value: []byte("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01")}), nil, 0,
			"",
		},
		"another trace": {
			header(sink.Header{Key: "traceparent",
				Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}),
			header(sink.Header{Key: "traceparent",
				Value: []byte("00-1af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01")}),
			[]string{"header traceparent"}, 3, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(nil)
			b.ours(message("1", c.ours))
			b.theirs(message("1", c.theirs))
			r := b.Report()
			require.Equal(t, int64(1), r.Compared)
			require.Zero(t, r.Waiting)
			if c.members == nil {
				require.True(t, r.Same(), "%+v", r)
				return
			}
			require.False(t, r.Same())
			require.Len(t, r.Differences, 1)
			d := r.Differences[0]
			require.Equal(t, Difference{EventID: "1", LSN: "0/1600000", Table: d.Table,
				Topic: d.Topic, Partition: d.Partition, Offset: 1, Members: d.Members}, d)
			var members []string
			for _, m := range d.Members {
				members = append(members, m.Name)
				require.Equal(t, int64(1), r.Members[m.Name])
			}
			require.Equal(t, c.members, members)
			require.Equal(t, c.at, d.Members[0].At)
			require.Contains(t, d.Members[0].Hint, c.hint)
			if c.hint != "" {
				require.Contains(t, r.Hints, Hint{d.Members[0].Hint, 1})
			}
		})
	}
}

func TestCompare_ShowsBothSidesAroundTheFirstByte(t *testing.T) {
	b := newBench(nil)
	long := strings.Repeat("x", 100)
	b.ours(message("1", func(m *sink.Message) { m.Value = []byte(long + "\n\x00ours" + long) }))
	b.theirs(message("1", func(m *sink.Message) { m.Value = []byte(long + "\n\x01") }))
	m := b.Report().Differences[0].Members[0]
	require.Equal(t, 101, m.At)
	require.Equal(t, `..."`+long[:39]+`\n\x00ours`+long[:35]+`"... (206 bytes)`, m.Ours)
	require.Equal(t, `..."`+long[:39]+`\n\x01"`, m.Theirs)
}

func TestCompare_MatchesWhateverComesFirst(t *testing.T) {
	for name, oneSource := range map[string]bool{"one table": true, "several tables": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(func(c *CompareConfig) { c.OneSource = oneSource })
			for i := range 10 {
				b.theirs(message(fmt.Sprint(i)))
			}
			for i := range 20 {
				b.ours(message(fmt.Sprint(i)))
			}
			for i := 10; i < 20; i++ {
				b.theirs(message(fmt.Sprint(i)))
			}
			r := b.Report()
			require.Equal(t, int64(20), r.Equal)
			require.True(t, r.Same())
		})
	}
}

// Two tables may use the same ids, so a topic or key that differs is a difference only when
// nothing better has come.
func TestCompare_WaitsForABetterMatchWhereIDsMayRepeat(t *testing.T) {
	payments := func(m *sink.Message) { m.Topic = "payments" }
	several := func(c *CompareConfig) { c.OneSource = false }
	b := newBench(several)
	b.ours(message("1"))
	b.theirs(message("1", payments))
	require.Zero(t, b.Report().Compared)
	b.theirs(message("1"))
	b.ours(message("1", payments))
	r := b.Report()
	require.Equal(t, int64(2), r.Equal)

	b = newBench(several)
	b.ours(message("1"))
	b.theirs(message("1", payments))
	b.pass(30 * time.Second)
	r = b.Report()
	require.Equal(t, map[string]int64{"topic": 1}, r.Members)
	require.Equal(t, int64(1), r.Compared)
}

func TestCompare_MatchesWithoutIDsByValueAndOrder(t *testing.T) {
	bare := func(value string) func(*sink.Message) {
		return func(m *sink.Message) { m.Headers, m.Value = nil, []byte(value) }
	}
	b := newBench(nil)
	b.ours(message("1", bare("a")))
	b.ours(message("2", bare("b")))
	b.theirs(message("", bare("b")))
	require.Equal(t, int64(1), b.Report().Equal, "the same value first")
	b.theirs(message("", bare("c")))
	require.Equal(t, int64(1), b.Report().Compared)
	b.pass(30 * time.Second)
	r := b.Report()
	require.Equal(t, int64(2), r.Compared)
	require.Equal(t, map[string]int64{"value": 1}, r.Members)
	require.Zero(t, r.OnlyOther+r.OnlyPostrider)
}

func TestCompare_ReadsAnIDThroughItsFormat(t *testing.T) {
	for _, id := range []string{`"e-1"`, `{"schema":{"type":"string"},"payload":"e-1"}`} {
		b := newBench(nil)
		b.ours(message("e-1"))
		b.theirs(message(id))
		r := b.Report()
		require.Equal(t, map[string]int64{"header id": 1}, r.Members, id)
	}
}

func TestCompare_ReportsWhatOneSideLacks(t *testing.T) {
	b := newBench(nil)
	b.both(message("1"))
	b.ours(message("2"))
	b.theirs(message("3"))
	b.pass(29 * time.Second)
	require.Equal(t, 2, b.Report().Waiting)
	b.pass(time.Second)
	r := b.Report()
	require.Equal(t, int64(1), r.OnlyPostrider)
	require.Equal(t, int64(1), r.OnlyOther)
	require.False(t, r.Same())
	require.Equal(t, []Unmatched{
		{Side: "postrider", EventID: "2", LSN: "0/1600000", Table: "public.outbox",
			Topic: "orders", Key: `"k"`, Value: `"{\"n\": 1}"`},
		{Side: "other", EventID: "3", Topic: "orders", Partition: 1, Offset: 2, Key: `"k"`,
			Value: `"{\"n\": 1}"`},
	}, r.Unmatched)
}

func TestCompare_CallsLateWhatComesAfterTheSettleTime(t *testing.T) {
	b := newBench(nil)
	b.both(message("1"))
	b.ours(message("2"))
	b.pass(30 * time.Second)
	require.Equal(t, int64(1), b.Report().OnlyPostrider)
	b.theirs(message("2"))
	b.pass(30 * time.Second)
	r := b.Report()
	require.Zero(t, r.OnlyPostrider)
	require.Equal(t, int64(1), r.Late)
	require.False(t, r.Same())
}

func TestCompare_CountsDuplicatesAndOrder(t *testing.T) {
	b := newBench(nil)
	for _, id := range []string{"1", "2", "3"} {
		b.ours(message(id))
	}
	for _, id := range []string{"1", "3", "2", "1"} {
		b.theirs(message(id))
	}
	b.pass(30 * time.Second)
	r := b.Report()
	require.Equal(t, int64(3), r.Equal)
	require.Equal(t, int64(1), r.Duplicated)
	require.Equal(t, int64(1), r.OutOfOrder)
	require.False(t, r.Same())

	b = newBench(nil) // order is promised within a key alone
	other := func(m *sink.Message) { m.Key = []byte("other") }
	b.ours(message("1"))
	b.ours(message("2", other))
	b.theirs(message("2", other))
	b.theirs(message("1"))
	r = b.Report()
	require.True(t, r.Same())
}

func TestCompare_LeavesAsideWhatWasThereBefore(t *testing.T) {
	elsewhere := func(m *sink.Message) { m.Partition = 9 }
	b := newBench(nil)
	b.theirs(message("before"))
	b.pass(time.Second)
	b.both(message("1"))
	b.theirs(message("of a partition that was read later", elsewhere))
	b.pass(startGrace)
	b.theirs(message("too late to be from before", elsewhere))
	b.theirs(message("after a match"))
	b.pass(30 * time.Second)
	r := b.Report()
	require.Equal(t, int64(2), r.LeftAside)
	require.Equal(t, int64(2), r.OnlyOther)
}

func TestCompare_CountsNothingThatCameAfterTheEnd(t *testing.T) {
	b := newBench(nil)
	b.both(message("1"))
	b.ours(message("2"))
	b.Close()
	require.False(t, b.Settled())
	b.ours(message("3"))
	b.theirs(message("4"))
	b.both(message("5"))
	b.theirs(message("2"))
	require.True(t, b.Settled())
	b.Finish()
	r := b.Report()
	require.Equal(t, int64(2), r.Compared)
	require.True(t, r.Same(), "%+v", r)
	require.Zero(t, r.Waiting)
}

// An end at once says nothing of what had no time to come.
func TestCompare_GivesUpWhatCouldNotWait(t *testing.T) {
	b := newBench(nil)
	b.both(message("1"))
	b.ours(message("2"))
	b.Finish()
	r := b.Report()
	require.Equal(t, int64(1), r.GivenUp)
	require.Zero(t, r.OnlyPostrider)
	require.False(t, r.Same())
}

func TestCompare_DoesNotWaitForWhatNeedsNoOtherSide(t *testing.T) {
	b := newBench(nil)
	b.theirs(message("before"))
	b.both(message("1"))
	b.theirs(message("1"))
	b.Close()
	require.True(t, b.Settled())
	b.Finish()
	r := b.Report()
	require.Equal(t, int64(1), r.LeftAside)
	require.Equal(t, int64(1), r.Duplicated)

	b = newBench(nil)
	b.theirs(message("1"))
	b.Close()
	require.False(t, b.Settled(), "before any match it may be one")
}

func TestCompare_ProvesNothingWithoutAnEvent(t *testing.T) {
	b := newBench(nil)
	b.theirs(message("1"))
	b.Finish()
	r := b.Report()
	require.False(t, r.Same())
	require.Equal(t, int64(1), r.LeftAside)
}

func TestCompare_BoundsWhatWaits(t *testing.T) {
	for name, bound := range map[string]func(*CompareConfig){
		"messages": func(c *CompareConfig) { c.MaxWaiting = 10 },
		"bytes": func(c *CompareConfig) {
			c.MaxBytes = 10 * (entryOverhead + int64(message("1000").Size()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(bound)
			b.both(message("1"))
			for i := range 5000 {
				b.ours(message(fmt.Sprint(1000 + i)))
			}
			r := b.Report()
			require.Equal(t, 10, r.Waiting)
			require.Equal(t, int64(4990), r.GivenUp)
			require.False(t, r.Same())
			require.Less(t, len(b.Comparison.ours.queue), 2000)
			require.LessOrEqual(t, len(b.Comparison.ours.index), 21, "no names of what is gone")
			for i := 4990; i < 5000; i++ { // the newest are still compared
				b.theirs(message(fmt.Sprint(1000 + i)))
			}
			require.Equal(t, int64(11), b.Report().Equal)
		})
	}
}

func TestCompare_ShowsNoMoreThanWasAskedFor(t *testing.T) {
	b := newBench(nil)
	for i := range 20 {
		b.ours(message(fmt.Sprint(i)))
		b.theirs(message(fmt.Sprint(i), func(m *sink.Message) { m.Value = nil }))
		b.ours(message(fmt.Sprint("lost", i)))
	}
	b.pass(time.Minute)
	r := b.Report()
	require.Equal(t, int64(20), r.Differing)
	require.Len(t, r.Differences, 5)
	require.Len(t, r.Unmatched, 5)
}

func TestRecent_RemembersTheNewest(t *testing.T) {
	r := newRecent[int](100)
	for i := range 1000 {
		r.put(fmt.Sprint(i), i)
	}
	for i := 900; i < 1000; i++ {
		v, ok := r.get(fmt.Sprint(i))
		require.True(t, ok)
		require.Equal(t, i, v)
	}
	_, ok := r.get("0")
	require.False(t, ok)
	require.LessOrEqual(t, len(r.current)+len(r.past), 200)
}

// Partitions that were added move keys, and two partitions are read side by side.
func TestCompare_JudgesNoOrderBetweenPartitions(t *testing.T) {
	b := newBench(nil)
	moved := func(m *sink.Message) { m.Partition = 2 }
	b.ours(message("1"))
	b.ours(message("2", moved))
	b.theirs(message("2", moved))
	b.theirs(message("1"))
	b.pass(30 * time.Second)
	r := b.Report()
	require.Equal(t, int64(2), r.Equal)
	require.Zero(t, r.OutOfOrder)
}
