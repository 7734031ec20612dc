package monitor

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

// What is committed while the publication is read must not be taken for something else. Looks follow one another without a pause here, so that many of the
// changes come in the middle of one.
func TestMonitor_TakesAChangeBetweenItsStatementsForWhatItIs(t *testing.T) {
	t.Parallel()
	const again = 40
	db := parts.Postgres(t, "17")
	looking, changing := db.Connect(t), db.Connect(t)
	for name, c := range map[string]struct{ sql, text string }{
		"publication dropped": {"DROP PUBLICATION postrider", "does not exist"},
		"table taken out":     {"ALTER PUBLICATION postrider DROP TABLE outbox", "is not in publication"},
		"table recreated":     {"BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY); COMMIT", "is not in publication"},
	} {
		t.Run(name, func(t *testing.T) {
			for range again {
				_, err := changing.Exec(t.Context(), `DROP PUBLICATION IF EXISTS postrider; DROP TABLE IF EXISTS outbox;
					CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR TABLE outbox`)
				require.NoError(t, err)
				m := New(postgres.DefaultConfig(), slot.Requirements{Publication: "postrider", Tables: []string{"public.outbox"}}, DefaultConfig(), nil, zerolog.Nop())
				require.NoError(t, m.publicationProblem(t.Context(), looking, slot.Status{}))
				changed := make(chan error, 1)
				go func() {
					_, err := changing.Exec(t.Context(), c.sql)
					changed <- err
				}()
				var problem error
				for began := time.Now(); problem == nil && time.Since(began) < time.Minute; {
					problem = m.publicationProblem(t.Context(), looking, slot.Status{})
				}
				require.NoError(t, <-changed)
				require.ErrorContains(t, problem, c.text)
			}
		})
	}
}
