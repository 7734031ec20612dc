package protobuf

import "github.com/postrider/postrider/router/connect"

// valid refuses the names that Java's Protocol Buffers refuse.
func valid(what, name, whole string) error {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return badName(what, whole)
	}
	for i := range len(name) {
		if !ordinary(name[i]) {
			return badName(what, whole)
		}
	}
	return nil
}

func badName(what, name string) error {
	return connect.Unwritable(`set scrub.invalid.names of the converter to true, or have the `+
		`application use another name`, "Protobuf takes no %s of the name %q: a name has letters, "+
		"digits and underscores, and does not begin with a digit", what, name)
}

// scrub is for names, which do not begin with an underscore either.
func scrub(name string) string { return connect.Scrub(name, "0123456789_") }

func ordinary(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// distinct refuses names that are there twice: those of fields, of messages inside and of the
// oneof of each optional field are in one space.
func (m *message) distinct() error {
	seen := map[string]bool{}
	add := func(name string) error {
		if seen[name] {
			return connect.Unwritable("rename one of them", "message %s has two members or types of the "+
				"name %s", m.name, name)
		}
		seen[name] = true
		return nil
	}
	for _, f := range m.fields {
		if err := add(f.name); err != nil {
			return err
		}
		if f.label == "optional" {
			if err := add("_" + f.name); err != nil {
				return err
			}
		}
	}
	for _, n := range m.nested {
		if err := add(n.name); err != nil {
			return err
		}
	}
	return nil
}
