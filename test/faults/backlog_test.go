package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// wideRows commits n events of as many bytes, which compress to a half at best, of ten keys, and waits for nobody.
func (r *rig) wideRows(t testing.TB, n, size int) {
	t.Helper()
	conn := connect(t, r.dsn)
	defer conn.Close(t.Context())
	const keys = 10
	// The same text in each, or the writer takes longer than all the others. Without compression of the table the WAL has all bytes of it.
	execute(t, r.dsn, "ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL; CREATE TABLE pad AS SELECT string_agg(md5(i::text), '') AS text FROM generate_series(1, "+fmt.Sprint(size/32)+") i")
	atOnce := max(1, min(100, 10_000_000/size))
	for from := 0; from < n; from += atOnce {
		to := min(from+atOnce, n) - 1
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
			SELECT $1, 'wide-' || i % 10, jsonb_build_object('key', 'wide-' || i % 10, 'number', i / 10 + 1, 'pad', pad.text), i / 10 + 1
			FROM generate_series($2::int, $3::int) i, pad ORDER BY i`, r.topic, from, to)
		require.NoError(t, err)
		for i := from; i <= to; i++ {
			r.tally.Wrote(fmt.Sprint("wide-", i%keys), uint64(i/keys+1))
		}
	}
}

// backlogMemory bounds the resident memory of a relay whose rows are smaller than relay.in_flight_bytes, in bytes. A broker that is slower than the relay
// has it keep relay.stalled_bytes as well.
const backlogMemory = drainMemory + stalledMemory

// TestFault53_LargeBacklogTakesLittleMemory is about gigabytes that wait when the relay starts, with the limits that are set by default but for the
// size of a message.
func TestFault53_LargeBacklogTakesLittleMemory(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"10 kB": 10_000, "1 MB": 1_000_000} {
		t.Run("rows of "+name, func(t *testing.T) {
			total := full(t, 20, 2000) * 1_000_000
			broker := parts.RealKafka(t)
			r := newRig(t, server(t, parts.AnyVersion), broker)
			delete(r.settings, "relay.in_flight_messages")
			r.settings["sink.kafka.max_message_bytes"] = `"2MiB"`
			r.topic = parts.Unique("topic")
			broker.CreateTopic(t, "outbox.event."+r.topic, partitions, map[string]string{"max.message.bytes": "3145728"})
			n := total / size
			r.wideRows(t, n, size)
			began := time.Now()
			p := r.started(t)
			r.drained(t, 5*time.Minute)
			took := time.Since(began)
			require.Equal(t, 1, p.ask().Relay.Sessions)
			peak := p.peak(t)
			p.stop(t)

			// The payload is compared here, and not kept: judge would have all of it in memory.
			pad, rows := []byte(query[string](t, r.dsn, "SELECT text FROM pad")), 0
			r.decode = func(value []byte) []byte {
				var e event
				require.NoError(t, json.Unmarshal(value, &e))
				require.True(t, bytes.Equal(pad, []byte(e.Pad)), "payload of %s %d", e.Key, e.Number)
				rows++
				e.Pad = ""
				short, err := json.Marshal(e)
				require.NoError(t, err)
				return short
			}
			requireExact(t, r.judge(t))
			require.Equal(t, n, rows)
			matrix(t, 53, "", fmt.Sprintf("%d rows, %d MB, in %.1f s with the start of the process: %.0f rows/s, %.0f MB/s; memory at most %s",
				n, total/1_000_000, took.Seconds(), float64(n)/took.Seconds(), float64(total)/1e6/took.Seconds(), mib(peak)))
			require.Less(t, peak, backlogMemory, "resident memory")
		})
	}
}
