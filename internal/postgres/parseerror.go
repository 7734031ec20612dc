package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// parseReasons maps the beginning of the driver's reason for refusing a connection string to our
// text: the driver quotes what it cannot read, and that can be a password in the wrong place.
var parseReasons = []struct{ driver, ours string }{
	{"failed to parse as URL",
		"it is not a valid URL; write special characters of user and password percent-encoded, " +
			"/ as %2F"},
	{"failed to parse as keyword/value",
		"it is neither a URL that starts with postgres:// nor a keyword=value string"},
	{"failed to read service",
		"the service named in it is not in the service file, or the file cannot be read"},
	{"failed to configure TLS",
		"sslmode is unknown, or a file of sslrootcert, sslcert, sslkey cannot be read or used"},
	{"invalid port", "the port is not a number between 1 and 65535; if it is right, write " +
		"special " +
		"characters of the password percent-encoded"},
	{"could not match", "give one port for all hosts, or one per host"},
	{"invalid connect_timeout", "connect_timeout is not a number of seconds"},
	{"unknown target_session_attrs", "target_session_attrs is unknown"},
	{"unknown channel_binding", "channel_binding must be disable, prefer or require"},
	{"invalid sslcertmode", "sslcertmode must be disable, allow or require"},
	{"invalid require_auth", "require_auth is unknown"},
}

func parseError(err error) error {
	// A PathError holds a path and the system's reason, nothing of the connection string.
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%w: postgres.url: a file of sslrootcert, sslcert, sslkey, passfile "+
			"or servicefile "+
			"cannot be read: %s: %w", ErrConfig, file.Path, file.Err)
	}
	text := err.Error()
	for _, r := range parseReasons {
		if strings.Contains(text, "`: "+r.driver) {
			return fmt.Errorf("%w: postgres.url: %s", ErrConfig, r.ours)
		}
	}
	return fmt.Errorf("%w: postgres.url cannot be read", ErrConfig)
}
