package child_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/embedded/child"
)

func TestTempDir_SweepsWhatTheDeadLeft(t *testing.T) {
	parent := t.TempDir()
	past := time.Now().Add(-time.Hour)
	orphan := filepath.Join(parent, "server-orphan")
	foreign := filepath.Join(parent, "server-foreign") // no lock: not one of ours
	for _, dir := range []string{orphan, foreign} {
		require.NoError(t, os.Mkdir(dir, 0o700))
	}
	lock := filepath.Join(orphan, "owner.lock")
	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	require.NoError(t, os.Chtimes(lock, past, past))

	living, removeLiving, err := child.TempDir(parent, "server-")
	require.NoError(t, err)
	require.NoDirExists(t, orphan)
	require.DirExists(t, foreign)

	require.NoError(t, os.Chtimes(filepath.Join(living, "owner.lock"), past, past))
	_, removeNext, err := child.TempDir(parent, "server-")
	require.NoError(t, err)
	require.DirExists(t, living, "its owner lives")
	require.NoError(t, removeNext())
	require.NoError(t, removeLiving())
	require.NoDirExists(t, living)
}
