package exit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/postrider/postrider/internal/backfill"
	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/prune"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// Exit codes. Scripts, systemd units and probes rely on them.
const (
	OK          = 0
	Runtime     = 1  // it ran and something went wrong
	Usage       = 2  // unknown command, flag or argument
	Unavailable = 69 // a dependency cannot be reached
	Invariant   = 70 // an invariant is broken; look before a restart
	Temporary   = 75 // try again
	Permission  = 77
	Config      = 78
)

// adviser is an error with its own advice: what it means for the WAL, and what to type next. Those
// of package slot are.
type adviser interface {
	error
	Advice() (wal, fix string)
}

// advice is a row of advices: the exit code of an error, and what to type if the error has no
// advice.
type advice struct {
	err  error
	code int
	next string
}

// fixConnection stands for the fix of postgres.Advice.
const fixConnection = "connection"

// advices is searched from the top; the first error that is in the chain decides.
var advices = []advice{
	{relay.ErrSecondSignal, Runtime, ""},
	{backfill.ErrIncomplete, Config, ""},
	{backfill.ErrParked, Config, ""},
	{backfill.ErrOpenTransaction, Temporary, ""},
	{relay.ErrDrainTimeout, Temporary,
		"start it again; if the broker is well and only slow, raise relay.drain_timeout"},
	{replication.ErrSlotInUse, Temporary,
		"postrider slot show   # its pid holds the slot; the relay stands by until it is free"},
	{relay.ErrSlotRenewed, Runtime, ""}, // the next session does it
	{replication.ErrSlotLost, Invariant, "postrider recover"},
	{replication.ErrSlotMissing, Config, "postrider slot create"},
	{replication.ErrSlotUnusable, Config,
		"postrider check   # says what is wrong with the slot, and what to do"},
	{replication.ErrPublicationMissing, Config, fixPublication},
	{slot.ErrNoFreeSlot, Config, "postrider slot list"},
	{slot.ErrForeign, Config, ""},
	{slot.ErrServer, Config, "postrider check"},
	{slot.ErrBlocked, Temporary, "try again when these transactions have ended"},
	{slot.ErrExists, Runtime, "postrider slot show"},
	{prune.ErrRefused, Config, ""},
	{prune.ErrBehind, Temporary, ""},
	{prune.ErrOpen, Temporary, ""},
	{prune.ErrBusy, Temporary, ""},
	{prune.ErrChanged, Temporary, "try again"},
	{slot.ErrRewritten, Temporary, "try again"},
	{monitor.ErrStaleCounters, Temporary,
		"look into the server's log: is stats_temp_directory full or missing, " +
			"or was its clock put back? A collector that hangs takes a restart of the server"},
	{replication.ErrIdentityChanged, Invariant,
		"make sure that postgres.url leads to the right server, " +
			"and that its slot stands where it should; then start again"},
	{replication.ErrNotPostgreSQL, Config, ""},
	{replication.ErrUndecodable, Runtime, fixPastTransaction +
		" (docs/RUNBOOKS.md: a row that PostgreSQL cannot send)"},
	{replication.ErrTooManyTables, Config, "leave no tables but the outbox in the publication; " +
		"WAL of before is sent as it was, so if the same transaction comes again:\n" +
		fixPastTransaction},
	{replication.ErrUnassigned, Config, "postrider check"},
	{replication.ErrPermission, Permission,
		"postrider check   # prints the GRANT or ALTER ROLE that is missing"},
	{postgres.ErrConfig, Config, "postrider config validate"},
	{postgres.ErrAuthentication, Permission, fixConnection},
	{postgres.ErrPermission, Permission, fixConnection},
	{postgres.ErrNoSuchDatabase, Config, fixConnection},
	{postgres.ErrTLS, Config, fixConnection},
	{postgres.ErrTooManyConnections, Unavailable, fixConnection},
	{postgres.ErrStarting, Temporary, fixConnection},
	{postgres.ErrStopping, Temporary, fixConnection},
	{postgres.ErrNotWritable, Temporary, fixConnection},
	{postgres.ErrLocked, Temporary, ""},
	{postgres.ErrPooler, Config, fixConnection},
	{postgres.ErrUnreachable, Unavailable, fixConnection},
	{relay.ErrConfiguration, Config, "postrider check"},
	{connect.ErrRegistryLogin, Permission, "check [registry]: postrider check"},
	{connect.ErrRegistryHalt, Unavailable, "check [registry]: postrider check"},
	{connect.ErrRegistry, Unavailable, "check [registry]: postrider check"},
	{sink.ErrAuthentication, Permission,
		"check sink.kafka.sasl and the client certificate: postrider check"},
	{sink.ErrPermission, Permission,
		"grant the ACL that is named: Describe and Write on the topics, IdempotentWrite " +
			"on the cluster"},
	{sink.ErrTLS, Config, "check sink.kafka.tls: postrider check"},
	{sink.ErrUnknownTopic, Config,
		"create the topic, or set sink.kafka.topics.create with partitions and " +
			"replication_factor"},
	{sink.ErrTooLarge, Runtime,
		"raise sink.kafka.max_message_bytes and the topic's max.message.bytes, then start again"},
	{sink.ErrInvalidTopic, Runtime,
		"correct route.topic.replacement in [router], then start again"},
	{sink.ErrInvalidRecord, Runtime, "correct what the error names, then start again"},
	{sink.ErrUnreachable, Unavailable, "check sink.kafka.brokers: postrider check"},
}

