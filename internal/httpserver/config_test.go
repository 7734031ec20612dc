package httpserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfig_DefaultIsValidAndLocal(t *testing.T) {
	c := DefaultConfig()
	require.NoError(t, c.Validate())
	require.Equal(t, "http://127.0.0.1:8432", c.LocalURL())
}

func TestConfig_ValidatesTheAddress(t *testing.T) {
	for _, good := range []string{
		"", ":8080", "0.0.0.0:8080", "[::]:8080", "localhost:0", "metrics.example:65535",
	} {
		require.NoError(t, Config{Listen: good}.Validate(), good)
	}
	for _, bad := range []string{"8080", "localhost", "localhost:", "localhost:http",
		"localhost:65536", "localhost:-1", "::1:8080", "http://localhost:8080"} {
		require.ErrorContains(t, Config{Listen: bad}.Validate(), "listen is", bad)
	}
}

func TestConfig_LocalURLReachesWhatListens(t *testing.T) {
	for listen, want := range map[string]string{
		":8080":           "http://127.0.0.1:8080",
		"0.0.0.0:8080":    "http://127.0.0.1:8080",
		"[::]:8080":       "http://[::1]:8080",
		"[::1]:8080":      "http://[::1]:8080",
		"10.1.2.3:8080":   "http://10.1.2.3:8080",
		"localhost:8080":  "http://localhost:8080",
		"":                "",
		"127.0.0.1:0":     "",
		"not an address":  "",
		"db.example:8432": "http://db.example:8432",
	} {
		require.Equal(t, want, Config{Listen: listen}.LocalURL(), listen)
	}
}
