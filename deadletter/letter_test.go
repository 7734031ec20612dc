package deadletter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/replication"
	"postrider/router"
)

// recover and audit find the row of a letter by the id that the router takes, which need not be the first column of the primary key.
func TestLetter_OfARowThatCouldNotBeRoutedHasItsEventID(t *testing.T) {
	c := newCluster()
	k := openKeeper(t, c, 0)
	defer k.Close()
	ev := &replication.Event{
		Kind: replication.Insert, LSN: 100, XID: 1, Time: time.Unix(1_700_000_000, 0),
		Relation: &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "tenant", Key: true}, {Name: "id", Key: true}}},
		Values:   [][]byte{[]byte("7"), []byte("41")},
	}
	m, err := k.Letter(Poison{Event: ev, Cause: NotRoutable, Reason: "null_route", Policy: DeadLetter,
		Err: &router.RowError{Reason: router.ReasonNullRoute, Relation: "public.outbox", EventID: "41"}})
	require.NoError(t, err)
	require.Equal(t, "41", headersOf(m)[HeaderEventID])
}
