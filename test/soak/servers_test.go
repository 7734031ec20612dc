package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// partitions are those of a topic at the beginning. They are doubled at most twice.
const partitions = 4

// servers are what the relays run between: one PostgreSQL server with an outbox, and one broker or
// a cluster of three.
type servers struct {
	t           *testing.T
	postgres    *embedded.Postgres
	dsn         string // of the database with the outbox, past any proxy
	publication string
	aggregate   string // aggregate_type of all events
	nodes       []*parts.Broker
	broker      *parts.Broker       // all nodes
	cluster     *parts.KafkaCluster // nil: there is one node
	doubled     int                 // times that partitions were doubled
}

func startServers(t *testing.T) *servers {
	t.Helper()
	s := &servers{t: t, publication: parts.Unique("publication"), aggregate: parts.Unique("soak")}
	if long() {
		s.cluster = parts.StartKafkaCluster(t, parts.KafkaConfig{ThroughProxy: true})
		s.broker, s.nodes = s.cluster.Broker, s.cluster.Nodes
	} else {
		s.broker = parts.ExclusiveKafka(t, parts.KafkaConfig{ThroughProxy: true,
			Properties: map[string]string{
				"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}})
		s.nodes = []*parts.Broker{s.broker}
	}
	s.postgres = parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	s.dsn = parts.NewDatabase(t, s.postgres.DSN()).DSN()
	s.execute(createTables, "CREATE ROLE postrider", sql.Prune(),
		"CREATE PUBLICATION "+s.publication+" FOR TABLE outbox WITH (publish = 'insert')")
	return s
}

// createTables: done has the last transaction of each writer, since the rows of the outbox are
// pruned; others is written to by the transactions of other applications.
const createTables = `
	CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
		aggregate_type text NOT NULL, aggregate_id text NOT NULL,
		event_type text NOT NULL DEFAULT 'changed', payload jsonb NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now());
	CREATE INDEX ON outbox (created_at);
	CREATE TABLE done (writer int PRIMARY KEY, transaction bigint NOT NULL);
	CREATE TABLE others (id bigint GENERATED ALWAYS AS IDENTITY, note text)`

// connect opens a connection that its caller closes: those of hours would be too many.
func (s *servers) connect() *pgx.Conn {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.dsn)
	require.NoError(s.t, err)
	return conn
}

// execute runs statements over a connection of its own.
func (s *servers) execute(statements ...string) {
	s.t.Helper()
	conn := s.connect()
	defer conn.Close(s.t.Context())
	for _, sql := range statements {
		_, err := conn.PgConn().Exec(s.t.Context(), sql).ReadAll()
		require.NoError(s.t, err, sql)
	}
}

// query reads one row.
func (s *servers) query(into []any, sql string, args ...any) {
	s.t.Helper()
	conn := s.connect()
	defer conn.Close(s.t.Context())
	require.NoError(s.t, conn.QueryRow(s.t.Context(), sql, args...).Scan(into...), sql)
}

// createTopic has the broker record when it appended each batch.
func (s *servers) createTopic(name string) {
	s.t.Helper()
	s.broker.CreateTopic(s.t, name, partitions,
		map[string]string{"message.timestamp.type": "LogAppendTime"})
}

// settle returns when every node answers and, in a cluster, every replica is in sync.
func (s *servers) settle(topics ...string) {
	s.t.Helper()
	if s.cluster != nil {
		s.cluster.AwaitInSync(s.t, topics...)
	}
}

// double doubles the partitions of topics: a key then stays where it is, or goes to a partition
// with a higher number.
func (s *servers) double(topics ...string) {
	s.t.Helper()
	s.doubled++
	n := partitions << s.doubled
	admin := kadm.NewClient(s.broker.Client(s.t))
	parts.Await(s.t, fmt.Sprintf("%d partitions", n), func() (bool, error) {
		// An attempt can fail while a broker has only just come back, or have no answer.
		_, _ = admin.UpdatePartitions(s.t.Context(), n, topics...)
		for _, topic := range topics {
			if s.broker.Partitions(s.t, topic) != int32(n) {
				return false, nil
			}
		}
		return true, nil
	})
}

// stopPostgres is pg_ctl stop -m fast, which must not wait for the relays.
func (s *servers) stopPostgres() {
	s.t.Helper()
	began := time.Now()
	require.NoError(s.t, s.postgres.StopMode(parts.Within(s.t, 45*time.Second), embedded.Fast),
		"PostgreSQL waits for the relays")
	s.t.Logf("fast stop: %.2f s", time.Since(began).Seconds())
}

func (s *servers) startPostgres() {
	s.t.Helper()
	require.NoError(s.t, s.postgres.Start(s.t.Context()))
}

func quote(text string) string { return fmt.Sprintf("%q", text) }
