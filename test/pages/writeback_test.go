package pages

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

func TestWriteBack_DoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	p := open(t, "WRITE-BACK.md")
	s := newSite(t, outbox+`; ALTER TABLE outbox ADD published_at timestamptz, ADD status text NOT NULL DEFAULT 'PENDING',
		ADD attempts int NOT NULL DEFAULT 0, ADD last_error text`)
	s.psql("psql -v ON_ERROR_STOP=1 -f sql/writeback.sql")
	config := p.block("[write_back]")
	s.configure(config)
	require.Contains(t, s.check(), `GRANT SELECT, UPDATE ("published_at", "status", "attempts", "last_error") ON "public"."outbox" TO "postrider";`)
	// With the columns of the page's configuration.
	s.execAs(s.app, strings.Replace(p.block("GRANT SELECT, UPDATE (published_at)"), "published_at", "published_at, status, attempts, last_error", 1))
	s.execAs(s.admin, p.block("CREATE INDEX CONCURRENTLY ON public.outbox"))
	s.execAs(s.app, p.block("ALTER DEFAULT PRIVILEGES FOR ROLE app"))
	require.NotContains(t, s.check(), "UPDATE (")

	s.configure("")
	s.start().Stop(t)
	s.insert(3) // before the write-back is turned on
	s.configure(config)
	r := s.start("POSTRIDER_WRITE_BACK_INTERVAL=100ms")
	parts.Await(t, "a first sweep", func() (bool, error) { return s.count(`SELECT count(*) FROM postrider_prune`) > 0, nil })
	s.insert(5)
	pending := p.block("SELECT count(*) FILTER (WHERE published_at IS NULL) AS pending")
	awaitPending := func(n int) {
		parts.Await(t, "rows to be marked", func() (bool, error) {
			var found int
			var oldest any
			err := s.app.QueryRow(t.Context(), pending).Scan(&found, &oldest)
			return found == n, err
		})
	}
	awaitPending(3)
	require.Equal(t, 5, s.count(`SELECT count(*) FROM outbox WHERE status = 'PUBLISHED' AND published_at > now() - interval '1 hour'
		AND attempts = 1 AND last_error IS NULL`))
	p.exports(s, r, "postrider_write_back_")
	s.execAs(s.app, strings.Replace(p.inline("UPDATE public.outbox SET published_at = now() WHERE published_at IS NULL AND created_at < '...'"),
		"...", "infinity", 1))
	awaitPending(0)
	p.benchmark("writebackbench_test.go")
}

// check is what postrider check prints, whatever it finds.
func (s *site) check() string {
	s.Helper()
	r, _ := parts.RunRelay(s, parts.RelayConfig{Dir: s.dir}, "check")
	return r.Stdout.String()
}
