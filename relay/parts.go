package relay

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/ratelimit"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Parts are the dependencies of a relay.
type Parts struct {
	Server      Server
	Broker      Broker
	Rows        Rows
	DeadLetters DeadLetters
	// Limiter limits the rate of messages, except while the relay drains. May be nil: no limit.
	Limiter *ratelimit.Limiter
	// Source has no SystemID and Timeline: each session sets them.
	Source sink.Source
	// Explain returns for the log why a session ended, what that means for the WAL that PostgreSQL
	// keeps, and what to do next. st is the current state. May be nil.
	Explain func(err error, st State) (what, wal, next string)
	Metrics *metrics.Set
	Log     zerolog.Logger
}

// Server has the functions that use the database server and its slot.
type Server struct {
	// Prepare checks slot and publication before each session. first: no session has streamed yet,
	// so it may create a slot; later a missing slot is a lost one.
	Prepare func(ctx context.Context, first bool) error
	// Snapshot publishes those rows from before the slot that are not published yet. It is called
	// after Prepare. The session streams when it has returned nil and stop has not ended. It
	// returns soon after stop ends; the next call continues. May be nil.
	Snapshot func(ctx, stop context.Context, report func(Snapshot)) error
	// OpenStream opens the stream of a session.
	OpenStream func(ctx context.Context) (*replication.Stream, error)
	// Moved is called when the slot is confirmed beyond what this process has acked. It returns an
	// error if the rows in between are never sent, nil if another relay can have published them.
	// May be nil.
	Moved func(ctx context.Context, m Move) error
	// Watch observes slot and publication until ctx ends, whether a session is open or not. It
	// calls problem with an error that ends the session, and when the look that found it began.
	Watch func(ctx context.Context, problem func(err error, began time.Time))
	// AwaitSlot waits until the slot may be free. It returns an error if that is not known. May be
	// nil: then a session tries about once a second.
	AwaitSlot func(ctx context.Context) error
	// AwaitReturn waits until the database has come back after the last call of Prepare. It
	// returns an error if that is not known. May be nil: then nothing cuts the delay short.
	AwaitReturn func(ctx context.Context) error
	// ClockSkew returns the server's clock minus ours, to correct latencies. May be nil: zero.
	ClockSkew func() time.Duration
}

// Broker opens sinks.
type Broker struct {
	OpenSink sink.Open
	// OpenTransactional opens the sink of a session with Config.ExactlyOnce.
	OpenTransactional func(ctx context.Context, done sink.Done, committed sink.Committed,
	) (sink.Transactional, error)
	// AwaitReturn is like that of Server: it waits until a broker answers, after sink.ErrNoBroker.
	AwaitReturn func(ctx context.Context) error
	// Heartbeat makes a heartbeat record. It is called only with Config.HeartbeatInterval.
	Heartbeat func(at time.Time) (*sink.Message, error)
}

// Rows makes messages of rows.
type Rows struct {
	// Router makes the router of a session.
	Router func() (*router.Router, error)
	// Timeline is called with the timeline of a session before its first row. May be nil.
	Timeline func(timeline int32)
}

// DeadLetters has the policies for rows that cannot be delivered.
type DeadLetters struct {
	Policies deadletter.Config
	// Open opens the handler. begin is the slot's position. nil without Policies that make dead
	// letters: there are no earlier ones, whose keys would stay parked.
	Open func(ctx context.Context, source sink.Source, begin pglogrepl.LSN,
	) (deadletter.Handler, error)
}

// Move describes a slot that is confirmed beyond what this process has acked.
type Move struct {
	Acked     pglogrepl.LSN // by this process
	Confirmed pglogrepl.LSN // by the slot
	Streamed  time.Time     // when the last stream of this process was opened, by our clock
	Held      bool          // another process has used the slot since, or dropped or made it
}
