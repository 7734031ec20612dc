package router

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
)

// RowError is a row or logical message that can never be published as it is: poison.
type RowError struct {
	Reason   string // bounded label, one of the Reason constants
	Relation string // schema-qualified table, or "message:<prefix>"
	EventID  string // text of the id column, empty if unknown
	LSN      pglogrepl.LSN
	Index    uint32
	Err      error  // what is wrong
	Hint     string // what to do about it; may be empty
}

// The reasons of a RowError, used as a metric label.
const (
	ReasonInvalidTopic     = "invalid_topic"
	ReasonNullRoute        = "null_route"
	ReasonNullKey          = "null_key"
	ReasonInvalidPartition = "invalid_partition"
	ReasonInvalidTimestamp = "invalid_timestamp"
	ReasonInvalidMessage   = "invalid_message"
	ReasonInvalidHeaders   = "invalid_headers"
	ReasonInvalidEvent     = "invalid_cloudevent"
	ReasonUnconvertible    = "unconvertible"
	ReasonRegexTimeout     = "regex_timeout"
	ReasonUpdate           = "update"
)

// Error names the event and what is wrong with it. What to do is in Hint alone.
func (e *RowError) Error() string {
	return fmt.Sprintf("route event %q of %s at %s index %d: %v", e.EventID, e.Relation, e.LSN,
		e.Index, e.Err)
}

// Unwrap gives the cause.
func (e *RowError) Unwrap() error { return e.Err }

// ShapeError is a relation that cannot be an outbox table as configured: a needed column is
// missing, ambiguous or of an unusable type. No row of that relation can be routed; it is found
// once, before or with the first row.
type ShapeError struct {
	Relation string
	Column   string   // the column as configured, or the candidates with "or" between them
	Rule     string   // the rule set of the table: see RuleName
	Key      string   // its key that names the column
	Existing []string // the columns there are
	Problem  string   // what is wrong, as the end of a sentence that begins with the column
	Hint     string   // what to do
}

// Error names what is missing and the columns there are. What to do is in Hint alone.
func (e *ShapeError) Error() string {
	return fmt.Sprintf("%s cannot be routed: column %s %s (%s.%s); it has the columns %s",
		e.Relation, e.Column, e.Problem, e.Rule, e.Key, strings.Join(e.Existing, ", "))
}

// fault is what is wrong with a row, before it is known which; see rowError.
func fault(reason, hint, format string, args ...any) *RowError {
	return &RowError{Reason: reason, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// rowError completes a fault, or another error, with the event that it belongs to.
func rowError(ev *replication.Event, relation string, id []byte, err error) error {
	out := RowError{Reason: ReasonUnconvertible, Err: err}
	var known *RowError
	var value *connect.ValueError
	switch {
	case errors.As(err, &known):
		out = *known
	case errors.As(err, &value):
		out.Err, out.Hint = value.Err, value.Hint
	}
	out.Relation, out.EventID, out.LSN, out.Index = relation, string(id), ev.LSN, ev.Index
	return &out
}
