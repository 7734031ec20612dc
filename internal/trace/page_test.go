package trace

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// The search of the status page shows no keys, and reads a table of another role only if the
// configuration lets the relay read it.
func TestPage_SearchesWithinTheRightsOfTheRelay(t *testing.T) {
	w := newWorld(t, outbox)
	w.insert(1, "secret-key") // before the slot, so not in the relay's sample
	w.createSlot()
	w.listen()
	w.insert(2, "secret-key")
	w.awaitPassed()
	code, body := w.get(id(1))
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"state": "not_published"`)
	_, body = w.get(id(2))
	require.Contains(t, body, `"state": "published"`)
	require.Contains(t, body, `"acknowledged"`)
	code, body = w.get("it's")
	require.Equal(t, http.StatusBadRequest, code, body)
	require.Contains(t, body, "no event has the id")

	w.do("ALTER TABLE outbox OWNER TO pg_monitor") // a role that is there
	code, body = w.get(id(1))
	require.Equal(t, http.StatusForbidden, code, body)
	require.Contains(t, body, "the table belongs to another role, and snapshot.mode is off")
	require.Contains(t, body, id(1)+"   # the command may read it, if the login has SELECT")
	_, body = w.get(id(2))
	require.Contains(t, body, `"state": "published"`, "it is in the sample")
	w.relay.Stop(t)
}

// listen starts the relay with its status page.
func (w *world) listen() {
	w.t.Helper()
	text, err := os.ReadFile(w.file)
	require.NoError(w.t, err)
	with := strings.Replace(string(text), `listen = ""`, `listen = "127.0.0.1:0"`, 1)
	require.NoError(w.t, os.WriteFile(w.file, []byte(with), 0o600))
	w.start()
}

// get searches once the server takes another search.
func (w *world) get(event string) (code int, body string) {
	w.t.Helper()
	parts.Await(w.t, "a search", func() (bool, error) {
		answer, err := http.Get("http://" + w.relay.Address() + "/api/trace?id=" + event)
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		code, body = answer.StatusCode, string(text)
		return code != http.StatusTooManyRequests, err
	})
	require.NotContains(w.t, body, "CANARY")
	require.NotContains(w.t, body, "secret-key")
	return code, body
}
