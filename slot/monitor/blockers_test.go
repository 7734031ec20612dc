package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
)

// A standby that works moves its feedback. One that is gone, or hangs in a query, leaves it where it was.
func TestBlockers_NamesFeedbackThatIsStuck(t *testing.T) {
	start := time.Now()
	at := func(age int64, after time.Duration) timedAnswer {
		a := timedAnswer{after: start.Add(after)}
		a.Now = start.Add(after).Add(time.Hour) // the server's clock is ahead
		behind := age - 10
		a.Slots = []slotAnswer{
			{CatalogRow: slot.CatalogRow{Name: "ours", Slot: slot.Slot{Plugin: "pgoutput"}, CatalogXmin: 700}, CatalogXminAge: &age},
			{CatalogRow: slot.CatalogRow{Name: "by_xmin", Slot: slot.Slot{ActivePID: 7}}, Xmin: "710", XminAge: &behind},
			{CatalogRow: slot.CatalogRow{Name: "by_catalog_xmin", CatalogXmin: 700}, Xmin: "9999", XminAge: new(int64(1)), CatalogXminAge: &age},
			{CatalogRow: slot.CatalogRow{Name: "without_feedback"}},
		}
		a.Feedback = []blockerAnswer{{Blocker: Blocker{PID: 8, Application: "without_slot", User: "replicator"}, XID: 720, Age: age - 20}}
		return a
	}
	var seen firstSeen
	look := func(a timedAnswer) []Blocker {
		seen.round()
		return a.blockers(&seen)
	}
	require.Empty(t, look(at(5000, 0)), "nobody knows yet whether it moves")
	require.Empty(t, look(at(5100, 30*time.Second)))
	first := start.Add(time.Hour)
	require.Equal(t, []Blocker{
		{Kind: BlockerStandby, Application: "by_catalog_xmin", Age: 5200, Since: first},
		{Kind: BlockerStandby, PID: 7, Application: "by_xmin", Age: 5190, Since: first},
		{Kind: BlockerStandby, PID: 8, Application: "without_slot", User: "replicator", Age: 5180, Since: first},
	}, look(at(5200, time.Minute)))

	moved := at(5300, 2*time.Minute)
	moved.Slots[1].Xmin, moved.Slots[2].CatalogXmin, moved.Feedback[0].XID = "800", 800, 800
	require.Empty(t, look(moved))

	seen = firstSeen{}
	require.Empty(t, look(at(500, 0)))
	require.Empty(t, look(at(500, time.Hour)), "nothing happens on the server, so there is nothing to move for")
}

func TestBlockers_CountsFromWhenATransactionWasSeenIfItsBeginningIsHidden(t *testing.T) {
	start := time.Now()
	var seen firstSeen
	look := func(after time.Duration, held ...blockerAnswer) []Blocker {
		a := timedAnswer{after: start.Add(after)}
		a.Now, a.Transactions = a.after, held
		seen.round()
		return a.blockers(&seen)
	}
	began := start.Add(-time.Hour)
	young := blockerAnswer{Blocker: Blocker{PID: 1}, XID: 801, Age: 2}
	old := blockerAnswer{Blocker: Blocker{PID: 2, Since: began}, XID: 800, Age: 3}
	require.Equal(t, []Blocker{{Kind: BlockerTransaction, PID: 2, XID: 800, Age: 3, Since: began, Restart: true}}, look(0, young, old), "the other one has just begun, as far as known")
	require.Equal(t, []Blocker{
		{Kind: BlockerTransaction, PID: 2, XID: 800, Age: 3, Since: began, Restart: true},
		{Kind: BlockerTransaction, PID: 1, XID: 801, Age: 2, Since: start},
	}, look(5*time.Second, young, old))
	next := blockerAnswer{Blocker: Blocker{PID: 1}, XID: 802, Age: 1}
	require.Empty(t, look(10*time.Second, next), "the same process in its next transaction")
}