const (
	// fixPublication is for WAL that was written while the publication did not exist: creating the
	// publication now does not change what the server finds there.
	fixPublication = "postrider check   # repairs what is wrong now\n" +
		"If all is well now, the slot stands where the publication did not exist, and it never " +
		"sends the rows inserted meanwhile.\n" +
		"Move it on, then publish what the tables have and the topics lack:\n" +
		slotAdvance + anySlot + " --to current\n" +
		"postrider recover --publish"
	fixPastTransaction = slotAdvance + anySlot +
		" --past LSN --dry-run   # says what it is about; LSN is where the transaction commits"
	slotAdvance = "postrider slot advance "
	anySlot     = "NAME" // For puts slot.name in its place
)

// For puts into the advice what only the configuration has: the names of slot, brokers and login.
func (f *Error) For(cfg config.Config) *Error {
	f.Next = strings.ReplaceAll(f.Next, slotAdvance+anySlot, slotAdvance+cfg.Slot.Name)
	refused := new(sink.MessageError)
	if errors.As(f.Err, &refused) && errors.Is(f.Err, sink.ErrPermission) &&
		!errors.Is(f.Err, kerr.TransactionalIDAuthorizationFailed) { // has its own advice
		right := "--producer"         // Write, Describe and Create
		if cfg.Relay.Deduplicates() { // the topic is read, too
			right = "--operation Write --operation Describe --operation Read"
			if cfg.Sink.Kafka.Topics.Create {
				right += " --operation Create"
			}
		}
		f.Next = kafka.AllowCommand(cfg.Sink.Kafka, right+" --topic "+refused.Topic)
	}
	return f
}

// Explain gives an error its exit code and its advice. The caller fills in WAL where it has more
// to say.
func Explain(err error) *Error {
	f := &Error{Code: Runtime, Err: err}
	for _, a := range advices {
		if errors.Is(err, a.err) {
			f.Code, f.Next = a.code, a.next
			if a.next == fixConnection {
				_, f.Next = postgres.Advice(err)
			}
			break
		}
	}
	var shape *router.ShapeError
	var row *router.RowError
	var large *replication.RowTooLargeError
	var advised adviser
	switch {
	case errors.As(err, &shape):
		f.Code, f.Next = Config, shape.Hint
	case errors.As(err, &row):
		f.Code, f.Next = Runtime, row.Hint
		f.Err = fmt.Errorf("event %q of %s can't be published: %w", row.EventID, row.Relation, err)
	case errors.As(err, &large):
		f.Code, f.Next = Runtime, large.Hint()
	case errors.As(err, &advised):
		wal, fix := advised.Advice()
		f.WAL = wal
		if fix != "" {
			f.Next, f.Err = fix, withoutAdvice(err, fix)
		}
	}
	return f
}

