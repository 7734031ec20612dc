package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/test/parts"
)

// compared is what audit compare --json prints.
type compared struct {
	Result        string   `json:"result"`
	PublishPrefix string   `json:"publish_prefix"`
	Topics        []string `json:"topics"`
	audit.CompareReport
}

// startCompare starts postrider audit compare with a configuration of its own, beside a relay with that of the shop, and waits until it sees
// what is committed.
func (s *shop) startCompare(t testing.TB, config string, args ...string) *parts.Relay {
	t.Helper()
	file := filepath.Join(t.TempDir(), "compare.toml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	p := start(t, s.environment(), append([]string{"audit", "compare", "--config", file}, args...)...)
	parts.Await(t, "the beginning of the comparison", func() (bool, error) {
		if !p.Running() {
			return false, errors.New("the process has ended")
		}
		return strings.Contains(p.Log.String(), "comparing rows that are committed from now on"), nil
	})
	return p
}

// compareResult waits for the end and reads the report.
func compareResult(t testing.TB, p *parts.Relay) (compared, int) {
	t.Helper()
	code := p.Wait(t)
	var r compared
	require.NoError(t, json.Unmarshal(p.Stdout.Bytes(), &r), "%s", p.Stdout.String())
	return r, code
}

func insertNumbered(from, to int) string {
	return fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'key ' || n %% 7, 'placed', jsonb_build_object('n', n, 'text', 'é') FROM generate_series(%d, %d) n`, from, to)
}

// Equal streams are found equal, whichever of the two is first, and what the other relay still had from before is left aside.
func TestCompare_FindsEqualStreamsEqual(t *testing.T) {
	t.Parallel()
	onOldAndNew(t, func(t *testing.T, version string) {
		c := newCluster(t)
		topic := c.Topic(t, partitions)
		s := newShop(t, version, outboxSQL, routeTo(topic, ""))
		r := s.run(t)
		s.do(t, insertNumbered(1, 20))
		s.awaitConfirmed(t, r)
		r.Stop(t)
		s.do(t, insertNumbered(21, 40)) // which the relay publishes when the comparison has begun

		p := s.startCompare(t, routeTo(topic, ""), "--json", "--rows", "300")
		s.do(t, insertNumbered(41, 140))
		r = s.run(t)
		s.do(t, insertNumbered(141, 340))
		result, code := compareResult(t, p)
		require.Zero(t, code, "%+v", result)
		require.Equal(t, "equal", result.Result)
		require.Equal(t, int64(300), result.Compared)
		require.Equal(t, int64(300), result.Equal)
		require.Equal(t, int64(300), result.Clocks, "without a column the timestamp is the clock's")
		require.Zero(t, result.NoPartition)
		require.Equal(t, int64(20), result.LeftAside)
		require.Equal(t, []string{topic}, result.Topics)

		s.awaitConfirmed(t, r)
		require.Equal(t, 1, r.state(t).Sessions, "the other relay was not disturbed")
		r.Stop(t)
		require.Equal(t, 340, s.count(t, topic), "nothing was published by the comparison")
		parts.Await(t, "the end of its slot", func() (bool, error) { return slices.Equal(s.slots(t), []string{s.slot}), nil })
	})
}

// Each kind of difference between two configurations is counted under its name, with the key that removes it.
func TestCompare_NamesEachDifference(t *testing.T) {
	t.Parallel()
	const table = `
CREATE TABLE outbox (
	id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	aggregate_type text NOT NULL DEFAULT 'order',
	aggregate_id   text,
	event_type     text,
	payload        text,
	note           text DEFAULT 'none',
	place          int NOT NULL DEFAULT 3,
	happened_at    timestamp NOT NULL DEFAULT '2026-01-02 03:04:05.678'
);
CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert');`
	placement := func(list string) string { return fmt.Sprintf("table.fields.additional.placement = %q\n", list) }
	for name, test := range map[string]struct {
		both, ours, theirs string
		topic              string // suffix of that of the other relay
		sql                string
		members            []string // none: equal
		hint               string   // a part of one
	}{
		"value as JSON":   {theirs: "[format]\nvalue = \"json\"", members: []string{"value"}, hint: `format.value = "json"`},
		"key with schema": {theirs: "[format]\nkey = \"json+schema\"", members: []string{"key", "partition"}, hint: `format.key = "json+schema"`},
		"headers as JSON": {theirs: "[format]\nheaders = \"json\"", members: []string{"header id"}, hint: `format.headers = "json"`},
		"header that is missing": {ours: placement(""), theirs: placement("event_type:header:eventType"), members: []string{"header eventType"},
			hint: "router.table.fields.additional.placement"},
		"header order": {ours: placement("event_type:header,place:header"), theirs: placement("place:header,event_type:header"),
			members: []string{"header order"}},
		"header of the id": {theirs: "header_id = \"eventId\"", members: []string{"header eventId", "header id"}, hint: "router.header_id"},
		"headers of the context": {theirs: "extended.headers.enabled = true", members: []string{
			"header __debezium.context.connectorLogicalName", "header __debezium.context.connectorName",
			"header __debezium.context.runId", "header __debezium.context.taskId",
		}, hint: "router.extended.headers.enabled = true"},
		"run id":    {both: "extended.headers.enabled = true"},
		"partition": {theirs: placement("place:partition"), members: []string{"partition"}, hint: "column:partition"},
		"topic":     {topic: "-2", members: []string{"topic"}, hint: "router.route.topic.replacement"},
		"timestamp": {both: "", ours: "table.field.event.timestamp = \"happened_at\"", members: []string{"timestamp"},
			hint: "router.table.field.event.timestamp"},
		"timestamp from a column": {both: "table.field.event.timestamp = \"happened_at\""},
		"default in the place of NULL": {both: placement("note:header"), theirs: "null_defaults = true",
			sql:     "INSERT INTO outbox (aggregate_id, payload, note) VALUES ('k', '{}', NULL)",
			members: []string{"header note"}, hint: "router.null_defaults = true"},
		"tombstone": {both: "", theirs: "route.tombstone.on.empty.payload = true", sql: "INSERT INTO outbox (aggregate_id, payload) VALUES ('k', '')",
			members: []string{"value"}, hint: "router.route.tombstone.on.empty.payload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			topic := parts.Unique("topic")
			c.CreateTopic(t, topic, partitions, nil)
			if test.topic != "" {
				c.CreateTopic(t, topic+test.topic, partitions, nil)
			}
			configuration := func(topic, own string) string {
				return fmt.Sprintf("[router]\nroute.topic.regex = \".*\"\nroute.topic.replacement = %q\n%s\n%s\n", topic, test.both, own)
			}
			s := newShop(t, parts.AnyVersion, table, configuration(topic+test.topic, test.theirs))
			s.run(t)
			p := s.startCompare(t, configuration(topic, test.ours), "--json", "--rows", "8", "--settle", "1m", "--topics", topic+".*")
			sql := test.sql
			if sql == "" {
				sql = "INSERT INTO outbox (aggregate_id, event_type, payload) SELECT 'key ' || n % 7, 'placed', '{\"n\": ' || n || '}' FROM generate_series(1, 8) n"
			}
			s.do(t, sql)
			if test.sql != "" {
				for range 7 {
					s.do(t, sql)
				}
			}
			result, code := compareResult(t, p)
			require.Equal(t, int64(8), result.Compared, "%+v", result)
			require.Zero(t, result.OnlyOther+result.OnlyPostrider+result.Duplicated+result.OutOfOrder+result.GivenUp+result.Late, "%+v", result)
			if test.members == nil {
				require.Zero(t, code, "%+v", result)
				require.Equal(t, int64(8), result.Equal)
				return
			}
			require.Equal(t, 1, code)
			require.Equal(t, "different", result.Result)
			var members []string
			for member := range result.Members {
				members = append(members, member)
			}
			require.ElementsMatch(t, test.members, members, "%+v", result)
			require.NotEmpty(t, result.Differences)
			d := result.Differences[0]
			require.NotEmpty(t, d.EventID)
			require.Regexp(t, `^[0-9A-F]+/[0-9A-F]+$`, d.LSN)
			require.Equal(t, "public.outbox", d.Table)
			require.Equal(t, topic+test.topic, d.Topic)
			var hints []string
			for _, h := range result.Hints {
				hints = append(hints, h.Text)
			}
			require.Contains(t, strings.Join(hints, "\n"), test.hint)
		})
	}
}

