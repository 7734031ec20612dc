package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
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
	ErrTLS                = errors.New("TLS to PostgreSQL refused")       // or no TLS at all
	ErrNoSuchDatabase     = errors.New("database does not exist")
	ErrTooManyConnections = errors.New("PostgreSQL has no connection or walsender left")
	ErrNotWritable        = errors.New("no writable PostgreSQL among the hosts")

	// ErrPooler is a protocol_violation, with which PgBouncer refuses a connection or one of its
	// parameters. PostgreSQL itself reports none for our messages.
	ErrPooler = errors.New("a pooler refuses the connection")

	// ErrStaleConnection is ErrUnreachable for a connection that is open here and closed on the
	// server: a network device dropped its state, or the server's wal_sender_timeout ended it and
	// the end got lost.
	ErrStaleConnection = fmt.Errorf("%w: the server has closed the connection, and the end did "+
		"not arrive",
		ErrUnreachable)
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
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		return sqlStates[pe.Code]
	}
	switch {
	case is(err, pgconn.ErrReadOnlyConnection, pgconn.ErrStandbyConnection):
		return ErrNotWritable
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
		as[x509.HostnameError](err) || as[x509.CertificateInvalidError](err) ||
		serverWithoutTLS(err)
}

func is(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
