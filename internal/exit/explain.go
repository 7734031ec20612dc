package exit

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/slot/monitor"
)

// adviser is an error that knows what it means for the WAL and what to type next; package slot's do.
type adviser interface {
	error
	Advice() (wal, fix string)
}

// advice is one row of the table below: the exit code of an error, and what to type where the error does not say.
type advice struct {
	err  error
	code int
	next string
}

// fixConnection stands for what check says about an error of the connection.
const fixConnection = "connection"

// advices is looked through from the top; the first error that is in the chain decides.
var advices = []advice{
	{relay.ErrSecondSignal, Runtime, ""},
	{relay.ErrDrainTimeout, Temporary, "start it again; if the broker is well and only slow, raise relay.drain_timeout"},
	{replication.ErrSlotInUse, Temporary, "postrider slot show   # its pid holds the slot; the relay stands by until it is free"},
	{relay.ErrSlotRenewed, Runtime, ""}, // the next session does it
	{replication.ErrSlotLost, Invariant, "postrider recover"},
	{replication.ErrSlotMissing, Config, "postrider slot create"},
	{replication.ErrSlotUnusable, Config, "postrider check   # says what is wrong with the slot, and what to do"},
	{replication.ErrPublicationMissing, Config, fixPublicationThen},
	{slot.ErrNoFreeSlot, Config, "postrider slot list"},
	{slot.ErrForeign, Config, ""},
	{slot.ErrServer, Config, "postrider check"},
	{slot.ErrBlocked, Temporary, "try again when these transactions have ended"},
	{slot.ErrExists, Runtime, "postrider slot show"},
	{monitor.ErrStaleCounters, Temporary, "look into the server's log: is stats_temp_directory full or missing, or was its clock put back? A collector that hangs takes a restart of the server"},
	{replication.ErrIdentityChanged, Invariant, "make sure that postgres.url leads to the right server, and that its slot stands where it should; then start again"},
	{replication.ErrNotPostgreSQL, Config, ""},
	{replication.ErrUndecodable, Runtime, "postrider slot advance " + ourSlot + " --past LSN --dry-run   # says what it is about; LSN is where the transaction commits (docs/RUNBOOKS.md: a row that PostgreSQL cannot send)"},
	{replication.ErrTooManyTables, Config, "leave no tables but the outbox in the publication; WAL of before is sent as it was, so if the same transaction comes again:\n" +
		"postrider slot advance " + ourSlot + " --past LSN --dry-run   # says what it is about; LSN is where the transaction commits"},
	{replication.ErrUnassigned, Config, "postrider check"},
	{replication.ErrPermission, Permission, "postrider check   # prints the GRANT or ALTER ROLE that is missing"},
	{postgres.ErrConfig, Config, "postrider config validate"},
	{postgres.ErrAuthentication, Permission, fixConnection},
	{postgres.ErrPermission, Permission, fixConnection},
	{postgres.ErrNoSuchDatabase, Config, fixConnection},
	{postgres.ErrTLS, Config, fixConnection},
	{postgres.ErrTooManyConnections, Unavailable, fixConnection},
	{postgres.ErrStarting, Temporary, fixConnection},
	{postgres.ErrStopping, Temporary, fixConnection},
	{postgres.ErrNotWritable, Temporary, fixConnection},
	{postgres.ErrPooler, Config, fixConnection},
	{postgres.ErrUnreachable, Unavailable, fixConnection},
	{relay.ErrConfiguration, Config, "postrider check"},
	{sink.ErrAuthentication, Permission, "check sink.kafka.sasl and the client certificate: postrider check"},
	{sink.ErrPermission, Permission, "grant the ACL that is named: Describe and Write on the topics, IdempotentWrite on the cluster"},
	{sink.ErrTLS, Config, "check sink.kafka.tls: postrider check"},
	{sink.ErrUnknownTopic, Config, "create the topic, or set sink.kafka.topics.create with partitions and replication_factor"},
	{sink.ErrTooLarge, Runtime, "raise sink.kafka.max_message_bytes and the topic's max.message.bytes, then start again"},
	{sink.ErrInvalidTopic, Runtime, "correct route.topic.replacement in [router], then start again"},
	{sink.ErrInvalidRecord, Runtime, "correct what the error names, then start again"},
	{sink.ErrUnreachable, Unavailable, "check sink.kafka.brokers: postrider check"},
}

