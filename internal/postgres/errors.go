package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The kinds of errors. Error wraps these; relay/classify.go turns them into a decision.
var (
	ErrUnreachable        = errors.New("PostgreSQL unreachable")
	ErrAuthentication     = errors.New("authentication refused by PostgreSQL")
	ErrPermission         = errors.New("not permitted by PostgreSQL")
	ErrStarting           = errors.New("PostgreSQL is starting or shutting down")
	ErrStopping           = errors.New("PostgreSQL ended the connection") // or an administrator did
	ErrTLS                = errors.New("TLS to PostgreSQL refused")
	ErrNoTLS              = fmt.Errorf("%w: the server has none", ErrTLS)
	ErrNoSuchDatabase     = errors.New("database does not exist")
	ErrTooManyConnections = errors.New("PostgreSQL has no connection or walsender left")
	ErrRoleLimit          = fmt.Errorf("%w: limit of the role", ErrTooManyConnections)
	ErrNotWritable        = errors.New("no writable PostgreSQL among the hosts")
	ErrLocked             = errors.New("a table is locked") // lock_not_available; callers wrap it

	// ErrPooler is that another process answers than was announced, or that prepared statements are
	// missing; while connecting also a protocol_violation, with which PgBouncer refuses a connection
	// or one of its parameters, and options that are not supported, as by RDS Proxy.
	ErrPooler = errors.New("a pooler answers in the place of the server")

	// ErrStaleConnection is ErrUnreachable for a connection that is open here and closed on the
	// server: a network device dropped it, or the end by wal_sender_timeout was lost.
	ErrStaleConnection = fmt.Errorf("%w: the server has closed the connection, and the end did "+
		"not arrive", ErrUnreachable)
)

// sqlStates are the codes with which a server refuses or ends a connection. Callers judge the
// codes of their statements.
var sqlStates = map[string]error{
	"28P01": ErrAuthentication,     // invalid_password
	"28000": ErrAuthentication,     // invalid_authorization_specification: pg_hba.conf, no role
	"42501": ErrPermission,         // insufficient_privilege
	"57P01": ErrStopping,           // admin_shutdown: also pg_terminate_backend, an invalidated slot
	"57P02": ErrStopping,           // crash_shutdown
	"57P03": ErrStarting,           // cannot_connect_now
	"57P05": ErrStopping,           // idle_session_timeout
	"3D000": ErrNoSuchDatabase,     // invalid_catalog_name
	"53300": ErrTooManyConnections, // too_many_connections
	"08006": ErrUnreachable,        // connection_failure
	"08003": ErrUnreachable,        // connection_does_not_exist
	"08001": ErrUnreachable,        // sqlclient_unable_to_establish_sqlconnection
	"26000": ErrPooler,             // invalid_sql_statement_name: prepared elsewhere
	"42P05": ErrPooler,             // duplicate_prepared_statement: of another client
}

var sentinels = []error{
	ErrUnreachable, ErrAuthentication, ErrPermission, ErrStarting, ErrStopping, ErrTLS,
	ErrNoSuchDatabase, ErrTooManyConnections, ErrNotWritable, ErrPooler,
}

// Error wraps err with its kind. It returns nil, a cancelled context and an error of no known kind
// as they are. errors.As still finds the *pgconn.PgError.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if ce, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return newConnectError(ce) // without its configuration, which holds the password
	}
	if slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		return err
	}
	if s := sentinel(err); s != nil {
		return &classified{class: s, err: err}
	}
	return err
}

// Wrap is Error with what failed, in the form of fmt.Sprintf, in front of it; nil for nil.
func Wrap(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), Error(err))
}

// classified is an error with its sentinel. An error of the server has the server's text alone.
type classified struct{ class, err error }

func (e *classified) Error() string {
	if pe, ok := errors.AsType[*pgconn.PgError](e.err); ok {
		return strings.Replace(e.err.Error(), pe.Error(), serverText(pe), 1)
	}
	return e.class.Error() + ": " + e.err.Error()
}

func (e *classified) Unwrap() []error { return []error{e.class, e.err} }

// sentinel returns nil for an unknown kind. Of several hosts' errors, which the driver lists in
// the order of the hosts, the first counts.
func sentinel(err error) error {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	// The code is also that of the limits of the server and the database.
	case ok && pe.Code == "53300" && pe.Routine == "InitializeSessionUserId":
		return ErrRoleLimit
	case ok:
		return sqlStates[pe.Code]
	case errors.Is(err, ErrPooler):
		return ErrPooler
	case is(err, pgconn.ErrReadOnlyConnection, pgconn.ErrStandbyConnection):
		return ErrNotWritable
	case serverWithoutTLS(err):
		return ErrNoTLS
	case tlsRefused(err):
		return ErrTLS
	case errors.Is(err, context.Canceled):
		return nil
	case as[net.Error](err), is(err, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		pgconn.ErrConnClosed):
		return ErrUnreachable
	}
	return nil
}

func tlsRefused(err error) bool {
	return as[*tls.CertificateVerificationError](err) || as[tls.RecordHeaderError](err) ||
		as[tls.AlertError](err) || as[x509.UnknownAuthorityError](err) ||
		as[x509.HostnameError](err) || as[x509.CertificateInvalidError](err)
}

func is(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// parseReasons maps the beginning of the driver's reason for refusing a connection string to a
// text of ours: the driver quotes what it cannot read, and that may be a password in the wrong
// place.
var parseReasons = [][2]string{
	{"failed to parse as URL", "it is not a valid URL; write special characters of user and " +
		"password percent-encoded, / as %2F"},
	{"failed to parse as keyword/value",
		"it is neither a URL that starts with postgres:// nor a keyword=value string"},
	{"failed to read service",
		"the service named in it is not in the service file, or the file cannot be read"},
	{"failed to configure TLS",
		"sslmode is unknown, or a file of sslrootcert, sslcert, sslkey cannot be read or used"},
	{"invalid port", "the port is not a number between 1 and 65535; if it is right, write special " +
		"characters of the password percent-encoded"},
	{"could not match", "give one port for all hosts, or one per host"},
	{"invalid connect_timeout", "connect_timeout is not a number of seconds"},
	{"unknown target_session_attrs", "target_session_attrs is unknown"},
	{"unknown channel_binding", "channel_binding must be disable, prefer or require"},
	{"invalid sslcertmode", "sslcertmode must be disable, allow or require"},
	{"invalid require_auth", "require_auth is unknown"},
}

// parseError is the error of a connection string, without its text.
func parseError(err error) error {
	// A PathError has a path and the system's reason, nothing of the connection string.
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%w: postgres.url: a file of sslrootcert, sslcert, sslkey, passfile or "+
			"servicefile cannot be read: %s: %w", ErrConfig, file.Path, file.Err)
	}
	for _, r := range parseReasons {
		if strings.Contains(err.Error(), "`: "+r[0]) {
			return fmt.Errorf("%w: postgres.url: %s", ErrConfig, r[1])
		}
	}
	return fmt.Errorf("%w: postgres.url cannot be read", ErrConfig)
}
