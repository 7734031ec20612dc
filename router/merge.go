package router

import "slices"

// merger joins the schemas of objects in an array, in document order. What was merged is not optional any more. Debezium merges in the
// order of a hash set and drops members of nested structs that differ; here none is dropped.
//
// It works in place, on copies of its own: what a schema costs is its own size, and not that of all before it.
type merger struct {
	schema *schema
	places map[string]int     // of its fields
	below  map[string]*merger // of those fields that were merged with another
}

func newMerger(s *schema) *merger {
	copied := *s
	copied.fields = slices.Clone(s.fields)
	m := &merger{schema: &copied, places: make(map[string]int, len(s.fields)), below: map[string]*merger{}}
	for i, f := range s.fields {
		m.places[f.name] = i
	}
	return m
}

// merge joins the members of another struct. It tells whether that was equal to what there is, as schema.equal does: a look at both
// beforehand would be one at each level, for all levels below.
func (m *merger) merge(s *schema) (equal bool) {
	equal = m.schema.optional == s.optional && m.schema.name == s.name && len(m.schema.fields) == len(s.fields)
	for i, f := range s.fields {
		at, known := m.places[f.name]
		if !known {
			m.places[f.name] = len(m.schema.fields)
			m.schema.fields = append(m.schema.fields, f)
			equal = false
			continue
		}
		equal = m.reconcile(at, f.schema) && at == i && equal
	}
	return equal
}

// reconcile joins the schema of a member with that of the member at a place.
func (m *merger) reconcile(at int, b *schema) (equal bool) {
	was := m.schema.fields[at]
	a := was.schema
	put := func(s *schema) { m.schema.fields[at] = &field{was.name, s} }
	switch {
	case a == b:
		return true
	case a.placeholder:
		put(b)
		return false
	case b.placeholder:
		return false
	case a.kind == kindStruct && b.kind == kindStruct:
		below := m.mergerOf(was.name, a)
		equal = below.merge(b)
		below.schema.optional = a.optional && b.optional
		put(below.schema)
		return equal
	case a.kind == kindArray && b.kind == kindArray && a.items.kind == kindStruct && b.items.kind == kindStruct:
		below := m.mergerOf(was.name, a.items)
		if equal = below.merge(b.items); !equal {
			below.schema.optional = false
		}
		put(&schema{kind: kindArray, optional: true, items: below.schema})
		return equal
	}
	return a.equal(b)
}

// mergerOf is that of a field: made when the field is merged for the first time.
func (m *merger) mergerOf(name string, s *schema) *merger {
	below := m.below[name]
	if below == nil {
		below = newMerger(s)
		m.below[name] = below
	}
	return below
}
