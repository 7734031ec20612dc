// Package registry writes keys and values for a schema registry with Confluent's API: it registers
// or looks up their schemas, and puts the schema's id before each value, as Confluent's
// serializers do.
//
//	config.go    the section [registry]
//	client.go    Client: ids of schemas, kept as long as the process lives; errors
//	writer.go    Writer: subjects, schemas and bytes of keys or of values
//	declared.go  schemas that are given: in a file, or as the latest version of a subject
//	framing.go   what stands before each value
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/tlsfiles"
)

// Config is the section [registry].
type Config struct {
	URLs []string `toml:"urls"` // of one registry; the next one is tried where one does not answer
	// Username and Password are for HTTP basic authentication; the password is read again for each
	// request.
	Username string        `toml:"username"`
	Password secret.Secret `toml:"password"`
	// Headers of each request, name=value, such as target-sr-cluster of Confluent Cloud.
	Headers []string      `toml:"headers"`
	Timeout time.Duration `toml:"timeout"` // of one request
	Framing string        `toml:"framing"` // what stands before each value: confluent or apicurio
	// OnUnavailable is what a schema without a known id does while the registry is away: wait or
	// halt.
	OnUnavailable string           `toml:"on_unavailable"`
	TLS           TLSConfig        `toml:"tls"`
	OAuth         credentials.OIDC `toml:"oauth"` // bearer tokens
}

// TLSConfig is the section [registry.tls]. The files are read for each connection.
type TLSConfig struct {
	CAFile     string `toml:"ca_file"`
	CertFile   string `toml:"cert_file"`
	KeyFile    string `toml:"key_file"`
	ServerName string `toml:"server_name"`
}

func (t TLSConfig) files() tlsfiles.Files {
	return tlsfiles.Files{CA: t.CAFile, Cert: t.CertFile, Key: t.KeyFile, ServerName: t.ServerName}
}

// The values of Config.OnUnavailable.
const (
	Wait = "wait"
	Halt = "halt"
)

// OnUnavailable are all of them.
var OnUnavailable = []string{Wait, Halt}

const section = "registry"

// DefaultConfig has no registry.
func DefaultConfig() Config {
	return Config{Timeout: 5 * time.Second, OnUnavailable: Wait,
		Framing: Confluent}
}

// IsSet reports whether there is a registry.
func (c Config) IsSet() bool { return len(c.URLs) > 0 }

// Validate reports every setting that cannot be, by its TOML key. It opens no file and no
// connection.
func (c Config) Validate() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", section, key, fmt.Sprintf(format, args...)))
	}
	for i, raw := range c.URLs {
		u, err := url.Parse(raw)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			bad("urls", `entry %d is not like "https://registry.example.com" (it is not shown, since `+
				`it may hold a password)`, i+1)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			bad("urls", "entry %d contains a user or parameters: use username and password, or headers",
				i+1)
		case u.Scheme == "http" && c.logsIn() && !credentials.Local(u.Hostname()):
			bad("urls", "entry %d is http, which sends the login in the clear; use https", i+1)
		}
	}
	if (c.Username == "") != !c.Password.IsSet() {
		bad("username", "and password go together; one of them is missing")
	}
	if c.OAuth.IsSet() {
		c.OAuth.Validate(func(key, format string, args ...any) { bad("oauth."+key, format, args...) })
		if c.Username != "" {
			bad("oauth", "and username are two logins; remove one")
		}
	}
	for i, h := range c.Headers {
		name, value, _ := strings.Cut(h, "=")
		if name == "" || value == "" || strings.ContainsAny(h, "\r\n") ||
			strings.EqualFold(name, "Authorization") {
			bad("headers", `entry %d is not name=value, like "target-sr-cluster=lsrc-1a2b3c"`, i+1)
		}
	}
	if c.Timeout < 10*time.Millisecond {
		bad("timeout", "%s is too short; the least is 10ms", c.Timeout)
	}
	if !slices.Contains(OnUnavailable, cmp.Or(c.OnUnavailable, Wait)) {
		bad("on_unavailable", "%q is none of %s", c.OnUnavailable, strings.Join(OnUnavailable, ", "))
	}
	if !slices.Contains(Framings, cmp.Or(c.Framing, Confluent)) {
		bad("framing", "%q is none of %s", c.Framing, strings.Join(Framings, ", "))
	}
	for key, path := range map[string]string{"ca_file": c.TLS.CAFile, "cert_file": c.TLS.CertFile,
		"key_file": c.TLS.KeyFile} {
		if err := secret.CheckPath(path); err != nil {
			bad("tls."+key, "%v", err)
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		bad("tls.cert_file", "and tls.key_file go together; one of them is missing")
	}
	return errors.Join(errs...)
}

func (c Config) logsIn() bool { return c.Username != "" || c.OAuth.IsSet() }
