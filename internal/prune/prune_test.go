package prune

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
	"github.com/postrider/postrider/test/parts/testdb"
)

// pruner returns a Pruner of the outbox, on a place where everything is delivered.
func (p *place) pruner(change func(*Parts)) *Pruner {
	p.T.Helper()
	cfg := DefaultConfig()
	cfg.ChunkRows = 3
	parts := Parts{Postgres: p.Postgres, Config: cfg, Slot: p.Name, Publication: "postrider",
		Tables:  []Source{{Table: "public.outbox", ID: "id"}},
		Metrics: metrics.New(prometheus.NewRegistry(), p.Name), Log: zerolog.New(zerolog.NewTestWriter(p.T))}
	if change != nil {
		change(&parts)
	}
	pruner := New(parts)
	p.T.Cleanup(pruner.Close)
	return pruner
}

func (p *place) once(pruner *Pruner, mode Mode) TableReport {
	p.T.Helper()
	report, err := pruner.Once(p.T.Context(), mode)
	require.NoError(p.T, err)
	require.Len(p.T, report.Tables, 1)
	return report.Tables[0]
}

func (p *place) payloads() []string {
	p.T.Helper()
	found, err := postgres.Collect(p.T.Context(), p.Conn, pgx.RowTo[string], "SELECT payload FROM outbox ORDER BY payload")
	require.NoError(p.T, err)
	return found
}

func onDelivery(parts *Parts) { parts.Config.OnDelivery, parts.Config.Column = true, "number" }

func TestPruner_RemovesWhatIsDeliveredAndOld(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			p := newPlace(t, version)
			p.Exec(`ALTER TABLE outbox ADD created_at timestamptz NOT NULL DEFAULT now()`)
			p.Exec(`CREATE INDEX ON outbox (created_at)`)
			p.Exec(`INSERT INTO outbox (payload, created_at) VALUES ('before', now() - interval '10 days')`)
			p.consume()
			pruner := p.pruner(nil)
			require.Zero(t, p.once(pruner, Save).Removed)
			// The bound is ten days old: rows of an application that dates them back are newer than it.
			for i := range 10 {
				p.Exec(`INSERT INTO outbox (payload, created_at) VALUES ($1, now() - interval '8 days')`, fmt.Sprint("old ", i))
			}
			p.insert("young")
			dry := p.once(pruner, DryRun)
			require.Equal(t, [4]int64{12, 10, 1, 0}, [4]int64{dry.Rows, dry.Removed, dry.Unproven, dry.Held})
			require.Len(t, p.payloads(), 12)
			r := p.once(pruner, Save)
			require.EqualValues(t, 10, r.Removed)
			require.Equal(t, []string{"before", "young"}, p.payloads())
			require.Len(t, r.Gaps, 1)
			require.Zero(t, r.Gaps[0].From)
			require.WithinDuration(t, time.Now().Add(-10*24*time.Hour), r.OldestRow, time.Hour)
			p.once(pruner, Accept)
			r = p.once(pruner, Save)
			require.Empty(t, r.Gaps)
			require.Equal(t, []string{"young"}, p.payloads())
		})
	}
}

// TestPruner_KeepsRowsFromBeforeARewrite: it gives each row another xmin. The gap is the moment of it, and the rows of all
// the time before are kept.
func TestPruner_KeepsRowsFromBeforeARewrite(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		for _, c := range []struct {
			alter    string
			rewrites bool
		}{
			{`ALTER TABLE outbox ALTER payload TYPE varchar(100)`, true},
			{`ALTER TABLE outbox ADD another uuid DEFAULT gen_random_uuid()`, true},
			{`ALTER TABLE outbox ALTER payload TYPE text COLLATE "C"`, false},
			{`VACUUM FULL outbox`, false},
			{`ALTER TABLE outbox ADD another text DEFAULT 'constant'`, false},
		} {
			t.Run(version+"/"+c.alter, func(t *testing.T) {
				p := newPlace(t, version)
				p.consume()
				var log strings.Builder
				pruner := p.pruner(func(parts *Parts) { onDelivery(parts); parts.Log = zerolog.New(&log) })
				p.once(pruner, Save)
				p.insert("a")
				p.insert("b")
				require.EqualValues(t, 2, p.once(pruner, DryRun).Removed)
				p.Exec(c.alter)
				if !c.rewrites {
					p.insert("later")
					report := p.once(pruner, Save)
					require.EqualValues(t, 3, report.Removed)
					require.Empty(t, report.Gaps)
					return
				}
				report := p.once(pruner, Save)
				require.Zero(t, report.Removed)
				require.Len(t, report.Gaps, 1)
				pruner.record(&Report{Tables: []TableReport{report}}, nil)
				require.Contains(t, log.String(), "rows that were written, or rewritten by ALTER TABLE, in this time are kept: it is not proven that the slot sends them")
				p.insert("later")
				require.EqualValues(t, 1, p.once(pruner, Save).Removed)
				require.Equal(t, []string{"a", "b"}, p.payloads())
				require.EqualValues(t, 2, p.once(pruner, Accept).Removed)
				require.Empty(t, p.once(pruner, Save).Gaps)
			})
		}
	}
}

