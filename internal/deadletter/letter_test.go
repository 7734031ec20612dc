package deadletter

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
)

// recover and audit find the row of a letter by the id that the router takes, which need not be the first column of the primary key.
func TestLetter_OfARowThatCouldNotBeRoutedHasItsEventID(t *testing.T) {
	c := newCluster()
	k := openTracker(t, c, 0)
	defer k.Close()
	ev := &replication.Event{
		Kind: replication.Insert, LSN: 100, XID: 1, Time: time.Unix(1_700_000_000, 0),
		Relation: &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "tenant", Key: true}, {Name: "id", Key: true}}},
		Values:   [][]byte{[]byte("7"), []byte("41")},
	}
	m, err := k.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Reason: "null_route", Policy: DeadLetter,
		Err: &router.RowError{Reason: router.ReasonNullRoute, Relation: "public.outbox", EventID: "41"}})
	require.NoError(t, err)
	require.Equal(t, "41", headersOf(m)[HeaderEventID])
}

// Pruning compares with the primary key: another column would leave the row, which is the only copy, without protection.
func TestLetter_OfARowWithAFullReplicaIdentityIsNamedByTheRouterAlone(t *testing.T) {
	for id, unrouted := range map[string]error{"": nil, "41": &router.RowError{Reason: router.ReasonNullRoute, Relation: "public.outbox", EventID: "41"}} {
		k := openTracker(t, newCluster(), 0)
		ev := &replication.Event{
			Kind: replication.Insert, LSN: 100, XID: 1, Time: time.Unix(1_700_000_000, 0), Oversize: 1 << 30,
			Relation: &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "created_at", Key: true}, {Name: "id", Key: true}}},
			Values:   [][]byte{[]byte("2026-01-01 00:00:00+00"), []byte("41")},
		}
		m, err := k.DeadLetter(Poison{Event: ev, Cause: TooLarge, Policy: DeadLetter, Err: &replication.RowTooLargeError{}, Unrouted: unrouted})
		k.Close()
		require.NoError(t, err)
		require.Equal(t, string(FormClaim), headersOf(m)[HeaderForm])
		require.Equal(t, id, headersOf(m)[HeaderEventID])
	}
}

// A text column may hold anything. What does not fit into a record halts the relay, whatever the policy says.
func TestLetter_OfARowWithAHugeEventIDFits(t *testing.T) {
	c := newCluster()
	k := openTracker(t, c, 0)
	defer k.Close()
	huge := strings.Repeat("x", 2<<20)
	ev := &replication.Event{
		Kind: replication.Insert, LSN: 100, XID: 1, Time: time.Unix(1_700_000_000, 0),
		Relation: &replication.Relation{OID: 1, Namespace: "public", Name: "outbox", Columns: []replication.Column{{Name: "tenant", Key: true}, {Name: "id"}}},
		Values:   [][]byte{[]byte("7"), []byte(huge)},
	}
	m, err := k.DeadLetter(Poison{Event: ev, Cause: NotRoutable, Reason: "null_route", Policy: DeadLetter,
		Err: &router.RowError{Reason: router.ReasonNullRoute, Relation: "public.outbox", EventID: huge}})
	require.NoError(t, err)
	require.Less(t, m.Size(), k.writer.limit)
}

// The broker may refuse a message when its row is gone from memory. The name of its table may be another one's by the time of the redrive.
func TestLetter_ClaimOfAMessageHasTheOIDOfItsTable(t *testing.T) {
	c := newCluster()
	k := openTracker(t, c, 0)
	defer k.Close()
	_, m := message("k", 1, position{100, 0})
	m.Origin.OID = 16400
	letter, err := k.DeadLetter(Poison{Message: m, Cause: TooLarge, Policy: DeadLetter})
	require.NoError(t, err)
	require.Equal(t, string(FormClaim), headersOf(letter)[HeaderForm])
	d, err := parseDocument(letter.Value)
	require.NoError(t, err)
	require.EqualValues(t, 16400, d.OID)
}
