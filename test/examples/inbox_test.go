package examples

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded/child"
	"github.com/postrider/postrider/test/parts"
)

// consumers are programs with an inbox: the commands under a heading of docs/CONSUMING.md.
var consumers = []program{
	{heading: "Python, confluent-kafka", installed: ".venv", needs: python},
	{heading: "Node, kafkajs", installed: "node_modules", needs: node},
	{heading: "Java, kafka-clients", needs: maven},
}

// Each program is killed once, and meets duplicates of both legs.
func TestExamples_ConsumeEachEventOnce(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "CONSUMING.md"))
	for _, p := range consumers {
		t.Run(p.heading, func(t *testing.T) {
			t.Parallel()
			p.needs(t)
			consumesOnce(t, page, p)
		})
	}
}

func consumesOnce(t *testing.T, page string, p program) {
	db, broker := parts.Postgres(t, parts.AnyVersion), parts.RealKafka(t)
	conn := db.Connect(t)
	for _, line := range section(t, page, "Before the first one") {
		if file, found := strings.CutPrefix(line, `psql -X -v ON_ERROR_STOP=1 -f `); found {
			file = strings.TrimSuffix(file, ` "$DATABASE_URL"`)
			db.Exec(t, read(t, filepath.Join(root, file)))
			continue
		}
		require.Contains(t, line, "export ")
	}
	topic, group := broker.Topic(t, 3), parts.Unique("billing")
	const orders = 50
	produce(t, broker, topic, orders)
	dir, run := p.consumer(t, section(t, page, p.heading), topic, group)
	dsn, err := url.Parse(db.DSN())
	require.NoError(t, err)
	jdbc := url.Values{"user": {dsn.User.Username()}, "sslmode": {dsn.Query().Get("sslmode")}}
	if password, has := dsn.User.Password(); has {
		jdbc.Set("password", password)
	}
	env := parts.Environment("DATABASE_URL="+db.DSN(), "KAFKA_BROKERS="+strings.Join(broker.Brokers(), ","),
		"JDBC_DATABASE_URL=jdbc:postgresql://"+dsn.Host+dsn.Path+"?"+jdbc.Encode(), "MAVEN_OPTS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

	invoices := func() []string {
		rows, _ := conn.Query(t.Context(), "SELECT order_id FROM invoices WHERE total_cents = 1250")
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return ids
	}
	admin := kadm.NewClient(broker.Client(t))
	ends := broker.EndOffsets(t, topic)
	atEnd := func() bool {
		answer, err := admin.FetchOffsets(t.Context(), group)
		require.NoError(t, err)
		committed := map[int32]int64{}
		answer.Each(func(o kadm.OffsetResponse) { committed[o.Partition] = o.At })
		return maps.Equal(ends, committed)
	}
	first := startConsumer(t, dir, run, env)
	first.await(t, "the first invoice", func() bool { return len(invoices()) > 0 })
	require.NoError(t, syscall.Kill(-first.PID, syscall.SIGKILL))
	<-first.Done
	expel(t, admin, broker.Client(t), group)
	second := startConsumer(t, dir, run, env)
	second.await(t, "the end of the topic", atEnd)
	produceNumber(t, broker, topic)
	parts.Await(t, "an error about the number", func() (bool, error) {
		return strings.Contains(second.output.String(), "id -17 is a number"), nil
	})
	_ = syscall.Kill(-second.PID, syscall.SIGTERM) // unless the error has ended it
	second.await(t, "its end", func() bool { return !second.Running() })
	require.True(t, atEnd(), "the offset stays in front of the number")

	var want []string
	for o := range orders {
		want = append(want, fmt.Sprint("order-", o))
	}
	require.ElementsMatch(t, want, invoices())
}

// expel ends the membership of a killed program, for which the group would wait until its session times out.
func expel(t *testing.T, admin *kadm.Client, client *kgo.Client, group string) {
	t.Helper()
	described, err := admin.DescribeGroups(t.Context(), group)
	require.NoError(t, err)
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = group
	for _, m := range described[group].Members {
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		request.Members = append(request.Members, member)
	}
	_, err = request.RequestWith(t.Context(), client)
	require.NoError(t, err)
}

// produce writes each order three times: twice in one partition, and in another.
func produce(t *testing.T, broker *parts.Broker, topic string, orders int) {
	t.Helper()
	client := broker.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression())) // as the relay's default
	for o := range orders {
		for copies := range 3 {
			id := fmt.Sprint("order-", o)
			record := &kgo.Record{Topic: topic, Partition: int32((o + copies/2) % 3), Key: []byte(id),
				Value:   []byte(`{"orderId": "` + id + `", "customer": "Zoë", "totalCents": 1250}`),
				Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("e-" + id)}, {Key: "eventType", Value: []byte("OrderPlaced")}}}
			client.Produce(t.Context(), record, nil)
		}
	}
	require.NoError(t, client.Flush(t.Context()))
}

// produceNumber writes an order whose id another table has, too.
func produceNumber(t *testing.T, broker *parts.Broker, topic string) {
	t.Helper()
	require.NoError(t, broker.Client(t).ProduceSync(t.Context(), &kgo.Record{Topic: topic,
		Value:   []byte(`{"orderId": "order-of-another-table", "totalCents": 1250}`),
		Headers: []kgo.RecordHeader{{Key: "id", Value: []byte("-17")}}}).FirstErr())
}

// consumer makes a copy of the program in which topic and group are the test's, and returns the command that runs it.
func (p program) consumer(t *testing.T, commands []string, topic, group string) (dir, run string) {
	t.Helper()
	source, ok := strings.CutPrefix(commands[0], "cd ")
	require.True(t, ok, commands[0])
	source, dir = filepath.Join(root, filepath.FromSlash(source)), t.TempDir()
	copyTree(t, source, dir)
	if p.installed != "" {
		require.NoError(t, os.Symlink(filepath.Join(p.install(t, source, commands[1:len(commands)-1]), p.installed), filepath.Join(dir, p.installed)))
	}
	paths := files(t, dir)
	at := slices.IndexFunc(paths, func(path string) bool {
		return strings.HasPrefix(strings.ToLower(filepath.Base(path)), "consume.")
	})
	require.GreaterOrEqual(t, at, 0)
	path := filepath.Join(dir, paths[at])
	text := read(t, path)
	for in, its := range map[string]string{`(["'])outbox\.event\.order["']`: topic, `(["'])billing["']`: group} {
		pattern := regexp.MustCompile(in)
		require.Len(t, pattern.FindAllString(text, -1), 1, in)
		text = pattern.ReplaceAllString(text, "${1}"+its+"${1}")
	}
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return dir, commands[len(commands)-1]
}

// consuming is a program that runs until it is stopped.
type consuming struct {
	*child.Process
	output *parts.Output
	line   string
}

func startConsumer(t *testing.T, dir, line string, env []string) *consuming {
	t.Helper()
	c := &consuming{output: &parts.Output{}, line: line}
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, c.output, c.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Maven starts others
	var err error
	c.Process, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(-c.PID, syscall.SIGKILL)
		<-c.Done
		if t.Failed() {
			t.Logf("%s printed:\n%s", line, end(c.output.String()))
		}
	})
	return c
}

// await waits for met, or for the end of the program.
func (c *consuming) await(t *testing.T, what string, met func() bool) {
	t.Helper()
	parts.Await(t, what, func() (bool, error) {
		running := c.Running()
		if met() {
			return true, nil
		}
		if !running {
			return false, fmt.Errorf("%s ended", c.line)
		}
		return false, nil
	})
}
