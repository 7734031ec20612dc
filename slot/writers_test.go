package slot_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// A prepared transaction belongs to no session, and nothing but its gid ends it.
func TestBlocked_SaysHowToEndAPreparedTransaction(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(p *checktest.DB) error{
		"for the slot": func(p *checktest.DB) error { _, err := slot.Create(t.Context(), p.Conn, p.Config()); return err },
		"for the rows": func(p *checktest.DB) error { return slot.AwaitCommitted(t.Context(), p.Conn, p.NextXID(), nil) }, // takes ten seconds
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := checktest.Own(t, "17", map[string]string{"max_prepared_transactions": "5"})
			p.Open(`SAVEPOINT s; SELECT pg_current_xact_id()`) // a session is advised in another way
			forgotten := p.Open(`SELECT pg_current_xact_id()`)
			_, err := forgotten.Exec(t.Context(), `PREPARE TRANSACTION 'it''s'`)
			require.NoError(t, err)
			err = wait(p)
			require.ErrorIs(t, err, slot.ErrBlocked)
			require.ErrorContains(t, err, `prepared transaction 'it''s'`)
			require.Contains(t, advice(t, err), "FROM pg_prepared_xacts")
			require.Contains(t, advice(t, err), "\n-- in database "+p.Name+"; its transaction manager knows which: COMMIT PREPARED 'it''s', or ROLLBACK PREPARED")
			p.Exec(`ROLLBACK PREPARED 'it''s'`)
		})
	}
}

// Most transactions end by themselves: to end them takes back what somebody has written.
func TestBlocked_OffersToEndOnlyWhatLasts(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "17", nil)
	pid := p.Open(`SELECT pg_current_xact_id()`).PgConn().PID()
	offer := fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE pid = %d AND ", pid)
	err := slot.Blocked(t.Context(), p.Conn, p.Name, nil)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d ", pid))
	require.NotContains(t, advice(t, err), offer)
	require.Eventually(t, func() bool {
		return strings.Contains(advice(t, slot.Blocked(t.Context(), p.Conn, p.Name, nil)), offer)
	}, time.Minute, 50*time.Millisecond)
}

// Each savepoint with rows has an xid of its own: those of one transaction must not hide the others.
func TestBlocked_NamesEachOfAFewTransactions(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "17", nil)
	p.Exec(`CREATE TABLE written ()`)
	first := p.Open(strings.Repeat(`INSERT INTO written DEFAULT VALUES; SAVEPOINT s;`, 20))
	second := p.Open(`SELECT pg_current_xact_id()`)
	lean, err := postgres.Connect(t.Context(), p.Lean()) // which does not see since when they are open
	require.NoError(t, err)
	defer postgres.Close(lean)
	for _, conn := range []*pgx.Conn{p.Conn, lean} {
		err = slot.Blocked(t.Context(), conn, p.Name, nil)
		require.Regexp(t, fmt.Sprintf(`: pid %d .*, pid %d `, first.PgConn().PID(), second.PgConn().PID()), err.Error(), "the oldest first")
	}
}

// A session of an application's pool begins another transaction when the one that was complained of has ended, and the advice may be typed long after it was written.
func TestBlocked_OffersToEndNoLaterTransaction(t *testing.T) {
	t.Parallel()
	p, _ := checktest.Own(t, "17", nil)
	p.Exec(`CREATE TABLE written ()`)
	const write = `INSERT INTO written DEFAULT VALUES;` // which takes an xid of the subtransaction
	session := p.Open(write + `SAVEPOINT s;` + write + `SAVEPOINT t;` + write)
	end := regexp.MustCompile(`(?m)^SELECT pg_terminate_backend.*;`)
	offered := func() (offers []string) {
		require.Eventually(t, func() bool {
			offers = end.FindAllString(advice(t, slot.Blocked(t.Context(), p.Conn, p.Name, nil)), -1)
			return len(offers) > 0
		}, time.Minute, 50*time.Millisecond)
		require.Len(t, offers, 1, "its subtransactions end with it")
		return offers
	}
	first := offered()[0]
	_, err := session.Exec(t.Context(), `ROLLBACK TO s; COMMIT; BEGIN;`+write)
	require.NoError(t, err)
	p.Exec(first)
	require.NoError(t, session.Ping(t.Context()), "it was in another transaction")

	_, err = session.Exec(t.Context(), `SAVEPOINT s;`+write)
	require.NoError(t, err)
	second := offered()[0]
	_, err = session.Exec(t.Context(), `ROLLBACK TO s`)
	require.NoError(t, err)
	p.Exec(second)
	require.Error(t, session.Ping(t.Context()), "it was still in the one that is offered")
}
