package connect

import (
	"errors"
	"fmt"
	"strings"
)

// ValueError is a value that cannot be written.
type ValueError struct {
	Err  error
	Hint string // what to do about it; may be empty
}

// Error is at most 1,000 bytes long: names of members come from rows.
func (e *ValueError) Error() string {
	const most = 1000
	text := e.Err.Error()
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Unwritable makes a *ValueError.
func Unwritable(hint, format string, args ...any) error {
	return &ValueError{fmt.Errorf(format, args...), hint}
}

// Mismatch is the error of a value that is not of the type of its schema.
func Mismatch(s *Schema) error {
	name := s.Name
	if name != "" {
		name = " " + name
	}
	return Unwritable("", "a value of another type than the schema's, %s%s", s.Kind, name)
}

// Within puts the place of a value, such as the name of its member, before the text of its error.
// It leaves other errors, nil and long texts alone.
func Within(err error, place string) error {
	const most = 500 // bytes
	var e *ValueError
	if !errors.As(err, &e) || len(e.Error()) > most {
		return err
	}
	return Unwritable(e.Hint, "%s%w", place, e.Err)
}

// WithinMember is Within for a member of a struct, an item of an array or an entry of a map.
func WithinMember(err error, name string) error {
	if err == nil {
		return nil
	}
	return Within(err, "member "+name+": ")
}
