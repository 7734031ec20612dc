package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/test/parts"
)

// smallDisk mounts a file system in memory of so many MiB that the server's user can enter.
func smallDisk(t *testing.T, mib int) (dir string, grow func(mib int)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "postrider-disk-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Remove(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	size := func(mib int) string { return fmt.Sprintf("size=%dm,mode=755", mib) }
	if err := syscall.Mount("postrider-test", dir, "tmpfs", 0, size(mib)); err != nil {
		parts.Lacking(t, "mount", fmt.Sprintf("a small file system can't be mounted here, which takes root: %v", err))
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir, func(mib int) {
		require.NoError(t, syscall.Mount("postrider-test", dir, "tmpfs", syscall.MS_REMOUNT, size(mib)))
	}
}

// The broker is away, so the slot keeps WAL until the disk of the server is full and the server ends. Then there is space again.
func TestFault29_AFullDiskUnderTheWALLosesNothing(t *testing.T) {
	t.Parallel()
	broker := parts.RealKafka(t)
	parts.Binary(t)
	dir, grow := smallDisk(t, 160)
	pg := parts.ExclusivePostgres(t, embedded.PostgresConfig{Dir: dir, Params: map[string]string{"max_wal_size": "32MB", "min_wal_size": "32MB"}})
	r := newRig(t, pg.DSN(), broker)
	network := r.throughKafkaProxy(t)
	p := r.started(t)
	l := r.load(t, 100)
	l.more(t, 200)
	p.stall(t, network)
	eventually(t, 2*time.Minute, "disk full", func() bool {
		conn, err := pgx.Connect(t.Context(), r.dsn)
		if err == nil {
			_, _ = conn.Exec(t.Context(), "SELECT count(pg_logical_emit_message(false, 'fill', repeat('x', 1 << 20))) FROM generate_series(1, 4)")
			_ = conn.Close(t.Context())
		}
		return strings.Contains(pg.Output(), "No space left on device")
	})
	p.requireRunning(t)
	network.Resume()
	grow(1024)
	require.NoError(t, pg.Kill()) // it may have ended by itself
	require.NoError(t, pg.Start(t.Context()))
	began := time.Now()
	l.more(t, 200)
	l.end(t)
	r.drained(t, time.Minute)
	back := time.Since(began)
	p.stop(t)
	v := r.judge(t)
	requireNothingLost(t, v)
	matrix(t, 29, "", fmt.Sprintf("the server ended for want of space, and had it again; caught up %.1f s later", back.Seconds()))
}

// A relay that may not write one byte to a file, and has no directory to write to.
func TestFault30_TheRelayNeedsNoDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t, server(t, parts.AnyVersion), parts.RealKafka(t))
	network := r.throughKafkaProxy(t)
	r.command = []string{"sh", "-c", `ulimit -f 0 && exec "$0" "$@"`, parts.Binary(t)}
	r.env = []string{"TMPDIR=/nowhere", "HOME=/nowhere", "XDG_CACHE_HOME=/nowhere", "XDG_CONFIG_HOME=/nowhere"}
	p := r.started(t)
	l := r.load(t, rate())
	for range full(t, 2, 50) {
		l.more(t, 300)
		p.stall(t, network) // what does not fit into memory waits in the WAL
		p.full(t)
		network.Resume()
	}
	r.transaction(t, 20*inFlight)
	l.end(t)
	r.drained(t, 2*time.Minute)
	if runtime.GOOS == "linux" {
		requireNoFileOpenForWriting(t, p.PID)
	}
	p.stop(t)
	requireExact(t, r.judge(t))
	matrix(t, 30, "", "no file may grow (RLIMIT_FSIZE 0), no directory for temporary files; a transaction of 20 times what may be in flight")
}

func requireNoFileOpenForWriting(t *testing.T, pid int) {
	t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	require.NotEmpty(t, open)
	for _, fd := range open {
		link, err := os.Lstat(fd)
		if err != nil {
			continue // closed just now
		}
		file, err := os.Stat(fd)
		if err == nil && file.Mode().IsRegular() {
			name, err := os.Readlink(fd)
			isFile := err == nil && strings.HasPrefix(name, "/") // an epoll instance is not one
			require.False(t, isFile && link.Mode().Perm()&0o200 != 0, "%s is open for writing", name)
		}
	}
}
