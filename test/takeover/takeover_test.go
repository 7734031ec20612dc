package takeover

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/test/parts"
)

// site is a team's installation: tables, a topic, and Debezium between them.
type site struct {
	db     *parts.Database
	broker *parts.Broker
	worker *parts.ConnectWorker
	name   string // of the connector, its slot, its publication and its topic prefix
	topic  string
	config map[string]string
	tally  *audit.Tally
	*operator
}

// newSite starts a connector; further replaces or adds properties.
func newSite(t *testing.T, properties, further map[string]string) *site {
	t.Helper()
	s := &site{broker: parts.RealKafka(t), db: parts.Postgres(t, "17"),
		name: parts.Unique("takeover"), tally: audit.New()}
	s.worker = parts.KafkaConnect(t, s.broker, properties)
	s.topic = s.name + ".order"
	// one partition, so that there is one order of all records
	s.broker.CreateTopic(t, s.topic, 1, nil)
	s.db.Exec(t, `
		CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
			aggregatetype text, aggregateid text, type text, payload text);
		CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text)`)
	pg, err := pgconn.ParseConfig(s.db.DSN())
	require.NoError(t, err)
	s.config = map[string]string{
		"connector.class":        "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname":      pg.Host,
		"database.port":          strconv.Itoa(int(pg.Port)),
		"database.user":          pg.User,
		"database.password":      pg.Password,
		"database.dbname":        pg.Database,
		"topic.prefix":           s.name,
		"plugin.name":            "pgoutput",
		"slot.name":              s.name,
		"publication.name":       s.name,
		"table.include.list":     "public.outbox",
		"snapshot.mode":          "no_data",
		"key.converter":          "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":        "org.apache.kafka.connect.storage.StringConverter",
		"transforms":             "outbox",
		"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": s.name + ".${routedByValue}",
	}
	for property, value := range further {
		s.config[property] = value
	}
	s.worker.Create(t, s.name, s.config)
	s.operator = newOperator(t, map[string]string{
		"CONNECT": s.worker.URL(), "CONNECTOR": s.name, "SLOT": s.name, "PREFIX": s.name,
		"PGPASSWORD": pg.Password,
		"BROKERS":    strings.Join(s.broker.Brokers(), ","),
	})
	return s
}

func (s *site) published(t *testing.T, n int) {
	t.Helper()
	s.broker.ConsumeUntil(t, []string{s.topic},
		func(records []*kgo.Record) bool { return len(records) >= n })
}

func (s *site) count(t *testing.T) int { return int(s.broker.EndOffsets(t, s.topic)[0]) }

// drained waits until the slot is confirmed beyond all that has been written.
func (s *site) drained(t *testing.T) {
	t.Helper()
	conn := s.db.Connect(t)
	var written string
	require.NoError(t,
		conn.QueryRow(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&written))
	await(t, "slot confirmed beyond "+written, func() bool {
		var confirmed bool
		err := conn.QueryRow(t.Context(),
			`SELECT confirmed_flush_lsn >= $1::text::pg_lsn
				FROM pg_replication_slots WHERE slot_name = $2`, written, s.name).Scan(&confirmed)
		return err == nil && confirmed
	})
}

func (s *site) released(t *testing.T) {
	t.Helper()
	conn := s.db.Connect(t)
	await(t, "slot released", func() bool {
		var active bool
		err := conn.QueryRow(t.Context(),
			`SELECT active FROM pg_replication_slots WHERE slot_name = $1`, s.name).Scan(&active)
		return err == nil && !active
	})
}

// again is how many rows the command says are published twice.
func again(t *testing.T, said string) int {
	t.Helper()
	last := regexp.MustCompile(`the last (\d+) are published again`)
	if m := last.FindStringSubmatch(said); m != nil {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
	require.Contains(t, said, "none of them is published again")
	return 0
}

func TestTakeover_AfterACleanStopRepeatsOnlyWhatItSays(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, map[string]string{"publication.autocreate.mode": "all_tables"})
	writing := startWriters(t, s.db, s.tally, 1)
	s.published(t, 1000)

	s.follow(t, "1. Translate the configuration")
	s.follow(t, "2. Look at what postrider finds")
	s.follow(t, "4. Stop the connector")
	byDebezium := s.count(t)
	said := s.follow(t, "5. Move the slot past what was published")
	t.Logf("%s", said)
	process := s.start(t, "6. Start postrider")
	s.published(t, 2*byDebezium)
	require.Contains(t, s.follow(t, "7. Verify"), "true")

	rows := writing.end(t)
	s.drained(t)
	events, repeated := receive(t, s.tally, s.broker.All(t, s.topic))
	v := s.tally.Verdict()
	t.Logf("%d rows, %d records of Debezium, %d in all: %+v", rows, byDebezium, len(events), v)
	require.Zero(t, v.Lost)
	require.Zero(t, v.OutOfOrder)
	require.Zero(t, v.Phantom)
	require.Zero(t, v.Partial)
	require.Len(t, repeated, again(t, said))

	s.wayBack(t, process.Signal, len(events), process.Done)
}

