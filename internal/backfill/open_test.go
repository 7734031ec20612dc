package backfill

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func (x *recoveryPlace) busy() (pid uint32, end func()) {
	x.t.Helper()
	return parts.Busy(x.t, x.dsn, `BEGIN; SELECT pg_current_xact_id()`)
}

// await asks until the answer is true.
func (x *recoveryPlace) await(sql string, args ...any) {
	x.t.Helper()
	require.Eventually(x.t, func() bool {
		var yes bool
		require.NoError(x.t, x.conn.QueryRow(x.t.Context(), sql, args...).Scan(&yes))
		return yes
	}, patience, time.Millisecond)
}

// Transactions overlap on a busy server: there is always an open one. A recovery that goes on with the slot of
// an earlier attempt waits for those that were there when it began, however often it has to try.
func TestRecovery_WaitsOnlyForTransactionsThatWereThereFirst(t *testing.T) {
	t.Parallel()
	x := newRecoveryPlace(t)
	x.insert(1, 2)
	x.refuse("1")
	_, err := x.publish(Selection{})
	require.ErrorIs(t, err, errCut)
	x.broker.Refuse(nil, nil)

	pid, end := x.busy()
	waiting := make(chan string, 100)
	x.parts.Say = func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); strings.HasSuffix(text, "still waiting") {
			waiting <- text
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := NewRecovery(ctx, x.parts, Selection{})
	require.NoError(t, err)
	defer r.Close()
	published := make(chan error, 1)
	go func() { // ends with the transaction, or with ctx
		_, err := r.Publish(ctx)
		published <- err
	}()
	x.await(`SELECT query LIKE '%pg_prepared_xacts%' FROM pg_stat_activity WHERE pid = $1`, r.conn.PgConn().PID())
	later, endLater := x.busy()
	var first string
	select {
	case first = <-waiting:
	case err := <-published:
		require.FailNow(t, "it did not wait", err)
	}
	require.Contains(t, first, fmt.Sprintf("pid %d ", pid))
	require.NotContains(t, first, fmt.Sprintf("pid %d ", later))
	end()
	require.NoError(t, <-published, "while the later one is open")
	require.Equal(t, []int{1, 2}, x.payloads())
	endLater()
}

// It changes nothing, so it is enough that it says what it may not have seen. With a slot it is the same.
func TestRecovery_PlanWaitsForNoTransaction(t *testing.T) {
	x := newRecoveryPlace(t)
	x.insert(1, 3)
	for _, create := range []bool{false, true} {
		require.Empty(t, x.planned(Selection{}).OpenTransactions)
		if create {
			_, err := slot.CreateWithin(t.Context(), x.conn, x.parts.Need.Slot, patience)
			require.NoError(t, err)
		}
		pid, end := x.busy()
		report := x.planned(Selection{})
		require.Len(t, report.OpenTransactions, 1)
		require.Contains(t, report.OpenTransactions[0], fmt.Sprintf("pid %d ", pid))
		require.EqualValues(t, 3, report.Undelivered())
		end()
	}
}