// What another relay does to the stream itself: loses, repeats, invents, reorders and changes.
func TestCompare_FindsWhatIsLostRepeatedInventedAndChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, "")
	p := s.startCompare(t, routeTo(topic, ""), "--json", "--rows", "8", "--settle", "5s")
	s.do(t, insertNumbered(1, 10))

	// The other relay is the test: it has what postrider would have published, but for the faults.
	other := c.Client(t)
	rows, err := s.sql.Query(t.Context(), "SELECT id::text, aggregate_id, event_type, payload::text, (payload->>'n')::int FROM outbox ORDER BY 5")
	require.NoError(t, err)
	var records []*kgo.Record
	for rows.Next() {
		var id, key, kind, value string
		var n int
		require.NoError(t, rows.Scan(&id, &key, &kind, &value, &n))
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(id)}, {Key: "eventType", Value: []byte(kind)},
		}})
	}
	require.NoError(t, rows.Err())
	require.Len(t, records, 10)
	publish := func(r *kgo.Record) {
		again := *r
		require.NoError(t, other.ProduceSync(t.Context(), &again).FirstErr())
	}
	lost, changed := records[4], records[5]
	changed.Value = []byte(strings.Replace(string(changed.Value), "é", "e", 1))
	records[0], records[7] = records[7], records[0] // 1 and 8 have the same key
	require.Equal(t, records[1].Key, records[8].Key, "in one partition, so that they are read in this order")
	invented := *records[1]
	invented.Headers = slices.Clone(invented.Headers)
	invented.Headers[0].Value = []byte("an event of nobody")
	for i, r := range records {
		if i == 8 { // before there are the rows that are asked for: what comes behind them does not count
			publish(records[1])
			publish(&invented)
		}
		if r != lost {
			publish(r)
		}
	}

	result, code := compareResult(t, p)
	require.Equal(t, 1, code)
	require.Equal(t, "different", result.Result)
	require.Equal(t, int64(9), result.Compared, "%+v", result)
	require.Equal(t, int64(8), result.Equal)
	require.Equal(t, map[string]int64{"value": 1}, result.Members)
	require.Equal(t, int64(1), result.OnlyPostrider)
	require.Equal(t, int64(1), result.OnlyOther)
	require.Equal(t, int64(1), result.Duplicated)
	require.Equal(t, int64(1), result.OutOfOrder)
	require.Len(t, result.Differences, 1)
	require.Equal(t, string(changed.Headers[0].Value), result.Differences[0].EventID)
	member := result.Differences[0].Members[0]
	require.Equal(t, `{"n": 6, "text": "`, string(changed.Value[:member.At]), "before the first byte that differs")
	require.Contains(t, member.Ours, `é`)
	require.NotContains(t, member.Theirs, `é`)
	require.Len(t, result.Unmatched, 2)
	for _, u := range result.Unmatched {
		switch u.Side {
		case "postrider":
			require.Equal(t, string(lost.Headers[0].Value), u.EventID)
			require.NotEmpty(t, u.LSN)
		default:
			require.Equal(t, "an event of nobody", u.EventID)
		}
		require.Equal(t, topic, u.Topic)
	}
}

