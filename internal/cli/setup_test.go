package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// install is what a user has: a database, a broker that exists or not, and an environment that
// leads to them.
type install struct {
	t    *testing.T
	db   *parts.Database
	conn *pgx.Conn
	env  []string
}

func newInstall(t *testing.T, version string, brokers ...string) *install {
	t.Helper()
	t.Chdir(t.TempDir())
	db := parts.Postgres(t, version)
	if len(brokers) == 0 {
		brokers = []string{parts.Nobody(t)}
	}
	return &install{t: t, db: db, conn: db.Connect(t), env: []string{
		"POSTRIDER_POSTGRES_URL=" + db.DSN(),
		"POSTRIDER_SLOT_NAME=" + db.Name,
		"POSTRIDER_SINK_KAFKA_BROKERS=" + strings.Join(brokers, ","),
		"POSTRIDER_HTTP_LISTEN=127.0.0.1:0",
	}}
}

func (i *install) run(args ...string) result {
	i.t.Helper()
	return execute(i.t, i.env, args...)
}

// typed runs a command with something on standard input.
func (i *install) typed(stdin string, args ...string) result {
	i.t.Helper()
	return executeWith(i.t, strings.NewReader(stdin), i.env, args...)
}

func (i *install) ok(args ...string) result {
	i.t.Helper()
	r := i.run(args...)
	require.Equal(i.t, exit.OK, r.code, r.stdout+r.stderr)
	return r
}

func (i *install) exec(sql string) {
	i.t.Helper()
	_, err := i.conn.Exec(i.t.Context(), sql)
	require.NoError(i.t, err)
}

func (i *install) check(args ...string) (int, map[string]check.Finding) {
	i.t.Helper()
	r := i.run(append([]string{"check", "--json"}, args...)...)
	var got checkResult
	require.NoError(i.t, json.Unmarshal([]byte(r.stdout), &got), r.stdout+r.stderr)
	require.Equal(i.t, r.code == exit.OK, got.OK)
	byCode := map[string]check.Finding{}
	for _, f := range got.Findings {
		if have, ok := byCode[f.Code]; !ok || have.Severity != check.SeverityError {
			byCode[f.Code] = f
		}
	}
	return r.code, byCode
}

// topics are names of topics with their partitions.
type topics map[string]int32

// installWithKafka is newInstall with a broker that has the topics.
func installWithKafka(t *testing.T, version string, has topics) (*install, *embedded.Kafka) {
	t.Helper()
	k := kafkaBroker(t)
	for topic, partitions := range has {
		require.NoError(t, k.CreateTopic(topic, partitions))
	}
	return newInstall(t, version, k.Brokers()...), k
}

func kafkaBroker(t *testing.T) *embedded.Kafka {
	t.Helper()
	k, err := embedded.StartKafka(embedded.KafkaConfig{})
	require.NoError(t, err)
	t.Cleanup(k.Close)
	return k
}

func TestInit_CreatesWhatIsMissingAndLeavesTheRest(t *testing.T) {
	for _, preset := range []string{"plain", "partitioned", "debezium"} {
		t.Run(preset, func(t *testing.T) {
			i := newInstall(t, "17")
			r := i.ok("init", "--preset", preset)
			require.Empty(t, r.stdout)
			require.Contains(t, r.stderr,
				"table public.outbox created\npublication postrider created\nslot "+i.db.Name+" created")
			r = i.ok("init", "--preset", preset)
			require.Contains(t, r.stderr,
				"table public.outbox exists, left as it is\npublication postrider exists, left "+
					"as it is\nslot "+i.db.Name+" exists, left as it is")
			_, err := slot.VerifyPublication(t.Context(), i.conn, "postrider",
				[]string{"public.outbox"})
			require.NoError(t, err)
		})
	}
}

func TestInit_PrintsSQLThatDoesTheSameAndCanBeRepeated(t *testing.T) {
	for _, preset := range []string{"plain", "partitioned", "debezium"} {
		t.Run(preset, func(t *testing.T) {
			i := newInstall(t, "14")
			r := i.ok("init", "--print-sql", "--table", "Order Events", "--preset", preset,
				"--replication-publication", `The "publication" isn't`)
			// As psql: one transaction per statement.
			objects, slotSQL, found := strings.Cut(r.stdout, "-- From here on")
			require.True(t, found)
			var made slot.Status
			for range 2 {
				i.exec(objects)
				i.exec("-- From here on" + slotSQL)
				_, err := slot.VerifyPublication(t.Context(), i.conn, `The "publication" isn't`,
					[]string{"public.Order Events"})
				require.NoError(t, err)
				status, err := slot.Get(t.Context(), i.conn, i.db.Name)
				require.NoError(t, err)
				require.NoError(t, slot.Verify(status.Slot, i.db.Name))
				if made.Name != "" {
					require.Equal(t, made.ConfirmedFlushLSN, status.ConfirmedFlushLSN,
						"the slot is the one that was there")
				}
				made = status
			}
		})
	}
}

