package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/check"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/secret"
)

// heal types the SQL of a fix, without the remark behind each line.
func (i *install) heal(f check.Finding) {
	i.t.Helper()
	for line := range strings.Lines(f.Fix) {
		sql, _, _ := strings.Cut(line, " -- ")
		require.Contains(i.t, sql, ";", "no SQL: %s", f.Fix)
		for statement := range strings.SplitSeq(sql, ";") {
			if strings.TrimSpace(statement) != "" {
				i.exec(statement)
			}
		}
	}
}

const insertEvent = `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) `

func TestCheck_SamplesTheNewestRows(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			i, _ := installWithKafka(t, version, topics{"outbox.event.new": 1})
			i.ok("init")
			// more pages than are read
			i.exec(insertEvent +
				`SELECT 'old', g::text, 'Happened', '{}' FROM generate_series(1, 40000) g`)
			i.exec(insertEvent +
				`SELECT 'new', g::text, 'Happened', '{}' FROM generate_series(1, 40000) g`)
			code, found := i.check()
			require.Equal(t, exit.OK, code, "the topic of old rows is not needed any more: %+v",
				found)
			require.Contains(t, found["rows"].Observed, "the newest 1000")
			require.Equal(t, "outbox.event.new", found["topic"].Subject)
			require.Equal(t, check.SeverityOK, found["message_size"].Severity)
		})
	}
}

// The check of the status page runs unattended: a table's owner may grant SELECT, and the server
// plans reads with his code.
func TestCheck_BesideARelayReadsNoTableOfAnotherRole(t *testing.T) {
	i := newInstall(t, "18", kafkaBroker(t).Brokers()...)
	i.ok("init")
	i.exec(insertEvent + `VALUES ('new', '1', 'Happened', '{}')`)
	cfg := config.Default()
	cfg.Postgres.URL, cfg.Sink.Kind = secret.Of(i.db.DSN()), config.SinkStdout
	rows := func(mode string) bool {
		cfg.Snapshot.Mode = mode
		return slices.ContainsFunc(check.Beside(t.Context(), &config.Loaded{Config: cfg}, nil),
			func(f check.Finding) bool { return f.Code == "rows" })
	}
	require.True(t, rows(backfill.NoData), "its own")
	i.exec(`ALTER TABLE outbox OWNER TO pg_monitor`) // a role that is there
	require.False(t, rows(backfill.NoData))
	require.True(t, rows(backfill.Initial), "as the configuration says")
	_, found := i.check()
	require.Contains(t, found, "rows", "whoever runs the command says so")
}