// Where nothing was compared, nothing is proven.
func TestCompare_FailsWithoutAnythingCompared(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, "")
	for name, events := range map[string]int{"no rows": 0, "no other relay": 3} {
		t.Run(name, func(t *testing.T) {
			p := s.startCompare(t, routeTo(topic, ""), "--settle", "1s")
			if events > 0 {
				s.do(t, insertNumbered(1, events))
			}
			require.NoError(t, p.Signal(syscall.SIGINT))
			require.Equal(t, 1, p.Wait(t))
			require.Contains(t, p.Stdout.String(), "nothing compared, nothing proven")
		})
	}
}

// With a prefix everything goes to the prefixed topics, and nothing to those of the other relay.
func TestCompare_PublishesToPrefixedTopicsOnly(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, routeTo(topic, ""))
	r := s.run(t)
	t.Run("topic missing", func(t *testing.T) {
		p := s.startCompare(t, routeTo(topic, ""), "--publish-prefix", "missing.", "--duration", "1m")
		s.do(t, insertNumbered(1, 1))
		require.Equal(t, 78, p.Wait(t))
		require.Regexp(t, `(?m)^postrider: publish event .*: topic "missing\.`+topic+`" does not exist`, p.Log.String())
		require.Regexp(t, `(?m)^  next: kafka-topics.sh .* --create --topic missing\.`+topic, p.Log.String())
	})
	s.awaitConfirmed(t, r)
	before := s.count(t, topic)

	c.createTopics(t, "shadow."+topic)
	p := s.startCompare(t, routeTo(topic, ""), "--json", "--publish-prefix", "shadow.", "--rows", "50")
	s.do(t, insertNumbered(2, 51))
	result, code := compareResult(t, p)
	require.Zero(t, code, "%+v", result)
	require.Equal(t, int64(50), result.Equal)
	require.Equal(t, "shadow.", result.PublishPrefix)
	require.Equal(t, []string{topic}, result.Topics)
	s.awaitConfirmed(t, r)
	records, shadows := s.All(t, topic), s.All(t, "shadow."+topic)
	require.Len(t, records, before+50)
	require.Len(t, shadows, 50)
	text := func(r *kgo.Record) string { return fmt.Sprintf("%d %q %q %v", r.Partition, r.Key, r.Value, r.Headers) }
	var all []string
	for _, r := range records {
		all = append(all, text(r))
	}
	for _, r := range shadows {
		require.Contains(t, all, text(r))
	}
}

