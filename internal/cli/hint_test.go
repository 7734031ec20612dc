package cli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/secret"
)

func TestTyped_NamesTheConfigurationOfThisCommand(t *testing.T) {
	a := &app{}
	newRoot(a) // which sets its flags to their defaults
	a.configPath = "shop.toml"
	for hint, want := range map[string]string{
		"postrider check": "postrider check --config shop.toml",
		"postrider check   # says what is wrong": "postrider check --config shop.toml   # says " +
			"what is wrong",
		"postrider recover --from-xmin 7": "postrider recover --config shop.toml " +
			"--from-xmin 7",
		"postrider slot create orders": "postrider slot create orders --config shop.toml",
		"postrider slot advance a --to current": "postrider slot advance a --config shop.toml " +
			"--to current",
		"postrider slot drop a --yes; postrider slot list": "postrider slot drop a --config " +
			"shop.toml --yes; " +
			"postrider slot list --config shop.toml",
		"look first:\npostrider slot show": "look first:\npostrider slot show --config shop.toml",
		"postrider check, then postrider run": "postrider check --config shop.toml, then " +
			"postrider run --config shop.toml",
		"postrider recover --config other.toml": "postrider recover --config other.toml",
		"postrider config example":              "postrider config example",
		"ALTER PUBLICATION postrider ADD TABLE x;": "ALTER PUBLICATION postrider ADD " +
			"TABLE x;",
		"correct postgres.url":                           "correct postgres.url",
		`systemctl restart postrider   # or another way`: `systemctl restart postrider   # or another way`,
	} {
		require.Equal(t, want, a.typed(hint))
	}
	a.configPath = "it's here.toml"
	require.Equal(t, `postrider run --config 'it'\''s here.toml'`, a.typed("postrider run"))
	a.configPath = "" // found by itself: by the next command, too
	require.Equal(t, "postrider run", a.typed("postrider run"))
}

// What the daemon says goes to its page, its log and to those that are notified, who all need its
// configuration; status has its own.
func TestTyped_NamesTheConfigurationOfTheDaemon(t *testing.T) {
	a := &app{}
	newRoot(a)
	a.configPath = "it's here.toml"
	l := &config.Loaded{Config: config.Default(), Path: "postrider.toml"}
	l.Config.Postgres.URL = secret.Of("postgres://postrider@db/shop")
	d, err := daemon.New(a.environment(), l, metrics.New(prometheus.NewRegistry(), "postrider"),
		zerolog.Nop())
	require.NoError(t, err)
	next := d.Verdict().Next
	require.Contains(t, next, `postrider check --config 'it'\''s here.toml'`)
	require.Equal(t, strings.ReplaceAll(next, `'it'\''s here.toml'`, "there.toml"),
		configOption.ReplaceAllString(next, " --config there.toml"))
	for _, c := range d.Verdict().Conditions {
		require.Equal(t, strings.Count(c.Next, "postrider "), strings.Count(c.Next, "--config"),
			c.Next)
	}
}

// Every command that prints a hint prints it so.
func TestHints_NameTheConfiguration(t *testing.T) {
	i := newInstall(t, "17")
	file := filepath.Join(t.TempDir(), "shop.toml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, args := range [][]string{{"check"}, {"slot", "show"}, {"status"}, {"recover"}} {
		r := i.run(append(args, "--config", file)...)
		require.Contains(t, r.stdout+r.stderr, "postrider init --config "+file, "%v", args)
	}
	made := i.run("init", "--config", file).stderr
	require.Contains(t, made,
		"next: postrider check --config "+file+"\nthen: postrider run --config "+file+"\n")
}

// The watch of the daemon and the requests to its listener show hints at the same time.
func TestTyped_IsSafeForConcurrentUse(t *testing.T) {
	a := &app{}
	newRoot(a)
	a.configPath = "p.toml"
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				assert.Equal(t, "postrider slot show --config p.toml", a.typed("postrider slot show"))
			}
		})
	}
	wg.Wait()
}