// Without a TOAST table, the other files of a table may be those of SET UNLOGGED and SET LOGGED.
func TestPruner_KeepsRowsOfTheLastIntervalBeforeVacuumFullWithoutTOAST(t *testing.T) {
	p := newPlace(t, "18")
	p.Exec(`ALTER TABLE outbox ALTER payload TYPE "char" USING 'x'`)
	p.consume()
	pruner := p.pruner(onDelivery)
	p.once(pruner, Save)
	p.insert("a")
	require.EqualValues(t, 1, p.once(pruner, DryRun).Removed)
	_, err := p.prover.Look(t.Context(), []Relation{p.table}, Save) // as by a run that does not come to the row
	require.NoError(t, err)
	p.insert("b")
	p.Exec(`VACUUM FULL outbox`)
	require.EqualValues(t, 1, p.once(pruner, Save).Removed)
	require.Equal(t, []string{"b"}, p.payloads())
}

func TestPruner_RemovesOnDelivery(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	pruner := p.pruner(onDelivery)
	p.once(pruner, Save)
	for i := range 7 {
		p.insert(fmt.Sprint(i))
	}
	p.Exec(`UPDATE outbox SET payload = payload || ', taken by a poller' WHERE payload < '3'`)
	locker := parts.Connect(t, p.DSN)
	tx, err := locker.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM outbox WHERE payload = '5' FOR UPDATE`)
	require.NoError(t, err)
	require.EqualValues(t, 6, p.once(pruner, Save).Removed)
	require.Equal(t, []string{"5"}, p.payloads(), "it is locked, and not waited for")
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, 1, p.once(pruner, Save).Removed)
}

func TestPruner_CountsRetentionFromTheCommitWithoutATime(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	pruner := p.pruner(func(parts *Parts) { parts.Config.Retention, parts.Config.Column = time.Second, "number" })
	p.once(pruner, Save)
	p.insert("a")
	inserted := time.Now()
	_, err := postgres.Poll(t.Context(), 50*time.Millisecond, parts.Patience, func() (bool, error) {
		return p.once(pruner, Save).Removed == 1, nil
	})
	require.NoError(t, err)
	require.Empty(t, p.payloads())
	require.GreaterOrEqual(t, time.Since(inserted), time.Second-10*time.Millisecond)
}

func TestPruner_KeepsRowsWithOpenDeadLetters(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	kept := map[string][]string{}
	pruner := p.pruner(func(parts *Parts) {
		onDelivery(parts)
		parts.DeadLetters = func(context.Context) (own, foreign map[string][]string, err error) { return kept, nil, nil }
	})
	p.once(pruner, Save)
	p.insert("a")
	p.insert("b")
	var id string
	require.NoError(t, p.Conn.QueryRow(t.Context(), `SELECT id::text FROM outbox WHERE payload = 'b'`).Scan(&id))
	kept["public.outbox"] = []string{"another", id}
	require.EqualValues(t, 1, p.once(pruner, Save).Removed)
	require.Equal(t, []string{"b"}, p.payloads())
	require.EqualValues(t, 1, p.once(pruner, DryRun).Held)
	kept["public.outbox"] = []string{""}
	require.Contains(t, p.once(pruner, Save).Refused, "an open dead letter without the id of its row")
	require.Equal(t, []string{"b"}, p.payloads())
	delete(kept, "public.outbox")
	require.EqualValues(t, 1, p.once(pruner, Save).Removed)
}

// A dead letter without the router's id has that of the replica identity, which need not be the primary key.
func TestPruner_KeepsRowsThatALetterNamesByTheReplicaIdentity(t *testing.T) {
	p := newPlace(t, "18")
	p.Exec(`ALTER TABLE outbox ADD type text NOT NULL UNIQUE DEFAULT gen_random_uuid(); ALTER TABLE outbox REPLICA IDENTITY USING INDEX outbox_type_key`)
	p.consume()
	pruner := p.pruner(func(parts *Parts) {
		onDelivery(parts)
		parts.DeadLetters = func(context.Context) (own, foreign map[string][]string, err error) {
			return map[string][]string{"public.outbox": {"the letter's"}}, nil, nil
		}
	})
	p.once(pruner, Save)
	p.Exec(`INSERT INTO outbox (payload, type) VALUES ('a', 'another'), ('b', 'the letter''s')`)
	require.EqualValues(t, 1, p.once(pruner, Save).Removed)
	require.Equal(t, []string{"b"}, p.payloads())
}

// The coverage is by the OID of the table, and a dead letter has its name of then.
func TestPruner_KeepsRowsWithOpenDeadLettersOfARenamedTable(t *testing.T) {
	for name, c := range map[string]struct{ rename, now string }{
		"RENAME TO":  {`ALTER TABLE outbox RENAME TO outbox2`, "public.outbox2"},
		"SET SCHEMA": {`CREATE SCHEMA apart; ALTER TABLE outbox SET SCHEMA apart`, "apart.outbox"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, "18")
			p.consume()
			p.once(p.pruner(onDelivery), Save)
			p.insert("a")
			p.insert("b")
			id, err := postgres.One[string](t.Context(), p.Conn, `SELECT id::text FROM outbox WHERE payload = 'b'`)
			require.NoError(t, err)
			p.Exec(c.rename)
			kept := map[string][]string{"public.outbox": {id}, "message:orders": {""}}
			pruner := p.pruner(func(parts *Parts) {
				onDelivery(parts)
				parts.Tables[0].Table = c.now
				parts.DeadLetters = func(context.Context) (own, foreign map[string][]string, err error) { return kept, nil, nil }
			})
			require.EqualValues(t, 1, p.once(pruner, Save).Removed)
			require.EqualValues(t, 1, p.once(pruner, DryRun).Held)
			kept["public.outbox"] = []string{""}
			require.Contains(t, p.once(pruner, Save).Refused, "an open dead letter without the id of its row")
			delete(kept, "public.outbox")
			require.EqualValues(t, 1, p.once(pruner, Save).Removed)
		})
	}
}

func TestPruner_RefusesTablesThatADeleteWouldNotLeaveAlone(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	p.Exec(`CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'`)
	pruner := p.pruner(onDelivery)
	p.once(pruner, Save)
	p.insert("a")
	for _, bad := range []struct{ do, undo, want, fix string }{
		{`CREATE TABLE child (n bigint REFERENCES outbox)`, `DROP TABLE child`, "is referenced by a foreign key of public.child", "ALTER TABLE public.child DROP CONSTRAINT child_n_fkey;"},
		{`CREATE TRIGGER "My Trigger" BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION f()`, `DROP TRIGGER "My Trigger" ON outbox`, "has a trigger that a delete fires: My Trigger", `DISABLE TRIGGER "My Trigger"`},
		{`CREATE TRIGGER s AFTER DELETE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION f()`, `DROP TRIGGER s ON outbox`, "has a trigger", "DISABLE TRIGGER"},
		{`CREATE RULE r AS ON DELETE TO outbox DO ALSO NOTHING`, `DROP RULE r ON outbox`, "has a rule for deletes: r", "DROP RULE"},
	} {
		p.Exec(bad.do)
		r := p.once(pruner, Save)
		require.Contains(t, r.Refused, bad.want)
		require.Contains(t, r.Fix, bad.fix)
		require.Zero(t, r.Removed)
		p.Exec(bad.undo)
	}
	p.Exec(`CREATE TRIGGER i BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION f()`)
	p.Exec(`DROP TRIGGER i ON outbox`)
	require.EqualValues(t, 1, p.once(pruner, Save).Removed)

	missing := p.pruner(func(parts *Parts) { parts.Config.Column = "no such column" })
	require.Contains(t, p.once(missing, Save).Refused, `has no column "no such column"`)
	text := p.pruner(func(parts *Parts) { parts.Config.Column = "payload" })
	require.Contains(t, p.once(text, Save).Refused, `has no column "payload" of a type of time`)
	p.Exec(`ALTER PUBLICATION postrider SET TABLE outbox WHERE (number > 5)`)
	require.Contains(t, p.once(pruner, Save).Refused, "has a row filter")
	p.Exec(`ALTER PUBLICATION postrider SET TABLE outbox`)

	role := p.Name + "_least"
	p.Exec(`CREATE ROLE ` + role + ` LOGIN REPLICATION`)
	t.Cleanup(func() { _, _ = p.Conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	p.Postgres.URL = withUser(p.Postgres, role)
	least := p.pruner(onDelivery)
	_, err := least.Once(t.Context(), Save)
	requireFix(t, err, "GRANT SELECT, INSERT, UPDATE, DELETE ON public.postrider_prune TO")
	p.Exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON public.postrider_prune TO ` + role)
	for _, grant := range []string{"SELECT", "DELETE"} {
		require.Contains(t, p.once(least, Save).Refused, "takes SELECT, DELETE, and UPDATE of one column")
		p.Exec(`GRANT ` + grant + ` ON outbox TO ` + role)
	}
	fix := p.once(least, Save).Fix
	_, grant, _ := strings.Cut(fix, ": ")
	p.Exec(grant)
	require.Empty(t, p.once(least, Save).Refused)
	p.insert("b")
	require.EqualValues(t, 1, p.once(least, Save).Removed, "what was granted is enough")
	p.Exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`)
	require.Contains(t, p.once(least, Save).Refused, "has row security")
	p.Exec(`ALTER TABLE postrider_prune OWNER TO ` + role + `; CREATE ROLE ` + role + `2; ALTER TABLE postrider_prune OWNER TO ` + role + `2`)
	t.Cleanup(func() { _, _ = p.Conn.Exec(context.Background(), `DROP OWNED BY `+role+`2; DROP ROLE `+role+`2`) })
	least.Close()
	_, err = least.Once(t.Context(), Save)
	requireFix(t, err, "DROP TABLE public.postrider_prune;\npsql")
	p.Exec(`DROP TABLE postrider_prune`)
	least.Close()
	_, err = least.Once(t.Context(), Save)
	requireFix(t, err, "sql/prune.sql")
}

func requireFix(t *testing.T, err error, fix string) {
	t.Helper()
	var advised *slot.Error
	require.ErrorAs(t, err, &advised)
	require.Contains(t, advised.Fix, fix)
	require.Equal(t, nothingRemoved, advised.WAL)
}

// A standby with recovery_min_apply_delay has received everything, and applies it hours later.
func TestRows_DoNotWaitForADelayedStandby(t *testing.T) {
	primary := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18"})
	standby := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18"})
	require.NoError(t, standby.Stop(t.Context()))
	require.NoError(t, primary.Stop(t.Context()))
	require.NoError(t, standby.CopyFrom(primary, map[string]string{"standby.signal": ""}))
	require.NoError(t, standby.SetParam("recovery_min_apply_delay", "1h"))
	require.NoError(t, standby.SetParam("primary_conninfo", fmt.Sprintf("host=127.0.0.1 port=%d user=postgres", primary.Port())))
	require.NoError(t, primary.Start(t.Context()))
	require.NoError(t, standby.Start(t.Context()))
	conn := parts.Connect(t, primary.DSN())
	parts.Await(t, "the standby", func() (bool, error) {
		return postgres.One[bool](t.Context(), conn, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')`)
	})
	for _, transaction := range []string{`CREATE TABLE filler (x text)`, // whose commit is what the standby delays
		`INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 5000)`} {
		_, err := conn.Exec(t.Context(), transaction)
		require.NoError(t, err)
	}
	parts.Await(t, "the standby to be behind in nothing but applying", func() (bool, error) {
		return postgres.One[bool](t.Context(), conn, `SELECT bool_and(flush_lsn > replay_lsn + 2000000 AND flush_lsn + 100000 > pg_current_wal_lsn()) FROM pg_stat_replication`)
	})
	r := &rows{conn: conn, cfg: Config{MaxLag: 1 << 20}}
	ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
	defer cancel()
	require.NoError(t, r.awaitLag(ctx))
}

// A receiver that replays nothing, as pg_receivewal, says what it has flushed only at the end of a segment.
func TestRows_DoNotWaitForAReceiverThatReplaysNothing(t *testing.T) {
	server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "18"})
	conn := parts.Connect(t, server.DSN())
	receiver, err := postgres.ConnectReplication(t.Context(), testdb.ConfigOf(server.DSN()))
	require.NoError(t, err)
	defer postgres.Close(receiver)
	_, err = conn.Exec(t.Context(), `SELECT pg_create_physical_replication_slot('receiver')`)
	require.NoError(t, err)
	from, err := postgres.One[string](t.Context(), conn, `SELECT pg_current_wal_flush_lsn()::text`)
	require.NoError(t, err)
	flushed, err := pglogrepl.ParseLSN(from)
	require.NoError(t, err)
	require.NoError(t, pglogrepl.StartReplication(t.Context(), receiver, "receiver", flushed, pglogrepl.StartReplicationOptions{Mode: pglogrepl.PhysicalReplication}))
	status := []byte{pglogrepl.StandbyStatusUpdateByteID}
	for _, field := range []uint64{uint64(flushed), uint64(flushed), 0, 0} { // written, flushed, replayed, the time
		status = binary.BigEndian.AppendUint64(status, field)
	}
	receiver.Frontend().Send(&pgproto3.CopyData{Data: append(status, 0)})
	require.NoError(t, receiver.Frontend().Flush())
	_, err = conn.Exec(t.Context(), `CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 5000)`)
	require.NoError(t, err)
	behind := func() (bool, error) {
		return postgres.One[bool](t.Context(), conn, `SELECT EXISTS (SELECT FROM pg_stat_replication
			WHERE state = 'streaming' AND flush_lsn + 2000000 < pg_current_wal_lsn() AND replay_lsn IS NULL)`)
	}
	parts.Await(t, "the receiver to be behind", behind)
	lag, err := postgres.One[int64](t.Context(), conn, selectLag, "")
	require.NoError(t, err)
	require.Zero(t, lag)
	still, err := behind()
	require.NoError(t, err)
	require.True(t, still)
}

