package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/sql"
	"github.com/postrider/postrider/test/parts"
)

// pruned is an application that writes to an outbox which relays prune on delivery, in random steps. Every row that it has committed must be in
// the topic or in the table.
type pruned struct {
	*rig
	t         *testing.T
	rand      *rand.Rand
	conn      *pgx.Conn
	number    int
	committed map[int]bool // numbers of rows
	open      []*openInsert
	relays    []*process
	gaps      int // times without a slot, or without a publication, in which rows were committed
}

// openInsert is a transaction of the application that is not over.
type openInsert struct {
	conn    *pgx.Conn
	numbers []int
}

func newPruned(t *testing.T, dsn string, random *rand.Rand) *pruned {
	t.Helper()
	p := &pruned{rig: newRig(t, dsn, parts.RealKafka(t)), t: t, rand: random, committed: map[int]bool{}}
	execute(t, p.dsn, `ALTER TABLE outbox ADD created_at timestamptz NOT NULL DEFAULT now(); CREATE INDEX ON outbox (created_at);
		DO $$ BEGIN CREATE ROLE postrider; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
	execute(t, p.dsn, sql.Prune())
	p.settings["prune.enabled"], p.settings["prune.on_delivery"], p.settings["prune.interval"] = "true", "true", `"100ms"`
	p.settings["prune.chunk_rows"] = fmt.Sprint(1 + random.IntN(40))
	p.conn = connect(t, p.dsn)
	t.Cleanup(p.disconnect)
	return p
}

func (p *pruned) disconnect() {
	for _, o := range p.open {
		_ = o.conn.Close(p.t.Context())
	}
	p.open = nil
	_ = p.conn.Close(p.t.Context())
}

// insert inserts some rows in the transaction of conn and returns their numbers.
func (p *pruned) insert(conn *pgx.Conn) (numbers []int) {
	p.t.Helper()
	for range 1 + p.rand.IntN(20) {
		p.number++
		numbers = append(numbers, p.number)
	}
	into := `INSERT INTO outbox (aggregate_type, aggregate_id, payload, number)
		SELECT '` + p.topic + `', 'k' || n % 7, jsonb_build_object('key', 'k' || n % 7, 'number', n), n FROM unnest(ARRAY` + p.list(numbers) + `::bigint[]) n`
	if p.rand.IntN(3) == 0 {
		into = "SAVEPOINT s; " + into + "; RELEASE s"
	}
	_, err := conn.PgConn().Exec(p.t.Context(), "BEGIN; "+into).ReadAll()
	require.NoError(p.t, err)
	return numbers
}

func (p *pruned) list(numbers []int) string {
	text, err := json.Marshal(numbers)
	require.NoError(p.t, err)
	return string(text)
}

func (p *pruned) end(conn *pgx.Conn, numbers []int, commit bool) {
	p.t.Helper()
	command := "ROLLBACK"
	if commit {
		command = "COMMIT"
	}
	_, err := conn.Exec(p.t.Context(), command)
	require.NoError(p.t, err)
	for _, n := range numbers {
		if commit {
			p.committed[n] = true
		}
	}
}

// write is one step of the application.
func (p *pruned) write() {
	p.t.Helper()
	switch p.rand.IntN(8) {
	case 0: // opens a transaction that stays open
		if len(p.open) < 2 {
			conn := connect(p.t, p.dsn)
			p.open = append(p.open, &openInsert{conn, p.insert(conn)})
		}
	case 1:
		if len(p.open) > 0 {
			p.endOldest()
		}
	case 2: // as a poller marks rows
		_, err := p.conn.Exec(p.t.Context(), `UPDATE outbox SET event_type = 'marked' WHERE number % 3 = $1`, p.rand.IntN(3))
		require.NoError(p.t, err)
	case 3:
		p.end(p.conn, p.insert(p.conn), false)
	default:
		p.end(p.conn, p.insert(p.conn), true)
	}
}

func (p *pruned) endOldest() {
	p.t.Helper()
	o := p.open[0]
	p.open = p.open[1:]
	p.end(o.conn, o.numbers, p.rand.IntN(4) > 0)
	require.NoError(p.t, o.conn.Close(p.t.Context()))
}

func (p *pruned) writes(steps int) {
	p.t.Helper()
	for range steps {
		p.write()
	}
}

func (p *pruned) run() {
	p.t.Helper()
	p.relays = append(p.relays, p.start(p.t))
}

// streaming waits until one of the relays streams.
func (p *pruned) streaming() {
	p.t.Helper()
	eventually(p.t, time.Minute, "a relay streams", func() bool {
		return slices.ContainsFunc(p.relays, func(r *process) bool { return r.ask().Relay.Phase == "streaming" })
	})
}

// endRelays ends all of them, by a signal or by kill -9.
func (p *pruned) endRelays(kill bool) {
	p.t.Helper()
	for _, r := range p.relays {
		if kill {
			r.Kill(p.t)
		} else {
			r.stop(p.t)
		}
	}
	p.relays = nil
	eventually(p.t, time.Minute, "slot free", func() bool { return p.walsender(p.t) == 0 })
}

// pruneNow runs the command, which may remove nothing and say why.
func (p *pruned) pruneNow(args ...string) *parts.Relay {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "postrider.toml")
	require.NoError(p.t, os.WriteFile(file, []byte(p.config("127.0.0.1:0")), 0o600))
	r, _ := parts.RunRelay(p.t, parts.RelayConfig{}, append([]string{"prune", "--config", file}, args...)...)
	return r
}

// looked waits until a pruner has looked at the outbox as it is now.
func (p *pruned) looked() {
	p.t.Helper()
	since := query[time.Time](p.t, p.dsn, "SELECT clock_timestamp()")
	eventually(p.t, time.Minute, "coverage saved", func() bool {
		p.end(p.conn, p.insert(p.conn), false) // it is saved after other transactions
		return query[bool](p.t, p.dsn, "SELECT EXISTS (SELECT FROM postrider_prune WHERE saved_at > $1)", since)
	})
}

// numbers are those of the rows in the table.
func (p *pruned) numbers() map[int]bool {
	p.t.Helper()
	found := map[int]bool{}
	for _, n := range query[[]int](p.t, p.dsn, `SELECT coalesce(array_agg(number), '{}') FROM outbox`) {
		found[n] = true
	}
	return found
}

// published are the numbers of the rows in the topic.
func (p *pruned) published() map[int]bool {
	p.t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = p.broker.Direct()
	ctx := parts.Within(p.t, time.Minute)
	reader, err := topics.OpenReader(ctx, cfg, true)
	require.NoError(p.t, err)
	defer reader.Close()
	spans, err := reader.Spans(ctx, "outbox.event."+p.topic, time.Time{})
	require.NoError(p.t, err)
	found := map[int]bool{}
	require.NoError(p.t, reader.Read(ctx, spans, func(_ int, _ int64, m *sink.Message) error {
		var e event
		require.NoError(p.t, json.Unmarshal(m.Value, &e))
		found[int(e.Number)] = true
		return nil
	}))
	return found
}

// audit ends the transactions and the relays, and compares. It returns how many rows the table still has that are in the topic.
func (p *pruned) audit() (kept, removed int) {
	p.t.Helper()
	for len(p.open) > 0 {
		p.endOldest()
	}
	if len(p.relays) == 0 {
		p.run()
	}
	p.streaming()
	p.drained(p.t, time.Minute)
	if p.gaps == 0 {
		unmarked := query[int](p.t, p.dsn, "SELECT current_setting('server_version_num')::int") < 150000
		eventually(p.t, time.Minute, "all delivered rows removed", func() bool {
			if unmarked && p.relays[0].metrics(p.t).Value("postrider_prune_gaps") > 0 {
				p.gaps++ // a restart may leave one: nothing proves that the slot is still the same
			}
			return p.gaps > 0 || len(p.numbers()) == 0
		})
	}
	if p.gaps > 0 {
		p.pruneNow()
		p.pruneNow() // a first one may only begin a coverage
	}
	table, topic := p.numbers(), p.published()
	for n := range p.committed {
		require.True(p.t, table[n] || topic[n], "row %d was removed, and never published", n)
		switch {
		case table[n] && topic[n]:
			kept++
		case topic[n]:
			removed++
		}
	}
	if p.gaps > 0 {
		p.acceptGap()
	}
	p.endRelays(false)
	// the slots of 50 seeds would be more than a server takes
	eventually(p.t, time.Minute, "the slot dropped", func() bool {
		return query[int](p.t, p.dsn, "SELECT count(pg_drop_replication_slot(slot_name)) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active", p.slot) == 1
	})
	return kept, removed
}

// acceptGap has an operator say that all rows were delivered, after which all are removed.
func (p *pruned) acceptGap() {
	p.t.Helper()
	require.NotContains(p.t, p.pruneNow("--accept-gap").Stdout.String(), "REMOVED", "it asks first")
	require.Contains(p.t, p.pruneNow("--accept-gap", "--yes").Stdout.String(), "REMOVED")
	p.pruneNow()
	require.Empty(p.t, p.numbers())
	var report struct {
		DryRun bool `json:"dry_run"`
		Tables []struct {
			Table         string
			Rows, Removed int
			Gaps          []any
		}
	}
	require.NoError(p.t, json.Unmarshal(p.pruneNow("--dry-run", "--json").Stdout.Bytes(), &report))
	require.True(p.t, report.DryRun)
	require.Len(p.t, report.Tables, 1)
	require.Equal(p.t, "public.outbox", report.Tables[0].Table)
	require.Empty(p.t, report.Tables[0].Gaps)
}

// pruneScenario strikes once. p has a relay that streams, and a coverage.
type pruneScenario struct {
	name   string
	strike func(p *pruned)
}

var pruneScenarios = []pruneScenario{
	{name: "relay down", strike: func(p *pruned) {
		p.endRelays(false)
		p.writes(5)
		p.pruneNow()
		p.writes(5)
		p.run()
	}},
	{name: "transaction open", strike: func(p *pruned) {
		conn := connect(p.t, p.dsn)
		o := &openInsert{conn, p.insert(conn)}
		p.open = append(p.open, o)
		p.writes(10)
		p.pruneNow()
		p.writes(5)
	}},
	{name: "two relays", strike: func(p *pruned) {
		p.run()
		p.writes(5)
		p.pruneNow()
		p.relays[0].Kill(p.t)
		p.relays = p.relays[1:]
		p.writes(5)
		p.streaming()
	}},
	{name: "kill -9", strike: func(p *pruned) {
		p.writes(10)
		p.endRelays(true)
		p.writes(5)
		p.run()
	}},
	{name: "slot recreated", strike: func(p *pruned) {
		p.endRelays(p.rand.IntN(2) == 0)
		p.writes(5)
		p.recreateSlot()
	}},
	{name: "unpublished", strike: func(p *pruned) {
		p.endRelays(false)
		execute(p.t, p.dsn, "ALTER PUBLICATION "+p.publication+" DROP TABLE outbox")
		p.writes(5)
		execute(p.t, p.dsn, "ALTER PUBLICATION "+p.publication+" ADD TABLE outbox")
		p.gaps++
		p.run()
	}},
}

// seed is a random course with a scenario.
func (p *pruned) seed(strike func(p *pruned)) (kept, removed int) {
	p.t.Helper()
	before := p.rand.IntN(2) == 0
	if before { // rows from before the coverage, which nothing proves
		p.end(p.conn, p.insert(p.conn), true)
		p.gaps++
	}
	p.run()
	p.streaming()
	p.looked()
	for range 1 + p.rand.IntN(3) {
		p.writes(10)
		if len(p.open) == 0 && p.rand.IntN(2) == 0 {
			p.looked()
		}
		strike(p)
		p.streaming()
		p.writes(10)
	}
	for len(p.open) > 0 { // a coverage waits for them
		p.endOldest()
	}
	p.looked()
	p.writes(10)
	return p.audit()
}

// recreateSlot is what an operator does with a slot that is gone or lost, and does not look what it had not sent.
func (p *pruned) recreateSlot() {
	p.t.Helper()
	execute(p.t, p.dsn, "SELECT pg_drop_replication_slot('"+p.slot+"')")
	p.writes(5)
	if p.rand.IntN(2) == 0 {
		p.pruneNow()
	}
	for len(p.open) > 0 { // or the creation waits
		p.endOldest()
	}
	execute(p.t, p.dsn, "SELECT pg_create_logical_replication_slot('"+p.slot+"', 'pgoutput')")
	p.writes(5)
	p.gaps++
	p.run()
}

// PostgreSQL itself takes the slot away, because it keeps too much WAL.
func TestFault42_PruneBesideALostSlotRemovesOnlyWhatWasDelivered(t *testing.T) {
	t.Parallel()
	parts.Binary(t)
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: map[string]string{"max_slot_wal_keep_size": "16MB",
				"max_wal_size": "32MB", "min_wal_size": "32MB"}})
			n, kept, removed := full(t, 1, 25), 0, 0
			for i := range n {
				p := newPruned(t, pg.DSN(), random(t, uint64(424242+i)))
				k, r := p.seed(func(p *pruned) {
					p.endRelays(p.rand.IntN(2) == 0)
					p.writes(5)
					eventually(t, time.Minute, "a lost slot", func() bool {
						execute(t, p.dsn, "SELECT pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) FROM generate_series(1, 20); SELECT pg_switch_wal(); CHECKPOINT")
						return query[bool](t, p.dsn, "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = $1", p.slot)
					})
					left := len(p.numbers())
					require.Contains(t, p.pruneNow().Log.String(), "lost")
					require.Len(t, p.numbers(), left, "nothing is removed beside a lost slot")
					p.writes(5)
					p.recreateSlot()
				})
				kept, removed = kept+k, removed+r
				p.disconnect()
			}
			require.Positive(t, removed)
			matrix(t, 42, "", fmt.Sprintf("%d seeds: %d rows removed, all of them published; %d published ones kept, not proven", n, removed, kept))
		})
	}
}

func TestFault42_PruneRemovesOnlyWhatWasDelivered(t *testing.T) {
	t.Parallel()
	parts.Binary(t)
	versions := []string{"14", "18", "15", "16", "17"}
	for at, s := range pruneScenarios {
		t.Run(s.name, func(t *testing.T) {
			n, kept, removed := full(t, 1, 50), 0, 0
			for i := range n {
				p := newPruned(t, server(t, versions[(i+at)%len(versions)]), random(t, uint64(42+i)))
				k, r := p.seed(s.strike)
				kept, removed = kept+k, removed+r
				p.disconnect()
			}
			require.Positive(t, removed)
			matrix(t, 42, "", fmt.Sprintf("%d seeds: %d rows removed, all of them published; %d published ones kept, not proven", n, removed, kept))
		})
	}
}

func TestFault42_PruneAfterARestoreRemovesOnlyWhatWasDelivered(t *testing.T) {
	t.Parallel()
	parts.Binary(t)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	backup := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	require.NoError(t, backup.Stop(t.Context()))
	n, kept, removed := full(t, 1, 50), 0, 0
	for i := range n {
		p := newPruned(t, pg.DSN(), random(t, uint64(4242+i)))
		p.run()
		p.streaming()
		p.looked()
		p.writes(20)
		p.endRelays(false)
		p.disconnect() // rolls back what is open
		require.NoError(t, pg.Stop(t.Context()))
		require.NoError(t, backup.CopyFrom(pg, nil))
		require.NoError(t, pg.Start(t.Context()))
		then := map[int]bool{}
		for number := range p.committed {
			then[number] = true
		}
		p.conn = connect(t, p.dsn)
		p.run()
		p.streaming()
		p.writes(20)
		p.endRelays(p.rand.IntN(2) == 0)
		p.disconnect()
		require.NoError(t, pg.Stop(t.Context()))
		require.NoError(t, pg.CopyFrom(backup, nil))
		require.NoError(t, pg.Start(t.Context()))
		p.committed, p.conn = then, connect(t, p.dsn)
		p.writes(10)
		if p.rand.IntN(2) == 0 { // as a restore that brings no slots back
			for len(p.open) > 0 {
				p.endOldest()
			}
			execute(t, p.dsn, "SELECT pg_drop_replication_slot('"+p.slot+"')")
			p.writes(3)
			for len(p.open) > 0 {
				p.endOldest()
			}
			execute(t, p.dsn, "SELECT pg_create_logical_replication_slot('"+p.slot+"', 'pgoutput')")
			p.gaps++
		}
		p.run()
		p.streaming()
		for len(p.open) > 0 {
			p.endOldest()
		}
		p.looked()
		p.writes(10)
		k, r := p.audit()
		kept, removed = kept+k, removed+r
		p.disconnect()
	}
	require.Positive(t, removed)
	matrix(t, 42, "", fmt.Sprintf("%d seeds: %d rows removed, all of them published; %d published ones kept, not proven", n, removed, kept))
}

// The dead letter of a row that is too large and cannot be routed refers to the row, which is the only copy. With REPLICA IDENTITY FULL any
// column may come first, and pruning compares with the id alone.
func TestPrune_KeepsARowThatIsTooLargeAndCannotBeRouted(t *testing.T) {
	t.Parallel()
	p := newPoisonRig(t, "dead_letter")
	execute(t, p.dsn, `DROP TABLE outbox; CREATE TABLE outbox (created_at timestamptz NOT NULL DEFAULT now(), id uuid PRIMARY KEY DEFAULT gen_random_uuid(), payload jsonb,
			number bigint, aggregate_type text, aggregate_id text, event_type text, headers jsonb, happened timestamptz);
		CREATE INDEX ON outbox (created_at); ALTER TABLE outbox REPLICA IDENTITY FULL; ALTER PUBLICATION `+p.publication+` ADD TABLE outbox;
		DO $$ BEGIN CREATE ROLE postrider; EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
	execute(t, p.dsn, sql.Prune())
	p.settings["prune.enabled"], p.settings["prune.on_delivery"], p.settings["prune.interval"] = "true", "true", `"100ms"`
	p.settings["replication.max_row_bytes"] = "200000"
	relay := p.started(t)
	await := func(what, condition string) {
		parts.Await(t, what, func() (bool, error) { return query[bool](t, p.dsn, "SELECT "+condition), nil })
	}
	await("the first look", "EXISTS (SELECT FROM postrider_prune)")
	execute(t, p.dsn, fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('%s', 'large', jsonb_build_object('pad', repeat('x', 300000)))`, p.topic))
	p.row(t, "small", 1)
	p.drained(t, time.Minute)
	await("the row behind it to be pruned", "NOT EXISTS (SELECT FROM outbox WHERE aggregate_id = 'small')")
	relay.stop(t)
	letters := p.list(t)
	require.Len(t, letters, 1)
	require.Equal(t, query[string](t, p.dsn, "SELECT id::text FROM outbox WHERE aggregate_id = 'large'"), letters[0].EventID)
	require.Equal(t, 1, query[int](t, p.dsn, "SELECT count(*) FROM outbox"))
}
