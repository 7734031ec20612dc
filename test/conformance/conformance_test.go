package conformance

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/config"
	"postrider/replication"
	"postrider/router"
	"postrider/sink"
	"postrider/test/parts"
)

// suite is what all cases share.
type suite struct {
	databases *databases
	topics    *topics
	own       bool // the recordings are the repository's
	mu        sync.Mutex
	verdicts  map[string]verdict // by id
}

func TestConformance(t *testing.T) {
	dir, own := goldenDir()
	cases := loadGolden(t, dir)
	deviations := loadDeviations(t, "deviations.toml")
	server := parts.Postgres(t, "17")
	s := &suite{databases: newDatabases(server.DSN(), cases), topics: newTopics(t, parts.Kafka(t)), own: own, verdicts: map[string]verdict{}}
	areas := map[string][]*golden{}
	var order []string
	for _, g := range cases {
		if areas[g.area] == nil {
			order = append(order, g.area)
		}
		areas[g.area] = append(areas[g.area], g)
	}
	t.Run("cases", func(t *testing.T) {
		for _, area := range order {
			t.Run(area, func(t *testing.T) {
				t.Parallel()
				for _, g := range areas[area] {
					t.Run(strings.ReplaceAll(g.ID, "/", "_"), func(t *testing.T) {
						t.Parallel()
						s.check(t, g, deviations)
					})
				}
			})
		}
	})
	s.databases.close()
	if len(s.verdicts) < len(cases) {
		return // -run chose some
	}
	report := s.report(order, cases, deviations)
	t.Log("\n" + report)
	if own {
		requireStale(t, deviations, s.verdicts)
		requireReport(t, filepath.Join("..", "..", "docs", "CONFORMANCE.md"), report)
	}
}

// check runs one case and judges it.
func (s *suite) check(t *testing.T, g *golden, deviations []*deviation) {
	t.Helper()
	v := judge(g, g.compare(s.run(t, g)), deviations)
	s.mu.Lock()
	s.verdicts[g.ID] = v
	s.mu.Unlock()
	for _, d := range v.unexplained {
		t.Errorf("%s", d.text)
	}
}

// run takes the case from its configuration to the topics.
func (s *suite) run(t *testing.T, g *golden) *result {
	t.Helper()
	db := s.databases.take(t, g)
	reusable := false
	defer func() { s.databases.give(db, reusable) }()
	got := &result{from: time.Now()}
	cfg, err := g.configuration(t, db.conn, s.topics.broker.Brokers())
	if err != nil {
		got.failure, reusable = err, true
		return got
	}
	db.empty(t)
	db.execute(t, g.SQLBeforeStart)
	db.catchUp(t)
	r, publication, err := db.newRouter(cfg)
	if err != nil {
		got.failure, reusable = err, true
		return got
	}
	var messages []*sink.Message
	consumer := func(e *replication.Event) {
		if got.failure != nil {
			return
		}
		var m *sink.Message
		if m, got.failure = r.Route(e); m != nil {
			messages = append(messages, m)
		}
	}
	if cfg.Snapshot.Mode != "no_data" {
		db.rows(t, cfg, publication, consumer)
	}
	db.consume(consumer)
	db.execute(t, g.SQL)
	db.catchUp(t)
	db.consume(func(*replication.Event) {})
	messages = append(messages, heartbeats(t, g, cfg)...)
	var refused error
	got.records, refused = s.topics.publish(t, cfg.Sink.Kafka, g.Topics, messages)
	if refused != nil {
		got.failure = refused
	}
	reusable = !g.changesCatalogue()
	require.Equal(t, byte('I'), db.conn.PgConn().TxStatus(), "the case left a transaction open")
	return got
}

// heartbeats are what the relay publishes while a case lasts: as many as were recorded, since that depends on the time.
func heartbeats(t *testing.T, g *golden, cfg config.Config) []*sink.Message {
	t.Helper()
	var beats []*sink.Message
	if cfg.Relay.HeartbeatInterval == 0 {
		return nil
	}
	for _, r := range g.Records {
		if r.Topic == cfg.HeartbeatTopic() {
			m, err := router.Heartbeat(cfg.Format, r.Topic, cfg.Router[0].TopicPrefix, time.Now())
			require.NoError(t, err)
			beats = append(beats, m)
		}
	}
	return beats
}
