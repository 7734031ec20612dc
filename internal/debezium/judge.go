package debezium

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/config"
)

// Judge refuses each property that leads to a problem with the new configuration: one that run
// finds when it loads the configuration, or a column that a table of columns does not have. An
// error means that the configuration could not be judged.
func (t *Translation) Judge(columns map[string][]string) error {
	for _, c := range t.columns {
		existing, known := columns[c.table]
		if known && !c.optional && !slices.Contains(existing, c.name) {
			t.reject(c.key, fmt.Sprintf("table %s has no column %s", c.table, c.name))
		}
	}
	problems, err := t.problems()
	if err != nil {
		return fmt.Errorf("check the configuration: %w", err)
	}
	already := len(t.Refused()) > 0
	for _, p := range problems {
		if already && p.Origin == "default" {
			continue // it follows from a refused property
		}
		why := strings.TrimPrefix(p.Err.Error(), p.Key+" ")
		if p.Hint != "" {
			why += "; " + p.Hint
		}
		t.reject(p.Key, why)
	}
	return nil
}

// problems loads the configuration without [postgres], whose files and variables are another
// machine's.
func (t *Translation) problems() (problems config.Problems, err error) {
	dir, err := os.MkdirTemp("", "postrider-import-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "postrider.toml")
	if err := os.WriteFile(path, t.TOML(), 0o600); err != nil {
		return nil, err
	}
	src := config.Source{Path: path}
	for _, v := range t.Variables {
		src.Env = append(src.Env, v+"=x")
	}
	_, err = config.LoadValid(src, "slot", "snapshot", "replication", "router", "format", "sink",
		"relay")
	if errors.As(err, &problems) {
		return problems, nil
	}
	return nil, err
}

// reject refuses what is mapped to a key of postrider.toml. A key that comes from a default gets
// an item.
func (t *Translation) reject(key, why string) {
	for n, i := range t.Items {
		for _, s := range i.Settings {
			if strings.HasPrefix(s, key+" = ") {
				t.Items[n].Outcome, t.Items[n].Text, t.Items[n].Settings = Refused, why, nil
				return
			}
		}
	}
	t.Items = append(t.Items, Item{Property: key, Outcome: Refused, Text: why, Default: true})
}
