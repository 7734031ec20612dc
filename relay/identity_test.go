package relay

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// met is a relay that has read timeline 2 of a server up to 500, published two messages of a transaction at 300, three of one at 400 and one of one
// at 450, and confirmed 420.
func met(log *bytes.Buffer) *Relay {
	r := New(DefaultConfig(), Parts{Metrics: metrics.New(prometheus.NewRegistry(), "slot"), Log: zerolog.New(log)})
	r.lastServer = serverPosition{replication.Place{SystemID: "7", Timeline: 2, LSN: 500}, 420}
	for _, commit := range []pglogrepl.LSN{300, 300, 400, 400, 400, 450} {
		r.published.add(commit)
	}
	return r
}

func promotedAt(fork pglogrepl.LSN, reason string) replication.Identity {
	return replication.Identity{SystemID: "7", Timeline: 3, WrittenLSN: 900, History: []replication.Switch{
		{Timeline: 1, LSN: 100, Reason: "no recovery target specified"}, {Timeline: 2, LSN: fork, Reason: reason},
	}}
}

func TestRecognise_ReportsWhatAFailoverLost(t *testing.T) {
	const promoted = "no recovery target specified"
	for name, c := range map[string]struct {
		server   replication.Identity
		phantoms int
		logged   string
	}{
		"the same server":              {replication.Identity{SystemID: "7", Timeline: 2, WrittenLSN: 500}, 0, ""},
		"all is there":                 {promotedAt(500, promoted), 0, "has everything that was read before"},
		"the end is not there":         {promotedAt(420, promoted), 1, "consumers have messages of transactions that are not in the database any more"},
		"more is not there":            {promotedAt(400, promoted), 4, "consumers have messages"},
		"nothing of ours was lost":     {promotedAt(451, promoted), 0, "none of it was published"},
		"the server cannot report it":  {replication.Identity{SystemID: "7", Timeline: 3, WrittenLSN: 900}, 0, "at an unknown position"},
		"it cannot, and lacks the end": {replication.Identity{SystemID: "7", Timeline: 3, WrittenLSN: 430}, 1, "consumers have messages"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := met(&log)
			require.NoError(t, r.checkServer(c.server, 350))
			require.Equal(t, c.phantoms, r.State().Phantoms.Messages)
			require.InDelta(t, c.phantoms, testutil.ToFloat64(r.parts.Metrics.PhantomMessages), 0)
			require.Contains(t, log.String(), c.logged)
			require.Equal(t, c.logged == "", log.Len() == 0)

			if c.phantoms > 0 || strings.Contains(c.logged, "none of it") || strings.Contains(c.logged, "unknown") {
				require.Equal(t, pglogrepl.LSN(350), r.lastServer.LSN, "a position of another branch")
			} else {
				require.Equal(t, pglogrepl.LSN(500), r.lastServer.LSN, "what was read stays read")
			}
			before := log.Len()
			require.NoError(t, r.checkServer(c.server, 350))
			require.Equal(t, before, log.Len(), "logged again")
		})
	}
}

func TestRecognise_RefusesAnotherHistory(t *testing.T) {
	for name, c := range map[string]struct {
		server replication.Identity
		seed   pglogrepl.LSN
		want   error
		text   string
	}{
		"another cluster":           {replication.Identity{SystemID: "8", Timeline: 2, WrittenLSN: 900}, 420, replication.ErrIdentityChanged, "system identifier is 8, was 7"},
		"an earlier timeline":       {replication.Identity{SystemID: "7", Timeline: 1, WrittenLSN: 900}, 420, replication.ErrIdentityChanged, "timeline is 1, was 2"},
		"less WAL than there was":   {replication.Identity{SystemID: "7", Timeline: 2, WrittenLSN: 499}, 420, replication.ErrIdentityChanged, "read up to 0/1F4 before"},
		"recovery to a point":       {promotedAt(400, "before 2026-01-02 03:04:05+00"), 350, replication.ErrIdentityChanged, "4 messages"},
		"a slot of the lost branch": {promotedAt(400, "no recovery target specified"), 420, replication.ErrSlotUnusable, "would never be sent"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := met(&log)
			before := r.lastServer
			err := r.checkServer(c.server, c.seed)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, before, r.lastServer)
			class, _ := Classify(err, false)
			require.Equal(t, Fatal, class)
		})
	}
}

