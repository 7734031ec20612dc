package httpserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [http].
type Config struct {
	// Listen is the address, host:port, of metrics, probes and status. An empty host is every
	// interface, port 0 any free port; empty: no HTTP server.
	Listen string `toml:"listen"`
}

// DefaultConfig listens on the loopback interface: the status names hosts, tables and topics, and
// needs no password. The port is PostgreSQL's with an 8 in front; 9187 is that of
// postgres_exporter.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8432"} }

// Validate checks the form of the address. Only Listen finds out whether it is free.
func (c Config) Validate() error {
	if c.Listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen is %q: it must be host:port, :port or empty for no HTTP server: %w",
			c.Listen, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen is %q: the port must be a number from 0 to 65535", c.Listen)
	}
	return nil
}

// LocalURL is the URL of the server on the same machine, without a slash at the end. The loopback
// address takes the place of every interface. It is empty if there is no server or its port is not
// known.
func (c Config) LocalURL() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" || port == "" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		// A server on [::] also accepts IPv4, unless the machine has none; one on 0.0.0.0 only that.
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Admin is the section [admin]: the listener for requests that change the relay or read its
// profiles.
type Admin struct {
	// Listen is the address, host:port; empty: no such listener.
	Listen string        `toml:"listen"`
	Token  secret.Secret `toml:"token"` // of every request: Authorization: Bearer TOKEN
}

// Validate checks the form of the address, and that there is a token.
func (a Admin) Validate() error {
	if a.Listen == "" {
		return nil
	}
	if err := (Config{Listen: a.Listen}).Validate(); err != nil {
		return err
	}
	if !a.Token.IsSet() {
		return errors.New("admin.token is not set: a listener that can pause the relay needs one; " +
			"set admin.token_file, or admin.listen to nothing")
	}
	return nil
}

// ShortToken is the least length of a token without a warning, in bytes.
const ShortToken = 16
