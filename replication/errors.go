package replication

import (
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
	ErrTerminated         = errors.New(
		"connection was ended by an administrator command or by the slot's limits")
	ErrIdentityChanged = errors.New("this is not the server that was there before")
	ErrNotPostgreSQL   = errors.New("server is not PostgreSQL")
	ErrUndecodable     = errors.New("server can't decode a row")
	ErrTooManyTables   = errors.New("publication has too many wide tables")
	// ErrUnassigned is of a row that came with the stream, not of the stream: see
	// slot.UnassignedError.
	ErrUnassigned = errors.New("which table a row belongs to is not known")
)

// RowTooLargeError says that a row is longer than replication.max_row_bytes. It was not buffered:
// the stream hands on an event with Oversize, and who takes it decides. The stream itself ends
// with it for what is no row and may not be that long.
type RowTooLargeError struct{ Bytes, Max int64 }

func (e *RowTooLargeError) Error() string {
	return fmt.Sprintf("a row of %d bytes is longer than replication.max_row_bytes = %d", e.Bytes,
		e.Max)
}

// Hint is the setting with which the row would be taken: the next power of two, in MiB, up to
// PostgreSQL's own limit for a row.
func (e *RowTooLargeError) Hint() string {
	limit := int64(1 << 20)
	for limit < e.Bytes && limit < 1<<30 {
		limit *= 2
	}
	return fmt.Sprintf("replication.max_row_bytes = \"%dMiB\"   # then start again", limit>>20)
}

// startError gives an error of start-up its sentinel, by SQLSTATE, never by text.
func startError(err error) error {
	switch postgres.SQLState(err) {
	case "42704": // undefined_object: at this point only the slot can be meant
		return fmt.Errorf("%w: %w", ErrSlotMissing, err)
	// object_not_in_prerequisite_state: invalidated, or not of this database or plugin
	case "55000":
		return fmt.Errorf("%w: %w", ErrSlotLost, err)
	}
	return serverError(err)
}

// streamError gives an error of the running stream its sentinel. While streaming, 42704 means the
// publication: the slot is held by this connection and can't be dropped.
func streamError(err error) error {
	switch postgres.SQLState(err) {
	case "42704":
		return fmt.Errorf("%w: %w", ErrPublicationMissing, err)
	case "XX000", "54000", // internal_error, program_limit_exceeded: a row above 1 GB in text form
		// untranslatable_character, character_not_in_repertoire: not to be had in UTF-8
		"22P05", "22021":
		return fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return serverError(err)
}

func serverError(err error) error {
	switch postgres.SQLState(err) {
	case "55006": // object_in_use
		return fmt.Errorf("%w: %w", ErrSlotInUse, err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("%w: %w", ErrPermission, err)
	case "57P01": // admin_shutdown: also what an invalidated slot's walsender says
		return fmt.Errorf("%w: %w", ErrTerminated, err)
	case "57P03": // cannot_connect_now
		return fmt.Errorf("%w: %w", ErrServerStopping, err)
	}
	return err
}