// fixPublicationThen is for a stream that has come to WAL from a time without the publication: repairing it now does not change
// what the server finds there.
const fixPublicationThen = "postrider check   # repairs what is wrong now\nIf all is well now, the slot stands where the publication did not exist, and it never sends " +
	"the rows inserted meanwhile:\nfind them in the table and insert them again, then move the slot on:\npostrider slot advance " + ourSlot + " --to current"

// ourSlot stands for slot.name in advice that does not know it.
const ourSlot = "NAME"

// of puts into the advice what only the configuration tells: the name of the slot, and of broker and login.
func (f *Error) For(cfg config.Config) *Error {
	f.Next = strings.ReplaceAll(f.Next, "postrider slot advance "+ourSlot, "postrider slot advance "+cfg.Slot.Name)
	if refused := new(sink.MessageError); errors.As(f.Err, &refused) && errors.Is(f.Err, sink.ErrPermission) {
		f.Next = kafka.AllowCommand(cfg.Sink.Kafka, "--producer --topic "+refused.Topic)
	}
	return f
}

// explain gives an error its exit code and its advice. The caller may know better what it means for the WAL.
func Explain(err error) *Error {
	f := &Error{Code: Runtime, Err: err}
	for _, a := range advices {
		if errors.Is(err, a.err) {
			f.Code, f.Next = a.code, a.next
			if a.next == fixConnection {
				f.Next = slot.ConnectionFinding("", "", err).Fix
			}
			break
		}
	}
	var shape *router.ShapeError
	var row *router.RowError
	var large *replication.RowTooLargeError
	var asked adviser
	switch {
	case errors.As(err, &shape):
		f.Code, f.Next = Config, shape.Hint
	case errors.As(err, &row):
		f.Code, f.Next = Runtime, row.Hint
		f.Err = fmt.Errorf("event %q of %s can't be published: %w", row.EventID, row.Relation, err)
	case errors.As(err, &large):
		f.Code, f.Next = Runtime, large.Hint()
	case errors.As(err, &asked):
		wal, fix := asked.Advice()
		f.WAL = wal
		if fix != "" {
			f.Next, f.Err = fix, withoutAdvice(err, fix)
		}
	}
	return f
}

// withoutAdvice leaves the advice, with which the text may end, to the line that says what to type next.
func withoutAdvice(err error, advice string) error {
	return &shortened{strings.TrimSuffix(err.Error(), "; "+strings.ReplaceAll(advice, "\n", "; ")), err}
}

type shortened struct {
	text string
	err  error
}

func (s *shortened) Error() string { return s.text }

func (s *shortened) Unwrap() error { return s.err }

// relayFailure is explain for an error that ended the relay or one of its sessions. st is its state at the end.
func OfRelay(err error, st relay.State) *Error {
	f := Explain(err)
	if lost := new(slot.LostError); errors.As(err, &lost) && !st.LastCommit.IsZero() {
		f.Err = &shortened{fmt.Sprintf("%v; the last transaction that this process delivered was committed at %s", f.Err, st.LastCommit.Format(time.RFC3339Nano)), f.Err}
	}
	if halt := new(relay.HaltError); errors.As(err, &halt) {
		format := "%s\nor go on without it, and start again; until then it stays in the WAL (docs/DEAD-LETTERS.md):\n" +
			"deadletter.%s = \"dead_letter\"   # kept in a topic, to be redriven; or \"skip\""
		if halt.Cause == deadletter.UnknownTopic {
			format = "%s\nor go on without rows whose topic stays missing, and start again (docs/DEAD-LETTERS.md):\n" +
				"deadletter.%s = \"dead_letter\"   # kept in a topic, to be redriven; or \"skip\""
		}
		f.Next = strings.TrimSpace(fmt.Sprintf(format, f.Next, halt.Cause))
	}
	if f.WAL == "" {
		f.WAL = keptAfter(err, st)
	}
	return f
}

// keptMaybe is what is known about the WAL before the slot was seen.
const KeptMaybe = "nothing is confirmed while this lasts; if the slot exists, it keeps WAL, more with every write"

// keptAfter says what the WAL costs where the error itself does not know better.
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
	return fmt.Sprintf("confirmed up to %s; the slot keeps what comes after it, more with every write, until rows are published again",
		st.ConfirmedFlushLSN)
}

func ConfigFailure(err error) error {
	return &Error{
		Code: Config,
		Err:  err,
		WAL:  KeptMaybe,
		Next: FixConfiguration,
	}
}

// fixConfiguration does not name config print: it needs a file that can be read.
const FixConfiguration = "postrider config validate   # when it is corrected\npostrider config example   # explains every key"