// Topics that the other relay makes meanwhile are read from their beginnings.
func TestCompare_ReadsTopicsThatAppearLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	prefix := parts.Unique("later") + "."
	config := fmt.Sprintf("[router]\nroute.topic.replacement = '%s${routedByValue}'\n", prefix)
	s := newShop(t, parts.AnyVersion, outboxSQL, config+"[sink.kafka.topics]\ncreate = true\npartitions = 6\nreplication_factor = 1\n")
	r := s.run(t)
	p := s.startCompare(t, config, "--json", "--rows", "20")
	s.do(t, insertNumbered(1, 10), strings.ReplaceAll(insertNumbered(11, 20), "'order'", "'invoice'"))
	result, code := compareResult(t, p)
	require.Zero(t, code, "%+v", result)
	require.Equal(t, int64(20), result.Equal)
	require.Zero(t, result.NoPartition, "the topics were there when the events were compared")
	require.Equal(t, []string{prefix + "invoice", prefix + "order"}, result.Topics)
	r.Stop(t)
	for _, topic := range result.Topics {
		c.DeleteTopic(t, topic)
	}
}

// A comparison that is killed leaves no slot behind.
func TestCompare_LeavesNoSlotWhenKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	topic := c.Topic(t, partitions)
	s := newShop(t, parts.AnyVersion, outboxSQL, "")
	p := s.startCompare(t, routeTo(topic, ""), "--publish-prefix", "shadow.")
	require.Len(t, s.slots(t), 1)
	require.NoError(t, p.Signal(syscall.SIGKILL))
	parts.Await(t, "the end of its slot", func() (bool, error) { return len(s.slots(t)) == 0, nil })
}
