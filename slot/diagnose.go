package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
)

// A cause has one sentence and one advice, whichever command meets it. They are made here, and
// test/diagnosis compares what the commands print.

// diagnosis is what is wrong in one sentence, and the errors that it stands for.
type diagnosis struct {
	text string
	is   []error
}

func (d *diagnosis) Error() string { return d.text }

func (d *diagnosis) Unwrap() []error { return d.is }

func diagnosed(text string, is ...error) error { return &diagnosis{text, is} }

// Diagnose checks server and publication, in the order in which problems are fixed. It returns the
// first problem as an *Error or a *PublicationError, or the error of a query. It does not check
// the slot: Verify does.
func Diagnose(ctx context.Context, conn *pgx.Conn, need Requirements) (*Publication, error) {
	if err := verifyServer(ctx, conn); err != nil {
		return nil, err
	}
	p, err := VerifyPublication(ctx, conn, need.Publication, need.Tables)
	if broken := new(PublicationError); errors.As(err, &broken) {
		_, missing := Get(ctx, conn, need.Slot.Name)
		broken.NoSlot = IsMissing(missing)
	}
	return p, err
}

// autoLogical is the version from which a server raises its WAL level by itself when a logical
// slot is made.
const autoLogical = 19

// verifyServer reports a server from which nothing can be streamed: a standby, as
// postgres.ErrNotWritable since it may be promoted, or ErrServer.
func verifyServer(ctx context.Context, conn *pgx.Conn) error {
	var standby bool
	var level string
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_is_in_recovery(),
		pg_catalog.current_setting('wal_level')`).Scan(&standby, &level)
	switch {
	case err != nil:
		return fmt.Errorf("read recovery state and wal_level: %w", postgres.Error(err))
	case standby:
		return StandbyError()
	case level != "logical" && postgres.Major(conn) < autoLogical:
		return WrongLevel(level)
	}
	return nil
}

// VerifyRole returns an error if the attributes of the connection's role do not allow replication.
// It is for diagnosis: a session starts without it, because the check of the server decides.
func VerifyRole(ctx context.Context, conn *pgx.Conn) error {
	r, err := ReadRole(ctx, conn)
	if err == nil {
		err = r.Verify(nil)
	}
	return err
}

// Absent replaces missing, the error of a slot that does not exist, by the first reason why the
// slot of need cannot be created, or not without the operator's consent. Without such a reason it
// returns missing, with the commands that create the slot.
func Absent(ctx context.Context, conn *pgx.Conn, need Requirements, missing error) error {
	if _, err := Diagnose(ctx, conn, need); err != nil {
		return err
	}
	if err := VerifyRole(ctx, conn); err != nil {
		return err
	}
	switch used, err := FirstUsedTable(ctx, conn, need.Tables); {
	case err != nil:
		return err
	case used != "":
		return LacksConsent(need.Slot.Name, used)
	}
	if e := new(Error); errors.As(missing, &e) {
		first := *e
		first.Fix = "postrider slot create " + need.Slot.Name +
			"   # or postrider init, which makes table and publication too"
		return &first
	}
	return missing
}

// StandbyError is the error for a server that is a standby: slots are on the primary, and so is
// whatever a command would have to write.
func StandbyError() error {
	return &Error{
		Err: diagnosed("the server is a standby, and rows are relayed from the primary",
			postgres.ErrNotWritable),
		WAL: "if the slot exists on the primary, it keeps WAL there, more with every write",
		Fix: "name the primary in postgres.url, or all hosts: the writable one is used; or wait for " +
			"the promotion",
	}
}

// What is known about the WAL where the slot was not looked for.
const keptMaybe = "nothing is confirmed while this lasts; if the slot exists, it keeps WAL, " +
	"more with every write"

// WrongLevel is the error of a server that makes no logical slots.
func WrongLevel(level string) error {
	return &Error{
		Err: diagnosed("wal_level is "+level+", and a logical slot needs logical", ErrServer),
		WAL: NoSlotYet,
		Fix: fixWALLevel,
	}
}

// Verify reports a role that may not replicate. cause is the server's refusal, whose words differ
// between versions; nil: nothing was tried.
func (r Role) Verify(cause error) error {
	if r.Replicates() {
		return nil
	}
	return &Error{
		Err: diagnosed("role "+r.Name+" may not replicate", errors.Join(postgres.ErrPermission, cause)),
		WAL: keptMaybe,
		Fix: postgres.FixReplication(postgres.QuoteName(r.Name)),
	}
}

// Held is the error of a slot that another process has.
func Held(name string, pid int32) error {
	return &Error{
		Err: diagnosed(fmt.Sprintf("slot %q is held by process %d of the database", name, pid),
			replication.ErrSlotInUse),
		WAL: "none beyond the usual: the process that holds the slot confirms what it publishes",
		Fix: "postrider slot show " + name + "   # its pid holds the slot",
	}
}

// RefusedStream finds out, on a connection of its own, why the server has refused to make a slot
// or to stream from it. It returns other errors with the sentinels of package postgres.
func RefusedStream(ctx context.Context, pg postgres.Config, name string, err error) error {
	err = postgres.Error(err)
	state, lost := postgres.SQLState(err), errors.Is(err, replication.ErrSlotLost)
	// insufficient_privilege, object_not_in_prerequisite_state, configuration_limit_exceeded
	if !lost && state != "42501" && state != "55000" && state != "53400" {
		return err
	}
	conn, connectErr := postgres.Connect(ctx, pg)
	if connectErr != nil {
		return err
	}
	defer postgres.Close(conn)
	if state == "42501" {
		return denied(ctx, conn, err)
	}
	// 53400 is about slots in general. What has become of this one explains the others.
	if s, getErr := Get(ctx, conn, name); getErr == nil && state != "53400" {
		switch {
		case postgres.OnStandby(conn): // whatever has become of its copy of the slot
			return StandbyError()
		case s.Lost():
			return s.lostError()
		}
	}
	if lost {
		return err
	}
	return createError(ctx, conn, name, err)
}

// denied returns which right is missing, as far as known: an output plugin that may not be used
// has the same code.
func denied(ctx context.Context, conn *pgx.Conn, err error) error {
	if r, roleErr := ReadRole(ctx, conn); roleErr == nil && !r.Replicates() {
		return r.Verify(err)
	}
	return &Error{
		Err: postgres.Error(err), WAL: keptMaybe,
		Fix: "postrider check   # reports what the role lacks",
	}
}

// Role is the role of a connection.
type Role struct {
	Name        string
	Super       bool
	Replication bool
	Rds         bool       // a member of rds_replication
	Limit       int        // of connections; negative: none
	Until       *time.Time // end of the password's life; nil: none
}

// Replicates reports whether it may replicate.
func (r Role) Replicates() bool { return r.Super || r.Replication || r.Rds }

// ReadRole reads the role of a connection. It blocks for one query.
func ReadRole(ctx context.Context, conn *pgx.Conn) (r Role, err error) {
	err = conn.QueryRow(ctx, `
		SELECT r.rolname, r.rolsuper, r.rolreplication, r.rolconnlimit,
		  CASE WHEN pg_catalog.isfinite(r.rolvaliduntil) THEN r.rolvaliduntil END,
		  EXISTS (SELECT FROM pg_catalog.pg_roles m WHERE m.rolname = 'rds_replication'
		    AND pg_catalog.pg_has_role(r.oid, m.oid, 'MEMBER'))
		FROM pg_catalog.pg_roles r WHERE r.rolname = current_user`).
		Scan(&r.Name, &r.Super, &r.Replication, &r.Limit, &r.Until, &r.Rds)
	return r, postgres.Wrap(err, "read role")
}