// Another relay may have taken over meanwhile and moved the slot on.
func TestRecognise_TakesASlotThatWasMovedOnAfterTheFork(t *testing.T) {
	var log bytes.Buffer
	r := met(&log)
	require.NoError(t, r.checkServer(promotedAt(400, "no recovery target specified"), 410))
	require.Equal(t, 4, r.State().Phantoms.Messages)
}

func TestHanded_CountsEachTransactionOnce(t *testing.T) {
	const newSession = 0
	var h publishedCounts
	n, all := h.after(0)
	require.Zero(t, n)
	require.True(t, all, "nothing was handed over")
	for _, commit := range []pglogrepl.LSN{10, 20, 20, 30, newSession, 20, 20, 30, 40, 40, newSession, 40} {
		if commit == newSession {
			h.begin()
			continue
		}
		h.add(commit)
	}
	for fork, want := range map[pglogrepl.LSN]int{0: 6, 10: 6, 11: 5, 20: 5, 21: 3, 40: 2, 41: 0} {
		n, all := h.after(fork)
		require.Equal(t, want, n, "from %d on", fork)
		require.True(t, all)
	}
}

func TestHanded_SaysWhenItDoesNotReachBack(t *testing.T) {
	var h publishedCounts
	for n := range 2 * publishedTransactions {
		h.add(pglogrepl.LSN(n + 1))
	}
	n, all := h.after(publishedTransactions + 1)
	require.Equal(t, publishedTransactions, n)
	require.False(t, all)
	n, all = h.after(2*publishedTransactions - 9)
	require.Equal(t, 10, n)
	require.True(t, all)

	h.forget(publishedTransactions + 11)
	n, all = h.after(1)
	require.Equal(t, 10, n)
	require.False(t, all)
	h.forget(0)
	h.add(7)
	n, all = h.after(7)
	require.Equal(t, 1, n)
	require.False(t, all)
}

// A session that never opens completely reads nothing, and what an earlier one has read stays read.
func TestRecognise_RemembersWhatWasReadAcrossSessionsThatDoNotOpen(t *testing.T) {
	var log bytes.Buffer
	r := met(&log)
	same := replication.Identity{SystemID: "7", Timeline: 2, WrittenLSN: 500}
	for range 3 {
		require.NoError(t, r.checkServer(same, 350))
	}
	require.NoError(t, r.checkServer(promotedAt(400, "no recovery target specified"), 350))
	require.Equal(t, 4, r.State().Phantoms.Messages)
}

func TestHanded_KeepsWhatASessionHasNotPublishedAgainYet(t *testing.T) {
	var h publishedCounts
	for _, commit := range []pglogrepl.LSN{10, 20, 20, 30} {
		h.add(commit)
	}
	h.begin()
	h.add(10)
	n, all := h.after(15)
	require.Equal(t, 3, n)
	require.True(t, all)
	h.add(15)
	n, _ = h.after(10)
	require.Equal(t, 2, n, "the stream sends another transaction in that place: the later ones are not there")
}

// Rows are published before their commit record is read: a standby may lack just that.
func TestRecognise_CountsATransactionThatWasReadInPart(t *testing.T) {
	for name, c := range map[string]struct {
		begin         replication.Event
		transactional sink.Transactional
		fork          pglogrepl.LSN
		phantoms      int
	}{
		"a transaction":                  {replication.Event{Kind: replication.Begin, XID: 9, LSN: 450}, nil, 445, 1},
		"a message between transactions": {replication.Event{Kind: replication.Begin, LSN: 445}, nil, 445, 0},
		"relay.exactly_once":             {replication.Event{Kind: replication.Begin, XID: 9, LSN: 450}, struct{ sink.Transactional }{}, 445, 0},
		"relay.exactly_once, more is lost": {replication.Event{Kind: replication.Begin, XID: 9, LSN: 450},
			struct{ sink.Transactional }{}, 400, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			r := met(&log)
			r.lastServer.LSN = 445
			s := &session{stream: &replication.Stream{}, window: newWindow(350, upTo(10, 10)), transactional: c.transactional}
			require.NoError(t, s.begin(&c.begin))
			r.close(s)
			require.NoError(t, r.checkServer(promotedAt(c.fork, "no recovery target specified"), 350))
			require.Equal(t, c.phantoms, r.State().Phantoms.Messages)
		})
	}
}