// How the function of an earlier version is replaced, as its owner, who may not replicate: init
// itself leaves it alone with its table.
func TestInit_PrintedSQLReplacesTheMaintenance(t *testing.T) {
	i := newInstall(t, "14")
	i.ok("init", "--preset", "partitioned")
	owner := "owner_" + i.db.Name
	i.exec(`CREATE ROLE ` + owner + ` LOGIN; GRANT CREATE ON SCHEMA public TO ` + owner + `;
		DO $$ DECLARE part regclass; BEGIN FOR part IN SELECT relid FROM pg_partition_tree('outbox') LOOP
			EXECUTE format('ALTER TABLE %s OWNER TO ` + owner + `', part); END LOOP; END $$;
		ALTER FUNCTION outbox_maintain OWNER TO ` + owner + `;
		CREATE OR REPLACE FUNCTION outbox_maintain(ahead integer DEFAULT 7, keep interval DEFAULT NULL) RETURNS void LANGUAGE sql AS 'SELECT'`)
	source := func() (of string) {
		require.NoError(t,
			i.conn.QueryRow(t.Context(),
				"SELECT prosrc FROM pg_proc WHERE proname = 'outbox_maintain'").Scan(&of))
		return of
	}
	i.ok("init", "--preset", "partitioned")
	require.Equal(t, "SELECT", source())
	script := i.ok("init", "--preset", "partitioned", "--print-sql").stdout
	i.exec("SET ROLE " + owner)
	objects, slotSQL, found := strings.Cut(script, "-- From here on")
	require.True(t, found)
	i.exec(objects)
	i.exec("-- From here on" + slotSQL) // a transaction of its own, as with psql
	require.Contains(t, source(), "DROP TABLE")
}

// A publication that others made is given the configured tables, and nothing else is changed about
// it.
func TestInit_AddsItsTablesToAPublicationThatExists(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		for _, way := range []string{"init", "--print-sql"} {
			t.Run(version+" "+way, func(t *testing.T) {
				i := newInstall(t, version)
				i.exec("CREATE TABLE others (id int PRIMARY KEY); CREATE PUBLICATION postrider " +
					"FOR TABLE others")
				if way == "init" {
					require.Contains(t, i.ok("init").stderr,
						"table public.outbox added to publication postrider")
				} else {
					objects, slotSQL, _ := strings.Cut(i.ok("init", "--print-sql").stdout,
						"-- From here on")
					i.exec(objects)
					i.exec("-- From here on" + slotSQL) // a transaction of its own, as with psql
				}
				p, err := slot.VerifyPublication(t.Context(), i.conn, "postrider",
					[]string{"public.outbox"})
				require.NoError(t, err)
				others, _, err := p.Others(t.Context(), i.conn)
				require.NoError(t, err)
				require.Equal(t, []string{"public.others"}, others)
				require.True(t, p.Delete, "its other settings are as they were")
				require.Contains(t, i.ok("init").stderr,
					"publication postrider exists, left as it is")
			})
		}
	}
}

// A superuser may add a table to every publication, and whoever made it could take the table out
// again.
func TestInit_AddsNoTableToAPublicationOfAnotherRole(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			i := newInstall(t, version)
			role := "another_" + i.db.Name
			i.exec("CREATE ROLE " + role +
				"; CREATE PUBLICATION postrider; ALTER PUBLICATION postrider OWNER TO " + role)
			r := i.run("init")
			require.Equal(t, exit.Config, r.code, r.stderr)
			require.Contains(t, r.stderr, `belongs to role "`+role+`"`)
			objects, _, _ := strings.Cut(i.ok("init", "--print-sql").stdout, "-- From here on")
			_, err := i.conn.Exec(t.Context(), objects)
			require.ErrorContains(t, err, "belongs to role "+role)
			code, found := i.check()
			require.Equal(t, exit.Config, code)
			fix := found["table"].Fix
			require.Regexp(t,
				`^ALTER PUBLICATION "postrider" OWNER TO ".*"; ALTER PUBLICATION "postrider" ADD TABLE `, fix)
			i.exec(fix)
			require.Contains(t, i.ok("init").stderr, "publication postrider exists, left as it is")
			i.exec(objects)
		})
	}
}

