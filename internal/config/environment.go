package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/suggest"
)

const (
	envPrefix = "POSTRIDER_"
	// EnvFile names the configuration file, as --config does.
	EnvFile = envPrefix + "CONFIG"
	// envTest starts the variables that only the project's tests read.
	envTest = envPrefix + "TEST_"
)

// environment is the process's variables by name.
type environment map[string]string

func newEnvironment(vars []string) environment {
	env := environment{}
	for _, v := range vars {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	return env
}

// settings lists the keys that the environment sets. An empty variable sets nothing: compose files
// and shells make one of a variable that they do not have. An unknown variable with our prefix is
// a warning and not an error: Kubernetes sets POSTRIDER_PORT and the like for a service named
// postrider.
func (env environment) settings(ix *index) (settings []setting, warnings []string) {
	names := map[string]string{} // variable to key
	vars := make([]string, 0, len(ix.names))
	for _, name := range ix.plain {
		names[envName(name)] = name
		vars = append(vars, envName(name))
	}
	for _, v := range slices.Sorted(maps.Keys(env)) {
		if !strings.HasPrefix(v, envPrefix) || strings.HasPrefix(v, envTest) || v == EnvFile {
			continue
		}
		name, known := names[v]
		if !known {
			w := "environment variable " + v + " is not a key and is ignored"
			if hint := didYouMean(v, vars); hint != "" {
				w += "; " + hint
			}
			warnings = append(warnings, w)
			continue
		}
		if env[v] != "" {
			settings = append(settings, setting{name: name, origin: "env " + v, value: env[v], text: true})
		}
	}
	return settings, warnings
}

var reference = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand replaces ${NAME}; $${NAME} stands for the text ${NAME}. A name without a value is an
// error: the server would refuse an empty password with an error that does not name the variable.
func (env environment) expand(s string) (string, error) {
	var missing []string
	out := reference.ReplaceAllStringFunc(s, func(m string) string {
		if strings.HasPrefix(m, "$$") {
			return m[1:]
		}
		name := m[2 : len(m)-1]
		if env[name] == "" {
			missing = append(missing, name)
		}
		return env[name]
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("environment variable %s is not set (write $${...} for text that is not "+
			"one)", strings.Join(missing, ", "))
	}
	return out, nil
}

// expandValue is expand of a text and of each text in a list.
func (env environment) expandValue(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return env.expand(v)
	case []any:
		items := slices.Clone(v)
		for i, item := range items {
			var err error
			if items[i], err = env.expandValue(item); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	return v, nil
}

// didYouMean is a hint at the known name that was probably meant; empty if there is none.
func didYouMean(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// nearest prefers the right key in another section.
func nearest(name string, known []string) string {
	leaf := func(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
	at := slices.IndexFunc(known, func(k string) bool { return leaf(k) == leaf(name) })
	if at >= 0 {
		return known[at]
	}
	return suggest.Nearest(name, known, len(name)/3)
}
