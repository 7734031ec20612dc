package daemon

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/internal/secret"
)

// listening starts the admin listener, and returns what the log says of that.
func (x *reloadRig) listening(t *testing.T, listen string, token secret.Secret) string {
	t.Helper()
	x.written.Reset()
	x.cfg.Admin = httpserver.Admin{Listen: listen, Token: token}
	end, err := x.listenAdmin(t.Context(), x.log)
	require.NoError(t, err)
	end()
	return x.written.String()
}

func TestListenAdmin_WarnsOfWhatIsOdd(t *testing.T) {
	x := newReloadRig(t, "")
	require.Empty(t, x.listening(t, "", secret.Secret{}))
	long := secret.Of("canary, and long enough to keep")
	said := x.listening(t, "127.0.0.1:0", long)
	require.Contains(t, said, "admin listener started")
	require.NotContains(t, said, `"warn"`)
	require.Contains(t, x.listening(t, "0.0.0.0:0", long), "can be reached from other machines")
	require.Contains(t, x.listening(t, ":0", long), "can be reached from other machines")
	require.Contains(t, x.listening(t, "127.0.0.1:0", secret.Of("canary")), "so short")
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("canary, and long enough to keep"), 0o600))
	require.NotContains(t, x.listening(t, "127.0.0.1:0", secret.File(file)), `"warn"`)
	require.NoError(t, os.Remove(file))
	require.Contains(t, x.listening(t, "127.0.0.1:0", secret.File(file)), "cannot be read")
}

func TestListenAdmin_SaysWhoseAddressItIs(t *testing.T) {
	x := newReloadRig(t, "")
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	x.cfg.Admin = httpserver.Admin{Listen: taken.Addr().String(), Token: secret.Of("x")}
	_, err = x.listenAdmin(t.Context(), x.log)
	var out strings.Builder
	require.Equal(t, exit.Temporary, exit.Print(&out, err), "maybe the relay before this one, which is still draining")
	require.Contains(t, out.String(), "(admin.listen)")
	require.Contains(t, out.String(), "free address of its own in admin.listen")
}