// The statements are made of parts: all of them have to be understood by the server, whatever the configuration.
func TestPruner_EveryStatement(t *testing.T) {
	p := newPlace(t, "18")
	p.Exec(`ALTER TABLE outbox ADD created_at timestamptz NOT NULL DEFAULT now()`)
	p.consume()
	p.once(p.pruner(onDelivery), Save)
	for _, indexed := range []bool{true, false} {
		for _, column := range []string{"created_at", "number"} {
			if indexed {
				p.Exec(`CREATE INDEX indexed_` + column + ` ON outbox (` + column + `)`)
			} else {
				p.Exec(`DROP INDEX indexed_` + column)
			}
			for _, onDelivery := range []bool{true, false} {
				for _, kept := range []string{"", "some id"} {
					pruner := p.pruner(func(parts *Parts) {
						parts.Config.Column, parts.Config.OnDelivery, parts.Config.Retention = column, onDelivery, time.Microsecond
						parts.DeadLetters = func(context.Context) (own, foreign map[string][]string, err error) {
							if kept == "" {
								return nil, nil, nil
							}
							return map[string][]string{"public.outbox": {kept}}, nil, nil
						}
					})
					p.once(pruner, Save) // begins a coverage with this column
					p.insert("a")
					p.once(pruner, Save) // makes a mark
					p.once(pruner, DryRun)
					p.once(pruner, Save)
					require.NotContains(t, p.payloads(), "a")
				}
			}
		}
	}
}

