package connect

import "slices"

// merger joins the schemas of objects in an array, in document order. What was merged is not
// optional any more. Debezium merges in the order of a hash set and drops members of nested
// structs that differ; here none is dropped.
//
// It works in place, on copies of its own: what a schema costs is its own size, and not that of
// all before it.
type merger struct {
	schema *Schema
	places map[string]int     // of its fields
	below  map[string]*merger // of those fields that were merged with another
}

func newMerger(s *Schema) *merger {
	copied := *s
	copied.Fields = slices.Clone(s.Fields)
	m := &merger{schema: &copied, places: make(map[string]int, len(s.Fields)),
		below: map[string]*merger{}}
	for i, f := range s.Fields {
		m.places[f.Name] = i
	}
	return m
}

// merge joins the members of another struct. It reports whether that was equal to what there is,
// as Schema.Equal does: a look at both beforehand would be one at each level, for all levels
// below.
func (m *merger) merge(s *Schema) (equal bool) {
	equal = m.schema.Optional == s.Optional && m.schema.Name == s.Name &&
		len(m.schema.Fields) == len(s.Fields)
	for i, f := range s.Fields {
		at, known := m.places[f.Name]
		if !known {
			m.places[f.Name] = len(m.schema.Fields)
			m.schema.Fields = append(m.schema.Fields, f)
			equal = false
			continue
		}
		equal = m.reconcile(at, f.Schema) && at == i && equal
	}
	return equal
}

// reconcile joins the schema of a member with that of the member at a place.
func (m *merger) reconcile(at int, b *Schema) (equal bool) {
	was := m.schema.Fields[at]
	a := was.Schema
	put := func(s *Schema) { m.schema.Fields[at] = &Field{was.Name, s} }
	switch {
	case a == b:
		return true
	case a.placeholder:
		put(b)
		return false
	case b.placeholder:
		return false
	case a.Kind == KindStruct && b.Kind == KindStruct:
		below := m.mergerOf(was.Name, a)
		equal = below.merge(b)
		below.schema.Optional = a.Optional && b.Optional
		put(below.schema)
		return equal
	case a.Kind == KindArray && b.Kind == KindArray && a.Items.Kind == KindStruct &&
		b.Items.Kind == KindStruct:
		below := m.mergerOf(was.Name, a.Items)
		if equal = below.merge(b.Items); !equal {
			below.schema.Optional = false
		}
		put(&Schema{Kind: KindArray, Optional: true, Items: below.schema})
		return equal
	}
	return a.Equal(b)
}

// mergerOf is that of a field: made when the field is merged for the first time.
func (m *merger) mergerOf(name string, s *Schema) *merger {
	below := m.below[name]
	if below == nil {
		below = newMerger(s)
		m.below[name] = below
	}
	return below
}
