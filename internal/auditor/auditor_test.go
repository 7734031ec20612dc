package auditor

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

func TestEventID_IsFoundWhereItIs(t *testing.T) {
	m := &sink.Message{
		Key:   []byte(`{"schema":{"type":"string"},"payload":"k\"1"}`),
		Value: []byte(`{"a/b": [{"id": 17}, {"id": "x"}, null]}`),
		Headers: []sink.Header{{Key: "none"}, {Key: "id", Value: []byte(`"6f1c"`)},
			{Key: "plain", Value: []byte("6f1c")}},
	}
	for text, want := range map[string]string{
		"header:id": "6f1c", "header:plain": "6f1c", "header:none": "", "header:other": "",
		"key":              `k"1`,
		"value:/a~1b/0/id": "17", "value:/a~1b/1/id": "x", "value:/a~1b/2": "",
		"value:/a~1b/3/id": "", "value:/other": "",
	} {
		id, err := ParseEventID(text)
		require.NoError(t, err)
		require.Equal(t, want, string(id.of(m)), text)
		if want == "" {
			require.Nil(t, id.of(m), text)
		}
	}
	require.Equal(t, "row",
		string(deadLetterID(&sink.Message{Headers: []sink.Header{{Key: deadletter.HeaderEventID,
			Value: []byte("row")}}}, nil)))
}

func TestPositionOf_TakesOnlyWhatCanBeCompared(t *testing.T) {
	source := sink.Source{SystemID: "7300000000000000000", Timeline: 1, Slot: "a@b",
		Events: "postrider"}
	headers := func(pairs ...string) (m sink.Message) {
		for i := 0; i < len(pairs); i += 2 {
			m.Headers = append(m.Headers, sink.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return m
	}
	signature := string(source.Signature(time.UnixMicro(1_700_000_000_000_001)))
	m := headers(router.HeaderLSN, "0/1", router.HeaderLSN, "16/B374D848", router.HeaderIndex, "3",
		sink.HeaderSource, signature)
	require.Equal(t,
		audit.Position{Source: []byte(source.Header()), LSN: 0x16B374D848, Index: 3,
			Time: 1_700_000_000_000_001}, positionOf(&m))
	for _, pairs := range [][]string{
		{router.HeaderLSN, "16/B374D848", router.HeaderIndex, "3"}, // of whatever server
		{router.HeaderLSN, "16/B374D848", sink.HeaderSource, signature},
		{router.HeaderIndex, "3", sink.HeaderSource, signature},
		{router.HeaderLSN, "x", router.HeaderIndex, "3", sink.HeaderSource, signature},
		{router.HeaderLSN, "0/0", router.HeaderIndex, "3", sink.HeaderSource, signature},
		{router.HeaderLSN, "16/B374D848", router.HeaderIndex, "-1", sink.HeaderSource, signature},
		{router.HeaderLSN, "16/B374D848", router.HeaderIndex, "3", sink.HeaderSource,
			source.Header() + "@x"},
	} {
		m := headers(pairs...)
		require.Zero(t, positionOf(&m), pairs)
	}
}

func TestWriteLog_SaysWhichLineIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"{\"id\": 1}\n\n{":            "written.jsonl:3",
		"{\"id\": 1}\n{\"id\": null}": `written.jsonl:2: there is no "id"`,
		"{\"id\": 1}":                 `written.jsonl:1: there is no "time"`,
	} {
		w := &writeLog{path: filepath.Join(t.TempDir(), "written.jsonl"), since: time.Unix(1, 0)}
		if want != `written.jsonl:1: there is no "time"` {
			w.since = time.Time{}
		}
		require.NoError(t, os.WriteFile(w.path, []byte(text), 0o600))
		err := w.Rows(t.Context(), func(*audit.Row) error { return nil })
		require.ErrorContains(t, err, want)
	}
}

func TestRecordsOfLogSince_IsATimeOnlyIfRecordsHaveThatOfTheCommit(t *testing.T) {
	since := time.Unix(1_700_000_000, 0)
	require.Equal(t, since, recordsOfLogSince(since, []router.Config{{}}))
	require.Zero(t, recordsOfLogSince(since, []router.Config{{}, {FieldTimestamp: "created_at"}}))
}

func TestOnlyTables_KeepsTheRulesOfEach(t *testing.T) {
	a, b := router.DefaultConfig(), router.DefaultConfig()
	a.Tables, a.FieldKey = []string{"public.a"}, "key_a"
	b.FieldKey = "key_b"
	cfg := config.Config{Router: []router.Config{a, b}}
	cfg.Replication.Tables = []string{"public.a", "public.b", "public.c"}
	got := OnlyTables(cfg, []string{"b", "other.table"})
	require.Equal(t, []string{"public.b", "other.table"}, got.Replication.Tables)
	for table, key := range map[string]string{"public.b": "key_b",
		"other.table": router.DefaultConfig().FieldKey} {
		rule, ok := got.Rule(table)
		require.True(t, ok)
		require.Equal(t, key, rule.FieldKey)
	}
}

func TestTopicsToRead_FollowsTheReplacement(t *testing.T) {
	for replacement, c := range map[string]struct{ read, not []string }{
		"outbox.event.${routedByValue}": {[]string{"outbox.event.order"},
			[]string{"outboxXevent.order", "other", "shadow.outbox.event.order"}},
		`$1.events\$x`:     {[]string{"order.events$x"}, []string{"order.events"}},
		"orders":           {[]string{"orders"}, []string{"orders2"}},
		"${routedByValue}": {nil, []string{"orders"}},
		"$1.$2":            {nil, []string{"a.b"}},
	} {
		pattern, err := topicsToRead("", []router.Config{{TopicReplacement: replacement}})
		require.NoError(t, err)
		require.Equal(t, c.read == nil, pattern == nil, replacement)
		for _, topic := range c.read {
			require.True(t, pattern.MatchString(topic), "%s: %s", replacement, topic)
		}
		for _, topic := range c.not {
			require.False(t, pattern != nil && pattern.MatchString(topic), "%s: %s", replacement,
				topic)
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
		Compared: 3, Equal: 1, Differing: 2, Members: map[string]int64{"value": 2, "header id": 1},
		OnlyPostrider: 1, Duplicated: 4,
		Hints: []audit.Hint{{Text: `format.value = "json"`, Count: 2}},
		Differences: []audit.Difference{{
			EventID: "e1", LSN: "0/16", Table: "public.outbox", Topic: "orders", Partition: 2,
			Offset: 7,
			Members: []audit.Member{{Name: "value", At: 1, Ours: `"a"`, Theirs: `"b"`,
				Hint: `format.value = "json"`}},
		}},
		Unmatched: []audit.Unmatched{{Side: "postrider", EventID: "e2", LSN: "0/17",
			Table: "public.outbox", Topic: "orders", Key: `"k"`, Value: "null"}},
	}}
	r.Print(&out)
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
