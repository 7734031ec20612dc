package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/build"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/test/parts"
)

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// execute runs one command line in memory, with the real example and no environment but env.
func execute(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return executeWith(t, strings.NewReader(""), env, args...)
}

func executeWith(t *testing.T, stdin io.Reader, env []string, args ...string) result {
	t.Helper()
	example, err := os.ReadFile(exampleFile)
	require.NoError(t, err)
	var stdout, stderr bytes.Buffer
	code := Main(Process{Args: args, Env: env, Stdin: stdin, Stdout: &stdout,
		Stderr: &stderr, Example: string(example)})
	return result{code, stdout.String(), stderr.String()}
}

// exampleFile is absolute, since tests change the working directory.
var exampleFile = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir + "/../../config.example.toml"
}()

func TestMain_TellsUsageErrorsByTheirCode(t *testing.T) {
	t.Chdir(t.TempDir())
	tests := []struct {
		args   string
		code   int
		stderr string
	}{
		{"", exit.OK, ""},
		{"--help", exit.OK, ""},
		{"help version", exit.OK, ""},
		{"verson", exit.Usage, "Did you mean this?\n  \tversion"},
		{"version --jsn", exit.Usage, "unknown flag: --jsn\n  See 'postrider version --help'."},
		{"version now", exit.Usage, "unknown command"},
		{"version --config", exit.Usage, "flag needs an argument"},
		{"config", exit.OK, ""},
		{"config prnt", exit.Usage, "Did you mean this?\n  \tprint"},
		{"config print --set x", exit.Usage, "--set: expected key=value"},
		{"config print --set x=y", exit.Config, "unknown key"},
		{"check --set x", exit.Usage, "--set: expected key=value"},
		{"check --offline --set =y", exit.Usage, "expected key=value"},
		{"config print --config gone.toml", exit.Config, "gone.toml: no such file"},
		{"config validate", exit.Config, "sink.kafka.brokers"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			r := execute(t, nil, strings.Fields(tt.args)...)
			require.Equal(t, tt.code, r.code, r.stderr)
			require.Contains(t, r.stderr, tt.stderr)
			if tt.code == exit.OK {
				require.NotEmpty(t, r.stdout)
				require.Empty(t, r.stderr)
			} else {
				require.True(t, strings.HasPrefix(r.stderr, "postrider: "), r.stderr)
				require.Empty(t, r.stdout)
			}
		})
	}
}

func TestReport_SaysWhatWhereWhatItMeansAndWhatToDo(t *testing.T) {
	var w bytes.Buffer
	err := fmt.Errorf("open session: %w", &exit.Error{
		Code: exit.Unavailable, Err: errors.New("db:5432: connection refused"),
		WAL: "the slot keeps it", Next: "pg_isready -h db\npostrider check",
	})
	require.Equal(t, exit.Unavailable, exit.Print(&w, err))
	require.Equal(t, `postrider: open session: db:5432: connection refused
  WAL:  the slot keeps it
  next: pg_isready -h db
        postrider check
`, w.String())

	w.Reset()
	require.Equal(t, exit.Runtime, exit.Print(&w, errors.New("two\nlines")))
	require.Equal(t, "postrider: two\n  lines\n", w.String())

	w.Reset()
	require.Equal(t, exit.Unavailable, exit.Print(&w, exit.Status(exit.Unavailable)))
	require.Empty(t, w.String(), "the result on stdout has said it")
	require.NoError(t, exit.Status(exit.OK))
	require.Equal(t, exit.OK, exit.Print(&w, nil))
}

func TestPrepare_TellsARunThatFailedFromAWrongCall(t *testing.T) {
	a := &app{}
	cmd := &cobra.Command{Use: "x",
		RunE: func(*cobra.Command, []string) error { return errors.New("broke") }}
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	a.prepare(cmd)
	cmd.SetArgs(nil)
	require.Error(t, cmd.Execute())
	require.Same(t, cmd, a.command)
}

// Flags of two commands that share a variable have the default of the command that was made last.
func TestFlags_HaveTheDefaultsThatTheHelpNames(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			require.Equal(t, f.DefValue, f.Value.String(), "%s --%s", cmd.CommandPath(), f.Name)
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&app{}))
}

func TestVersion_IsOneJSONObject(t *testing.T) {
	r := execute(t, nil, "version", "--json")
	require.Equal(t, exit.OK, r.code)
	var b build.Info
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &b))
	require.NotEmpty(t, b.Version)
	require.NotEmpty(t, b.Go)
	require.Contains(t, b.Platform, "/")

	r = execute(t, nil, "version")
	require.True(t, strings.HasPrefix(r.stdout, "postrider "+b.Version), r.stdout)
	require.Equal(t, r, execute(t, nil, "--version"))
}

func TestCompletion_WritesAScriptForEachShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		r := execute(t, nil, "completion", shell)
		require.Equal(t, exit.OK, r.code)
		require.Contains(t, r.stdout, "postrider", shell)
	}
	r := execute(t, nil, "__complete", "config", "print", "--set", "")
	require.Contains(t, r.stdout, "sink.kafka.brokers=\tOne or more brokers")
}

func TestCompletion_KnowsEveryValueThatOnlyWeKnow(t *testing.T) {
	t.Chdir(t.TempDir())
	i := newInstall(t, "17")
	i.ok("init")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--set", "router.route"}, "router.route.topic.replacement="},
		{[]string{"run", "--set", "router.null_key="}, "router.null_key=publish"},
		{[]string{"init", "--preset", ""}, "partitioned"},
		{[]string{"deadletter", "list", "--cause", ""}, "unknown_topic"},
		{[]string{"deadletter", "redrive", "--cause", ""}, "parked"},
		{[]string{"slot", "show", ""}, i.db.Name + "\tinactive"},
		{[]string{"slot", "drop", ""}, i.db.Name + "\tinactive"},
		{[]string{"slot", "advance", ""}, i.db.Name + "\tinactive"},
		{[]string{"run", "--slot-name", ""}, i.db.Name + "\tinactive"},
		{[]string{"audit", "--slot", ""}, i.db.Name + "\tinactive"},
	} {
		r := i.ok(append([]string{"__complete"}, c.args...)...)
		require.Contains(t, r.stdout, c.want, c.args)
	}
	i.env = append(i.env, "POSTRIDER_POSTGRES_URL=postgres://u@"+parts.Nobody(t)+"/x")
	require.Equal(t, ":4\n", i.ok("__complete", "slot", "show", "").stdout,
		"no names, no files and no error where nobody answers")
}
