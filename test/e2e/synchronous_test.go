package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// Where synchronous_standby_names takes every client of the WAL, the relay is a synchronous standby: each COMMIT waits until it has confirmed. It
// must not wait for that COMMIT in turn.
func TestSynchronous_ARelayThatIsTheStandbyHoldsUpNoCommit(t *testing.T) {
	t.Parallel()
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: "17"})
	for name, of := range map[string]string{"plain": "FOR TABLE plain", "partitions": "FOR ALL TABLES"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			topic := c.Topic(t, 1)
			s := &shop{
				Database: parts.NewDatabase(t, fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", pg.Port())), cluster: c,
				slot: parts.Unique("e2e"), file: filepath.Join(t.TempDir(), "postrider.toml"),
			}
			s.Exec(t, assignedSQL+"CREATE TABLE plain (LIKE outbox INCLUDING IDENTITY); CREATE PUBLICATION postrider "+of)
			s.sql = s.Connect(t)
			table := map[string]string{"plain": "plain", "partitions": "outbox"}[name]
			s.configure(t, "[replication]\ntables = [\"public."+table+"\"]\n"+routeTo(topic, ""))
			r := s.run(t)
			s.do(t, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
			parts.Await(t, "a synchronous standby", func() (yes bool, err error) {
				err = s.sql.QueryRow(t.Context(), "SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication").Scan(&yes)
				return yes, err
			})
			for n := range 3 {
				s.do(t, fmt.Sprintf(`INSERT INTO %s (day, aggregate_type, aggregate_id, payload) VALUES (%d, 'order', 'k', '{"n": %d}')`, table, n%2+1, n))
			}
			s.do(t, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
			s.awaitConfirmed(t, r)
			r.Stop(t)
			require.Len(t, s.All(t, topic), 3)
		})
	}
}
