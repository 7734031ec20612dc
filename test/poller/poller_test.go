package poller

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

// site is a team's installation: a table, its writers, a poller and topics.
type site struct {
	table
	prefix string // of the topics, and the name of the slot
	db     *parts.Database
	broker *parts.Broker
	dir    string
	env    []string
	page   map[string][]string // the commands of each section, by its heading: one for each block

	anonymous bool // the poller's records have no headers
	written   atomic.Int64
}

func newSite(t *testing.T, s table) *site {
	t.Helper()
	x := &site{table: s, prefix: strings.ReplaceAll(parts.Unique("poller"), "-", "_") + ".",
		db: parts.Postgres(t, "17"), broker: parts.Kafka(t), dir: t.TempDir()}
	x.topic = x.prefix + x.topic
	x.db.Exec(t, x.file(t, ".sql")+";"+s.before)
	x.db.Exec(t, stateTable(t))
	x.configure(t, withoutTime(x.file(t, ".toml")))
	x.broker.CreateTopic(t, x.topic, 3, nil)
	x.env = parts.Environment("SLOT="+strings.TrimSuffix(x.prefix, "."), "PATH="+filepath.Dir(parts.Binary(t))+":"+os.Getenv("PATH"))
	x.page = commands(t)
	return x
}

// file is one of docs/outbox-tables.
func (x *site) file(t *testing.T, ext string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/outbox-tables/" + x.name + ext)
	require.NoError(t, err)
	return string(text)
}

// configure writes the configuration with the sections of one of docs/outbox-tables.
func (x *site) configure(t *testing.T, table string) {
	t.Helper()
	text := fmt.Appendf(nil, `%s
[postgres]
url = %q
[slot]
name = %q
[sink.kafka]
brokers = [%q]
[sink.kafka.topics]
create = true
partitions = 3
replication_factor = 1
[http]
listen = "127.0.0.1:0"
[write_back]
enabled = true
%s
`, withPrefix(table, x.prefix), x.db.DSN(), strings.TrimSuffix(x.prefix, "."),
		x.broker.Brokers()[0], x.back)
	require.NoError(t, os.WriteFile(filepath.Join(x.dir, "postrider.toml"), text, 0o600))
}

// stateTable is sql/writeback.sql up to its grants: the role of the tests may do everything.
func stateTable(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile("../../sql/writeback.sql")
	require.NoError(t, err)
	table, _, found := strings.Cut(string(script), "\nGRANT")
	require.True(t, found)
	return table + "COMMIT"
}

// commands are those of docs/MIGRATING-FROM-A-POLLER.md.
func commands(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/MIGRATING-FROM-A-POLLER.md")
	require.NoError(t, err)
	found := map[string][]string{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
			found[heading] = append(found[heading], m[1])
		}
	}
	return found
}

// follow runs commands of the page and returns what they print.
func (x *site) follow(t *testing.T, commands string) string {
	t.Helper()
	said, err := x.run(t, commands)
	require.NoError(t, err, "%s\n%s", commands, said)
	return said
}

// run is follow for commands that may fail.
func (x *site) run(t *testing.T, commands string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = x.dir, x.env
	said, err := cmd.CombinedOutput()
	require.NotContains(t, string(said), "DATA RACE")
	return string(said), err
}

// start runs a command of the page that goes on until a signal.
func (x *site) start(t *testing.T, command string) *parts.Relay {
	t.Helper()
	args := strings.Fields(command)
	require.Equal(t, []string{"postrider", "run"}, args)
	return parts.StartRelay(t, parts.RelayConfig{Dir: x.dir, Env: x.env}, args[1:]...)
}

// background runs work, which returns once its context has ended, until the returned function is
// called, which waits for its end.
func background(t *testing.T, work func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- work(ctx) }()
	ended := false
	end = func() {
		t.Helper()
		cancel()
		if !ended {
			ended = true
			require.NoError(t, <-result)
		}
	}
	t.Cleanup(end)
	return end
}

