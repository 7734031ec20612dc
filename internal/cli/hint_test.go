package cli

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
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
	a.configPath = "p.toml"
	once := a.typed("postrider check, then postrider run")
	require.Equal(t, once, a.typed(once), "a hint may pass twice, on its way through the daemon")
	a.configPath = "" // found by itself: by the next command, too
	require.Equal(t, "postrider run", a.typed("postrider run"))
}

// A command without them would look at another slot, or create one that nobody reads.
func TestTyped_NamesTheSettingsOfThisCommand(t *testing.T) {
	for _, c := range []struct{ args, hint, want string }{
		{"run --slot-name orders", "postrider recover --publish",
			"postrider recover --set slot.name=orders --publish"},
		{"run --set slot.name=orders --replication-publication pub", "look: postrider slot drop a --yes",
			"look: postrider slot drop a --set slot.name=orders --set replication.publication=pub --yes"},
		{"check --config p.toml --set sink.kafka.brokers=a:1,b:2", "postrider check, then postrider run",
			"postrider check --config p.toml --set 'sink.kafka.brokers=a:1,b:2', then " +
				"postrider run --config p.toml --set 'sink.kafka.brokers=a:1,b:2'"},
		{"run --set relay.backoff_min=2s --set postgres.url_file=/run/it's", "postrider check",
			`postrider check --set relay.backoff_min=2s --set 'postgres.url_file=/run/it'\''s'`},
		{"run --set postgres.url=postgres://rider@db/shop", "postrider check",
			"postrider check --set postgres.url=postgres://rider@db/shop"},
		{"run --set router[1].null_key=publish", "postrider check",
			"postrider check --set 'router[1].null_key=publish'"},
		// what is secret, or may be
		{"run --set postgres.url=postgres://rider:PW@db/shop --set slot.name=a", "postrider check",
			"postrider check --set postgres.url=... --set slot.name=a"},
		{"run --set postgres.url=host=db,password=PW --set admin.token=PW", "postrider check",
			"postrider check --set postgres.url=... --set admin.token=..."},
		{"run --set alerts.webhook=http://h/PW --set registry.urls=http://u:PW@h", "postrider check",
			"postrider check --set alerts.webhook=... --set registry.urls=..."},
		{"run --set sink.kafka.brokers=u:PW@h:1 --set admin.token=", "postrider recover --publish",
			"postrider recover --set sink.kafka.brokers=... --set admin.token= --publish"},
		{"run --set no.key=PW --set PW", "postrider check", "postrider check"},
		{"run --slot-name orders", "postrider version", "postrider version"},
	} {
		a := &app{Process: Process{Args: strings.Fields(c.args)}}
		root := newRoot(a)
		cmd, _, err := root.Find(a.Args)
		require.NoError(t, err)
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return nil }
		a.prepare(cmd)
		require.NoError(t, root.Execute())
		require.Equal(t, c.want, a.typed(c.hint), c.args)
		require.Equal(t, c.want, a.typed(c.want), "%s: twice", c.args)
	}
}

// A command that ran with what stands for a secret could change another database.
func TestTyped_RefusesWhatStandsForASecret(t *testing.T) {
	inDirectory(t, "[postgres]\nurl = 'postgres://rider@db/shop'\n")
	for _, key := range []string{"postgres.url", "sink.kafka.brokers",
		"sink.kafka.sasl.password", "sink.kafka.sasl.username", "registry.urls", "registry.password",
		"alerts.webhook", "admin.token", "slot.name", "router.route.topic.replacement"} {
		r := execute(t, nil, "recover", "--publish", "--set", key+"="+config.NotShown)
		require.Equal(t, exit.Config, r.code, key)
		require.Contains(t, r.stderr, "flag --set: "+key+`: "..." stands for a value that is not shown`)
	}
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
	require.Equal(t, next, (&app{root: a.root}).retyped(next))
	there := &app{configPath: "there.toml", root: a.root}
	require.Equal(t, strings.ReplaceAll(next, `'it'\''s here.toml'`, "there.toml"), there.retyped(next))
	require.Equal(t, "postrider slot drop a --config there.toml --yes; "+
		"kafka-topics.sh --create --config retention.ms=-1",
		there.retyped("postrider slot drop a --config p.toml --set 'slot.name=it'\\''s' --yes; "+
			"kafka-topics.sh --create --config retention.ms=-1"))
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
	made = i.run("init", "--set", "postgres.url="+i.db.DSN(), "--set", "postgres.connect_timeout=9s",
		"--config", file).stderr
	require.Contains(t, made,
		"next: postrider check --config "+file+"\nthen: postrider run --config "+file+"\n",
		"the relay is not to run as the owner")
	other := " --set replication.publication=pub_2 --set slot.name=" + i.db.Name + "_2"
	made = i.run("init", "--slot-name", i.db.Name+"_2", "--replication-publication", "pub_2").stderr
	require.Contains(t, made, "next: postrider check"+other+"\nthen: postrider run"+other+"\n")
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
