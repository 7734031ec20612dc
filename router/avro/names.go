package avro

import (
	"strings"
	"unicode"

	"github.com/postrider/postrider/router/connect"
)

const (
	namespace   = "io.confluent.connect.avro"
	defaultName = "ConnectDefault"
)

// fullName is the name of an Avro type.
type fullName struct {
	space string // empty: none
	name  string
}

func (n fullName) String() string {
	if n.space == "" {
		return n.name
	}
	return n.space + "." + n.name
}

// from is the name as it stands inside of a type of that namespace.
func (n fullName) from(space string) string {
	if n.space == space && !primitive(n.name) {
		return n.name
	}
	return n.String()
}

// primitive reports whether a name without a namespace would be taken for one of Avro's own types.
func primitive(name string) bool {
	switch name {
	case "record", "enum", "array", "map", "union", "fixed", "string", "bytes", "int", "long",
		"float", "double", "boolean", "null":
		return true
	}
	return false
}

// split makes the Avro name of a Connect schema's name. Only the last part has to be valid: Java's
// Avro takes any namespace, such as one with the hyphens of a topic.
func (o *Options) split(name string) (fullName, error) {
	parts := strings.Split(strings.TrimRight(name, "."), ".")
	if o.Scrub {
		for i := range parts {
			parts[i] = scrub(parts[i])
		}
	}
	last := len(parts) - 1
	n := fullName{strings.Join(parts[:last], "."), parts[last]}
	return n, valid("schema", n.name, name)
}

// member makes the Avro name of a struct's member.
func (o *Options) member(name string) (string, error) {
	if o.Scrub {
		name = scrub(name)
	}
	return name, valid("member", name, name)
}

// valid refuses the names that Java's Avro refuses: it takes letters and digits of any script, as
// far as they are one of Java's characters.
func valid(what, name, whole string) error {
	for i, c := range name {
		letter := c == '_' || c < 0x10000 && unicode.IsLetter(c)
		if !letter && (i == 0 || c >= 0x10000 || !unicode.IsDigit(c)) {
			return badName(what, whole)
		}
	}
	if name == "" {
		return badName(what, whole)
	}
	return nil
}

func badName(what, name string) error {
	return connect.Unwritable(`set scrub.invalid.names of the converter to true, or `+
		`router.field.name.adjustment.mode to "avro" where it is a member of an expanded payload`,
		"Avro takes no %s of the name %q: a name has letters, digits and underscores, and does not "+
			"begin with a digit", what, name)
}

// scrub replaces what is not valid in a name as AvroConverter does: by what URLs have for it, with
// underscores in the place of their signs.
func scrub(name string) string { return connect.Scrub(name, "0123456789") }
