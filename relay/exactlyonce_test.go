package relay_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/test/parts"
)

// ledger is a broker with transactions: what is published can be seen when the boundary behind it is committed.
type ledger struct {
	mu      sync.Mutex
	stored  sink.Position
	begun   []sink.Source
	visible []string
	hold    bool        // boundaries are taken and not committed
	held    int         // of them
	ending  func(error) // of the session that has one held
}

type ledgerSink struct {
	sink.Sink
	ledger    *ledger
	committed sink.Committed

	mu   sync.Mutex
	open []string
}

// open makes the sink of a session out of one in memory, which does the writing.
func (l *ledger) open(x *setup) func(context.Context, sink.Done, sink.Committed) (sink.Transactional, error) {
	return func(ctx context.Context, done sink.Done, committed sink.Committed) (sink.Transactional, error) {
		s, err := x.broker.Open(ctx, done)
		return &ledgerSink{Sink: s, ledger: l, committed: committed}, err
	}
}

func (s *ledgerSink) Publish(ctx context.Context, ms []*sink.Message) error {
	s.mu.Lock()
	before := len(s.open)
	for _, m := range ms {
		s.open = append(s.open, string(m.Value))
	}
	s.mu.Unlock()
	err := s.Sink.Publish(ctx, ms)
	if refused, ok := errors.AsType[*sink.MessageError](err); ok && refused.Untaken {
		s.mu.Lock()
		defer s.mu.Unlock()
		taken := slices.IndexFunc(ms, func(m *sink.Message) bool { // the others of Origin may be released meanwhile
			return m.Origin.Transaction == refused.Origin.Transaction && m.Origin.Index == refused.Origin.Index
		})
		s.open = s.open[:before+taken]
	}
	return err
}

func (s *ledgerSink) Begin(_ context.Context, source sink.Source) (sink.Position, error) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	s.ledger.begun = append(s.ledger.begun, source)
	return s.ledger.stored, nil
}

func (s *ledgerSink) Boundary(p sink.Position) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if s.ledger.hold {
		s.ledger.held++
		s.ledger.ending = func(err error) { s.committed(0, err) }
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.visible = append(s.ledger.visible, strings.Join(s.open, ","))
	s.ledger.stored, s.open = p, nil
	go s.committed(p.LSN, nil) // a callback; the sink of the test ends with the session
}

func (l *ledger) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.visible...)
}

func (x *setup) exactlyOnce(l *ledger) {
	x.cfg.ExactlyOnce = true
	x.parts.Broker.OpenTransactional = l.open(x)
	x.parts.Source.Database, x.parts.Source.Slot = "shop", x.slot
}

func TestExactlyOnce_PublishesWholeTransactionsWithTheirPosition(t *testing.T) {
	x := newSetup(t)
	l := &ledger{}
	x.exactlyOnce(l)
	x.cfg.InFlightMessages = 4 // less than a transaction has
	// Of so many, some begin to be published together with the end of the one before.
	var all [][]string
	last := 0
	for i := range 60 {
		from := last + 1
		last = from + []int{9, 0, 2, 4}[i%4]
		x.insert(from, last)
		all = append(all, events(from, last))
	}
	commits := x.commits()
	end := commits[len(commits)-1].LSN
	r := x.run()
	require.Eventually(t, func() bool {
		return strings.HasSuffix(strings.Join(l.seen(), ";"), fmt.Sprint("event ", last))
	}, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	var whole []string
	for first := range all {
		for last := first; last < len(all); last++ {
			whole = append(whole, strings.Join(slices.Concat(all[first:last+1]...), ","))
		}
	}
	require.Subset(t, whole, l.seen())
	require.Equal(t, "shop", l.begun[0].Database)
	require.Equal(t, x.slot, l.stored.Source.Slot)
	x.requireConfirmed(end, l.stored)
}

func TestExactlyOnce_ConfirmsNothingBeforeItIsVisible(t *testing.T) {
	x := newSetup(t)
	l := &ledger{hold: true}
	x.exactlyOnce(l)
	x.cfg.DrainTimeout = 1
	before := x.confirmed()
	x.insert(1, 3)
	r := x.run()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		st := r.State()
		return l.held == 1 && st.Published == 3 && st.InFlight <= 1 // the transaction, which is held
	}, patience, 1e6)
	r.stop()
	require.ErrorIs(t, r.end(), relay.ErrDrainTimeout)
	require.Empty(t, l.seen())
	require.Equal(t, before, x.confirmed(), "written is not visible")
}

