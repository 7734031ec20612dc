package config

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func mayChange(key string) bool { return strings.HasPrefix(key, "health.") || key == "log.level" }

// reload loads the first text, and what it becomes with the second.
func reload(t *testing.T, before, after string) (was, is *Loaded, changed, left []string) {
	t.Helper()
	write(t, before)
	was, err := Load(Source{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("postrider.toml", []byte(after), 0o600))
	newer, err := Load(Source{})
	require.NoError(t, err)
	is, changed, left = was.Adopt(newer, mayChange)
	return was, is, changed, left
}

func TestAdopt_TakesWhatMayChangeAndNamesTheRest(t *testing.T) {
	was, is, changed, left := reload(t,
		"[health]\nunacked_warning = '10s'\n[log]\nlevel = 'info'\n[sink.kafka]\nbrokers = ['a:1']\n",
		"\n[health]\nunacked_warning = '20s'\nlag_warning = '2GiB'\n[log]\nlevel = 'debug'\nformat = "+
			"'json'\n[sink.kafka]\nbrokers = ['b:1']\n")
	require.Equal(t, []string{"health.unacked_warning", "health.lag_warning", "log.level"}, changed)
	require.Equal(t, []string{"sink.kafka.brokers", "log.format"}, left)
	require.Equal(t, 20*time.Second, is.Config.Health.UnackedWarning)
	require.Equal(t, int64(2<<30), is.Config.Health.LagWarning)
	require.Equal(t, "debug", is.Config.Log.Level)
	require.Equal(t, "postrider.toml:3", is.Origin("health.unacked_warning"))
	require.Equal(t, []string{"a:1"}, is.Config.Sink.Kafka.Brokers, "as it is in use")
	require.Equal(t, "postrider.toml:6", is.Origin("sink.kafka.brokers"))
	require.Equal(t, 10*time.Second, was.Config.Health.UnackedWarning,
		"what others read meanwhile is not touched")
	require.Equal(t, "postrider.toml:2", was.Origin("health.unacked_warning"))
}

func TestAdopt_FindsNothingWhereNothingChanged(t *testing.T) {
	for name, after := range map[string]string{
		"the same":      "[slot]\nname = 'a'\n",
		"moved":         "# a comment\n[slot]\nname = 'a'\n",
		"a default":     "[slot]\nname = 'a'\n[log]\nlevel = 'info'\n",
		"an empty list": "[slot]\nname = 'a'\n[alerts]\ncommand = []\n",
	} {
		_, is, changed, left := reload(t, "[slot]\nname = 'a'\n", after)
		require.Empty(t, changed, name)
		require.Empty(t, left, name)
		require.Equal(t, "a", is.Config.Slot.Name)
	}
}

func TestAdopt_SeesThatASecretChangedAndShowsNothingOfIt(t *testing.T) {
	_, is, changed, left := reload(t, "[postgres]\nurl = 'postgres://u:first@db/shop'\n",
		"[postgres]\nurl = 'postgres://u:second@db/shop'\n")
	require.Empty(t, changed)
	require.Equal(t, []string{"postgres.url"}, left)
	url, err := is.Config.Postgres.URL.Reveal()
	require.NoError(t, err)
	require.Contains(t, url, "first")

	_, _, _, left = reload(t, "[admin]\ntoken_file = '/a'\n", "[admin]\ntoken_file = '/b'\n")
	require.Equal(t, []string{"admin.token"}, left)
}

func TestAdopt_SeesAnotherNumberOfRuleSets(t *testing.T) {
	was, is, changed, left := reload(t, "[router]\nnull_key = 'publish'\n",
		"[[router]]\ntables = ['a']\n[[router]]\ntables = ['b']\n")
	require.Empty(t, changed)
	require.Contains(t, left, "router.null_key")
	require.Contains(t, left, "router[2].null_key")
	require.Equal(t, was.Config.Router, is.Config.Router)
}

func TestAgain_DoesWithoutNothingThatWasThere(t *testing.T) {
	write(t, "[slot]\nname = 'a'\n")
	l, err := Load(Source{Flags: []Flag{{Key: "log.level", Value: "warn", Name: "--log-level"}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("postrider.toml",
		[]byte("[slot]\nname = 'b'\n[replication]\ntables = ['public.outbox']\n[sink.kafka]\nbrokers "+
			"= ['a:1']\n"), 0o600))
	again, err := l.Again()
	require.NoError(t, err)
	require.Equal(t, "b", again.Config.Slot.Name)
	require.Equal(t, "warn", again.Config.Log.Level, "flags count as before")

	require.NoError(t, os.Remove("postrider.toml"))
	_, err = l.Again()
	require.ErrorContains(t, err, "postrider.toml", "what is left are defaults, which nobody wanted")
}