// write inserts an event in each of its transactions, of ten keys in turn.
func (x *site) write(t *testing.T) (end func()) {
	t.Helper()
	conn := x.db.Connect(t)
	return background(t, func(ctx context.Context) error {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			n := x.written.Load()
			_, err := conn.Exec(context.WithoutCancel(ctx), x.insert, fmt.Sprint("key ", n%10),
				fmt.Sprintf(`{"n": %d}`, n))
			if err != nil {
				return err
			}
			x.written.Add(1)
		}
	})
}

// poll runs the team's poller until the returned function is called: it then ends after its batch.
func (x *site) poll(t *testing.T) (end func()) {
	t.Helper()
	conn, client := x.db.Connect(t), x.broker.Client(t)
	return background(t, func(ctx context.Context) error {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			err := pgx.BeginFunc(context.WithoutCancel(ctx), conn, func(tx pgx.Tx) error {
				return x.batch(context.WithoutCancel(ctx), tx, client)
			})
			if err != nil {
				return err
			}
		}
	})
}

// batch publishes pending rows and marks them.
func (x *site) batch(ctx context.Context, tx pgx.Tx, client *kgo.Client) error {
	rows, err := tx.Query(ctx, x.pending)
	if err != nil {
		return err
	}
	var ids []string
	var records []*kgo.Record
	for rows.Next() {
		var id, topic, key, value string
		var headers []*string
		if err := rows.Scan(&id, &topic, &key, &value, &headers); err != nil {
			return err
		}
		record := &kgo.Record{Topic: x.prefix + topic, Key: []byte(key), Value: []byte(value)}
		for i := 0; i < len(headers) && !x.anonymous; i += 2 {
			header := kgo.RecordHeader{Key: *headers[i]}
			if headers[i+1] != nil {
				header.Value = []byte(*headers[i+1])
			}
			record.Headers = append(record.Headers, header)
		}
		ids, records = append(ids, id), append(records, record)
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return err
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, x.mark, ids)
	return err
}

// awaitWritten waits until so many more events are written.
func (x *site) awaitWritten(t *testing.T, more int64) {
	t.Helper()
	until := x.written.Load() + more
	parts.Await(t, fmt.Sprint(until, " events"),
		func() (bool, error) { return x.written.Load() >= until, nil })
}

// received returns how many of the events that were written have no record in the topic, and how
// many records repeat one.
func (x *site) received(t *testing.T) (lost, repeated int) {
	t.Helper()
	records := x.broker.All(t, x.topic)
	events := numbers(t, records)
	written := int(x.written.Load())
	for n := range events {
		require.Less(t, n, written, "a record of no row")
	}
	return written - len(events), len(records) - len(events)
}

// waiting are the numbers of the rows that the poller would publish.
func (x *site) waiting(t *testing.T, conn *pgx.Conn) []int {
	t.Helper()
	from := regexp.MustCompile(`(?s)FROM \S+\s+WHERE .*?ORDER`).FindString(x.pending)
	rows, err := conn.Query(t.Context(), "SELECT (payload->>'n')::int "+strings.TrimSuffix(from, "ORDER"))
	require.NoError(t, err)
	numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	return numbers
}

// awaitReceived waits until every event that was written is in the topic.
func (x *site) awaitReceived(t *testing.T) {
	t.Helper()
	x.broker.ConsumeUntil(t, []string{x.topic}, func(records []*kgo.Record) bool {
		return len(numbers(t, records)) >= int(x.written.Load())
	})
}

// numbers are those in the payloads.
func numbers(t *testing.T, records []*kgo.Record) map[int]bool {
	t.Helper()
	found := map[int]bool{}
	for _, record := range records {
		var payload struct{ N *int }
		require.NoError(t, json.Unmarshal(record.Value, &payload))
		require.NotNil(t, payload.N)
		found[*payload.N] = true
	}
	return found
}
