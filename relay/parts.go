package relay

import (
	"context"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// Parts are what a relay is made of.
type Parts struct {
	Server      Server
	Broker      Broker
	Rows        Rows
	DeadLetters DeadLetters
	// Source is what is known of it before a session: all but SystemID and Timeline.
	Source sink.Source
	// Explain says for the log why a session ended, what that means for the WAL that PostgreSQL
	// keeps, and what to type next. st is the state before the pause. May be nil.
	Explain func(err error, st State) (what, wal, next string)
	Metrics *metrics.Set
	Log     zerolog.Logger
}

// Server is the database server with its slot.
type Server struct {
	// Prepare checks slot and publication before each session. first: no session has streamed yet,
	// so a slot may be created; later a missing slot is a lost one.
	Prepare func(ctx context.Context, first bool) error
	// Snapshot publishes the rows from before the slot, as far as that is not done. It is called
	// after Prepare; the slot is streamed only when it has returned nil and stop has not ended.
	// When stop ends it returns soon, and goes on in another session or process. May be nil.
	Snapshot func(ctx, stop context.Context, report func(Snapshot)) error
	// OpenStream opens the stream of a session.
	OpenStream func(ctx context.Context) (*replication.Stream, error)
	// Moved judges a slot that is confirmed beyond what this process has acked: an error if rows
	// in between are never sent, nil if another relay can have published them. May be nil.
	Moved func(ctx context.Context, m Move) error
	// Watch looks after slot and publication until ctx ends, whether a session is open or not. It
	// calls problem with what a session must not outlive, and when it began to look.
	Watch func(ctx context.Context, problem func(err error, began time.Time))
	// AwaitSlot waits until the slot, which another process uses, may be free, or ctx ends. An
	// error: it is not known. May be nil: then a session tries once in a while.
	AwaitSlot func(ctx context.Context) error
	// AwaitReturn waits until the database has come back since the last call of Prepare, or ctx
	// ends. An error: it is not known. May be nil: then nothing cuts the pause short.
	AwaitReturn func(ctx context.Context) error
	// ClockSkew is the server's clock minus ours, which corrects latencies. May be nil: zero.
	ClockSkew func() time.Duration
}

// Broker is what opens sinks.
type Broker struct {
	OpenSink sink.Open
	// OpenTransactional makes the sink of a session with Config.ExactlyOnce.
	OpenTransactional func(ctx context.Context, done sink.Done, committed sink.Committed,
	) (sink.Transactional, error)
	// AwaitReturn waits until a broker answers, after sink.ErrNoBroker; else it is as Server's.
	AwaitReturn func(ctx context.Context) error
	// Heartbeat makes a record of the time. Called only with Config.HeartbeatInterval.
	Heartbeat func(at time.Time) (*sink.Message, error)
}

// Rows is what makes messages of rows.
type Rows struct {
	// Router makes the router of a session.
	Router func() (*router.Router, error)
	// Timeline receives that of the rows of a session, before the first. May be nil.
	Timeline func(timeline int32)
}

// DeadLetters is what becomes of rows that cannot be delivered.
type DeadLetters struct {
	Policies deadletter.Config
	// Open is called if Policies make dead letters. begin is the slot's confirmed position.
	Open func(ctx context.Context, source sink.Source, begin pglogrepl.LSN,
	) (deadletter.Handler, error)
}

// Move is what is known of a slot that is further than this process.
type Move struct {
	Acked     pglogrepl.LSN // by this process
	Confirmed pglogrepl.LSN // by the slot
	Streamed  time.Time     // when the last stream of this process was opened, by our clock
	Held      bool          // another connection used the slot since then, or dropped or made it
}
