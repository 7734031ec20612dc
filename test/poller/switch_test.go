package poller

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/test/parts"
)

const (
	configure = "1. Configure"
	compare   = "3. Compare"
	switchTo  = "4. Switch"
	verify    = "5. Verify"
	wayBack   = "7. The way back"
)

// The page is followed for each table from the first step to the last, while rows are written: no
// event is lost, and none is repeated.
func TestPoller_IsReplacedWithoutLossOrRepetition(t *testing.T) {
	for _, s := range tables {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			x := newSite(t, s)
			endWriting, endPolling := x.write(t), x.poll(t)
			x.awaitWritten(t, 50)

			said, err := x.run(t, x.page[configure][0])
			require.Error(t, err)
			require.Contains(t, said, " 1 error")
			require.Contains(t, said, "failing: slot "+strings.TrimSuffix(x.prefix, "."))
			require.Contains(t, x.page[compare][0], "--duration 24h")
			said = x.follow(t, strings.NewReplacer("24h", "5s", "shadow.", x.prefix+"shadow.").
				Replace(x.page[compare][0]))
			require.Regexp(t, `equal: [0-9]{2,} events, byte for byte`, said)

			x.broker.DeleteTopic(t, x.prefix+"shadow."+x.topic)
			x.configure(t, x.file(t, ".toml"))

			endPolling()
			x.awaitWritten(t, 50) // no process publishes these
			create, run, _ := strings.Cut(x.page[switchTo][0], "postrider run")
			require.Equal(t, "\n", run)
			x.follow(t, create)
			x.awaitWritten(t, 50)
			relay := x.start(t, "postrider run")
			relay.AwaitLog(t, "streaming started")
			x.awaitWritten(t, 50)
			endWriting()
			x.awaitReceived(t)
			x.verify(t)
			lost, repeated := x.received(t)
			require.Zero(t, lost)
			require.Zero(t, repeated)
			x.wayBack(t, relay)
		})
	}
}

// wayBack marks the rows of before the first sweep, has postrider publish and mark more of them, and
// lets the poller go on.
func (x *site) wayBack(t *testing.T, relay *parts.Relay) {
	t.Helper()
	conn := x.db.Connect(t)
	x.markAll(t, conn)
	endWriting := x.write(t)
	until := x.written.Load() + 100
	parts.Await(t, "rows marked by postrider", func() (bool, error) {
		waiting := x.waiting(t, conn)
		return x.written.Load() > until && !slices.Contains(waiting, int(until)), nil
	})
	relay.Stop(t)
	published := numbers(t, x.broker.All(t, x.topic))
	again := 0 // published, and not marked
	for _, n := range x.waiting(t, conn) {
		if published[n] {
			again++
		}
	}
	endPolling := x.poll(t)
	x.follow(t, x.page[wayBack][0])
	x.awaitWritten(t, 50)
	endWriting()
	x.awaitReceived(t)
	parts.Await(t, "no row waiting", func() (bool, error) { return len(x.waiting(t, conn)) == 0, nil })
	endPolling()
	lost, repeated := x.received(t)
	require.Zero(t, lost)
	require.Equal(t, again, repeated)
}

// markAll marks every row that waits, as the page's UPDATE does for one of the tables.
func (x *site) markAll(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	from := regexp.MustCompile(`FROM (\S+)`).FindStringSubmatch(x.pending)[1]
	id, _, _ := strings.Cut(strings.TrimPrefix(x.pending, "SELECT "), ",")
	rows, err := conn.Query(t.Context(), "SELECT "+id+" FROM "+from)
	require.NoError(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), x.mark, ids)
	require.NoError(t, err)
}

// verify types the commands of the page's step, about all rows.
func (x *site) verify(t *testing.T) {
	t.Helper()
	const until = " --until 10s"
	require.Contains(t, x.page[verify][0], until)
	said := x.follow(t, strings.Replace(x.page[verify][0], until, "", 1))
	require.Regexp(t, `(?m)^lost +0$`, said)
}

// Without the id of the row in the poller's records the page's other way loses nothing either, and
// repeats no more than what was committed between the creation of the slot and the poller's end.
func TestPoller_WithoutIDsRepeatsWhatWasCommittedMeanwhile(t *testing.T) {
	t.Parallel()
	x := newSite(t, tables[0])
	x.anonymous = true
	endWriting, endPolling := x.write(t), x.poll(t)
	x.awaitWritten(t, 50)
	before := int(x.written.Load())
	x.follow(t, x.page[switchTo][1])
	after := int(x.written.Load())
	x.broker.ConsumeUntil(t, []string{x.topic}, func(records []*kgo.Record) bool {
		found := numbers(t, records)
		for n := range after {
			if !found[n] {
				return false
			}
		}
		return true
	})
	endPolling()
	x.awaitWritten(t, 50)
	published := len(x.broker.All(t, x.topic))
	x.start(t, "postrider run").AwaitLog(t, "streaming started")
	endWriting()
	x.awaitReceived(t)
	lost, repeated := x.received(t)
	require.Zero(t, lost)
	require.Positive(t, repeated, "the slot was created before the poller's end")
	require.LessOrEqual(t, repeated, published-before)
}
