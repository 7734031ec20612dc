package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RuleName is the configuration's name for rule set i, from 0, of n: "router", or "router[2]" for
// the second of several.
func RuleName(i, n int) string {
	if n == 1 {
		return "router"
	}
	return fmt.Sprintf("router[%d]", i+1)
}

// Divide gives each rule set the outbox tables and the message prefixes that are routed by it, and
// returns them with both lists filled. One rule set may name no tables: it takes the tables and
// prefixes that no other names. Every table and every prefix must have exactly one. The error
// joins all that is wrong; each names its key.
func Divide(rules []Config, tables, prefixes []string) ([]Config, error) {
	if len(rules) == 0 {
		return nil, errors.New("router: there is no rule set; write [router]")
	}
	out := slices.Clone(rules)
	rest, errs := restOf(rules)
	errs = append(errs, divide(out, rest, "tables", tables,
		func(c *Config) *[]string { return &c.Tables })...)
	if len(rules) == 1 {
		rest = 0
	}
	errs = append(errs, divide(out, rest, "messages", prefixes,
		func(c *Config) *[]string { return &c.Messages })...)
	if rest >= 0 && len(rules) > 1 && len(out[rest].Tables) == 0 && len(out[rest].Messages) == 0 {
		errs = append(errs, fmt.Errorf("%s.tables is empty, and every table has another rule "+
			"set: name the tables that it is for, or remove it", RuleName(rest, len(rules))))
	}
	return out, errors.Join(errs...)
}

// restOf finds the rule set that takes what no other names, -1 if there is none.
func restOf(rules []Config) (rest int, errs []error) {
	rest = -1
	for i := range rules {
		switch {
		case len(rules[i].Tables) > 0:
		case rest < 0:
			rest = i
		default:
			errs = append(errs, fmt.Errorf("%s.tables is empty, as in %s: only one rule set may "+
				"take the tables that no other names; name them",
				RuleName(i, len(rules)), RuleName(rest, len(rules))))
		}
	}
	return rest, errs
}

// divide shares out what stands in replication.<list> among the lists of that name of the rule
// sets. What none names goes to rest.
func divide(rules []Config, rest int, list string, all []string,
	of func(*Config) *[]string) (errs []error) {
	owner := map[string]string{}
	for i := range rules {
		key := RuleName(i, len(rules)) + "." + list
		for _, name := range *of(&rules[i]) {
			if other, taken := owner[name]; taken {
				errs = append(errs, fmt.Errorf("%s has %q, which is in %s already: name it once",
					key, name, other))
			} else if !slices.Contains(all, name) {
				errs = append(errs, fmt.Errorf(
					"%s has %q, which is not in replication.%s (%s): add it there, or correct "+
						"it here", key, name, list, strings.Join(all, ", ")))
			}
			owner[name] = key
		}
	}
	for _, name := range all {
		if _, taken := owner[name]; taken {
			continue
		}
		if rest < 0 {
			errs = append(errs, fmt.Errorf("replication.%s has %q, which no rule set is for: "+
				"add it to %s of a [[router]], or leave tables out of one, which "+
				"then takes what no other names", list, name, list))
			continue
		}
		mine := of(&rules[rest])
		*mine = append(slices.Clone(*mine), name)
	}
	return errs
}
