package relay

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// behind is a session that goes on behind a stored position.
func behind(stored sink.Position, seed pglogrepl.LSN) *session {
	s := &session{stream: &replication.Stream{}, window: newWindow(seed, upTo(10, 1000))}
	s.resume = resume{stored: stored, unverified: stored.LSN > seed}
	return s
}

// one takes a transaction through the session, and reports whether its row was left out.
func (s *session) one(begin, end pglogrepl.LSN, xid uint32, at time.Time) (left bool, err error) {
	if err := s.begin(&replication.Event{Kind: replication.Begin, LSN: begin, XID: xid, Time: at}); err != nil {
		return false, err
	}
	if left = s.resume.skipping; !left {
		s.window.tryAdd(1)
		s.window.done(s.transaction, 1, 0)
		s.txMessages++
	}
	return left, s.commit(&replication.Event{Kind: replication.Commit, LSN: end, XID: xid, Time: at})
}

// After a slot was rewound, any number of transactions may come again before the stored one.
func TestExactlyOnce_LeftOutTransactionsTakeOnePlace(t *testing.T) {
	const n = 200_000
	stored := sink.Position{LSN: 100 + 10*n, CommitTime: anyTime}
	s := behind(stored, 50)
	for i := range n {
		at := anyTime
		if i < n-1 {
			at = at.Add(-time.Hour)
		}
		left, err := s.one(pglogrepl.LSN(103+10*i), pglogrepl.LSN(110+10*i), 7, at)
		require.NoError(t, err)
		require.True(t, left)
		require.NoError(t, s.idle(&replication.Event{Kind: replication.Idle, LSN: pglogrepl.LSN(111 + 10*i)}))
		messages, _, _ := s.window.inFlight()
		if messages != 0 || unfinished(s.window) > 1 {
			require.FailNow(t, "they take room", "%d messages, %d transactions after %d", messages, unfinished(s.window), i+1)
		}
		if i < n-1 && s.window.ackedLSN() != 50 {
			require.FailNow(t, "confirmed before the stored one has come")
		}
	}
	require.Len(t, s.window.byIndex, 1)
	require.Equal(t, stored.LSN+1, s.window.ackedLSN())
}

// What is left out is confirmed when the stored transaction has come, as a whole or not at all, and nothing of it is published, nor anything behind left out.
func TestExactlyOnce_LeavesOutUpToTheStoredTransactionOrHalts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type transaction struct {
			begin, end pglogrepl.LSN
			xid        uint32
			at         time.Time
			idle       pglogrepl.LSN // behind it; zero: none
		}
		const seed = 100
		var history []transaction
		at := pglogrepl.LSN(seed)
		for i := range rapid.IntRange(1, 30).Draw(t, "transactions") {
			at += pglogrepl.LSN(rapid.IntRange(0, 2).Draw(t, "in between")) // a commit record may begin where the last one ends
			tx := transaction{begin: at, end: at + pglogrepl.LSN(rapid.IntRange(1, 3).Draw(t, "commit")), xid: uint32(i + 1),
				at: anyTime.Add(time.Duration(i) * time.Second)}
			if rapid.IntRange(0, 4).Draw(t, "kind") == 0 { // a message outside of a transaction
				tx.begin, tx.xid = tx.end, 0
			}
			at = tx.end
			if rapid.Bool().Draw(t, "idle") {
				at += pglogrepl.LSN(rapid.IntRange(0, 2).Draw(t, "idle behind"))
				tx.idle = at
			}
			history = append(history, tx)
		}
		n := rapid.IntRange(0, len(history)-1).Draw(t, "stored")
		stored := sink.Position{LSN: history[n].end, CommitTime: history[n].at}
		other := history[n].xid != 0 && rapid.Bool().Draw(t, "another history")
		if other {
			stored.CommitTime = stored.CommitTime.Add(time.Microsecond)
		}
		s := behind(stored, seed)
		for i, tx := range history {
			before := s.window.ackedLSN()
			left, err := s.one(tx.begin, tx.end, tx.xid, tx.at)
			if tx.idle != 0 && err == nil {
				err = s.idle(&replication.Event{Kind: replication.Idle, LSN: tx.idle})
			}
			acked := s.window.ackedLSN()
			s.window.visible(tx.end, func(time.Time) {})
			switch {
			case other && i == n:
				var diverged *StoredPositionError
				if !errors.As(err, &diverged) {
					t.Fatalf("went on behind a position of another history: %v", err)
				}
				if acked != seed {
					t.Fatalf("confirmed %s in another history", acked)
				}
				return
			case err != nil:
				t.Fatalf("transaction %d, stored is %d: %v", i, n, err)
			case left != (i <= n):
				t.Fatalf("transaction %d left out: %v, stored is %d", i, left, n)
			case i < n && acked != before:
				t.Fatalf("confirmed %s with transaction %d, stored is %d", acked, i, n)
			case i == n && acked != max(tx.end, tx.idle):
				t.Fatalf("confirmed %s with the stored transaction, which ends at %s", acked, tx.end)
			}
		}
	})
}

// What has no messages readers need not see, whatever came before it.
func TestExactlyOnce_ATransactionWithoutMessagesNeedsNoBoundary(t *testing.T) {
	s := behind(sink.Position{}, 100)
	s.transactional = struct{ sink.Transactional }{}
	_, err := s.one(103, 110, 1, anyTime)
	require.NoError(t, err)
	require.True(t, s.boundary.pending)
	require.EqualValues(t, 110, s.boundary.position.LSN)
	require.EqualValues(t, 100, s.window.ackedLSN(), "not visible yet")
	s.window.visible(110, func(time.Time) {})

	s.boundary.pending = false // the sink has it
	require.NoError(t, s.begin(&replication.Event{Kind: replication.Begin, LSN: 113, XID: 2, Time: anyTime}))
	require.NoError(t, s.commit(&replication.Event{Kind: replication.Commit, LSN: 120, XID: 2, Time: anyTime}))
	require.False(t, s.boundary.pending)
	require.EqualValues(t, 120, s.window.ackedLSN())
}

// An idle outbox brings no transaction by which the other history could show.
func TestExactlyOnce_AnIdlePositionBehindTheStoredOneTellsOfAnotherHistory(t *testing.T) {
	s := behind(sink.Position{LSN: 200, CommitTime: anyTime}, 100)
	left, err := s.one(103, 110, 1, anyTime.Add(-time.Hour))
	require.NoError(t, err)
	require.True(t, left)
	require.NoError(t, s.idle(&replication.Event{Kind: replication.Idle, LSN: 200}), "the stored one may still come")
	var diverged *StoredPositionError
	require.ErrorAs(t, s.idle(&replication.Event{Kind: replication.Idle, LSN: 201}), &diverged)
	require.Equal(t, replication.Diverged, diverged.Descent)
	require.EqualValues(t, 100, s.window.ackedLSN())
}
