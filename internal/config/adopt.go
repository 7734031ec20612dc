package config

import (
	"maps"
	"reflect"
	"slices"
)

// Adopt returns l with the values that newer has for the keys that may change, and the names of the keys that did and of those that would
// have. Path and Warnings are those of newer. Neither l nor newer is changed. Secrets are compared by what they are, never by what is printed
// of them; of one in a file it is the name of the file that counts.
func (l *Loaded) Adopt(newer *Loaded, may func(key string) bool) (adopted *Loaded, changed, left []string) {
	adopted = &Loaded{Config: l.Config, Path: newer.Path, Warnings: newer.Warnings, origins: maps.Clone(l.origins), source: l.source}
	if adopted.origins == nil {
		adopted.origins = map[string]string{}
	}
	adopted.Config.Router = slices.Clone(l.Config.Router) // or what follows would write into the one of l
	given := map[string]key{}
	for _, k := range keysOf(&newer.Config) {
		given[k.name] = k
	}
	for _, k := range keysOf(&adopted.Config) {
		g, found := given[k.name]
		delete(given, k.name)
		if found && same(k, g) {
			adopted.origins[k.name] = newer.Origin(k.name)
			continue
		}
		if !found || !may(k.name) { // not found: the number of [[router]] has changed
			left = append(left, k.name)
			continue
		}
		k.field.Set(g.field)
		adopted.origins[k.name] = newer.Origin(k.name)
		changed = append(changed, k.name)
	}
	return adopted, changed, append(left, slices.Sorted(maps.Keys(given))...)
}

func same(a, b key) bool {
	if a.kind == list && a.field.Len() == 0 && b.field.Len() == 0 {
		return true // not given, and given as empty
	}
	return reflect.DeepEqual(a.field.Interface(), b.field.Interface())
}