// An operator may move the slot past the row at which the relay halts: what is before it must be committed, not only written.
func TestExactlyOnce_HaltsBehindTheCommitOfWhatIsBefore(t *testing.T) {
	x := newSetup(t)
	x.parts.DeadLetters.Policies = deadletter.DefaultConfig()
	l := &ledger{hold: true}
	x.exactlyOnce(l)
	x.insert(1, 3)
	x.exec(`INSERT INTO outbox VALUES (4, NULL, 'a', 'it has no topic')`)
	before := x.commits()[0].LSN
	r := x.run()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.held == 1
	}, patience, 1e6)
	l.mu.Lock()
	l.hold = false
	l.mu.Unlock()
	l.ending(sink.ErrUnreachable) // the coordinator, while the relay waits
	var halt *relay.HaltError
	require.ErrorAs(t, r.end(), &halt)
	require.Equal(t, []string{"event 1,event 2,event 3"}, l.seen())
	x.requireConfirmed(before, l.stored)
}

// The sink refuses a message before it has got the boundary of the transactions before it, with which it gets them.
func TestExactlyOnce_HaltsBehindTheTransactionsBeforeARefusedMessage(t *testing.T) {
	x := newSetup(t)
	x.parts.DeadLetters.Policies = deadletter.DefaultConfig()
	l := &ledger{}
	x.exactlyOnce(l)
	x.broker.Refuse(about("event 5", sink.ErrTooLarge), nil)
	x.insert(1, 2)
	x.insert(3, 3)
	x.insert(4, 6)
	x.insert(7, 7)
	before := x.commits()[1].LSN
	r := x.run()
	var halt *relay.HaltError
	require.ErrorAs(t, r.end(), &halt)
	require.ErrorIs(t, halt, sink.ErrTooLarge)
	require.Equal(t, "event 1,event 2,event 3", strings.Join(l.seen(), ","), "whole transactions")
	x.requireConfirmed(before, l.stored)
}

func TestExactlyOnce_LeavesOutWhatIsStored(t *testing.T) {
	x := newSetup(t)
	l := &ledger{}
	x.exactlyOnce(l)
	seed := x.confirmed()
	x.insert(1, 3)
	r := x.run()
	require.Eventually(t, func() bool { return len(l.seen()) == 1 }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())

	// A slot that did not receive it, as after a kill.
	x.slot = x.slot + "_old"
	x.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `', 'pgoutput')`)
	x.insert(4, 4)
	x.insert(5, 5)
	l.stored = x.firstCommit(l.stored)
	require.Less(t, seed, l.stored.LSN)
	end := x.commits()[1].LSN
	r = x.run()
	require.Eventually(t, func() bool { return strings.HasSuffix(strings.Join(l.seen(), ";"), "event 5") }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"event 1,event 2,event 3", "event 5"}, l.seen())
	x.requireConfirmed(end, l.stored)
}

