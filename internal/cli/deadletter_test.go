package cli

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
)

func TestDeadLetterRedrive_AdvisesTheWholeKeyWhenAnEarlierLetterIsOpen(t *testing.T) {
	behind := func(key string) deadletter.Failure {
		return deadletter.Failure{Entry: &deadletter.Entry{Letter: deadletter.Letter{Key: []byte(key)}}, Err: deadletter.ErrNotFirst}
	}
	require.Equal(t, "all of the key, in order: postrider deadletter redrive --key o-17",
		afterFailures([]deadletter.Failure{behind("o-17"), behind("o-17")}))
	require.Contains(t, afterFailures([]deadletter.Failure{behind("it's; -x")}),
		`--key 'it'\''s; -x'`)
	require.Contains(t, afterFailures([]deadletter.Failure{behind("\x1b[31m")}), "--key KEY")
	refused := deadletter.Failure{Entry: &deadletter.Entry{}, Err: sink.ErrTooLarge}
	require.Contains(t, afterFailures([]deadletter.Failure{refused}),
		"postrider deadletter discard ID")
	require.NotContains(t, afterFailures([]deadletter.Failure{refused}), "--key")
}

func TestDeadLetterShow_RefusesAnEmptyID(t *testing.T) {
	i := newInstall(t, "17")
	r := i.run("deadletter", "show", "")
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "the ID of a dead letter is empty")
}

// The defaults make no dead letters, so there need not be a topic for them.
func TestDeadLetterList_NeedsNoTopicUnlessAPolicyDoes(t *testing.T) {
	i, _ := installWithKafka(t, "17", nil)
	r := i.ok("deadletter", "list", "--json")
	require.Equal(t, "[]\n", r.stdout)
	require.Contains(t, r.stderr,
		"topic postrider.dead_letters does not exist, and no policy of [deadletter] needs it")
	require.Equal(t, "nothing to redrive\n",
		i.ok("deadletter", "redrive", "--all", "--yes", "--set",
			"replication.tables=public.outbox").stdout)
	require.Equal(t, exit.Usage, i.run("deadletter", "show", "abc").code)
	require.Equal(t, exit.Usage, i.run("deadletter", "list", "--cause", "nonsense").code)

	r = i.run("deadletter", "list", "--set", "deadletter.too_large=dead_letter")
	require.Equal(t, exit.Config, r.code)
	require.Contains(t, r.stderr, "--create --topic postrider.dead_letters")
}

func TestDeadLetterList_NamesTheConfiguration(t *testing.T) {
	i, k := installWithKafka(t, "17", topics{"postrider.dead_letters": 1})
	i.put(k.Brokers()[0], refused("0102030405060708090a0b0c"))
	require.NoError(t, os.WriteFile("shop.toml", nil, 0o600))
	require.Contains(t, i.ok("deadletter", "list", "--config", "shop.toml").stderr,
		"1 open, 0 keys parked; next: postrider deadletter show --config shop.toml ID, redrive or discard\n")
}

func TestQuantity_HasASingular(t *testing.T) {
	require.Equal(t, "1 row", quantity(1, "row"))
	require.Equal(t, "0 rows", quantity(int64(0), "row"))
}
