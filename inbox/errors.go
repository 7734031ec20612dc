package inbox

import (
	"errors"
	"fmt"
)

// ErrOutsideWindow is of an event without a mark that is so old that its mark may have been
// removed: whether it is a duplicate is not known. Nothing was written.
var ErrOutsideWindow = errors.New("the event is older than the window of the inbox")

// outsideWindow is the SQLSTATE with which the function of the inbox refuses an event.
const outsideWindow = "PRIOW"

// explain says what failed, and what to do about it where the cause is known.
func (t Table) explain(err error, consumer string, event Event) error {
	what := fmt.Sprintf("mark event %q of consumer %q in %s", event.ID, consumer, t)
	state := sqlState(err)
	if state == outsideWindow {
		return fmt.Errorf("%s: %w: %w: if this consumer has not processed it, process it with the "+
			"zero time, else skip its record", what, ErrOutsideWindow, err)
	}
	if hint := t.hint(state); hint != "" {
		return fmt.Errorf("%s: %w: %s", what, err, hint)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func (t Table) hint(state string) string {
	switch state {
	case "42883", "3F000", "42P01": // no such function, schema, table
		return "this database has no inbox of this name: run sql/inbox.sql in it"
	case "42501": // insufficient privilege
		return "the role needs GRANT USAGE ON SCHEMA " + t.named().Schema +
			" and GRANT SELECT, INSERT ON " + t.String()
	case "42703", "42P10", "55000": // no such column, no unique key, a deferrable one
		return "this is not the table of sql/inbox.sql: rename it, and run the script"
	case "23514": // no partition
		return "the default partition is missing: run sql/inbox.sql again, which says how to attach it"
	case "25006":
		return "the transaction is read only, or the server is a standby: use the primary"
	}
	return ""
}

// sqlState is the code of an error of the server, as the drivers have it; empty: there is none.
func sqlState(err error) string {
	var server interface{ SQLState() string }
	if errors.As(err, &server) {
		return server.SQLState()
	}
	return ""
}

// repeatable reports whether the transaction can succeed when it is repeated: it was rolled back
// to serialize it with others, or to end a deadlock.
func repeatable(err error) bool {
	state := sqlState(err)
	return state == "40001" || state == "40P01"
}
