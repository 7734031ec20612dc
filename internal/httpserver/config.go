package httpserver

import (
	"fmt"
	"net"
	"strconv"

	"github.com/postrider/postrider/internal/secret"
)

// Config is the section [http].
type Config struct {
	// Listen is the address, host:port, of metrics, probes and status. An empty host is every interface, port 0 any free
	// port; empty: no HTTP server at all.
	Listen string `toml:"listen"`
}

// DefaultConfig listens on the loopback interface only: the status names hosts, tables and topics, and asks for no password.
// The port is PostgreSQL's own with an 8 in front; 9187, the known one for PostgreSQL metrics, belongs to postgres_exporter.
func DefaultConfig() Config { return Config{Listen: "127.0.0.1:8432"} }

// Validate tells whether the address can be one. Whether it is free, only Listen can tell.
func (c Config) Validate() error {
	if c.Listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen is %q: it must be host:port, :port or empty for no HTTP server: %w", c.Listen, err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen is %q: the port must be a number from 0 to 65535", c.Listen)
	}
	return nil
}

// LocalURL is how a process on the same machine reaches the server: without a path, without a slash at the end. An address
// that means every interface becomes the loopback one. It is empty if there is no server or its port is not known.
func (c Config) LocalURL() string {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil || port == "0" || port == "" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		// A server on [::] takes IPv4 too, unless the machine has none; one on 0.0.0.0 takes nothing else.
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Admin is the section [admin]: a listener of its own for what changes the relay or looks inside it.
type Admin struct {
	// Listen is the address, host:port; empty: no such listener.
	Listen string        `toml:"listen"`
	Token  secret.Secret `toml:"token"` // that every request has to carry: Authorization: Bearer TOKEN
}

// Validate tells whether the address can be one, and whether there is a token.
func (a Admin) Validate() error {
	if a.Listen == "" {
		return nil
	}
	if err := (Config{Listen: a.Listen}).Validate(); err != nil {
		return err
	}
	if !a.Token.IsSet() {
		return fmt.Errorf("admin.token is not set: a listener that can pause the relay needs one; set admin.token_file, or admin.listen to nothing")
	}
	return nil
}
