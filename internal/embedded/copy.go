package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// CopyFrom replaces the data directory by a copy of another server's, of the same version and with
// its settings, and puts files into it: standby.signal makes it a standby. Neither may run. The
// copy keeps the system identifier and the WAL that the other has not recovered yet.
func (p *Postgres) CopyFrom(other *Postgres, files map[string]string) error {
	if p.Running() || other.Running() {
		return errors.New("copy data directory: a server is running")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := os.RemoveAll(p.DataDir()); err != nil {
		return fmt.Errorf("copy data directory: %w", err)
	}
	if err := copyTree(p.as, other.DataDir(), p.DataDir()); err != nil {
		return fmt.Errorf("copy data directory: %w", err)
	}
	if err := os.Remove(filepath.Join(p.DataDir(), "postmaster.pid")); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("copy data directory: %w", err) // that of a server that was killed
	}
	for name, content := range files {
		if err := writeOwned(p.as, filepath.Join(p.DataDir(), name), []byte(content)); err != nil {
			return err
		}
	}
	return configure(p.DataDir(), map[string]string{"unix_socket_directories": ""})
}
