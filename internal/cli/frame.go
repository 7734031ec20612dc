package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/logging"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
)

// session is a call of a command with a connection to the database.
type session struct {
	*app
	ctx  context.Context
	cfg  config.Config // slot.name is the argument of the command, if it has one
	conn *pgx.Conn
}

// connected runs f with a connection and the configuration, of which the command uses postgres and
// the given sections. Main explains the error.
func (a *app) connected(f func(s *session) error, sections ...string) runFunc {
	return func(cmd *cobra.Command, args []string) error {
		l, err := a.load(cmd, append(sections, "postgres")...)
		if err != nil {
			return err
		}
		a.warn(l.Warnings)
		if len(args) > 0 {
			l.Config.Slot.Name = args[0]
		}
		if err := slot.ValidateName(l.Config.Slot.Name); err != nil {
			return exit.Usagef("%v", err)
		}
		return a.connect(cmd.Context(), l.Config, f)
	}
}

func (a *app) connect(ctx context.Context, cfg config.Config, f func(s *session) error) error {
	conn, err := postgres.Connect(ctx, cfg.Postgres)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	return f(&session{a, ctx, cfg, conn})
}

// slot returns the slot of the command.
func (s *session) slot() (slot.Status, error) {
	return slot.Get(s.ctx, s.conn, s.cfg.Slot.Name)
}

// usableSlot returns the slot of the command if a relay could stream from it.
func (s *session) usableSlot() (slot.Status, error) {
	found, err := s.slot()
	if err == nil {
		err = slot.Verify(found.Slot, s.conn.Config().Database)
	}
	return found, err
}

// configured runs f with the configuration, of which the command uses the given sections; all of
// them if none is given.
func (a *app) configured(
	f func(ctx context.Context, l *config.Loaded) error, sections ...string,
) runFunc {
	return func(cmd *cobra.Command, _ []string) error {
		l, err := a.load(cmd, sections...)
		if err != nil {
			return err
		}
		return f(cmd.Context(), l)
	}
}

// load reads the configuration and validates the named sections, all of them if none is named.
func (a *app) load(cmd *cobra.Command, sections ...string) (*config.Loaded, error) {
	src, err := a.source(cmd)
	if err != nil {
		return nil, err
	}
	l, err := config.LoadValid(src, sections...)
	if err != nil {
		return nil, exit.ConfigFailure(err)
	}
	return l, nil
}

// source is where the configuration of a command comes from.
func (a *app) source(cmd *cobra.Command) (config.Source, error) {
	flags, err := a.settings(cmd)
	return config.Source{Path: a.configPath, Env: a.Env, Flags: flags}, err
}

// settings are the keys that the command line sets.
func (a *app) settings(cmd *cobra.Command) (flags []config.Flag, err error) {
	for _, s := range a.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			// The rest may be a secret: --set postgres.url:postgres://..., --set "$PASSWORD".
			shown := strings.TrimSpace("--set " + config.LeadingKey(s))
			return flags, exit.Usagef("%s: expected key=value", shown)
		}
		flags = append(flags, config.Flag{Key: strings.TrimSpace(key), Value: value, Name: "--set"})
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if key := f.Annotations[keyAnnotation]; len(key) == 1 {
			flags = append(flags,
				config.Flag{Key: key[0], Value: f.Value.String(), Name: "--" + f.Name})
		}
	})
	return flags, nil
}

// requireKafka refuses a configuration without topics to use.
func requireKafka(cfg config.Config, use, command string) error {
	if cfg.Sink.Kind == config.SinkKafka {
		return nil
	}
	return &exit.Error{Code: exit.Config,
		Err:  fmt.Errorf("sink.kind is %q: there are no topics to %s", cfg.Sink.Kind, use),
		Next: command + " --set sink.kind=kafka --set sink.kafka.brokers=HOST:PORT"}
}

// read reads a file, or standard input for "-".
func (a *app) read(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(a.Stdin)
	}
	return os.ReadFile(path)
}

// env returns the value of an environment variable; empty: it is not set.
func (a *app) env(name string) string {
	for _, v := range slices.Backward(a.Env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// environment is the environment of a relay in this process.
func (a *app) environment() daemon.Environment {
	return daemon.Environment{Stdout: a.Stdout, Stderr: a.Stderr, Getenv: a.env, Hint: a.typed}
}

// newLogger returns a logger to stderr.
func (a *app) newLogger(cfg config.Log) zerolog.Logger {
	log, _ := a.newLeveledLogger(cfg)
	return log
}

// warningLogger is the logger of a command that reads no configuration.
func (a *app) warningLogger() zerolog.Logger {
	return a.newLogger(config.Log{Level: "warn", Format: "auto"})
}

// newLeveledLogger returns a logger to stderr, and its level, which can change.
func (a *app) newLeveledLogger(cfg config.Log) (zerolog.Logger, *logging.Level) {
	level := new(logging.Level)
	level.Configure(cfg)
	return logging.New(a.Stderr, cfg, level, a.colour(a.Stderr)), level
}

// colour reports whether w gets colours.
func (a *app) colour(w io.Writer) bool { return terminal.Colour(w, a.env) }
