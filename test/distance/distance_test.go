//go:build linux

package distance

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

var (
	measure = flag.Bool("measure", false, "measure all links, which takes a quarter of an hour")
	rows    = flag.Int("rows", 300_000, "of a drain")
	seconds = flag.Int("seconds", 15, "of a rate")
)

func TestMain(m *testing.M) { parts.Main(m) }

const partitions = 8

// grows lets the kernel choose the receive buffer of the broker. Kafka's default of 100 KiB is what a connection can bring in a
// round trip.
const grows = -1

// site is the servers at the near end, and the relay's objects on them.
type site struct {
	link   *link
	pg     *embedded.Postgres
	broker *parts.Broker
	ca     string
	dsn    string
	topic  string
}

func newSite(t testing.TB, mtu, receiveBuffer int) *site {
	t.Helper()
	s := &site{link: newLink(t, mtu)}
	a := parts.NewAuthority(t)
	s.ca = a.CAFile()
	certificate := x509.Certificate{IPAddresses: []net.IP{net.ParseIP(nearAddress)}}
	s.broker = parts.ExclusiveKafka(t, parts.KafkaConfig{Protocol: "SSL", Host: nearAddress, Properties: map[string]string{
		"listener.name.client.ssl.keystore.type":     "PEM",
		"listener.name.client.ssl.keystore.location": a.Keystore("broker", certificate),
		"socket.receive.buffer.bytes":                fmt.Sprint(receiveBuffer),
	}})
	certFile, keyFile := a.Issue("postgres", certificate)
	files := map[string][]byte{}
	for name, file := range map[string]string{"server.crt": certFile, "server.key": keyFile} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		files[name] = text
	}
	s.pg = parts.ExclusivePostgres(t, embedded.PostgresConfig{Files: files,
		Params: map[string]string{"listen_addresses": "*", "ssl": "on", "max_wal_size": "4GB"},
		HBA:    "local all all trust\nhost all all 127.0.0.1/32 trust\nhostssl all all " + farAddress + "/32 trust\nhostssl replication all " + farAddress + "/32 trust\n"})
	s.dsn = s.pg.DSN()
	s.topic = "outbox.event.order"
	s.broker.CreateTopic(t, s.topic, partitions, map[string]string{"message.timestamp.type": "LogAppendTime"})
	s.execute(t, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL DEFAULT 'order',
		aggregate_id text NOT NULL, event_type text NOT NULL DEFAULT 'changed', payload jsonb NOT NULL);
		CREATE PUBLICATION postrider FOR TABLE outbox WITH (publish = 'insert')`)
	return s
}

func (s *site) execute(t testing.TB, sql string) {
	t.Helper()
	conn := parts.Connect(t, s.dsn)
	_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	require.NoError(t, err)
}

// start starts a relay at the far end, with the defaults.
func (s *site) start(t testing.TB) *parts.Relay {
	t.Helper()
	u, err := url.Parse(s.dsn)
	require.NoError(t, err)
	u.Host = nearAddress + ":" + u.Port()
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.ca}}.Encode()
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
postgres.url = %q
slot.name = "postrider"
replication.tables = ["public.outbox"]
sink.kafka.brokers = [%q]
sink.kafka.tls.enabled = true
sink.kafka.tls.ca_file = %q
http.listen = "%s:0"
log.format = "json"
`, u, s.broker.Brokers()[0], s.ca, farAddress), 0o600))
	return parts.StartRelay(t, parts.RelayConfig{OneLog: true, Command: []string{"ip", "netns", "exec", s.link.namespace, parts.Binary(t)}},
		"run", "--config", file)
}

// metric is a series of the relay without labels, or the sum of those of a name; 0: nobody answers.
func metric(t testing.TB, relay *parts.Relay, name string) float64 {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + relay.Address() + "/metrics")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return parts.ParseMetrics(t, body).Value(name)
}

// records is how many the topic has.
func (s *site) records(t testing.TB) (n int64) {
	t.Helper()
	for _, end := range s.broker.EndOffsets(t, s.topic) {
		n += end
	}
	return n
}