func TestPruner_TwoTakeTurns(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	unlock, err := lock(t.Context(), p.rows, p.Name, 0)
	require.NoError(t, err)
	pruner := p.pruner(onDelivery)
	_, err = pruner.Once(t.Context(), Save)
	require.ErrorIs(t, err, ErrBusy)
	unlock()
	p.once(pruner, Save)
}

func TestPruner_NamesTheSessionThatKeepsItsLock(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	unlock, err := lock(t.Context(), p.rows, p.Name, 0)
	require.NoError(t, err)
	pruner := p.pruner(onDelivery)
	var log bytes.Buffer
	pruner.parts.Log = zerolog.New(&log)
	run := func() error {
		report, err := pruner.Once(t.Context(), Save)
		pruner.record(report, err)
		return err
	}
	for range 3 { // the run of another process is no failure
		err := run()
		require.ErrorIs(t, err, ErrBusy)
		require.Empty(t, log.String())
	}
	pruner.busy = pruner.busy.Add(-longestRun)
	err = run()
	pid := fmt.Sprint(p.rows.PgConn().PID())
	require.ErrorContains(t, err, "pid "+pid)
	require.Contains(t, log.String(), "pg_terminate_backend("+pid+")")
	require.Equal(t, 1.0, testutil.ToFloat64(pruner.parts.Metrics.PruneFailures))
	said := log.Len()
	require.ErrorIs(t, run(), ErrBusy)
	require.Equal(t, said, log.Len(), "once per cause")
	unlock()
	require.NoError(t, run())
	require.Contains(t, log.String(), "rows are pruned again")
}