// The stored position is the end of a commit record. Of transactions that commit at the same time the next one's commit record begins there.
func TestExactlyOnce_PublishesWhatCommitsRightBehindTheStoredPosition(t *testing.T) {
	x := newSetup(t)
	l := &ledger{}
	x.exactlyOnce(l)
	one, other := x.db.Connect(t), x.db.Connect(t)
	n := 0
	for adjacent := false; !adjacent; { // others may write WAL in between
		n += 2
		for i, conn := range []*pgx.Conn{one, other} {
			_, err := conn.Exec(x.ctx, `BEGIN`)
			require.NoError(t, err)
			_, err = conn.Exec(x.ctx, `INSERT INTO outbox SELECT n, 'Order', 'key', 'event ' || n FROM (SELECT $1::int AS n) AS row`, n+i)
			require.NoError(t, err)
		}
		for _, conn := range []*pgx.Conn{one, other} {
			_, err := conn.Exec(x.ctx, `COMMIT`)
			require.NoError(t, err)
		}
		commits := x.commits()
		l.stored = commits[len(commits)-2]
		var begin []byte // of the last one: its commit LSN, the time, and the transaction
		require.NoError(t, x.conn.QueryRow(x.ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
			'proto_version', '1', 'publication_names', 'postrider') WITH ORDINALITY AS change(lsn, xid, data, n)
			WHERE get_byte(data, 0) = ascii('B') ORDER BY n DESC LIMIT 1`, x.slot).Scan(&begin))
		adjacent = pglogrepl.LSN(binary.BigEndian.Uint64(begin[1:])) == l.stored.LSN
	}
	l.stored.Source = x.source()
	end := x.commits()[n-1].LSN
	r := x.run()
	require.Eventually(t, func() bool { return r.State().AckedLSN >= end }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{fmt.Sprint("event ", n+1)}, l.seen())
	x.requireConfirmed(end, l.stored)
}

// requireConfirmed requires that the stored position is the end of the last transaction with rows, and that all is confirmed up to it. More may be:
// others write WAL, too, as the background writer does, and an idle relay confirms it.
func (x *setup) requireConfirmed(end pglogrepl.LSN, stored sink.Position) {
	x.t.Helper()
	require.Equal(x.t, end, stored.LSN)
	require.GreaterOrEqual(x.t, x.confirmed(), end)
}

// firstCommit is p with the end and the commit time of the first transaction that the slot has.
func (x *setup) firstCommit(p sink.Position) sink.Position {
	x.t.Helper()
	first := x.commits()[0]
	p.LSN, p.CommitTime = first.LSN, first.CommitTime
	return p
}

// commits are the ends and commit times of the transactions that the slot has.
func (x *setup) commits() (commits []sink.Position) {
	x.t.Helper()
	rows, err := x.conn.Query(x.ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'publication_names', 'postrider') WHERE get_byte(data, 0) = ascii('C')`, x.slot)
	require.NoError(x.t, err)
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		// Flags, commit LSN, end LSN, and microseconds since 2000.
		commits = append(commits, sink.Position{LSN: pglogrepl.LSN(binary.BigEndian.Uint64(data[10:])),
			CommitTime: time.UnixMicro(946684800_000000 + int64(binary.BigEndian.Uint64(data[18:])))})
		return nil
	})
	require.NoError(x.t, err)
	require.NotEmpty(x.t, commits)
	return commits
}

// The server was put back to an earlier state and has gone on: at the stored position another transaction ends, or none.
func TestExactlyOnce_LeavesOutNothingOfAnotherHistory(t *testing.T) {
	for name, change := range map[string]func(*sink.Position){
		"another transaction ends there": func(p *sink.Position) { p.CommitTime = p.CommitTime.Add(time.Microsecond) },
		"none ends there":                func(p *sink.Position) { p.LSN++ },
	} {
		t.Run(name, func(t *testing.T) {
			x := newSetup(t)
			l := &ledger{}
			x.exactlyOnce(l)
			before := x.confirmed()
			x.insert(1, 3)
			x.insert(4, 4)
			l.stored = x.firstCommit(l.stored)
			l.stored.Source = x.source()
			change(&l.stored)
			r := x.run()
			var stored *relay.StoredPositionError
			require.ErrorAs(t, r.end(), &stored)
			require.Equal(t, replication.Diverged, stored.Descent)
			require.Empty(t, l.seen())
			require.Less(t, x.confirmed(), l.stored.LSN)
			require.Equal(t, before, x.confirmed(), "nothing is confirmed that may have been left out by mistake")
		})
	}
}