// withoutAdvice removes the advice from the end of the text: Print writes it on a line of its own.
func withoutAdvice(err error, advice string) error {
	text := strings.TrimSuffix(err.Error(), "; "+strings.ReplaceAll(advice, "\n", "; "))
	return &rewordedError{text, err}
}

// rewordedError is an error with another text.
type rewordedError struct {
	text string
	err  error
}

func (e *rewordedError) Error() string { return e.text }

func (e *rewordedError) Unwrap() error { return e.err }

// OfRelay explains an error that ended the relay or one of its sessions. st is its state at the
// end.
func OfRelay(err error, st relay.State) *Error {
	f := Explain(err)
	if lost := new(slot.LostError); errors.As(err, &lost) && !st.LastCommit.IsZero() {
		text := fmt.Sprintf("%v; the last transaction that this process delivered was "+
			"committed at %s", f.Err, st.LastCommit.Format(time.RFC3339Nano))
		f.Err = &rewordedError{text, f.Err}
	}
	if halt := new(relay.HaltError); errors.As(err, &halt) {
		without := "it, and start again; until then it stays in the WAL"
		if halt.Cause == deadletter.UnknownTopic {
			without = "rows whose topic stays missing, and start again"
		}
		f.Next = strings.TrimSpace(fmt.Sprintf("%s\nor go on without %s (docs/DEAD-LETTERS.md):\n"+
			"deadletter.%s = \"dead_letter\"   # kept in a topic, to be redriven; or \"skip\"",
			f.Next, without, halt.Cause))
	}
	if f.WAL == "" {
		f.WAL = keptAfter(err, st)
	}
	return f
}

// KeptMaybe is Error.WAL before the slot was observed.
const KeptMaybe = "nothing is confirmed while this lasts; " +
	"if the slot exists, it keeps WAL, more with every write"

// keptAfter is Error.WAL of an error without advice of its own.
func keptAfter(err error, st relay.State) string {
	switch {
	case errors.Is(err, relay.ErrDrainTimeout):
		return "what was in flight is not confirmed and is published again at the next start"
	case errors.Is(err, relay.ErrSecondSignal):
		return "what was in flight is not confirmed and may be published again at the next start"
	case errors.Is(err, replication.ErrSlotInUse):
		return "none beyond the usual: the process that holds the slot confirms what it publishes"
	case st.ConfirmedFlushLSN == 0:
		return KeptMaybe
	}
	return fmt.Sprintf("confirmed up to %s; the slot keeps what comes after it, more with every "+
		"write, until rows are published again", st.ConfirmedFlushLSN)
}

// ConfigFailure is the error of a configuration that cannot be used.
func ConfigFailure(err error) error {
	return &Error{Code: Config, Err: err, WAL: KeptMaybe, Next: FixConfiguration}
}

// Unreadable adds the missing grant to an error of reading table: streaming needs no SELECT.
func Unreadable(err error, table, role string) error {
	if !errors.Is(err, postgres.ErrPermission) {
		return err
	}
	return &Error{Code: Permission, Err: err, Next: fmt.Sprintf(
		"as the owner of the table: GRANT SELECT ON %s TO %s;",
		table, pgx.Identifier{role}.Sanitize())}
}

// FixConfiguration leaves out config print, which needs a file that can be read.
const FixConfiguration = "postrider config validate   # when it is corrected\n" +
	"postrider config example   # explains every key"