func TestPruner_RunsWhileTheRelayStreams(t *testing.T) {
	p := newPlace(t, "18")
	p.consume()
	pruner := p.pruner(func(parts *Parts) { onDelivery(parts); parts.Config.Interval = 100 * time.Millisecond })
	set := pruner.parts.Metrics
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { pruner.Run(ctx, func() bool { return true }); close(ended) }()
	gone := func() bool {
		return testutil.ToFloat64(set.PruneRows.WithLabelValues("public.outbox")) == 5
	}
	_, err := postgres.Poll(t.Context(), 20*time.Millisecond, parts.Patience, func() (bool, error) {
		return testutil.CollectAndCount(set.PruneLastRun) == 1, nil
	})
	require.NoError(t, err)
	for i := range 5 {
		p.insert(fmt.Sprint(i))
	}
	_, err = postgres.Poll(t.Context(), 20*time.Millisecond, parts.Patience, func() (bool, error) { return gone(), nil })
	require.NoError(t, err)
	require.True(t, gone())
	cancel()
	<-ended
	require.Zero(t, testutil.ToFloat64(set.PruneFailures))
}

func TestConfig_NamesTheFix(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	for want, change := range map[string]func(*Config){
		"prune.retention = 0s: must be greater than zero; to remove rows as soon as they are delivered set prune.on_delivery = true": func(c *Config) { c.Retention = 0 },
		"prune.interval":     func(c *Config) { c.Interval = 0 },
		"prune.chunk_rows":   func(c *Config) { c.ChunkRows = 0 },
		"prune.lock_timeout": func(c *Config) { c.LockTimeout = 0 },
		"prune.max_lag":      func(c *Config) { c.MaxLag = 0 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
	}
	cfg := DefaultConfig()
	cfg.OnDelivery, cfg.Retention = true, 0
	require.NoError(t, cfg.Validate())
}

// withUser is the URL of a configuration with another role.
func withUser(cfg postgres.Config, role string) secret.Secret {
	text, err := cfg.URL.Reveal()
	if err != nil {
		panic(err)
	}
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	u.User = url.User(role)
	return secret.Of(u.String())
}

// With the server away, connections end in several ways.
func TestReason_IsOneHoweverAConnectionWasLost(t *testing.T) {
	lost := func(how string) string {
		return reason(fmt.Errorf("look at table: %w: %s", postgres.ErrUnreachable, how))
	}
	require.Equal(t, lost("connection reset by peer"), lost("unexpected EOF"))
	require.NotEqual(t, lost("unexpected EOF"), reason(errors.New("no right")))
}
