package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ownerFile in a directory of TempDir is locked for as long as the directory's owner lives.
const ownerFile = "owner.lock"

// TempDir makes a directory for a child's files in parent, or in the system's temporary directory
// when parent is empty, and returns its removal. It also removes directories of the same prefix
// there whose owners were killed before they could.
func TempDir(parent, prefix string) (dir string, remove func() error, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweep(parent, prefix)
	dir, err = os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", nil, fmt.Errorf("make temporary directory: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		return "", nil,
			errors.Join(fmt.Errorf("lock temporary directory: %w", err), os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), owner.Close()) }, nil
}

// sweep ignores errors: what it cannot remove belongs to another user or is in use.
func sweep(parent, prefix string) {
	files, _ := filepath.Glob(filepath.Join(parent, prefix+"*", ownerFile)) // the pattern is valid
	for _, path := range files {
		info, err := os.Stat(path)
		// Another process may have made the file and not yet locked it.
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		owner, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(owner.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = owner.Close()
	}
}