// source is what a session with the setup's slot calls itself.
func (x *setup) source() sink.Source {
	x.t.Helper()
	s := sink.Source{Timeline: 1, Database: "shop", Slot: x.slot}
	require.NoError(x.t, x.conn.QueryRow(x.ctx, `SELECT system_identifier::text FROM pg_control_system()`).Scan(&s.SystemID))
	return s
}

func TestExactlyOnce_RefusesAPositionOfAnotherHistory(t *testing.T) {
	for name, change := range map[string]func(*sink.Position){
		"timeline": func(p *sink.Position) { p.Source.Timeline += 7 },
		"not yet written": func(p *sink.Position) {
			p.LSN += 1 << 40
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newSetup(t)
			l := &ledger{}
			x.exactlyOnce(l)
			x.insert(1, 3)
			r := x.run()
			require.Eventually(t, func() bool { return len(l.seen()) == 1 }, patience, 1e6)
			r.stop()
			require.NoError(t, r.end())
			change(&l.stored)
			x.insert(4, 4)
			require.ErrorIs(t, x.run().end(), replication.ErrIdentityChanged)
			require.Len(t, l.seen(), 1)
		})
	}
}

// With little room in the window, some of them are published behind the boundary in front of which the key was parked.
func TestExactlyOnce_RowsBehindPoisonOfAParkedKeyFollow(t *testing.T) {
	// Which rows are behind the boundary when the broker refuses depends on who runs first: several times.
	room := []int{4, 5, 6, 7, relay.DefaultConfig().InFlightMessages}
	for i := range 8 * len(room) {
		t.Run(fmt.Sprint(room[i%len(room)], " messages in flight"), func(t *testing.T) {
			x := newSetup(t)
			l := &ledger{}
			x.exactlyOnce(l)
			x.cfg.InFlightMessages = room[i%len(room)]
			x.policies(deadletter.DeadLetterKey)
			x.broker.Refuse(about("poison", sink.ErrTooLarge), nil)
			x.row("b", "poison")
			x.row("b", "b2")
			x.exec(`INSERT INTO outbox SELECT 1, 'Order', 'b', 'b' || n FROM generate_series(3, 5) n`)
			r := x.run()
			require.NoError(t, x.broker.WaitFor(x.ctx, 5))
			r.stop()
			require.NoError(t, r.end())
			require.Equal(t, []string{"too_large", "parked b2", "parked b3", "parked b4", "parked b5"}, x.payloads())
		})
	}
}

// A standby was promoted without the end of what was published. What is committed there from then on is new, though it has positions before the stored one.
func TestExactlyOnce_PublishesWhatCommitsBehindTheForkOfAPromotion(t *testing.T) {
	x := newSetup(t)
	primary, standby := parts.ExclusivePostgres(t, embedded.PostgresConfig{}), parts.ExclusivePostgres(t, embedded.PostgresConfig{})
	require.NoError(t, standby.Stop(x.ctx))
	require.NoError(t, primary.Stop(x.ctx))
	require.NoError(t, standby.CopyFrom(primary, map[string]string{"standby.signal": ""}))
	require.NoError(t, standby.Start(x.ctx))
	x.use(standby.DSN())
	x.exec(`SELECT pg_promote()`)
	x.exec(outboxSQL)
	x.exec(`SELECT pg_create_logical_replication_slot('` + x.slot + `', 'pgoutput')`)
	x.insert(1, 3)
	end := x.commits()[0].LSN

	l := &ledger{stored: sink.Position{Source: x.source(), LSN: end + 1<<20, CommitTime: time.Now()}}
	x.exactlyOnce(l)
	r := x.run()
	require.Eventually(t, func() bool { return r.State().AckedLSN >= end }, patience, 1e6)
	r.stop()
	require.NoError(t, r.end())
	require.Equal(t, []string{"event 1,event 2,event 3"}, l.seen())
	require.EqualValues(t, 2, l.stored.Source.Timeline)
}
