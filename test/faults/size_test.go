package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// large commits one event of a key of its own, whose payload has that many bytes that compress well, or not at all.
func (r *rig) large(t testing.TB, key string, size int, compressible bool) {
	t.Helper()
	pad := "repeat('large ', $2::int / 6)"
	if !compressible {
		pad = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, $2::int / 32))"
	}
	_, err := parts.Connect(t, r.dsn).Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		VALUES ($1, $3, jsonb_build_object('key', $3::text, 'number', 1, 'pad', `+pad+`), 1)`, r.topic, size, key)
	require.NoError(t, err)
}

// deadLetters makes the topic for them, and has rows that are too large go there.
func (r *rig) deadLetters(t testing.TB, policy string) (topic string) {
	t.Helper()
	topic = parts.Unique("letters")
	r.broker.CreateTopic(t, topic, 1, map[string]string{"max.message.bytes": "2000000"})
	r.settings["deadletter.topic"] = quote(topic)
	r.settings["deadletter.too_large"] = quote(policy)
	return topic
}

// Rows over the limit of the relay, of the sink, and of the broker: each is dead-lettered once, and nothing beside it is held up or refused.
func TestFault20_RowsThatAreTooLargeBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	onEach(t, parts.RealKafka, func(t *testing.T, place string, r *rig, _ []*parts.Broker) {
		r.topic = parts.Unique("topic")
		r.broker.CreateTopic(t, "outbox.event."+r.topic, partitions, map[string]string{"max.message.bytes": "300000"})
		letters := r.deadLetters(t, "dead_letter")
		r.settings["replication.max_row_bytes"] = `"3MiB"`
		r.settings["sink.kafka.compression"] = `"zstd"`
		r.settings["deadletter.retries"] = "2"
		p := r.started(t)
		l := r.load(t, rate())
		for i := range full(t, 2, 20) {
			l.more(t, 200)
			for kind, is := range map[string]struct {
				size         int
				compressible bool
			}{
				"row":    {5 << 20, true},    // over replication.max_row_bytes
				"sink":   {2_500_000, false}, // over sink.kafka.max_message_bytes, though compressed
				"broker": {900_000, false},   // over max.message.bytes of the topic
			} {
				r.large(t, fmt.Sprintf("%s-%d", kind, i), is.size, is.compressible)
			}
			r.large(t, fmt.Sprintf("fits-%d", i), 2_500_000, true) // compressed
			r.tally.Wrote(fmt.Sprintf("fits-%d", i), 1)
		}
		l.end(t)
		r.drained(t, 2*time.Minute)
		sessions := p.ask().Relay.Sessions
		p.stop(t)
		v := r.judge(t)
		requireNothingLost(t, v)

		times := map[string]int{}
		for _, record := range r.broker.All(t, letters) {
			var headers []string
			for _, h := range record.Headers {
				headers = append(headers, h.Key)
			}
			require.NotEmpty(t, headers)
			times[string(record.Key)]++
		}
		matrix(t, 20, place+", dead letters", fmt.Sprintf("%d of three kinds, %d sessions, %d ordinary rows repeated", len(times), sessions, v.Duplicated))
		require.Len(t, times, 3*full(t, 2, 20))
		for key, n := range times {
			require.Equal(t, 1, n, "dead letters of %s", key)
		}
	})
}

func TestFault20_ARowThatIsTooLargeHalts(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["replication.max_row_bytes"] = `"1MiB"`
	p := r.started(t)
	r.backlog(t, 1000)
	r.large(t, "canary", 3<<20, true)
	r.backlog(t, 500)
	require.NotZero(t, p.Wait(t))
	said := p.Log.String()
	require.Regexp(t, `a row of \d+ bytes is longer than replication.max_row_bytes = 1048576`, said)
	require.Contains(t, said, `replication.max_row_bytes = "4MiB"   # then start again`)

	r.settings["replication.max_row_bytes"] = `"8MiB"`
	r.settings["sink.kafka.compression"] = `"zstd"`
	r.tally.Wrote("canary", 1)
	again := r.started(t)
	r.drained(t, time.Minute)
	again.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 20, "halt", "nothing lost or repeated once the limit was raised")
}

func TestFault22_ALargeTransactionTakesLittleMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["sink.kafka.compression"] = `"zstd"`
	rows := full(t, 10_000, 3_000_000)
	p := r.started(t)
	before := p.rss(t)
	pid := r.walsender(t)
	r.transaction(t, rows)
	begun, highest := time.Now(), 0.0
	r.drainedMeanwhile(t, 20*time.Minute, func() { highest = max(highest, p.rss(t)) })
	took := time.Since(begun)
	require.Equal(t, pid, r.walsender(t), "walsender")
	require.Equal(t, 1, p.ask().Relay.Sessions)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 22, fmt.Sprintf("%d rows", rows), fmt.Sprintf("%s, memory %s before and at most %s", took.Round(time.Second), mib(before), mib(highest)))
	require.Less(t, highest-before, 256.0*(1<<20))
}

