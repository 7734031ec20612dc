package config

import (
	"maps"
	"reflect"
	"slices"
)

// Adopt returns l with newer's values of the keys that may change, the names of the keys that did,
// and those that newer would have changed otherwise. Path and Warnings are those of newer. It
// changes neither l nor newer. Secrets are equal if their values are, or the names of their files.
func (l *Loaded) Adopt(newer *Loaded, may func(key string) bool) (adopted *Loaded, changed,
	left []string) {
	adopted = &Loaded{
		Config: l.Config, Path: newer.Path, Warnings: newer.Warnings, origins: map[string]string{},
		source: l.source,
	}
	maps.Copy(adopted.origins, l.origins)
	adopted.Config.Router = slices.Clone(l.Config.Router) // not to write into that of l
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
		return true // nil and empty
	}
	return reflect.DeepEqual(a.field.Interface(), b.field.Interface())
}
