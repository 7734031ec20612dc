package relay

import (
	"context"
	"errors"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Class is what an error means for the relay.
type Class int

// The classes. What is not listed in the table is Retryable: a surprise may delay, never lose.
const (
	Retryable Class = iota // end the session, back off, start again from the slot
	Fatal                  // no new session can fix it: Run returns
	Poison                 // one row can never be delivered as it is: halt
)

func (c Class) String() string {
	return [...]string{"retryable", "fatal", "poison"}[c]
}

// Reasons that decide more than a label.
const (
	reasonSlotInUse      = "slot_in_use"     // nothing is wrong: another process streams
	reasonServerStopping = "server_stopping" // a new connection would be one more to wait for
	reasonUnknownTopic   = "unknown_topic"   // how long that is so may decide about rows
)

// drain is how long a session that ends waits for what is in flight.
type drain int

const (
	drainFully   drain = iota // what is delivered now is confirmed and never comes again
	drainBriefly              // nothing can be confirmed: only keep old and new producer apart
	drainNot                  // the sink failed, or the server waits for us
)

// rule is one row of the table: the first whose error is in the chain decides.
type rule struct {
	err    error
	class  Class
	reason string // metric label and log field
	drain  drain
	first  bool // Fatal only in the process's first session: later it may end, like a new password
}

var rules = []rule{
	// How we end ourselves.
	{ErrDrainTimeout, Fatal, "drain_timeout", drainNot, false},
	{ErrSecondSignal, Fatal, "killed", drainNot, false},

	// The server ends the connection. Its shutdown may wait for the final status.
	{replication.ErrServerStopping, Retryable, reasonServerStopping, drainNot, false},
	{postgres.ErrStopping, Retryable, reasonServerStopping, drainNot, false},
	{postgres.ErrStarting, Retryable, "server_starting", drainNot, false},
	{replication.ErrTerminated, Retryable, "terminated", drainBriefly, false},

	// The slot and what it needs.
	{ErrSlotRenewed, Retryable, "slot_renewed", drainFully, false},
	{replication.ErrSlotInUse, Retryable, reasonSlotInUse, drainBriefly, false},
	{replication.ErrSlotLost, Fatal, "slot_lost", drainFully, false},
	{replication.ErrSlotMissing, Fatal, "slot_missing", drainFully, false},
	{replication.ErrSlotUnusable, Fatal, "slot_unusable", drainFully, false},
	{replication.ErrPublicationMissing, Fatal, "publication", drainFully, false},
	{replication.ErrIdentityChanged, Fatal, "identity", drainNot, false},
	{replication.ErrNotPostgreSQL, Fatal, "not_postgresql", drainNot, false},
	{replication.ErrPermission, Fatal, "postgres_permission", drainFully, true},
	{postgres.ErrPermission, Fatal, "postgres_permission", drainFully, true},
	{postgres.ErrAuthentication, Fatal, "postgres_authentication", drainFully, true},
	{postgres.ErrNoSuchDatabase, Fatal, "no_such_database", drainFully, true},
	{postgres.ErrConfig, Fatal, "configuration", drainFully, true},
	{ErrConfiguration, Fatal, "configuration", drainFully, false},

	// One row.
	{errRefused, Retryable, "refused", drainFully, false},
	{replication.ErrUnassigned, Poison, "unassigned", drainFully, false},
	{replication.ErrUndecodable, Poison, "undecodable", drainFully, false},
	{sink.ErrInvalidTopic, Poison, "invalid_topic", drainFully, false},
	{sink.ErrTooLarge, Poison, "too_large", drainFully, false},
	{sink.ErrInvalidRecord, Poison, "invalid_record", drainFully, false},

	// The broker.
	{sink.ErrAuthentication, Fatal, "broker_authentication", drainNot, true},
	{sink.ErrUnknownTopic, Retryable, reasonUnknownTopic, drainFully, false},
	{sink.ErrPermission, Retryable, "broker_permission", drainFully, false},
	{sink.ErrTLS, Retryable, "broker_tls", drainNot, false},
	{sink.ErrUnreachable, Retryable, "broker_unreachable", drainNot, false},
	{sink.ErrClosed, Retryable, "broker", drainNot, false},

	{postgres.ErrTLS, Retryable, "postgres_tls", drainBriefly, false},
	{postgres.ErrTooManyConnections, Retryable, "too_many_connections", drainBriefly, false},
	{postgres.ErrNotWritable, Retryable, "not_writable", drainBriefly, false},
	{postgres.ErrUnreachable, Retryable, "postgres_unreachable", drainBriefly, false},
	{replication.ErrProtocol, Retryable, "protocol", drainFully, false},
	// The next session begins behind what was delivered.
	{replication.ErrTooManyTables, Retryable, "too_many_tables", drainFully, false},
	{context.Canceled, Retryable, "cancelled", drainNot, false},
}

var (
	// ErrDrainTimeout and ErrSecondSignal end Run when it stops, but not cleanly.
	ErrDrainTimeout = errors.New("drain timeout")
	ErrSecondSignal = errors.New("stopped at once by a second signal")
	// ErrSlotRenewed is the loss of a slot that the next session recreates, as is configured.
	ErrSlotRenewed = errors.New("slot is recreated")
	// ErrConfiguration is an error of the configuration, which no new session can fix.
	ErrConfiguration = errors.New("configuration does not fit")
)

// Classify looks an error up. first: no session of this process has streamed yet.
func Classify(err error, first bool) (Class, string) {
	r := find(err)
	if r.first && !first {
		return Retryable, r.reason
	}
	return r.class, r.reason
}

func find(err error) rule {
	// Typed errors first: what they wrap may carry a sentinel of its own.
	if row, ok := errors.AsType[*router.RowError](err); ok {
		return rule{err, Poison, row.Reason, drainFully, false}
	}
	if _, ok := errors.AsType[*replication.RowTooLargeError](err); ok {
		return rule{err, Poison, "row_too_large", drainFully, false}
	}
	if _, ok := errors.AsType[*router.ShapeError](err); ok {
		return rule{err, Fatal, "shape", drainFully, false}
	}
	for _, r := range rules {
		if errors.Is(err, r.err) {
			return r
		}
	}
	return rule{err, Retryable, "other", drainBriefly, false}
}
