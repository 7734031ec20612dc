package cli

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/status"
)

func newConfig(a *app) *cobra.Command {
	example := &cobra.Command{
		Use: "example",
		Short: "Print config.example.toml: every key with its default, its unit and the reason " +
			"to change it",
		RunE: func(*cobra.Command, []string) error { return a.printf("%s", a.Example) },
	}
	return group("config", "Print, validate and describe the configuration",
		newConfigPrint(a), newConfigValidate(a), newConfigSchema(a), example)
}

func newConfigPrint(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "print",
		Short: "Print the effective configuration, with the origin of each value and secrets " +
			"masked",
		RunE: func(cmd *cobra.Command, _ []string) error {
			src, err := a.source(cmd)
			if err != nil {
				return err
			}
			// Not validated: a configuration that is not complete is the one that people want to
			// look at.
			l, err := config.Load(src)
			if err != nil {
				return exit.ConfigFailure(err)
			}
			a.warn(l.Warnings)
			return a.print(status.Config{File: l.Path, Values: l.Values()}, l.Print)
		},
	}
	a.jsonFlag(cmd, "")
	return cmd
}

// validation is the result of config validate --json.
type validation struct {
	Valid    bool      `json:"valid"`
	File     string    `json:"file,omitempty"`
	Problems []problem `json:"problems"`
	Warnings []string  `json:"warnings"`
}

type problem struct {
	Origin  string `json:"origin,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func newConfigValidate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration without connecting to anything",
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd)
			if a.json {
				return a.validateJSON(l, err)
			}
			if err != nil {
				return err
			}
			a.warn(l.Warnings)
			return a.printf("%s: valid\n", cmp.Or(l.Path, "configuration without a file"))
		},
	}
	a.jsonFlag(cmd, "")
	return cmd
}

func (a *app) validateJSON(l *config.Loaded, err error) error {
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	v := validation{Valid: err == nil, Problems: []problem{}, Warnings: []string{}}
	for _, p := range problems {
		v.Problems = append(v.Problems, problem{p.Origin, p.Key, p.Err.Error(), p.Hint})
	}
	if l != nil {
		v.File, v.Warnings = l.Path, append(v.Warnings, l.Warnings...)
	}
	return cmp.Or(a.printJSON(v), statusUnless(v.Valid, exit.Config))
}

func newConfigSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration file, for editors",
		RunE: func(*cobra.Command, []string) error {
			s, err := config.Schema(a.Example)
			if err != nil {
				return err
			}
			return a.printf("%s\n", s)
		},
	}
}