// On a standby the creation of a slot waits for what only the primary writes.
func TestInit_RefusesAStandbyAtOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	require.NoError(t, pg.Stop(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(pg.DataDir(), "standby.signal"), nil, 0o666))
	require.NoError(t, pg.Start(t.Context()))
	r := execute(t, []string{"POSTRIDER_POSTGRES_URL=" + pg.DSN()}, "init")
	require.Equal(t, exit.Temporary, r.code)
	require.Contains(t, r.stderr, "the server is a standby, and rows are relayed from the primary")
}

func TestInit_SaysWhatItLacks(t *testing.T) {
	i := newInstall(t, "17")
	i.exec("CREATE TABLE outbox (id int); CREATE PUBLICATION postrider WITH (publish = 'insert')")
	owner := i.env
	i.become("weak_"+i.db.Name, "LOGIN REPLICATION")
	r := i.run("init")
	require.Equal(t, exit.Permission, r.code)
	require.Contains(t, r.stderr, `ALTER PUBLICATION "postrider" ADD TABLE "public"."outbox";`)
	i.env = owner
	i.exec("ALTER PUBLICATION postrider SET (publish = 'update')")
	r = i.run("init")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, `ALTER PUBLICATION "postrider" SET (publish = 'insert');`)
	require.Equal(t, exit.Usage, i.run("init", "--preset", "fancy").code)
	require.Equal(t, exit.Usage, i.run("init", "--table", `a"b`).code)
}

func TestSlot_ListsShowsAndAsksBeforeItDestroys(t *testing.T) {
	i := newInstall(t, "17")
	name := i.db.Name
	require.Equal(t, exit.Config, i.run("slot", "create").code, "publication first")
	i.exec("CREATE TABLE outbox (id int)")
	i.exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	require.Contains(t, i.ok("slot", "create").stdout, "slot "+name+" created")
	require.Equal(t, exit.Runtime, i.run("slot", "create").code)
	require.Contains(t, i.ok("slot", "list").stdout, name)
	require.Contains(t, i.ok("slot", "show").stdout, "wal_status")

	var listed []slot.Status
	require.NoError(t, json.Unmarshal([]byte(i.ok("slot", "list", "--json").stdout), &listed))
	var shown slot.Status
	require.NoError(t, json.Unmarshal([]byte(i.ok("slot", "show", name, "--json").stdout), &shown))
	require.Equal(t, name, shown.Name)
	require.NotZero(t, shown.ConfirmedFlushLSN)

	i.exec("CREATE TABLE moves_the_wal (a int)")
	require.Equal(t, exit.Usage, i.run("slot", "advance", name).code, "where to is required")
	require.Equal(t, exit.Usage, i.run("slot", "advance", name, "--to", "F/0", "--yes").code,
		"beyond the server")
	require.Equal(t, exit.Usage, i.run("slot", "advance", name, "--to", "0/1", "--yes").code,
		"backwards")
	require.Equal(t, exit.Usage, i.run("slot", "advance", name, "--to", "current").code,
		"nothing was typed")
	r := i.typed(name+"\n", "slot", "advance", name, "--to", "current")
	require.Equal(t, exit.OK, r.code, r.stderr)
	after, err := slot.Get(t.Context(), i.conn, name)
	require.NoError(t, err)
	require.Greater(t, after.ConfirmedFlushLSN, shown.ConfirmedFlushLSN)

	r = i.typed("another\n", "slot", "drop", name)
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "nothing was changed")
	_, err = slot.Get(t.Context(), i.conn, name)
	require.NoError(t, err)
	after, err = slot.Get(t.Context(), i.conn, name)
	require.NoError(t, err)
	require.NotZero(t, after.CatalogXmin)
	require.Contains(t, i.ok("slot", "drop", name, "--yes").stdout,
		"--from-xmin "+strconv.FormatUint(uint64(after.CatalogXmin), 10), "nothing keeps it")
	require.Equal(t, exit.Config, i.run("slot", "drop", name, "--yes").code)
	require.Equal(t, exit.Usage, i.run("slot", "show", "Not-a-name").code)
}

func TestSlot_DropRefusesOneInUse(t *testing.T) {
	i := newInstall(t, "17")
	i.ok("init")
	require.Contains(t, i.ok("slot", "show", "--json").stdout, `"active": false`)
	defer i.holdSlot()()
	r := i.run("slot", "drop", i.db.Name, "--yes")
	require.Equal(t, exit.Temporary, r.code)
	require.Regexp(t, `is held by process \d+ of the database`, r.stderr)
}

