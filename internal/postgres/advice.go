package postgres

import (
	"errors"
	"strings"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/tlsfiles"
)

// FixPooler is what to change where a pooler answers in the place of the server.
const FixPooler = "name host and port of the server itself in postgres.url, not those of " +
	"PgBouncer, RDS Proxy, Supavisor or the like; " +
	"PgBouncer has 6432 by default, PostgreSQL 5432"

const fixWait = "wait until the server is up, then try again"

// advice is looked up from top to bottom. {role} is the role of the connection, quoted.
var advice = []struct {
	err           error
	required, fix string
}{
	{ErrAuthentication, "a login that succeeds",
		"correct user and password in postgres.url, or allow the host, user and database in " +
			"pg_hba.conf (the database's name, not the keyword replication)"},
	{ErrPermission, "CONNECT on the database, and REPLICATION", FixReplication("{role}")},
	{ErrNoSuchDatabase, "an existing database",
		"correct the database in postgres.url; psql -l lists those of the server"},
	{ErrNoTLS, "a server with TLS",
		"give the server a certificate and its key (ssl_cert_file, ssl_key_file), and only then " +
			"ssl = on: without the files it does not start again\n" +
			"or, only if the network between is private, sslmode=disable in postgres.url"},
	{ErrTLS, "a TLS connection with a verified certificate",
		"in postgres.url: sslrootcert=FILE has to hold the authority that signed the server's " +
			"certificate, and the host has to be a name in it; " +
			"sslmode=disable only if the network between is private"},
	{ErrConfig, "a connection setting that can be read", "correct postgres.url"},
	{ErrNotWritable, "one writable server among the hosts",
		"add the primary to the hosts in postgres.url, or wait for the failover to end"},
	{ErrRoleLimit, "a free connection of the role",
		"ALTER ROLE {role} CONNECTION LIMIT -1; -- or two more than what it has now"},
	{ErrTooManyConnections, "a free connection and a free walsender",
		"SELECT pid, backend_type, usename, application_name FROM pg_stat_activity; -- who has them\n" +
			"SELECT name, setting FROM pg_settings WHERE name IN ('max_wal_senders', 'max_connections'); " +
			"-- a higher one takes effect when the server is restarted"},
	{ErrPooler, "a server that takes the connection as it is: a pooler does not", FixPooler},
	{ErrStarting, "a server that takes connections", fixWait},
	{ErrStopping, "a server that takes connections", fixWait},
}

// Advice is what a connection requires that failed with err, and what to change.
func Advice(err error) (required, fix string) {
	if login, ok := errors.AsType[*credentials.Error](err); ok {
		return "a login that succeeds", login.Hint
	}
	if refused, ok := errors.AsType[*refusedToken](err); ok {
		return "a login that succeeds", tokenAdvice[refused.login]
	}
	if tlsfiles.Expired(err) {
		return "a certificate of the server that is valid now",
			"give the server a new certificate (ssl_cert_file, ssl_key_file), then: SELECT " +
				"pg_reload_conf(); if it has not expired, set the clock of the relay's machine"
	}
	role := "NAME"
	if tried, ok := errors.AsType[*connectError](err); ok {
		role = QuoteName(tried.user)
	}
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return a.required, strings.ReplaceAll(a.fix, "{role}", role)
		}
	}
	return "an answer", "start the server, or correct host and port in postgres.url; from here it " +
		"has to answer: pg_isready -h HOST -p PORT"
}

// FixReplication is SQL that lets a role, quoted for SQL, replicate.
func FixReplication(role string) string {
	return "ALTER ROLE " + role +
		" REPLICATION; -- as a superuser; on Amazon RDS: GRANT rds_replication TO " + role
}
