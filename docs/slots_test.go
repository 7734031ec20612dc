package docs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

func TestMain(m *testing.M) { parts.Main(m) }

// statement is one of RUNBOOKS.md or SLOTS.md, which somebody types at night.
type statement struct {
	sql   string
	since int // major version; zero: all that are supported
}

var (
	sqlBlock   = regexp.MustCompile("(?s)```sql\n(.*?)```")
	sinceLine  = regexp.MustCompile(`^-- (\d+) or newer\n`)
	endOfOne   = regexp.MustCompile(`;\s*(?:\n|$)`)
	gidOfGuide = regexp.MustCompile(`PREPARED '([^']+)'`)
)

func statements(t *testing.T) (found []statement) {
	t.Helper()
	for _, block := range sqlBlock.FindAllStringSubmatch(read(t, "RUNBOOKS.md")+read(t, "SLOTS.md"), -1) {
		sql, since := block[1], 0
		if m := sinceLine.FindStringSubmatch(sql); m != nil {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			sql, since = sql[len(m[0]):], n
		}
		for _, one := range endOfOne.Split(sql, -1) {
			if one = strings.TrimSpace(one); one != "" {
				found = append(found, statement{one, since})
			}
		}
	}
	require.Greater(t, len(found), 20)
	return found
}

// prepare makes what the statements name: two slots that nobody reads, and a prepared transaction. A slot is not created before every
// transaction that has written has ended, so it comes first.
func prepare(t *testing.T, conn *pgx.Conn, gid string) {
	t.Helper()
	var slots, prepared int
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_prepared_xacts)").Scan(&slots, &prepared))
	var missing []string
	if slots < 2 {
		if prepared > 0 {
			missing = append(missing, "ROLLBACK PREPARED '"+gid+"'")
		}
		missing = append(missing, `SELECT pg_create_logical_replication_slot(name, 'pgoutput') FROM unnest(ARRAY['postrider', 'forgotten']) AS name
			WHERE name NOT IN (SELECT slot_name FROM pg_replication_slots)`)
	}
	if slots < 2 || prepared == 0 {
		missing = append(missing, "CREATE TABLE IF NOT EXISTS written (id integer)",
			"BEGIN", "INSERT INTO written VALUES (1)", "PREPARE TRANSACTION '"+gid+"'")
	}
	for _, sql := range missing {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
}

func TestOperations_EveryStatementRuns(t *testing.T) {
	all := statements(t)
	gid := gidOfGuide.FindStringSubmatch(read(t, "SLOTS.md"))
	require.NotNil(t, gid)
	for _, version := range []string{"14", "17", "18"} {
		t.Run(version, func(t *testing.T) {
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: map[string]string{"max_prepared_transactions": "2"}})
			conn := parts.Connect(t, pg.DSN())
			major, err := strconv.Atoi(version)
			require.NoError(t, err)
			for _, s := range all {
				if s.since > major {
					continue
				}
				prepare(t, conn, gid[1])
				_, err := conn.Exec(t.Context(), s.sql, pgx.QueryExecModeSimpleProtocol)
				require.NoError(t, err, s.sql)
			}
		})
	}
}

// The advice for a slot that is unreserved: raise the limit, and run no CHECKPOINT.
func TestOperations_RaisingTheLimitSavesASlotAndACheckpointTakesIt(t *testing.T) {
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version})
			conn := parts.Connect(t, pg.DSN())
			exec := func(sql string) {
				_, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
				require.NoError(t, err, sql)
			}
			await := func(question, want, meanwhile string) {
				require.Eventually(t, func() bool {
					if meanwhile != "" {
						exec(meanwhile)
					}
					var answer string
					err := conn.QueryRow(context.Background(), question).Scan(&answer)
					return err == nil && answer == want
				}, time.Minute, 10*time.Millisecond, "%s: %s", question, want)
			}
			const status = "SELECT wal_status FROM pg_replication_slots"
			// The server tells its processes of a new setting one after the other, the checkpointer after us. A second change is told only
			// when all know of the first.
			changes := 0
			limit := func(size string) {
				exec("ALTER SYSTEM SET max_slot_wal_keep_size = '" + size + "'")
				exec("SELECT pg_reload_conf()")
				changes++
				await("SHOW max_slot_wal_keep_size", size, "")
				exec(fmt.Sprintf("ALTER SYSTEM SET deadlock_timeout = '%dms'", 1000+changes))
				exec("SELECT pg_reload_conf()")
				await("SHOW deadlock_timeout", fmt.Sprintf("%dms", 1000+changes), "")
			}
			exec("SELECT pg_create_logical_replication_slot('postrider', 'pgoutput')")
			for range 4 {
				exec("SELECT pg_logical_emit_message(false, 'fill', 'a segment is switched only if something is in it')")
				exec("SELECT pg_switch_wal()")
			}
			await(status, "reserved", "")

			limit("1MB")
			await(status, "unreserved", "")
			limit("-1")
			await(status, "reserved", "")
			exec("CHECKPOINT")
			await(status, "reserved", "")

			limit("1MB")
			await(status, "lost", "CHECKPOINT")
			limit("-1")
			await(status, "lost", "")
			var position string
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT confirmed_flush_lsn::text FROM pg_replication_slots").Scan(&position))
			require.NotEmpty(t, position, "from where on rows are missing")
		})
	}
}

var runbookPoints = []string{"Symptom", "Meaning", "Look at", "Do", "Prevent"}

func TestOperations_EveryRunbookHasItsFivePoints(t *testing.T) {
	_, alerts, found := strings.Cut(read(t, "RUNBOOKS.md"), "\n## Alerts\n")
	alerts, _, _ = strings.Cut(alerts, "\n## ")
	require.True(t, found)
	runbooks := regexp.MustCompile(`(?m)^### `).Split(alerts, -1)[1:]
	require.Greater(t, len(runbooks), 20)
	for _, runbook := range runbooks {
		name, text, _ := strings.Cut(runbook, "\n")
		for _, point := range runbookPoints {
			require.Regexp(t, `(?m)^- \*\*`+point+`\*\*: \S[^\n]*(?:\n  [^\n]*)*[.?]$`, text, name)
		}
	}
}

// Links lead to headings as GitHub names them.
func TestPages_LinksLeadToHeadings(t *testing.T) {
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	link := regexp.MustCompile(`\]\(([A-Za-z0-9_./-]*)(?:#([^)]+))?\)`)
	headings := map[string]map[string]bool{}
	dropped := regexp.MustCompile("[^a-z0-9_ -]")
	for path, text := range pages(t) {
		text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
		anchors, seen := map[string]bool{}, map[string]int{}
		for _, m := range heading.FindAllStringSubmatch(text, -1) {
			anchor := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
			if n := seen[anchor]; n > 0 {
				anchors[anchor+"-"+strconv.Itoa(n)] = true
			}
			seen[anchor]++
			anchors[anchor] = true
		}
		headings[filepath.Join("../docs", path)] = anchors
	}
	for path, text := range pages(t) {
		text = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllString(text, "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := filepath.Join("../docs", path)
			if m[1] != "" {
				target = filepath.Join("../docs", filepath.Dir(path), m[1])
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", path, m[1])
			}
			if m[2] != "" {
				require.True(t, headings[target][m[2]], "%s: %s has no heading #%s", path, target, m[2])
			}
		}
	}
}
