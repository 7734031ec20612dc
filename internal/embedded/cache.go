package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// CacheDir returns the directory, made if missing, for what is fetched or prepared once for
// all processes of this user. It honours XDG_CACHE_HOME on Linux. For root it is a directory that
// other users can enter, since the server does not run as root.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil && (os.Geteuid() != 0 || othersCanEnter(dir)) {
		return makeCacheDir(filepath.Join(dir, "postrider"))
	}
	if os.Geteuid() == 0 {
		return makeCacheDir("/var/cache/postrider")
	}
	// No HOME: a directory below the temporary one, named by the user id. makeCacheDir refuses one
	// of another user.
	return makeCacheDir(filepath.Join(os.TempDir(),
		fmt.Sprintf("postrider-cache-%d", os.Geteuid())))
}

func makeCacheDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("read cache directory: %w", err)
	}
	// Programs are run from here, so it must belong to the current user.
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return "", fmt.Errorf("cache directory %s belongs to user id %d, not to the current "+
			"user: set XDG_CACHE_HOME to a directory of your own", dir, stat.Uid)
	}
	return dir, nil
}

// othersCanEnter reports whether any user may pass through dir and all of its parents. A directory
// that does not exist yet is judged by its nearest existing parent.
func othersCanEnter(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
		if err == nil && info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

// lockFile waits for the exclusive lock on path, which processes share, and returns its release.
// The kernel drops the lock when the process dies, so there are no stale locks.
func lockFile(ctx context.Context, path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for another process to release %s: %w", path,
				context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// PrepareOnce makes the directory dir, of any parent that exists, exactly once for all processes:
// make fills a temporary directory beside it, which is then renamed into place. A dir that is
// already there is left as it is. Blocks while another process is preparing it, at most until ctx
// ends.
func PrepareOnce(ctx context.Context, dir string, fill func(tmp string) error) error {
	if isDir(dir) {
		return nil
	}
	release, err := lockFile(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer release()
	if isDir(dir) { // another process has made it
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".preparing-")
	if err != nil {
		return fmt.Errorf("make temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	content := filepath.Join(tmp, "content")
	// open to the server's user
	if err := errors.Join(os.Mkdir(content, 0o755), os.Chmod(tmp, 0o755)); err != nil {
		return fmt.Errorf("make temporary directory: %w", err)
	}
	if err := fill(content); err != nil {
		return err
	}
	if err := os.Rename(content, dir); err != nil {
		return fmt.Errorf("move into the cache: %w", err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
