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
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a server, or the way to it, can answer. Error wraps these; relay/classify.go turns them into a decision.
var (
	ErrUnreachable        = errors.New("PostgreSQL unreachable")                  // no answer, or the connection was lost
	ErrAuthentication     = errors.New("authentication refused by PostgreSQL")    // password, pg_hba.conf, unknown role
	ErrPermission         = errors.New("not permitted by PostgreSQL")             // the role lacks a right
	ErrStarting           = errors.New("PostgreSQL is starting or shutting down") // it takes no connections now
	ErrStopping           = errors.New("PostgreSQL ended the connection")         // shutdown, or an administrator
	ErrTLS                = errors.New("TLS to PostgreSQL refused")               // certificate, or a server without TLS
	ErrNoSuchDatabase     = errors.New("database does not exist")
	ErrTooManyConnections = errors.New("PostgreSQL has no connection or walsender left") // max_connections, max_wal_senders
	ErrNotWritable        = errors.New("no writable PostgreSQL among the hosts")         // all are standbys or read-only

	// ErrPooler is how PgBouncer refuses a connection, or a parameter of one: protocol_violation. No server does that to us.
	ErrPooler = errors.New("a pooler refuses the connection")

	// ErrStaleConnection is ErrUnreachable for a connection that the server has dropped unnoticed: a
	// network that forgets its connections, or a wal_sender_timeout whose FIN got lost.
	ErrStaleConnection = fmt.Errorf("%w: the server has dropped the connection unnoticed", ErrUnreachable)
)

// sqlStates are the codes with which a server refuses or ends a connection. Codes of commands belong to their callers.
var sqlStates = map[string]error{
	"28P01": ErrAuthentication,     // invalid_password
	"28000": ErrAuthentication,     // invalid_authorization_specification: pg_hba.conf, NOLOGIN, no such role
	"42501": ErrPermission,         // insufficient_privilege
	"57P01": ErrStopping,           // admin_shutdown: also pg_terminate_backend, also a slot's invalidation
	"57P02": ErrStopping,           // crash_shutdown
	"57P03": ErrStarting,           // cannot_connect_now
	"57P05": ErrStopping,           // idle_session_timeout
	"3D000": ErrNoSuchDatabase,     // invalid_catalog_name
	"53300": ErrTooManyConnections, // too_many_connections
	"08006": ErrUnreachable,        // connection_failure
	"08003": ErrUnreachable,        // connection_does_not_exist
	"08001": ErrUnreachable,        // sqlclient_unable_to_establish_sqlconnection
}

var sentinels = []error{
	ErrUnreachable, ErrAuthentication, ErrPermission, ErrStarting, ErrStopping, ErrTLS,
	ErrNoSuchDatabase, ErrTooManyConnections, ErrNotWritable, ErrPooler,
}

// Error wraps err with the sentinel that says what it means; an error without one, a cancelled context and nil come back as
// they are. The *pgconn.PgError, if any, can still be found with errors.As.
func Error(err error) error {
	if err == nil {
		return nil
	}
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) {
		// A ConnectError carries the whole configuration, password included, to whoever prints its fields.
		return newConnectError(ce)
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return err
		}
	}
	if s := sentinel(err); s != nil {
		return &classified{class: s, err: err}
	}
	return err
}

// classified is an error with its sentinel. What the server has said is said in its words alone.
type classified struct{ class, err error }

func (e *classified) Error() string {
	var pe *pgconn.PgError
	if errors.As(e.err, &pe) {
		return strings.Replace(e.err.Error(), pe.Error(), serverText(pe), 1)
	}
	return e.class.Error() + ": " + e.err.Error()
}

func (e *classified) Unwrap() []error { return []error{e.class, e.err} }

func sentinel(err error) error {
	// With several hosts there may be several answers; the driver lists them in the order of the hosts and the first is taken.
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return sqlStates[pe.Code]
	}
	if errors.Is(err, pgconn.ErrReadOnlyConnection) || errors.Is(err, pgconn.ErrStandbyConnection) {
		return ErrNotWritable
	}
	if tlsRefused(err) {
		return ErrTLS
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	var ne net.Error
	switch {
	case errors.As(err, &ne), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), errors.Is(err, pgconn.ErrConnClosed):
		return ErrUnreachable
	}
	return nil
}

func tlsRefused(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		alert        tls.AlertError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	if errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &alert) ||
		errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid) {
		return true
	}
	return serverWithoutTLS(err)
}

// parseReasons are the driver's reasons for refusing a connection string, which stand at the start of its text, and what we
// say instead. The driver quotes what it could not read, and that can be a password in the wrong place.
var parseReasons = []struct{ driver, ours string }{
	{"failed to parse as URL", "it is not a valid URL; write special characters of user and password percent-encoded, / as %2F"},
	{"failed to parse as keyword/value", "it is neither a URL that starts with postgres:// nor a keyword=value string"},
	{"failed to read service", "the service named in it is not in the service file, or the file cannot be read"},
	{"failed to configure TLS", "sslmode is unknown, or a file of sslrootcert, sslcert, sslkey cannot be read or used"},
	{"invalid port", "the port is not a number between 1 and 65535; if it is right, write special characters of the password percent-encoded"},
	{"could not match", "give one port for all hosts, or one per host"},
	{"invalid connect_timeout", "connect_timeout is not a number of seconds"},
	{"unknown target_session_attrs", "target_session_attrs is unknown"},
	{"unknown channel_binding", "channel_binding must be disable, prefer or require"},
	{"invalid sslcertmode", "sslcertmode must be disable, allow or require"},
	{"invalid require_auth", "require_auth is unknown"},
}

func parseError(err error) error {
	var file *fs.PathError // holds a path and the system's reason, nothing of the connection string
	if errors.As(err, &file) {
		return fmt.Errorf("%w: postgres.url: a file of sslrootcert, sslcert, sslkey, passfile or servicefile cannot be read: %s: %w", ErrConfig, file.Path, file.Err)
	}
	text := err.Error()
	for _, r := range parseReasons {
		if strings.Contains(text, "`: "+r.driver) {
			return fmt.Errorf("%w: postgres.url: %s", ErrConfig, r.ours)
		}
	}
	return fmt.Errorf("%w: postgres.url cannot be read", ErrConfig)
}