func TestCheck_IsCleanAfterInit(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			i, _ := installWithKafka(t, version, topics{"outbox.event.order": 3})
			i.ok("init")
			i.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '7', 'OrderCreated', '{}')`)
			code, found := i.check()
			require.Equal(t, exit.OK, code, "%+v", found)
			for _, want := range []string{"configuration", "connection", "server_version",
				"wal_level", "publication", "table", "columns", "slot", "kafka", "topic"} {
				require.Equal(t, check.SeverityOK, found[want].Severity, "%s: %+v", want,
					found[want])
			}
			require.Equal(t, "outbox.event.order", found["topic"].Subject)
			text := i.ok("check")
			require.Contains(t, text.stdout, "0 error")
		})
	}
}

func TestCheck_ExitsWithTheClassOfTheProblem(t *testing.T) {
	k := kafkaBroker(t)
	for _, c := range []struct {
		name, code, fix string
		exit            int
		setup           func(i *install)
		args            []string
	}{
		{name: "unknown key", code: "configuration", exit: exit.Config,
			args: []string{"--set", "slot.nam=x"}},
		{name: "no publication", code: "publication", fix: "CREATE PUBLICATION", exit: exit.Config,
			setup: func(i *install) { i.exec("DROP PUBLICATION postrider") }},
		{name: "missing column", code: "columns", exit: exit.Config,
			setup: func(i *install) { i.exec("ALTER TABLE outbox RENAME payload TO body") }},
		{name: "no right to replicate", code: "role", fix: "ALTER ROLE", exit: exit.Permission,
			setup: func(i *install) { i.become("weak_"+i.db.Name, "LOGIN") }},
		{name: "missing topic", code: "topic", fix: "kafka-topics.sh", exit: exit.Config,
			args: []string{"--topic", "no.such.topic"}},
		{name: "unreachable database", code: "connection", exit: exit.Unavailable,
			setup: func(i *install) {
				i.env = append(i.env,
					"POSTRIDER_POSTGRES_URL=postgres://u:canary@"+parts.Nobody(i.t)+"/db?sslmode=disable")
			}},
		{name: "unreachable broker", code: "kafka", exit: exit.Unavailable,
			setup: func(i *install) {
				i.env = append(i.env, "POSTRIDER_SINK_KAFKA_BROKERS="+parts.Nobody(i.t))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := newInstall(t, "17", k.Brokers()...)
			i.ok("init")
			if c.setup != nil {
				c.setup(i)
			}
			code, found := i.check(c.args...)
			require.Equal(t, c.exit, code, "%+v", found)
			require.Equal(t, check.SeverityError, found[c.code].Severity, "%+v", found)
			require.Contains(t, found[c.code].Fix, c.fix)
			require.NotEmpty(t, found[c.code].Fix)
			text := i.run(append([]string{"check"}, c.args...)...)
			require.Equal(t, c.exit, text.code)
			require.NotContains(t, text.stdout+text.stderr, "canary")
		})
	}
}

func TestCheck_OfflineConnectsToNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	env := []string{"POSTRIDER_POSTGRES_URL=postgres://u:canary@127.0.0.1:1/db",
		"POSTRIDER_SINK_KAFKA_BROKERS=127.0.0.1:1"}
	r := execute(t, env, "check", "--offline")
	require.Equal(t, exit.OK, r.code, r.stdout+r.stderr)
	require.Contains(t, r.stdout, "1 ok")
	r = execute(t, nil, "check", "--offline")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stdout, "sink.kafka.brokers")
}

// become makes a role and has all further commands run as it.
func (i *install) become(role, options string) {
	i.t.Helper()
	i.exec("CREATE ROLE " + role + " " + options + " PASSWORD 'password of the test'")
	u, err := url.Parse(i.db.DSN())
	require.NoError(i.t, err)
	u.User = url.UserPassword(role, "password of the test")
	i.env = append(i.env, "POSTRIDER_POSTGRES_URL="+u.String())
}

// holdSlot streams from the slot until the returned function is called.
func (i *install) holdSlot() (release func()) {
	i.t.Helper()
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(i.db.DSN())
	conn, err := postgres.ConnectReplication(i.t.Context(), cfg)
	require.NoError(i.t, err)
	require.NoError(i.t,
		pglogrepl.StartReplication(i.t.Context(), conn, i.db.Name, 0,
			pglogrepl.StartReplicationOptions{
				PluginArgs: []string{"proto_version '1'", "publication_names 'postrider'"},
			}))
	return func() { _ = conn.Close(context.Background()) }
}
