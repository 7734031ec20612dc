package slot

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
)

// Severity says what a Finding means for the relay.
type Severity string

// The severities. Only SeverityError keeps the relay from starting.
const (
	SeverityOK      Severity = "ok"
	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning" // it starts, and will hurt later
	SeverityError   Severity = "error"
)

// Class says what kind of problem an error is, for an exit code.
type Class string

// The classes.
const (
	ClassUnreachable   Class = "unreachable"
	ClassPermission    Class = "permission"
	ClassConfiguration Class = "configuration"
)

// Finding is the result of one check.
type Finding struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`              // what was checked, stable, for scripts
	Subject  string   `json:"subject,omitempty"` // which table, slot, setting
	Observed string   `json:"observed"`
	Required string   `json:"required,omitempty"`
	WAL      string   `json:"wal,omitempty"`   // what it means for the WAL that PostgreSQL keeps
	Fix      string   `json:"fix,omitempty"`   // SQL, command or setting
	Docs     string   `json:"docs,omitempty"`  // page and heading that explain it, like docs/CHECK.md#wal_level; empty if all is well
	Class    Class    `json:"class,omitempty"` // of an error
}

// ConnectionFinding is the finding of an error of package postgres: the server cannot be talked to.
func ConnectionFinding(code, subject string, err error) Finding {
	f := Finding{Severity: SeverityError, Code: code, Subject: subject, Observed: err.Error(), Class: ClassUnreachable}
	switch {
	case errors.Is(err, postgres.ErrAuthentication):
		f.Class, f.Required = ClassPermission, "a login that succeeds"
		f.Fix = "correct user and password in postgres.url, or allow the host, user and database in pg_hba.conf (the database's name, not the keyword replication)"
	case errors.Is(err, postgres.ErrPermission):
		f.Class, f.Required = ClassPermission, "CONNECT on the database, and REPLICATION"
		f.Fix = fixReplicationRole(roleOf(err))
	case errors.Is(err, postgres.ErrNoSuchDatabase):
		f.Class, f.Required = ClassConfiguration, "an existing database"
		f.Fix = "correct the database in postgres.url; psql -l lists those of the server"
	case errors.Is(err, postgres.ErrTLS) && strings.HasSuffix(err.Error(), "server refused TLS connection"):
		f.Class, f.Required = ClassConfiguration, "a server with TLS"
		f.Fix = "give the server a certificate and its key (ssl_cert_file, ssl_key_file), and only then ssl = on: without the files it does not start again\n" +
			"or, only if nobody else is on the network between, sslmode=disable in postgres.url"
	case errors.Is(err, postgres.ErrTLS):
		f.Class, f.Required = ClassConfiguration, "a TLS connection with a verified certificate"
		f.Fix = "in postgres.url: sslrootcert=FILE has to hold the authority that signed the server's certificate, and the host has to be a name " +
			"in it; sslmode=disable only if nobody else is on the network between"
	case errors.Is(err, postgres.ErrConfig):
		f.Class, f.Required = ClassConfiguration, "a connection setting that can be read"
		f.Fix = "correct postgres.url"
	case errors.Is(err, postgres.ErrNotWritable):
		f.Required = "one writable server among the hosts"
		f.Fix = "add the primary to the hosts in postgres.url, or wait for the failover to end"
	case errors.Is(err, postgres.ErrTooManyConnections) && strings.Contains(err.Error(), "too many connections for role"):
		f.Required = "a free connection of the role"
		f.Fix = "ALTER ROLE " + roleOf(err) + " CONNECTION LIMIT -1; -- or two more than what it has now"
	case errors.Is(err, postgres.ErrTooManyConnections):
		f.Required = "a free connection and a free walsender"
		f.Fix = "SELECT pid, backend_type, usename, application_name FROM pg_stat_activity; -- who has them\n" +
			"SELECT name, setting FROM pg_settings WHERE name IN ('max_wal_senders', 'max_connections'); -- a higher one takes effect when the server is restarted"
	case errors.Is(err, postgres.ErrPooler):
		f.Class, f.Required, f.Fix = ClassConfiguration, "a server that takes the connection as it is: a pooler does not", fixPooler
	case errors.Is(err, postgres.ErrStarting), errors.Is(err, postgres.ErrStopping):
		f.Required = "a server that takes connections"
		f.Fix = "wait until the server is up, then try again"
	default:
		f.Required = "an answer"
		f.Fix = "start the server, or correct host and port in postgres.url; from here it has to answer: pg_isready -h HOST -p PORT"
	}
	return f
}

// roleOf is the role as which the connection was tried, quoted for SQL.
func roleOf(err error) string {
	var tried interface{ User() string }
	if errors.As(err, &tried) {
		return postgres.QuoteName(tried.User())
	}
	return "NAME"
}

// ErrorFinding is the finding of any error of this package or of postgres.
func ErrorFinding(code, subject string, err error) Finding {
	var advised interface{ Advice() (wal, fix string) }
	if !errors.As(err, &advised) {
		return ConnectionFinding(code, subject, err)
	}
	wal, fix := advised.Advice()
	class := ClassConfiguration
	if errors.Is(err, postgres.ErrPermission) {
		class = ClassPermission
	}
	return Finding{Severity: SeverityError, Code: code, Subject: subject, Observed: about(code, subject, err.Error()), WAL: wal, Fix: fix, Class: class}
}

// about is a sentence without its beginning where that is what the finding is about: code and subject stand in front of it.
func about(code, subject, sentence string) string {
	for _, name := range []string{subject, strconv.Quote(subject)} {
		prefix := code + " " + name + " "
		if code == subject {
			prefix = code + " "
		}
		if rest, found := strings.CutPrefix(sentence, prefix); found {
			return rest
		}
	}
	return sentence
}

func okFinding(code, subject string, observed any) Finding {
	return Finding{Severity: SeverityOK, Code: code, Subject: subject, Observed: fmt.Sprint(observed)}
}
