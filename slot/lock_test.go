package slot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/check/checktest"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

func TestLock_IsForOneProcess(t *testing.T) {
	p := checktest.Shared(t, "")
	one, err := slot.TryLock(t.Context(), p.Postgres, p.Name+"_a")
	require.NoError(t, err)
	_, err = slot.TryLock(t.Context(), p.Postgres, p.Name+"_a")
	require.ErrorIs(t, err, replication.ErrSlotInUse)
	other, err := slot.TryLock(t.Context(), p.Postgres, p.Name+"_b")
	require.NoError(t, err)
	defer other.Close()
	listed, err := slot.List(t.Context(), p.Conn)
	require.NoError(t, err)
	held := 0
	for _, s := range listed {
		if s.Temporary && s.Plugin == "" && s.Active {
			held++
			require.Nil(t, s.RetainedBytes, "it keeps no WAL")
		}
	}
	require.GreaterOrEqual(t, held, 2)
	one.Close()
	require.Eventually(t, func() bool {
		again, err := slot.TryLock(t.Context(), p.Postgres, p.Name+"_a")
		if err != nil {
			return false
		}
		again.Close()
		return true
	}, 10*time.Second, 10*time.Millisecond)
}

// Who may not replicate can neither take the lock nor the name of its slot, nor an advisory lock that stands in its way.
func TestLock_CannotBeTakenWithLesserRights(t *testing.T) {
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p := checktest.Shared(t, version)
		weak := p.Role("weak_" + p.Name)
		_, err := slot.TryLock(t.Context(), weak, p.Name)
		require.ErrorIs(t, err, postgres.ErrPermission)
		conn, err := postgres.Connect(t.Context(), weak)
		require.NoError(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(hashtextextended($1, 0))", "postrider snapshot of slot "+p.Name)
		require.NoError(t, err)
		lock, err := slot.TryLock(t.Context(), p.Postgres, p.Name)
		require.NoError(t, err)
		lock.Close()
	})
}

func TestLock_SaysThatNoSlotIsFree(t *testing.T) {
	p, _ := checktest.Own(t, "18", map[string]string{"max_replication_slots": "1"})
	p.Exec(fmt.Sprintf("SELECT pg_create_physical_replication_slot('%s')", p.Name))
	_, err := slot.TryLock(t.Context(), p.Postgres, p.Name)
	require.ErrorIs(t, err, slot.ErrNoFreeSlot)
	var advice *slot.Error
	require.ErrorAs(t, err, &advice)
	require.Contains(t, advice.Fix, "max_replication_slots = 20")
}