// await waits until the topic has n records, and returns when it had the first one more than before.
func (s *site) await(t testing.TB, before, n int64, each func()) (first time.Time) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		has := s.records(t)
		if first.IsZero() && has > before {
			first = time.Now()
		}
		if has >= n {
			return first
		}
		require.True(t, time.Now().Before(deadline), "%d of %d records", has, n)
		each()
		<-time.After(20 * time.Millisecond)
	}
}

// ticks is the time of the processor that a process has taken.
func ticks(t testing.TB, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// peak is the highest resident memory of a process, in MiB.
func peak(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib >> 10
}

// result is a line of the table.
type result struct {
	perSecond float64 // rows of the drain
	walsender float64 // share of one processor in the drain
	megabits  float64 // on the link in the drain, both directions
	full      float64 // share of the drain with the window full
	rss       int
	roundTrip time.Duration
}

// insert commits n rows in transactions of ten.
func (s *site) insert(t testing.TB, n int) {
	t.Helper()
	s.execute(t, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		INSERT INTO outbox (aggregate_id, payload) SELECT 'a-' || (random() * 10000)::int, jsonb_build_object('pad', repeat('x', 180)) FROM generate_series(1, 10);
		COMMIT; END LOOP; END $$`, n/10))
}

// drain writes a backlog and then starts a relay, which it returns with what was measured.
func (s *site) drain(t testing.TB, n int) (*parts.Relay, result) {
	t.Helper()
	s.execute(t, "SELECT pg_create_logical_replication_slot('postrider', 'pgoutput')")
	before := s.records(t)
	s.insert(t, n)
	s.execute(t, "CHECKPOINT")
	bytes, _ := s.link.passed()
	relay := s.start(t)
	var r result
	var pid, samples, full int
	var cpu time.Duration
	first := s.await(t, before, before+int64(n), func() {
		if pid == 0 {
			conn := parts.Connect(t, s.dsn)
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce(max(active_pid), 0) FROM pg_replication_slots").Scan(&pid))
			if pid != 0 {
				cpu = ticks(t, pid)
			}
		}
		samples++
		if metric(t, relay, "postrider_relay_in_flight_messages") >= 4900 {
			full++
		}
	})
	took := time.Since(first).Seconds()
	after, _ := s.link.passed()
	r.perSecond, r.megabits = float64(n)/took, float64(after-bytes)*8/1e6/took
	r.walsender = (ticks(t, pid) - cpu).Seconds() / took
	r.full = float64(full) / float64(max(samples, 1))
	r.rss = peak(t, relay.PID)
	return relay, r
}

// rate commits so many one-row transactions a second, and returns p50 and p99 from commit to a consumer beside the broker.
func (s *site) rate(t testing.TB, perSecond int, d time.Duration) [2]time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from := map[int32]kgo.Offset{}
	for p, end := range s.broker.EndOffsets(t, s.topic) {
		from[p] = kgo.NewOffset().At(end)
	}
	client := s.broker.Client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: from}), kgo.FetchMaxWait(100*time.Millisecond))
	n := perSecond * int(d.Seconds())
	committed, came := make([]atomic.Int64, n), make([]atomic.Int64, n)
	var received atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for received.Load() < int64(n) && ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				var row struct{ N int }
				if json.Unmarshal(r.Value, &row) == nil && came[row.N].Swap(time.Now().UnixNano()) == 0 {
					received.Add(1)
				}
			})
		}
	})
	var next atomic.Int64
	began := time.Now()
	for range 16 {
		conn, err := pgx.Connect(t.Context(), s.dsn)
		require.NoError(t, err)
		wg.Go(func() {
			defer conn.Close(context.Background())
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
				if _, err := conn.Exec(ctx, "INSERT INTO outbox (aggregate_id, payload) VALUES ($1, $2)", fmt.Sprint("a-", i%1000),
					fmt.Sprintf(`{"N": %d, "pad": "%s"}`, i, strings.Repeat("x", 150))); err != nil {
					return // the rows that are missing fail the test
				}
				committed[i].Store(time.Now().UnixNano())
			}
		})
	}
	parts.Await(t, "all rows at the consumer", func() (bool, error) { return received.Load() == int64(n), nil })
	wg.Wait()
	late := make([]time.Duration, 0, n)
	for i := perSecond; i < n; i++ { // without the first second
		late = append(late, time.Duration(max(0, came[i].Load()-committed[i].Load())))
	}
	slices.Sort(late)
	return [2]time.Duration{late[len(late)/2], late[len(late)*99/100]}
}

// roundTrip is the median time that a connection to the far end takes.
func (s *site) roundTrip(t testing.TB, relay *parts.Relay) time.Duration {
	t.Helper()
	var all []time.Duration
	for range 21 {
		began := time.Now()
		conn, err := net.DialTimeout("tcp", relay.Address(), 10*time.Second)
		if err != nil {
			continue // lost
		}
		all = append(all, time.Since(began))
		require.NoError(t, conn.Close())
	}
	slices.Sort(all)
	require.NotEmpty(t, all)
	return all[len(all)/2]
}

func TestDistance(t *testing.T) {
	if !*measure {
		s := newSite(t, 1500, grows)
		s.link.set(5*time.Millisecond, 0, 0.01)
		relay, r := s.drain(t, 5000)
		s.rate(t, 100, 2*time.Second)
		relay.Stop(t)
		_, lost := s.link.passed()
		require.Positive(t, lost, "the link lost no packet")
		require.Equal(t, int64(5200), s.records(t), "each row once")
		t.Logf("%.0f rows/s, %d packets lost", r.perSecond, lost)
		return
	}
	fmt.Println("| link | round trip, ms | drain, rows/s | of it at 0.2 ms | walsender | Mbit/s | window full | p50 / p99 at 100/s, ms | p50 / p99 at 1,000/s, ms | peak RSS, MiB |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	nearest := 0.0
	for _, c := range []struct {
		name     string
		ms       float64
		mtu      int
		megabits int
		loss     float64
		buffer   int
	}{
		{"0.2 ms", 0.2, 9000, 0, 0, grows}, {"1 ms", 1, 9000, 0, 0, grows}, {"5 ms", 5, 9000, 0, 0, grows},
		{"20 ms", 20, 9000, 0, 0, grows}, {"80 ms", 80, 9000, 0, 0, grows},
		{"5 ms, the broker's buffer by default", 5, 9000, 0, 0, 102400}, {"20 ms, the broker's buffer by default", 20, 9000, 0, 0, 102400},
		{"5 ms, 100 Mbit/s", 5, 1500, 100, 0, grows}, {"20 ms, 100 Mbit/s", 20, 1500, 100, 0, grows},
		{"5 ms, 100 Mbit/s, 1 % lost", 5, 1500, 100, 0.01, grows}, {"20 ms, 100 Mbit/s, 1 % lost", 20, 1500, 100, 0.01, grows},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, c.mtu, c.buffer)
			s.link.set(time.Duration(c.ms*float64(time.Millisecond)), c.megabits, c.loss)
			relay, r := s.drain(t, *rows)
			if nearest == 0 {
				nearest = r.perSecond
			}
			r.roundTrip = s.roundTrip(t, relay)
			slow, fast := s.rate(t, 100, time.Duration(*seconds)*time.Second), s.rate(t, 1000, time.Duration(*seconds)*time.Second)
			relay.Stop(t)
			fmt.Printf("| %s | %s | %.0f | %.0f %% | %.0f %% | %.0f | %.0f %% | %s / %s | %s / %s | %d |\n", c.name, ms(r.roundTrip), r.perSecond, 100*r.perSecond/nearest,
				100*r.walsender, r.megabits, 100*r.full, ms(slow[0]), ms(slow[1]), ms(fast[0]), ms(fast[1]), r.rss)
		})
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
