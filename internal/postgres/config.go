// Package postgres connects to a PostgreSQL server: it turns one setting into connections for SQL
// and for replication, and the server's errors into errors that callers can compare.
//
// None of its errors contains the connection string or a password.
//
//	config.go       the section [postgres]
//	connect.go      Connect: connections for SQL and for replication, their settings and their end
//	login.go        passwords of commands, tokens of clouds
//	hosts.go        several hosts: those that answer come first; which need verified TLS
//	errors.go       errors of the server and of the connection string
//	connecterror.go errors of connecting, without the password
//	advice.go       what to change when a connection fails
//	sql.go          queries, quoting, codes of errors, versions
//	lsn.go          positions in the WAL: their text form, the end of a record
//	statements.go   tests observe the SQL
package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [postgres].
type Config struct {
	// URL is a connection URL or a keyword/value string. libpq's environment variables, service file
	// and password file complete it, so an unset URL is valid.
	URL secret.Secret `toml:"url"`
	// ConnectTimeout bounds one attempt to connect to one host; connect_timeout in the URL wins.
	// It is positive: without a bound a host that drops packets holds the relay for minutes.
	ConnectTimeout time.Duration `toml:"connect_timeout"`
	// PasswordCommand is a program and its arguments, run without a shell for each connection. The
	// first line of its standard output is the password.
	PasswordCommand []string `toml:"password_command"`
	// Login is how the password of a connection is obtained: one of Logins.
	Login  string             `toml:"login"`
	AWS    credentials.AWS    `toml:"aws"`    // of LoginRDS
	Azure  credentials.Azure  `toml:"azure"`  // of LoginEntra
	Google credentials.Google `toml:"google"` // of LoginCloudSQL
}

// DefaultConfig reads libpq's environment and gives each host ten seconds.
func DefaultConfig() Config {
	return Config{ConnectTimeout: 10 * time.Second, Login: LoginPassword}
}

// Validate checks the setting without a connection. It reads the files that the setting names.
func (c Config) Validate() error {
	if c.ConnectTimeout <= 0 {
		return fmt.Errorf("postgres.connect_timeout = %s: must be greater than zero", c.ConnectTimeout)
	}
	if err := c.validateLogin(); err != nil {
		return err
	}
	_, err := ParseConfig(c)
	return err
}

// ErrConfig marks a connection setting that cannot be used as it is.
var ErrConfig = errors.New("invalid connection setting")
