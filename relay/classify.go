package relay

import (
	"context"
	"errors"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// Class is what an error means for the relay.
type Class int

// The classes. An error without a rule is Retryable: it may delay rows, and loses none.
const (
	Retryable Class = iota // end the session, back off, start again from the slot
	Fatal                  // no new session can fix it: Run returns
	Poison                 // one row can never be delivered as it is: halt
)

func (c Class) String() string {
	return [...]string{"retryable", "fatal", "poison"}[c]
}

// Reasons that decide more than the label of a metric.
const (
	reasonSlotInUse      = "slot_in_use"     // another process streams: not a failure
	reasonServerStopping = "server_stopping" // a shutdown waits for walsenders: a new one delays it
	reasonUnknownTopic   = "unknown_topic"   // its rows may be poison after a while
)

// drain is how long a session that ends waits for messages in flight.
type drain int

const (
	drainFully   drain = iota // what is delivered meanwhile is confirmed, and not published again
	drainBriefly              // nothing can be confirmed; the old producer ends before the next opens
	drainNot                  // the sink failed, or the server waits for the connection to end
)

// rule classifies an error. The first rule whose err is in the chain applies.
type rule struct {
	err    error
	class  Class
	reason string // metric label and log field
	drain  drain
	first  bool // Fatal only until a session has streamed; Retryable from then on
}

var rules = []rule{
	// The relay stops.
	{ErrDrainTimeout, Fatal, "drain_timeout", drainNot, false},
	{ErrSecondSignal, Fatal, "killed", drainNot, false},

	// The server ends the connection. Its shutdown may wait for the final status.
	{replication.ErrServerStopping, Retryable, reasonServerStopping, drainNot, false},
	{postgres.ErrStopping, Retryable, reasonServerStopping, drainNot, false},
	{postgres.ErrStarting, Retryable, "server_starting", drainNot, false},
	{replication.ErrTerminated, Retryable, "terminated", drainBriefly, false},
	{replication.ErrStreamLost, Retryable, "stream_lost", drainBriefly, false},

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
	{postgres.ErrPooler, Fatal, "pooler", drainBriefly, true},
	{postgres.ErrConfig, Fatal, "configuration", drainFully, true},
	{ErrConfiguration, Fatal, "configuration", drainFully, false},

	// One row.
	{errRefused, Retryable, "refused", drainFully, false},
	{replication.ErrUnassigned, Poison, "unassigned", drainFully, false},
	{replication.ErrUndecodable, Poison, "undecodable", drainFully, false},
	{sink.ErrInvalidTopic, Poison, "invalid_topic", drainFully, false},
	{sink.ErrTooLarge, Poison, "too_large", drainFully, false},
	{sink.ErrInvalidRecord, Poison, "invalid_record", drainFully, false},

	// The schema registry.
	{connect.ErrRegistryLogin, Fatal, "registry_authentication", drainFully, true},
	{connect.ErrRegistryHalt, Fatal, "registry", drainFully, false},
	{connect.ErrRegistry, Retryable, "registry_unavailable", drainFully, false},

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
	{postgres.ErrLocked, Retryable, "table_locked", drainBriefly, false},
	{postgres.ErrUnreachable, Retryable, "postgres_unreachable", drainBriefly, false},
	{replication.ErrProtocol, Retryable, "protocol", drainFully, false},
	// The next session starts after the rows that this one delivered.
	{replication.ErrTooManyTables, Retryable, "too_many_tables", drainFully, false},
	{context.Canceled, Retryable, "cancelled", drainNot, false},
}

var (
	// ErrDrainTimeout and ErrSecondSignal are the errors of a stop that is not clean.
	ErrDrainTimeout = errors.New("drain timeout")
	ErrSecondSignal = errors.New("stopped at once by a second signal")
	// ErrSlotRenewed is the loss of a slot that the next session recreates, as configured.
	ErrSlotRenewed = errors.New("slot is recreated")
	// ErrConfiguration is an error in the configuration.
	ErrConfiguration = errors.New("configuration does not fit")
)

// Classify returns the class and reason of err. first: no session of this process has streamed.
func Classify(err error, first bool) (Class, string) {
	r := find(err)
	if r.first && !first {
		return Retryable, r.reason
	}
	return r.class, r.reason
}

// find returns the rule of err. A typed error comes first: it may wrap an error with a rule.
func find(err error) rule {
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