// Rows of 1 MB each, which are not kept beyond the in-flight limit.
func TestFault22_ATransactionOfManyBytesTakesLittleMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["sink.kafka.compression"] = `"zstd"`
	rows := full(t, 25, 5000)
	p := r.started(t)
	before := p.rss(t)
	_, err := parts.Connect(t, r.dsn).Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT $1, 'wide', jsonb_build_object('key', 'wide', 'number', n, 'pad', repeat('large ', 170000)), n FROM generate_series(1, $2::int) n ORDER BY n`, r.topic, rows)
	require.NoError(t, err)
	for n := range rows {
		r.tally.Wrote("wide", uint64(n+1))
	}
	begun, highest := time.Now(), 0.0
	r.drainedMeanwhile(t, 20*time.Minute, func() { highest = max(highest, p.rss(t)) })
	took := time.Since(begun)
	require.Equal(t, 1, p.ask().Relay.Sessions)
	p.stop(t)
	// What judge would keep in memory is a gigabyte in the long form.
	next := uint64(1)
	for _, record := range r.broker.All(t, "outbox.event."+r.topic) {
		require.True(t, bytes.HasSuffix(bytes.TrimSpace(record.Value), []byte("}")))
		var e event
		require.NoError(t, json.Unmarshal(record.Value, &e))
		require.Equal(t, next, e.Number)
		next++
	}
	require.Equal(t, uint64(rows)+1, next)
	matrix(t, 22, fmt.Sprintf("%d rows of 1 MB", rows), fmt.Sprintf("%s, memory %s before and at most %s", took.Round(time.Second), mib(before), mib(highest)))
}

func TestFault22_ALargeRowIsPublished(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	r.settings["sink.kafka.compression"] = `"zstd"`
	r.settings["sink.kafka.max_message_bytes"] = `"300MiB"`
	r.settings["replication.max_row_bytes"] = `"1GiB"`
	size := full(t, 8, 200) * 1_000_000
	p := r.started(t)
	before := p.rss(t)
	r.backlog(t, 500)
	r.large(t, "large", size, true)
	r.tally.Wrote("large", 1)
	r.backlog(t, 500)
	begun, highest := time.Now(), 0.0
	r.drainedMeanwhile(t, 5*time.Minute, func() { highest = max(highest, p.rss(t)) })
	took := time.Since(begun)
	require.Equal(t, 1, p.ask().Relay.Sessions)
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 22, fmt.Sprintf("a row of %d MB", size/1_000_000), fmt.Sprintf("%s, memory %s before and at most %s", took.Round(100*time.Millisecond), mib(before), mib(highest)))
}

// A row that holds up the slot is stepped over with consent, and all else is published: 600 MB of bytea, which have no text form, in the long form;
// in the short one a row over our own limit.
func TestFault22_ARowThatCannotBeSentIsSteppedOver(t *testing.T) {
	t.Parallel()
	size, versions := 3_000_000, []string{parts.AnyVersion}
	if *long {
		size, versions = 600_000_000, []string{"14", "17", "18"}
	}
	for _, version := range versions {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		r.settings["replication.max_row_bytes"] = `"4MiB"`
		execute(t, r.dsn, "ALTER TABLE outbox ADD COLUMN content bytea")
		p := r.started(t)
		r.backlog(t, 1000)
		r.drained(t, time.Minute)
		execute(t, r.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number, content)
			VALUES ('x', 'poison', '{}', 1, repeat('x', %d)::bytea)`, size))
		r.backlog(t, 1000)
		eventually(t, 5*time.Minute, "the relay ends", func() bool { return !p.Running() })
		require.NotZero(t, p.Wait(t))
		require.Equal(t, *long, strings.Contains(p.Log.String(), "XX000"), "the server's own error")
		at := regexp.MustCompile(`in the transaction that commits at ([0-9A-F]+/[0-9A-F]+)`).FindStringSubmatch(p.Log.String())
		require.NotNil(t, at)
		said := r.printed(t, "slot", "advance", r.slot, "--past", at[1], "--yes")
		require.Contains(t, said, "public.outbox still has 1 of its rows")
		again := r.started(t)
		r.drained(t, time.Minute)
		again.stop(t)
		requireExact(t, r.judge(t))
		matrix(t, 22, "slot advance --past", fmt.Sprintf("a row of %d MB that halted the relay was stepped over", size/1_000_000))
	}
}

// printed runs the binary with the configuration that the rig's relays have, and returns all that it printed.
func (r *rig) printed(t testing.TB, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "postrider.toml")
	require.NoError(t, os.WriteFile(file, []byte(r.config("127.0.0.1:0")), 0o600))
	p, code := parts.RunRelay(t, parts.RelayConfig{OneLog: true}, append(args, "--config", file)...)
	require.Zero(t, code, p.Log.String())
	return p.Log.String()
}

// drainedMeanwhile is drained that calls f again and again.
func (r *rig) drainedMeanwhile(t testing.TB, within time.Duration, f func()) {
	t.Helper()
	end := currentLSN(t, r.dsn)
	eventually(t, within, fmt.Sprintf("slot confirmed up to %s", end), func() bool {
		f()
		return r.confirmed(t) >= end
	})
}
