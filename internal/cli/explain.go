package cli

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
	{relay.ErrSecondSignal, exitRuntime, ""},
	{relay.ErrDrainTimeout, exitTemporary, "start it again; if the broker is well and only slow, raise relay.drain_timeout"},
	{replication.ErrSlotInUse, exitTemporary, "postrider slot show   # its pid holds the slot; the relay stands by until it is free"},
	{relay.ErrSlotRenewed, exitRuntime, ""}, // the next session does it
	{replication.ErrSlotLost, exitInvariant, "postrider recover"},
	{replication.ErrSlotMissing, exitConfig, "postrider slot create"},
	{replication.ErrSlotUnusable, exitConfig, "postrider check   # says what is wrong with the slot, and what to do"},
	{replication.ErrPublicationMissing, exitConfig, fixPublicationThen},
	{slot.ErrNoFreeSlot, exitConfig, "postrider slot list"},
	{slot.ErrForeign, exitConfig, ""},
	{slot.ErrServer, exitConfig, "postrider check"},
	{slot.ErrBlocked, exitTemporary, "try again when these transactions have ended"},
	{slot.ErrExists, exitRuntime, "postrider slot show"},
	{monitor.ErrStaleCounters, exitTemporary, "look into the server's log: is stats_temp_directory full or missing, or was its clock put back? A collector that hangs takes a restart of the server"},
	{replication.ErrIdentityChanged, exitInvariant, "make sure that postgres.url leads to the right server, and that its slot stands where it should; then start again"},
	{replication.ErrNotPostgreSQL, exitConfig, ""},
	{replication.ErrUndecodable, exitRuntime, "postrider slot advance " + ourSlot + " --past LSN --dry-run   # says what it is about; LSN is where the transaction commits (docs/OPERATIONS.md, 6: a row that PostgreSQL cannot send)"},
	{replication.ErrTooManyTables, exitConfig, "leave no tables but the outbox in the publication; WAL of before is sent as it was, so if the same transaction comes again:\n" +
		"postrider slot advance " + ourSlot + " --past LSN --dry-run   # says what it is about; LSN is where the transaction commits"},
	{replication.ErrUnassigned, exitConfig, "postrider check"},
	{replication.ErrPermission, exitPermission, "postrider check   # prints the GRANT or ALTER ROLE that is missing"},
	{postgres.ErrConfig, exitConfig, "postrider config validate"},
	{postgres.ErrAuthentication, exitPermission, fixConnection},
	{postgres.ErrPermission, exitPermission, fixConnection},
	{postgres.ErrNoSuchDatabase, exitConfig, fixConnection},
	{postgres.ErrTLS, exitConfig, fixConnection},
	{postgres.ErrTooManyConnections, exitUnavailable, fixConnection},
	{postgres.ErrStarting, exitTemporary, fixConnection},
	{postgres.ErrStopping, exitTemporary, fixConnection},
	{postgres.ErrNotWritable, exitTemporary, fixConnection},
	{postgres.ErrPooler, exitConfig, fixConnection},
	{postgres.ErrUnreachable, exitUnavailable, fixConnection},
	{relay.ErrConfiguration, exitConfig, "postrider check"},
	{sink.ErrAuthentication, exitPermission, "check sink.kafka.sasl and the client certificate: postrider check"},
	{sink.ErrPermission, exitPermission, "grant the ACL that is named: Describe and Write on the topics, IdempotentWrite on the cluster"},
	{sink.ErrTLS, exitConfig, "check sink.kafka.tls: postrider check"},
	{sink.ErrUnknownTopic, exitConfig, "create the topic, or set sink.kafka.topics.create with partitions and replication_factor"},
	{sink.ErrTooLarge, exitRuntime, "raise sink.kafka.max_message_bytes and the topic's max.message.bytes, then start again"},
	{sink.ErrInvalidTopic, exitRuntime, "correct route.topic.replacement in [router], then start again"},
	{sink.ErrInvalidRecord, exitRuntime, "correct what the error names, then start again"},
	{sink.ErrUnreachable, exitUnavailable, "check sink.kafka.brokers: postrider check"},
}

// fixPublicationThen is for a stream that has come to WAL from a time without the publication: repairing it now does not change
// what the server finds there.
const fixPublicationThen = "postrider check   # repairs what is wrong now\nIf all is well now, the slot stands where the publication did not exist, and it never sends " +
	"the rows inserted meanwhile:\nfind them in the table and insert them again, then move the slot on:\npostrider slot advance " + ourSlot + " --to current"

// ourSlot stands for slot.name in advice that does not know it.
const ourSlot = "NAME"

// of puts into the advice what only the configuration tells: the name of the slot, and of broker and login.
func (f *failure) of(cfg config.Config) *failure {
	f.next = strings.ReplaceAll(f.next, "postrider slot advance "+ourSlot, "postrider slot advance "+cfg.Slot.Name)
	if refused := new(sink.MessageError); errors.As(f.err, &refused) && errors.Is(f.err, sink.ErrPermission) {
		f.next = kafka.AllowCommand(cfg.Sink.Kafka, "--producer --topic "+refused.Topic)
	}
	return f
}

// explain gives an error its exit code and its advice. The caller may know better what it means for the WAL.
func explain(err error) *failure {
	f := &failure{code: exitRuntime, err: err}
	for _, a := range advices {
		if errors.Is(err, a.err) {
			f.code, f.next = a.code, a.next
			if a.next == fixConnection {
				f.next = slot.ConnectionFinding("", "", err).Fix
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
		f.code, f.next = exitConfig, shape.Hint
	case errors.As(err, &row):
		f.code, f.next = exitRuntime, row.Hint
		f.err = fmt.Errorf("event %q of %s can't be published: %w", row.EventID, row.Relation, err)
	case errors.As(err, &large):
		f.code, f.next = exitRuntime, large.Hint()
	case errors.As(err, &asked):
		wal, fix := asked.Advice()
		f.wal = wal
		if fix != "" {
			f.next, f.err = fix, withoutAdvice(err, fix)
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
func relayFailure(err error, st relay.State) *failure {
	f := explain(err)
	if lost := new(slot.LostError); errors.As(err, &lost) && !st.LastCommit.IsZero() {
		f.err = &shortened{fmt.Sprintf("%v; the last transaction that this process delivered was committed at %s", f.err, st.LastCommit.Format(time.RFC3339Nano)), f.err}
	}
	if halt := new(relay.HaltError); errors.As(err, &halt) {
		format := "%s\nor go on without it, and start again; until then it stays in the WAL (docs/DEAD-LETTERS.md):\n" +
			"deadletter.%s = \"dead_letter\"   # kept in a topic, to be redriven; or \"skip\""
		if halt.Cause == deadletter.UnknownTopic {
			format = "%s\nor go on without rows whose topic stays missing, and start again (docs/DEAD-LETTERS.md):\n" +
				"deadletter.%s = \"dead_letter\"   # kept in a topic, to be redriven; or \"skip\""
		}
		f.next = strings.TrimSpace(fmt.Sprintf(format, f.next, halt.Cause))
	}
	if f.wal == "" {
		f.wal = keptAfter(err, st)
	}
	return f
}

// keptMaybe is what is known about the WAL before the slot was seen.
const keptMaybe = "nothing is confirmed while this lasts; if the slot exists, it keeps WAL, more with every write"

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
		return keptMaybe
	}
	return fmt.Sprintf("confirmed up to %s; the slot keeps what comes after it, more with every write, until rows are published again",
		st.ConfirmedFlushLSN)
}
