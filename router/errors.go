package router

import (
	"github.com/jackc/pglogrepl"
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
	ReasonUnconvertible    = "unconvertible"
	ReasonRegexTimeout     = "regex_timeout"
)

func (e *RowError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *RowError) Unwrap() error { return e.Err }

// ShapeError is a relation that cannot be an outbox table as configured: a needed column is missing, ambiguous or of an unusable type.
// No row of that relation can be routed; it is found once, before or with the first row.
type ShapeError struct {
	Relation string
	Column   string // the column as configured, or the candidates
	Key      string // the router key that says which column it is
	Err      error
	Hint     string
}

func (e *ShapeError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *ShapeError) Unwrap() error { return e.Err }
