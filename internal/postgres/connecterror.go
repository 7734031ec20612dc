package postgres

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// connectError is a pgconn.ConnectError without its configuration, which holds the password. Its
// text has each cause once.
type connectError struct {
	user     string
	database string
	tried    []attempt // without dropped ones; may be empty
	class    error     // one of the sentinels; nil: none
	err      error     // of the driver, of those attempts
}

// attempt is the failure of one address.
type attempt struct {
	place   string // host and port as configured, or the path of a socket; empty: not known
	address string // resolved
	err     error
}

func newConnectError(ce *pgconn.ConnectError) *connectError {
	e := &connectError{user: ce.Config.User, database: ce.Config.Database, err: ce.Unwrap()}
	if e.database == "" {
		e.database = e.user // as the server does
	}
	for _, err := range leaves(e.err) {
		e.tried = append(e.tried, newAttempt(ce.Config, err))
	}
	e.dropProbesForTLS()
	e.class = sentinel(e.err)
	switch SQLState(e.err) {
	case "08P01": // protocol_violation
		e.class = ErrPooler
	case "0A000": // feature_not_supported, which PostgreSQL reports of encodings
		if strings.Contains(e.err.Error(), "options") {
			e.class = ErrPooler
		}
	}
	return e
}

// leaves lists the errors that the driver joined.
func leaves(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // not what it wraps
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, leaves(one)...)
		}
		return all
	}
	if inner := errors.Unwrap(err); inner != nil {
		if _, ok := inner.(interface{ Unwrap() []error }); ok { //nolint:errorlint // as above
			return leaves(inner)
		}
	}
	return []error{err}
}

// newAttempt reads the address from the driver's text, ADDRESS (HOST): CAUSE: it has no field for
// it.
func newAttempt(cfg *pgconn.Config, err error) attempt {
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return attempt{place: withPort(cfg, name.Name), address: name.Name, err: err}
	}
	inner := errors.Unwrap(err)
	if inner == nil {
		return attempt{err: err}
	}
	where := strings.TrimSuffix(err.Error(), ": "+inner.Error())
	address, host, found := strings.Cut(strings.TrimSuffix(where, ")"), " (")
	if !found {
		return attempt{err: err}
	}
	a := attempt{place: address, address: address, err: err}
	if _, port, err := net.SplitHostPort(address); err == nil && !strings.HasPrefix(address, "/") {
		a.place = net.JoinHostPort(host, port)
	}
	return a
}

func withPort(cfg *pgconn.Config, host string) string {
	port := cfg.Port
	for _, f := range cfg.Fallbacks {
		if f.Host == host {
			port = f.Port
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// dropProbesForTLS drops each attempt that failed for lack of TLS on the server, if an attempt
// without TLS at the same address follows: that one counts.
func (e *connectError) dropProbesForTLS() {
	probe := func(a attempt) bool {
		return serverWithoutTLS(a.err) && slices.ContainsFunc(e.tried, func(other attempt) bool {
			return other.address == a.address && !serverWithoutTLS(other.err)
		})
	}
	if !slices.ContainsFunc(e.tried, probe) {
		return
	}
	var errs []error
	kept := e.tried[:0:0]
	for _, a := range e.tried {
		if !probe(a) {
			kept, errs = append(kept, a), append(errs, a.err)
		}
	}
	e.tried, e.err = kept, errors.Join(errs...)
}

// serverWithoutTLS reports the one error for which the driver has no type (pgconn.startTLS).
func serverWithoutTLS(err error) bool {
	return strings.Contains(err.Error(), "server refused TLS connection")
}

// Error is "connect to db:5432/shop as postrider: the database system is shutting down (57P03)".
func (e *connectError) Error() string {
	var places, causes, both []string
	for _, a := range e.tried {
		cause := oneLine(causeOf(a.err))
		places = distinct(places, a.place)
		causes = distinct(causes, cause)
		both = distinct(both, a.place+": "+cause)
	}
	text := strings.Join(causes, "; ")
	if len(places) > 1 {
		text = strings.Join(both, "; ")
	}
	if errors.Is(e.class, ErrNotWritable) {
		text = ErrNotWritable.Error() + ": " + text
	}
	return fmt.Sprintf("connect to %s as %s: %s", e.target(places), plain(e.user), text)
}

func (e *connectError) target(places []string) string {
	switch {
	case len(places) != 1 || places[0] == "":
		return "database " + plain(e.database)
	case strings.HasPrefix(places[0], "/"):
		return "database " + plain(e.database) + " at " + places[0]
	}
	return places[0] + "/" + plain(e.database)
}

func (e *connectError) Unwrap() []error {
	if e.class == nil {
		return []error{e.err}
	}
	return []error{e.class, e.err}
}

// causeOf is the innermost cause of an attempt. The message around it names the attempt already.
func causeOf(err error) string {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return serverText(server)
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		if name.IsNotFound {
			return "host name not found"
		}
		return "host name not found: " + name.Err
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return certificate.Error()
	}
	if serverWithoutTLS(err) {
		return "server refused TLS connection"
	}
	if system, ok := errors.AsType[*os.SyscallError](err); ok {
		return system.Err.Error()
	}
	switch {
	case is(err, pgconn.ErrReadOnlyConnection, pgconn.ErrStandbyConnection):
		return "it takes no writes"
	case pgconn.Timeout(err):
		return "no answer in time"
	case is(err, io.EOF, io.ErrUnexpectedEOF):
		return "the connection was closed before the server had answered"
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner.Error() // without the address
	}
	return err.Error()
}

// serverText is the message of the server, and its SQLSTATE to look up.
func serverText(e *pgconn.PgError) string { return e.Message + " (" + e.Code + ")" }

// plain quotes a name where it could be misread.
func plain(name string) string {
	if quoted := strconv.Quote(name); name == "" || quoted != `"`+name+`"` ||
		strings.ContainsAny(name, " /:,;") {
		return quoted
	}
	return name
}

// distinct appends a text that is not in texts yet.
func distinct(texts []string, text string) []string {
	if slices.Contains(texts, text) {
		return texts
	}
	return append(texts, text)
}

// oneLine joins the lines of a text for a log line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
