package slot

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/test/parts"
)

// At the start of a page or a segment the next record stands behind a header, where no record ends: an idle server would never come to that position.
func TestEndOfRecord_IsBeforeTheHeaderOfAPage(t *testing.T) {
	const block, segment = 8 << 10, 16 << 20
	for insert, want := range map[pglogrepl.LSN]pglogrepl.LSN{
		5*segment + 40: 5 * segment, 5*segment + block + 24: 5*segment + block, 5*segment + block + 40: 5*segment + block + 40,
		5*segment + 48: 5*segment + 48, 5*segment + block + 104: 5*segment + block + 104,
	} {
		require.Equal(t, want, endOfRecord(insert, block, segment), "next at %s", insert)
	}
}

// Tables have rows with the same ids, and their unique columns are of any length.
func TestRowID_TellsRowsApart(t *testing.T) {
	key := func(values ...string) (unique [][]byte) {
		for _, v := range values {
			unique = append(unique, []byte(v))
		}
		return unique
	}
	id := rowID(10, key("a", "bc"))
	require.Equal(t, id, rowID(10, key("a", "bc")))
	require.NotEqual(t, id, rowID(11, key("a", "bc")))
	require.NotEqual(t, id, rowID(10, key("ab", "c")))
	require.NotEqual(t, id, rowID(10, key("a", "bd")))
}

// What is committed while the publication is read must not be taken for something else. Looks follow one another without a pause here, so that many of the
// changes come in the middle of one.
func TestMonitor_TakesAChangeBetweenItsStatementsForWhatItIs(t *testing.T) {
	const again = 40
	db := parts.Postgres(t, "17")
	looking, changing := db.Connect(t), db.Connect(t)
	for name, c := range map[string]struct{ sql, text string }{
		"publication dropped": {"DROP PUBLICATION postrider", "does not exist"},
		"table taken out":     {"ALTER PUBLICATION postrider DROP TABLE outbox", "is not in publication"},
		"table created anew":  {"BEGIN; DROP TABLE outbox; CREATE TABLE outbox (id int PRIMARY KEY); COMMIT", "is not in publication"},
	} {
		t.Run(name, func(t *testing.T) {
			for range again {
				_, err := changing.Exec(t.Context(), `DROP PUBLICATION IF EXISTS postrider; DROP TABLE IF EXISTS outbox;
					CREATE TABLE outbox (id int PRIMARY KEY); CREATE PUBLICATION postrider FOR TABLE outbox`)
				require.NoError(t, err)
				m := NewMonitor(postgres.DefaultConfig(), Requirements{Publication: "postrider", Tables: []string{"public.outbox"}}, DefaultMonitorConfig(), nil, zerolog.Nop())
				require.NoError(t, m.publicationProblem(t.Context(), looking, Status{}))
				changed := make(chan error, 1)
				go func() {
					_, err := changing.Exec(t.Context(), c.sql)
					changed <- err
				}()
				var problem error
				for began := time.Now(); problem == nil && time.Since(began) < time.Minute; {
					problem = m.publicationProblem(t.Context(), looking, Status{})
				}
				require.NoError(t, <-changed)
				require.ErrorContains(t, problem, c.text)
			}
		})
	}
}