func TestCheck_SamplesTheYoungestPartitionThatHasRows(t *testing.T) {
	i, _ := installWithKafka(t, "17", topics{"outbox.event.new": 1})
	i.ok("init", "--preset", "partitioned") // with empty partitions of days to come
	i.exec(`CREATE TABLE outbox_old PARTITION OF outbox FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')`)
	i.exec(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, created_at) VALUES ('old', '1', 'Happened', '2020-01-01 12:00')`)
	i.exec(`DROP TABLE outbox_old`)
	i.exec(insertEvent + `VALUES ('new', '1', 'Happened', '{}')`)
	_, found := i.check()
	require.Equal(t, "outbox.event.new", found["topic"].Subject, "%+v", found)
}

func TestCheck_WarnsOfARowThatWouldHaltTheRelay(t *testing.T) {
	i, _ := installWithKafka(t, "17", topics{"outbox.event.order": 1})
	i.ok("init")
	i.exec(`ALTER TABLE outbox ALTER COLUMN aggregate_id DROP NOT NULL, ALTER COLUMN aggregate_type DROP NOT NULL`)
	i.exec(insertEvent + `VALUES ('order', NULL, 'Happened', '{}')`)
	code, found := i.check()
	require.Equal(t, exit.OK, code)
	require.Equal(t, check.SeverityWarning, found["rows"].Severity)
	require.Contains(t, found["rows"].Fix, "router.null_key")
	require.Equal(t, check.SeverityWarning, found["columns_nullable"].Severity)
	require.Equal(t, "aggregate_type, aggregate_id may be NULL",
		found["columns_nullable"].Observed)

	_, found = i.check("--set", "router.null_key=publish")
	require.Equal(t, check.SeverityOK, found["rows"].Severity, "which is the fix")
	require.Equal(t, "aggregate_type may be NULL", found["columns_nullable"].Observed)

	i.exec("TRUNCATE outbox")
	_, found = i.check()
	i.heal(found["columns_nullable"])
	_, found = i.check()
	require.NotContains(t, found, "columns_nullable")

	i.exec(`ALTER TABLE outbox ALTER COLUMN event_type DROP NOT NULL`)
	_, found = i.check()
	require.NotContains(t, found, "columns_nullable")
	_, found = i.check("--set", "format.cloudevents=binary")
	require.Equal(t, "event_type may be NULL", found["columns_nullable"].Observed)
}

func TestCheck_ComparesTheLargestRowWithTheLimits(t *testing.T) {
	i, _ := installWithKafka(t, "17", topics{"outbox.event.order": 1})
	i.ok("init")
	i.exec(insertEvent + `VALUES ('order', '7', 'Happened', to_jsonb(repeat('x', 2000000)))`)
	code, found := i.check()
	require.Equal(t, exit.OK, code)
	require.Equal(t, check.SeverityWarning, found["message_size"].Severity)
	require.Contains(t, found["message_size"].Required, "sink.kafka.max_message_bytes, 1048576")
	_, found = i.check("--set", "sink.kafka.max_message_bytes=4MiB")
	require.Contains(t, found["message_size"].Required, "max.message.bytes, 1048588")
}

// A row of more than what answers about the server may measure.
func TestCheck_ReadsARowOfAnySize(t *testing.T) {
	i, _ := installWithKafka(t, "17", topics{"outbox.event.order": 1})
	i.ok("init")
	i.exec(insertEvent + `VALUES ('order', '7', 'Happened', to_jsonb(repeat('x', 20000000)))`)
	code, found := i.check()
	require.Equal(t, exit.OK, code)
	require.Equal(t, "the newest 1 can be routed", found["rows"].Observed)
	require.Equal(t, check.SeverityWarning, found["message_size"].Severity, "%+v", found)
	require.Contains(t, found, "output_plugin_libraries", "what is looked at behind the tables")
}

func TestCheck_NamesWhoHoldsTheSlotBack(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			i, _ := installWithKafka(t, version, nil)
			i.ok("init")
			long, err := pgx.Connect(t.Context(), i.db.DSN()+"&application_name=report")
			require.NoError(t, err)
			defer func() { _ = long.Close(t.Context()) }()
			_, err = long.Exec(t.Context(),
				"BEGIN; SELECT txid_current(); SELECT set_config('application_name', 'report "+
					"'||pg_backend_pid(), false)")
			require.NoError(t, err)
			args := []string{"--set", "health.held_warning=1ms", "--set",
				"health.inactive_warning=24h", "--set", "health.inactive_critical=24h"}
			var held check.Finding
			require.Eventually(t, func() bool {
				_, found := i.check(args...)
				held = found["PostriderHeldByTransaction"]
				return strings.Contains(held.Subject, "(report ")
			}, 2*time.Minute, 100*time.Millisecond, "a transaction is worth a word after a second")
			require.Equal(t, check.SeverityWarning, held.Severity)
			require.Equal(t, "docs/RUNBOOKS.md#postriderheldbytransaction", held.Docs)
			require.NotEmpty(t, held.Required)
			require.NotContains(t, i.run(append([]string{"check", "--json"}, args...)...).stdout,
				"PostriderNotReady", "check comes before run")
			i.heal(held)
			require.Eventually(t, func() bool {
				_, found := i.check(args...)
				return !strings.Contains(found["PostriderHeldByTransaction"].Subject, held.Subject)
			}, 2*time.Minute, 100*time.Millisecond)
		})
	}
}

func TestCheck_PutsTheVerdictLast(t *testing.T) {
	i, _ := installWithKafka(t, "17", nil)
	i.ok("init")
	last := func(r result) string {
		lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
		return lines[len(lines)-1]
	}
	require.Regexp(t,
		"^degraded: nothing keeps the relay from starting; the first warning: role postgres$",
		last(i.ok("check")))
	require.Regexp(t, "^failing: topic no.such: does not exist$",
		last(i.run("check", "--topic", "no.such")))
	require.Equal(t, "ok: nothing keeps the relay from starting", last(i.ok("check", "--offline")))
	text := i.ok("check").stdout
	for _, group := range []string{"This process\n", "\n\nPostgreSQL\n",
		"\n\nPublication and tables\n", "\n\nSlot\n", "\n\nKafka\n"} {
		require.Contains(t, text, group)
	}
	require.Contains(t, text, "\nwarning role postgres\n  observed: superuser\n")
	require.Contains(t, text, "\n  see:      docs/CHECK.md#role\n")
}

// The shape of --json is what scripts rely on.
func TestCheck_JSONHasEverythingOfAFinding(t *testing.T) {
	i, k := installWithKafka(t, "17", nil)
	i.ok("init")
	_, found := i.check("--topic", "no.such")
	require.Equal(t, check.Finding{
		Severity: check.SeverityError, Code: "topic", Subject: "no.such",
		Observed: "does not exist", Required: "an existing topic, or sink.kafka.topics.create",
		WAL: "the first row for it stops the relay there: the slot keeps what comes after, more " +
			"with every write",
		Fix: "kafka-topics.sh --bootstrap-server " + k.Brokers()[0] +
			" --create --topic no.such --partitions 6 --replication-factor 1",
		Docs: "docs/CHECK.md#topic", Class: check.ClassConfiguration,
	}, found["topic"])
	for code, f := range found {
		require.NotEmpty(t, f.Observed, code)
		if f.Severity == check.SeverityOK {
			require.Empty(t, f.Docs, code)
			continue
		}
		require.NotEmpty(t, f.Required, "%s: %+v", code, f)
		require.NotEmpty(t, f.Fix, "%s: %+v", code, f)
		require.NotEmpty(t, f.Docs, "%s: %+v", code, f)
	}
}

// Rows of any size, and any number of them, take no more memory than the sample's budget.
func TestSamples_KeepTheirBudget(t *testing.T) {
	i, _ := installWithKafka(t, "17", nil)
	i.ok("init")
	i.exec(insertEvent +
		`SELECT 'order', g::text, 'Happened', to_jsonb(repeat('x', 1000000)) FROM generate_series(1, 60) g`)
	_, found := i.check()
	require.Regexp(t, `the newest [34]\d can be routed`, found["rows"].Observed, "32 MiB of 60")
}
