package faults

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// TestFault37_HostileOperatorsAreNeverCalled runs the relay and the commands with a superuser's rights in a database whose owner has made a better match for
// all that a careless statement could mean, in the schema that is looked at first.
func TestFault37_HostileOperatorsAreNeverCalled(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version}) // roles are the whole server's
		r := newRig(t, pg.DSN(), parts.RealKafka(t))
		super := parts.Connect(t, r.dsn)
		do := func(script string) {
			_, err := super.Exec(t.Context(), script)
			require.NoError(t, err, script)
		}
		do("CREATE ROLE mallory; CREATE ROLE relay LOGIN SUPERUSER; CREATE SCHEMA relay AUTHORIZATION mallory")
		parts.SetTraps(t, super, "mallory", "relay")
		do("ALTER DATABASE " + pgx.Identifier{query[string](t, r.dsn, "SELECT current_database()")}.Sanitize() + ` SET search_path = "$user", public, pg_catalog`)
		u, err := url.Parse(r.dsn)
		require.NoError(t, err)
		u.User = url.User("relay")
		r.url = u.String()
		victim := parts.Connect(t, r.url)
		_, err = victim.Exec(t.Context(), "SELECT now()")
		require.NoError(t, err)
		require.True(t, parts.Sprung(t, super), "the trap is set")

		p := r.started(t)
		l := r.load(t, 50)
		l.more(t, 50)
		ran := 0
		command := func(status int, args ...string) {
			t.Helper()
			file := filepath.Join(t.TempDir(), "postrider.toml")
			require.NoError(t, os.WriteFile(file, []byte(r.config("")), 0o600))
			run, code := parts.RunRelay(t, parts.RelayConfig{OneLog: true}, append(args, "--config", file)...)
			require.GreaterOrEqual(t, code, 0, args)
			require.LessOrEqual(t, code, status, "%v: %s", args, run.Log.String())
			require.False(t, parts.Sprung(t, super), "%v called what is mallory's:\n%s", args, run.Log.String())
			ran++
		}
		command(1, "check") // it has warnings
		command(0, "slot", "list")
		command(0, "slot", "show")
		for _, preset := range []string{"plain", "debezium", "partitioned"} {
			command(0, "init", "--preset", preset, "--table", "public.made_"+preset, "--slot-name", parts.Unique("made"), "--replication-publication", parts.Unique("made"))
		}
		command(0, "init", "--print-sql")
		l.more(t, 50)
		l.end(t)
		r.drained(t, time.Minute)
		command(75, "audit")
		p.stop(t)
		command(75, "recover")
		require.False(t, parts.Sprung(t, super), "the relay called what is mallory's")
		matrix(t, 37, "", fmt.Sprintf("%d commands beside the relay, as a superuser: nothing of another role's was called", ran))
		requireExact(t, r.judge(t))
	})
}
