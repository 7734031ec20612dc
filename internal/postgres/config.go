// Package postgres reaches a PostgreSQL server: it turns one setting into connections for SQL and for replication,
// and the server's answers into errors that callers can compare.
//
// It knows nothing of slots, publications or rows. None of its errors contains the connection string or a password.
//
//	config.go       the section [postgres]
//	connect.go      Connect: connections for SQL
//	hosts.go        several hosts, and which of them is the primary
//	session.go      settings of a session
//	connecterror.go errors of connecting, without the password
//	errors.go       errors of the server
//	lsn.go          LSNs as text
//	statements.go   what tests see of the SQL
package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/secret"
)

// Config says how to reach the database.
type Config struct {
	// URL is a connection URL or a keyword/value string, as libpq takes it. What it leaves open comes from libpq's
	// environment variables, service file and password file, so that an unset URL is valid.
	URL secret.Secret `toml:"url"`
	// ConnectTimeout bounds one attempt to connect to one host. The connection string's connect_timeout wins.
	// Must be positive: without a bound a host that drops packets would hold the relay for minutes.
	ConnectTimeout time.Duration `toml:"connect_timeout"`
}

// DefaultConfig reads libpq's environment and gives each host ten seconds.
func DefaultConfig() Config {
	return Config{ConnectTimeout: 10 * time.Second}
}

// Validate tells what is wrong without reaching for the server. It reads the files that the setting names.
func (c Config) Validate() error {
	if c.ConnectTimeout <= 0 {
		return fmt.Errorf("postgres.connect_timeout = %s: must be greater than zero", c.ConnectTimeout)
	}
	_, err := ParseConfig(c)
	return err
}

// ErrConfig marks a connection setting that cannot be used as it is.
var ErrConfig = errors.New("invalid connection setting")
