package monitor

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func TestArchive_BeginsWithTheOldestSegmentThatWaits(t *testing.T) {
	a := timedAnswer{}
	a.Current, a.Limit.SegmentSize = 0x3_0000_0010, 16*mib
	require.Nil(t, a.archive(), "archive_mode is off")
	a.Archive = &archiveAnswer{}
	require.Equal(t, &Archive{LSN: 0x3_0000_0010}, a.archive(), "all that is written and complete is archived")
	a.Archive = &archiveAnswer{Waiting: 3, Oldest: "00000002000000FE"}
	require.Equal(t, &Archive{Waiting: 3, LSN: 0x2_FE00_0000}, a.archive())
	a.Limit.SegmentSize, a.Archive.Oldest = 1024*mib, "0000000200000003"
	require.Equal(t, pglogrepl.LSN(0x2_C000_0000), a.archive().LSN)
}

// What a command refuses waits and does not move; what one takes is gone, and a server on which nothing is written has nothing that waits.
func TestArchive_OnRealServers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "18"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := parts.ExclusivePostgres(t, embedded.PostgresConfig{Version: version, Params: map[string]string{
				"archive_mode": "on", "archive_command": "false", "max_slot_wal_keep_size": "64MB", "max_wal_size": "32MB",
			}})
			conn := parts.Connect(t, server.DSN())
			do := func(sql string) {
				t.Helper()
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			do("SELECT pg_create_logical_replication_slot('postrider', 'pgoutput')")
			cfg := DefaultConfig()
			cfg.VolumeSize = 1 << 30
			m := &Monitor{need: slot.Requirements{Slot: slot.Config{Name: "postrider"}}, cfg: cfg}
			var o Observation
			looks := func(until func() bool) {
				t.Helper()
				require.Eventually(t, func() bool {
					s, err := m.observe(t.Context(), conn)
					if err != nil {
						t.Log(err)
						return false
					}
					o = m.Observation()
					o.Slot = s
					require.NotNil(t, o.Archive)
					return until()
				}, time.Minute, 20*time.Millisecond)
			}
			segment := func() {
				do("SELECT pg_logical_emit_message(false, 'archive', repeat('x', 2000000))")
				do("SELECT pg_switch_wal()")
			}
			segment()
			looks(func() bool { return o.Archive.Waiting > 0 })
			oldest := o.Archive.LSN
			require.Less(t, oldest, o.Slot.CurrentWALLSN)
			segment()
			looks(func() bool { return o.Archive.Waiting > 1 && o.Archive.Still > 0 })
			require.Equal(t, oldest, o.Archive.LSN)
			o.Rates = Rates{WAL5m: new(1.0 * mib)}
			o.Archive.Still = archiverTries
			require.Contains(t, forecast(o).DiskFull.Assumption, "segments wait for archive_command, the oldest for 3m0s")

			do("ALTER SYSTEM SET archive_command = 'true'")
			do("SELECT pg_reload_conf()")
			looks(func() bool { return o.Archive.Waiting == 0 })
			require.Equal(t, o.Slot.CurrentWALLSN, o.Archive.LSN)
			looks(func() bool { return o.Archive.Still == 0 }) // nothing is written now
			segment()
			looks(func() bool {
				return o.Archive.Waiting == 0 && o.Archive.LSN > oldest+2*pglogrepl.LSN(o.Limit.SegmentSize)
			})
			require.Zero(t, o.Archive.Still)
		})
	}
}
