package cli

import (
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

func TestAudit_RefusesWhatItCannotDo(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"compair"}, exitUsage, "Did you mean this?\n  \tcompare"},
		{[]string{"--id", "header:"}, exitUsage, "expected header:NAME, key or value:/JSON/POINTER"},
		{[]string{"--isolation", "serializable"}, exitUsage, "read_committed or read_uncommitted"},
		{[]string{"--memory", "1MiB"}, exitUsage, "expected a size of 48MiB or more"},
		{[]string{"--memory", "1GB"}, exitUsage, "expected a size of 48MiB or more"},
		{[]string{"--since", "yesterday"}, exitUsage, "neither a duration"},
		{[]string{"--until", "tomorrow"}, exitUsage, "neither a duration"},
		{[]string{"--topics", "("}, exitUsage, "--topics"},
		{[]string{"--log", "gone.jsonl"}, exitUsage, "name them with --topic or --topics"},
		{[]string{"--slot", "kept", "--order-by", "number"}, exitUsage, "each say in what order rows were committed"},
		{[]string{"--log", "gone.jsonl", "--topic", "x", "--order-by", "number"}, exitUsage, "--order-by is for a table"},
		{[]string{"--set", "sink.kind=stdout", "--log", "gone.jsonl", "--topic", "x"}, exitConfig, "there are no topics to audit"},
		{[]string{"--topic", "x"}, exitConfig, "sink.kafka.brokers"},
	} {
		got := execute(t, nil, append([]string{"audit"}, c.args...)...)
		require.Equal(t, c.code, got.code, "%v: %s", c.args, got.stderr)
		require.Contains(t, got.stderr, c.stderr, c.args)
	}
}

func TestEventID_IsFoundWhereItIs(t *testing.T) {
	m := &sink.Message{
		Key: []byte(`{"schema":{"type":"string"},"payload":"k\"1"}`), Value: []byte(`{"a/b": [{"id": 17}, {"id": "x"}, null]}`),
		Headers: []sink.Header{{Key: "none"}, {Key: "id", Value: []byte(`"6f1c"`)}, {Key: "plain", Value: []byte("6f1c")}},
	}
	for text, want := range map[string]string{
		"header:id": "6f1c", "header:plain": "6f1c", "header:none": "", "header:other": "", "key": `k"1`,
		"value:/a~1b/0/id": "17", "value:/a~1b/1/id": "x", "value:/a~1b/2": "", "value:/a~1b/3/id": "", "value:/other": "",
	} {
		id, err := parseEventID(text)
		require.NoError(t, err)
		require.Equal(t, want, string(id.of(m)), text)
		if want == "" {
			require.Nil(t, id.of(m), text)
		}
	}
	require.Equal(t, "row", string(deadLetterID(&sink.Message{Headers: []sink.Header{{Key: deadletter.HeaderEventID, Value: []byte("row")}}}, nil)))
}

func TestPositionOf_TakesOnlyWhatCanBeCompared(t *testing.T) {
	source := sink.Source{SystemID: "7300000000000000000", Timeline: 1, Slot: "a@b", Events: "postrider"}
	headers := func(pairs ...string) (m sink.Message) {
		for i := 0; i < len(pairs); i += 2 {
			m.Headers = append(m.Headers, sink.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return m
	}
	signature := string(source.Signature(time.UnixMicro(1_700_000_000_000_001)))
	m := headers(router.HeaderLSN, "0/1", router.HeaderLSN, "16/B374D848", router.HeaderIndex, "3", sink.HeaderSource, signature)
	require.Equal(t, audit.Position{Source: []byte(source.Header()), LSN: 0x16B374D848, Index: 3, Time: 1_700_000_000_000_001}, positionOf(&m))
	for _, pairs := range [][]string{
		{router.HeaderLSN, "16/B374D848", router.HeaderIndex, "3"}, // of whatever server
		{router.HeaderLSN, "16/B374D848", sink.HeaderSource, signature},
		{router.HeaderIndex, "3", sink.HeaderSource, signature},
		{router.HeaderLSN, "x", router.HeaderIndex, "3", sink.HeaderSource, signature},
		{router.HeaderLSN, "0/0", router.HeaderIndex, "3", sink.HeaderSource, signature},
		{router.HeaderLSN, "16/B374D848", router.HeaderIndex, "-1", sink.HeaderSource, signature},
		{router.HeaderLSN, "16/B374D848", router.HeaderIndex, "3", sink.HeaderSource, source.Header() + "@x"},
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

func TestOnlyTables_KeepsTheRulesOfEach(t *testing.T) {
	a, b := router.DefaultConfig(), router.DefaultConfig()
	a.Tables, a.FieldKey = []string{"public.a"}, "key_a"
	b.FieldKey = "key_b"
	cfg := config.Config{Router: []router.Config{a, b}}
	cfg.Replication.Tables = []string{"public.a", "public.b", "public.c"}
	got := onlyTables(cfg, []string{"b", "other.table"})
	require.Equal(t, []string{"public.b", "other.table"}, got.Replication.Tables)
	for table, key := range map[string]string{"public.b": "key_b", "other.table": router.DefaultConfig().FieldKey} {
		rule, ok := ruleOf(got, table)
		require.True(t, ok)
		require.Equal(t, key, rule.FieldKey)
	}
}
