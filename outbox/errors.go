package outbox

import "errors"

// hints say what to do about an error of the server, by its SQLSTATE.
var hints = map[string]string{
	"42P01": "create the table with postrider init or sql/outbox.sql, or set Config.Table",
	"42703": "Config names a column that the table does not have: set the field of Config to " +
		"the column that is meant, or to None where the table has none",
	"42804": "set Config.PayloadType to the type of the payload column; the other columns take " +
		"what the documentation of Config says",
	"42501": "GRANT INSERT ON the table TO the role of the application",
	"22P02": "the value does not have the form of the type of its column: a column of type uuid " +
		"takes UUIDs, a column that the server numbers needs Config.FieldID = None",
	"22P05": "a text has a NUL, which PostgreSQL does not store: remove it, or write bytes",
	"428C9": "the server makes the value of this column: set the field of Config to None",
	"23502": "set the field of the event that belongs to this column, or have Config name the " +
		"column in Columns",
	"23505": "an event with this id is in the table: leave Event.ID empty for a new one",
	"25P02": "an earlier statement of the transaction has failed: roll it back",
	"42P02": "an ORM has replaced the parameters: pass its *sql.Tx (Bun: tx.Tx)",
}

// stateError is an error of PostgreSQL, of every driver.
type stateError interface{ SQLState() string }

func hintOf(err error) string {
	var state stateError
	if errors.As(err, &state) {
		return hints[state.SQLState()]
	}
	return ""
}