// wayBack ends postrider and lets Debezium go on.
func (s *site) wayBack(t *testing.T, signal func(syscall.Signal) error, before int,
	ended <-chan struct{}) {
	t.Helper()
	require.NoError(t, signal(syscall.SIGTERM))
	select {
	case <-ended:
	case <-time.After(parts.Patience):
		require.FailNow(t, "postrider does not end")
	}
	s.outdateOffset(t)
	writing := startWriters(t, s.db, s.tally, 2)
	s.follow(t, "The way back")
	s.worker.AwaitRunning(t, s.name)
	s.published(t, before+300)
	rows := writing.end(t)
	s.published(t, before+rows)
	_, repeated := receive(t, s.tally, s.broker.All(t, s.topic)[before:])
	v := s.tally.Verdict()
	t.Logf("%d rows after the way back: %+v", rows, v)
	require.Zero(t, v.Lost)
	require.Zero(t, v.OutOfOrder)
	require.Zero(t, v.Phantom)
	require.Empty(t, repeated)
}

// outdateOffset moves the restart_lsn of the idle slot beyond the stored offset, as time would do
// it: Debezium refuses such an offset.
func (s *site) outdateOffset(t *testing.T) {
	t.Helper()
	var stored struct {
		Offsets []struct {
			Offset struct {
				LSN int64 `json:"lsn"`
			} `json:"offset"`
		} `json:"offsets"`
	}
	require.NoError(t, json.Unmarshal(s.worker.Offsets(t, s.name), &stored))
	require.Len(t, stored.Offsets, 1)
	conn := s.db.Connect(t)
	await(t, "restart_lsn beyond the offset", func() bool {
		var beyond bool
		_, err := conn.Exec(t.Context(), `SELECT pg_log_standby_snapshot()`)
		if err == nil {
			_, err = conn.Exec(t.Context(),
				`SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, s.name)
		}
		if err == nil {
			err = conn.QueryRow(t.Context(),
				`SELECT restart_lsn - '0/0'::pg_lsn > $1 FROM pg_replication_slots
				WHERE slot_name = $2`,
				stored.Offsets[0].Offset.LSN, s.name).Scan(&beyond)
		}
		return err == nil && beyond
	})
}

func TestTakeover_AfterAKillRepeatsWhatDebeziumWouldRepeat(t *testing.T) {
	t.Parallel()
	offsets := parts.Unique("offsets")
	s := newSite(t,
		map[string]string{"offset.storage.topic": offsets, "offset.flush.interval.ms": "3000"},
		map[string]string{"publication.autocreate.mode": "filtered"})
	s.follow(t, "1. Translate the configuration")
	writing := startWriters(t, s.db, s.tally, 1)
	// An offset that the first records are behind, and more records after it.
	s.broker.ConsumeUntil(t, []string{offsets},
		func(records []*kgo.Record) bool { return lastOffset(records, s.name) != nil })
	s.published(t, s.count(t)+500)
	s.worker.Kill(t)
	s.released(t)
	byDebezium := s.count(t)
	twin := s.copySlot(t)

	stored := lastOffset(s.broker.All(t, offsets), s.name)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "offsets.json"), stored, 0o600))
	said := s.follow(t, "5. Move the slot past what was published")
	t.Logf("%s\n%s", stored, said)
	s.start(t, "6. Start postrider")
	s.published(t, 2*byDebezium)
	rows := writing.end(t)
	s.drained(t)

	events, repeated := receive(t, s.tally, s.broker.All(t, s.topic))
	v := s.tally.Verdict()
	t.Logf("%d rows, %d records of Debezium, %d in all, %d repeated: %+v", rows, byDebezium,
		len(events), len(repeated), v)
	require.Zero(t, v.Lost)
	require.Zero(t, v.OutOfOrder)
	require.Zero(t, v.Phantom)
	require.Zero(t, v.Partial)

	for i, place := range repeated {
		require.Equal(t, byDebezium+i, place, "repeated records come first, and in one piece")
	}
	var offset struct{ TxID uint64 }
	require.NoError(t, json.Unmarshal(stored, &offset))
	theirs := s.repeatedByDebezium(t, twin, stored, events[:byDebezium])
	ours := events[byDebezium : byDebezium+len(repeated)]
	t.Logf("Debezium repeats %d, postrider %d", len(theirs), len(ours))
	require.NotEmpty(t, theirs)
	require.GreaterOrEqual(t, len(ours), len(theirs))
	more := ours[:len(ours)-len(theirs)]
	require.Equal(t, theirs, ours[len(more):])
	// Of the transaction that Debezium was in the middle of, what it does not repeat. It loses
	// rows of a COPY there that it has not published.
	for _, e := range more {
		require.Equal(t, offset.TxID, e.XID)
	}
	require.GreaterOrEqual(t, len(more), again(t, said))
}

// lastOffset is what the topic of offsets holds last for the connector, or nil.
func lastOffset(records []*kgo.Record, connector string) (value []byte) {
	for _, r := range records {
		if strings.HasPrefix(string(r.Key), `["`+connector+`",`) {
			value = r.Value
		}
	}
	return value
}
