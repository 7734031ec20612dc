package replication

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/postgres"
)

// Why a stream ended. Open and Run wrap these; relay/classify.go turns them into a decision.
var (
	ErrProtocol           = errors.New("malformed replication message")
	ErrSlotMissing        = errors.New("replication slot does not exist")
	ErrSlotInUse          = errors.New("replication slot is in use")
	ErrSlotLost           = errors.New("replication slot is lost")
	ErrSlotUnusable       = errors.New("replication slot can't be used")
	ErrPublicationMissing = errors.New("publication does not exist")
	ErrPermission         = errors.New("role may not replicate")
	ErrServerStopping     = errors.New("server is shutting down")
	ErrTerminated         = errors.New("connection was ended by an administrator command or by " +
		"the slot's limits")
	// ErrStreamLost: the network was lost, the walsender crashed, or wal_sender_timeout passed, after
	// which the server closes the connection without a message.
	ErrStreamLost      = errors.New("replication connection lost")
	ErrIdentityChanged = errors.New("this is not the server that was there before")
	ErrNotPostgreSQL   = errors.New("server is not PostgreSQL")
	ErrUndecodable     = errors.New("server can't decode a row")
	ErrTooManyTables   = errors.New("publication has too many wide tables")
	// ErrUnassigned is the error of a row, not of the stream: see partition.UnassignedError.
	ErrUnassigned = errors.New("which table a row belongs to is not known")
)

// RowTooLargeError is the error for a row that is longer than replication.max_row_bytes. Run sends
// an event with Oversize instead, and returns the error only for what is no row.
type RowTooLargeError struct{ Bytes, Max int64 }

func (e *RowTooLargeError) Error() string {
	return fmt.Sprintf("a row of %d bytes is longer than replication.max_row_bytes = %d", e.Bytes,
		e.Max)
}

// Hint returns the setting with which the row is accepted: the next power of two, at most 1 GiB.
func (e *RowTooLargeError) Hint() string {
	limit := int64(1 << 20)
	for limit < e.Bytes && limit < 1<<30 {
		limit *= 2
	}
	return fmt.Sprintf("replication.max_row_bytes = \"%dMiB\"   # then start again", limit>>20)
}

// startError adds the sentinel to an error of start-up, by its SQLSTATE, never by its text. 55000
// (object_not_in_prerequisite_state) has none: it is that of a slot that has been lost since it
// was read, and that of a slot which the server, a standby, keeps a copy of.
func startError(err error) error {
	return withSentinel(err, map[string]error{
		"42704": ErrSlotMissing, // undefined_object: of the slot
	})
}

// streamError adds the sentinel to an error of the running stream.
func streamError(err error) error {
	return withSentinel(err, map[string]error{
		"42704": ErrPublicationMissing, // undefined_object: not of the slot, which is in use here
		"XX000": ErrUndecodable,        // internal_error: a row above 1 GB in text form
		"54000": ErrUndecodable,        // program_limit_exceeded: the same
		"22P05": ErrUndecodable,        // untranslatable_character: there is none in UTF-8
		"22021": ErrUndecodable,        // character_not_in_repertoire: the same
	})
}

var sentinels = map[string]error{
	"55006": ErrSlotInUse,      // object_in_use
	"42501": ErrPermission,     // insufficient_privilege
	"57P01": ErrTerminated,     // admin_shutdown: also of the walsender of an invalidated slot
	"57P03": ErrServerStopping, // cannot_connect_now
}

func withSentinel(err error, known map[string]error) error {
	state := postgres.SQLState(err)
	if sentinel := cmp.Or(known[state], sentinels[state]); sentinel != nil {
		return fmt.Errorf("%w: %w", sentinel, err)
	}
	return err
}
