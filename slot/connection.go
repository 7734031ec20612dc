package slot

import (
	"errors"
	"strings"

	"github.com/postrider/postrider/internal/postgres"
)

const FixPooler = "name host and port of the server itself in postgres.url, not those of " +
	"PgBouncer, RDS Proxy, Supavisor or the like; " +
	"PgBouncer has 6432 by default, PostgreSQL 5432"

// ConnectionAdvice says what a connection requires that failed with an error of package postgres,
// and what to change.
func ConnectionAdvice(err error) (required, fix string) {
	switch {
	case errors.Is(err, postgres.ErrAuthentication):
		required = "a login that succeeds"
		fix = "correct user and password in postgres.url, or allow the host, user and database in " +
			"pg_hba.conf (the database's name, not the keyword replication)"
	case errors.Is(err, postgres.ErrPermission):
		required = "CONNECT on the database, and REPLICATION"
		fix = fixReplicationRole(roleOf(err))
	case errors.Is(err, postgres.ErrNoSuchDatabase):
		required = "an existing database"
		fix = "correct the database in postgres.url; psql -l lists those of the server"
	case errors.Is(err, postgres.ErrTLS) && strings.HasSuffix(err.Error(), "server refused TLS "+
		"connection"):
		required = "a server with TLS"
		fix = "give the server a certificate and its key (ssl_cert_file, ssl_key_file), and only then " +
			"ssl = on: without the files it does not start again\n" +
			"or, only if nobody else is on the network between, sslmode=disable in postgres.url"
	case errors.Is(err, postgres.ErrTLS):
		required = "a TLS connection with a verified certificate"
		fix = "in postgres.url: sslrootcert=FILE has to hold the authority that signed the server's " +
			"certificate, and the host has to be a name " +
			"in it; sslmode=disable only if nobody else is on the network between"
	case errors.Is(err, postgres.ErrConfig):
		required = "a connection setting that can be read"
		fix = "correct postgres.url"
	case errors.Is(err, postgres.ErrNotWritable):
		required = "one writable server among the hosts"
		fix = "add the primary to the hosts in postgres.url, or wait for the failover to end"
	case errors.Is(err, postgres.ErrTooManyConnections) && strings.Contains(err.Error(),
		"too many connections for role"):
		required = "a free connection of the role"
		fix = "ALTER ROLE " + roleOf(err) + " CONNECTION LIMIT -1; -- or two more than what it has now"
	case errors.Is(err, postgres.ErrTooManyConnections):
		required = "a free connection and a free walsender"
		fix = "SELECT pid, backend_type, usename, application_name FROM pg_stat_activity; -- who has " +
			"them\n" +
			"SELECT name, setting FROM pg_settings WHERE name IN ('max_wal_senders', 'max_connections'); " +
			"-- a higher one takes effect when the server is restarted"
	case errors.Is(err, postgres.ErrPooler):
		required, fix = "a server that takes the connection as it is: a pooler does not", FixPooler
	case errors.Is(err, postgres.ErrStarting), errors.Is(err, postgres.ErrStopping):
		required = "a server that takes connections"
		fix = "wait until the server is up, then try again"
	default:
		required = "an answer"
		fix = "start the server, or correct host and port in postgres.url; from here it has to " +
			"answer: pg_isready -h HOST -p PORT"
	}
	return required, fix
}

// roleOf is the role as which the connection was tried, quoted for SQL.
func roleOf(err error) string {
	var tried interface{ User() string }
	if errors.As(err, &tried) {
		return postgres.QuoteName(tried.User())
	}
	return "NAME"
}
