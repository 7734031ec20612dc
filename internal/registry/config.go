// Package registry writes keys and values for a schema registry with Confluent's API, or that of
// AWS Glue: it registers or looks up their schemas, and puts the schema's id before each value, as
// the registry's serializers do.
//
//	config.go     the section [registry]
//	server.go     what writers need of a registry; Ping
//	client.go     Client: Confluent's API; ids, kept as long as the process lives
//	glue.go       the API of AWS Glue
//	writer.go     Writer: subjects, schemas and bytes of keys or of values
//	declared.go   schemas that are given: in a file, or as the latest version of a subject
//	framing.go    what stands before each value
//	transport.go  requests: files of TLS, bounds of answers
//	errors.go     which errors concern the row, and which the registry
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/postrider/postrider/internal/credentials"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/internal/tlsfiles"
	"github.com/postrider/postrider/router/connect"
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
	Timeout time.Duration `toml:"timeout"` // of one request to one URL
	// Framing is what stands before each value: confluent, apicurio or glue; the last one is also
	// the API.
	Framing string `toml:"framing"`
	// RegistryName is the registry in AWS Glue.
	RegistryName string `toml:"registry_name"`
	// OnUnavailable is what a schema without a known id does while the registry is away: wait or
	// halt.
	OnUnavailable string           `toml:"on_unavailable"`
	TLS           TLSConfig        `toml:"tls"`
	OAuth         credentials.OIDC `toml:"oauth"` // bearer tokens
	AWS           credentials.AWS  `toml:"aws"`   // of glue: which identity signs
}

// TLSConfig is the section [registry.tls]. The files are read again for each request.
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
		Framing: Confluent, RegistryName: "default-registry"}
}

// IsSet reports whether there is a registry.
func (c Config) IsSet() bool { return len(c.URLs) > 0 || c.Framing == Glue }

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
		if !httpguts.ValidHeaderFieldName(name) || value == "" ||
			!httpguts.ValidHeaderFieldValue(value) || strings.EqualFold(name, "Authorization") ||
			strings.EqualFold(name, "Host") {
			bad("headers", `entry %d is not name=value, like "target-sr-cluster=lsrc-1a2b3c"`, i+1)
		}
	}
	c.validateGlue(bad)
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

func (c Config) validateGlue(bad func(key, format string, args ...any)) {
	c.AWS.Validate(func(key, format string, args ...any) { bad("aws."+key, format, args...) })
	if c.Framing != Glue {
		if c.AWS.IsSet() {
			bad("aws", "has no effect without registry.framing = %q", Glue)
		}
		return
	}
	for key, given := range map[string]bool{"username": c.Username != "", "oauth": c.OAuth.IsSet(),
		"headers": len(c.Headers) > 0} {
		if given {
			bad(key, "has no place with framing = %q, whose requests are signed with AWS's credentials",
				Glue)
		}
	}
	switch {
	case len(c.URLs) > 1:
		bad("urls", "AWS Glue has one endpoint: give it, or none for that of the region")
	case c.RegistryName == "":
		bad("registry_name", "is empty; the one that AWS Glue has by itself is \"default-registry\"")
	}
}

// away is the error of a registry that does not answer.
func (c Config) away() error {
	if c.OnUnavailable == Halt {
		return connect.ErrRegistryHalt
	}
	return connect.ErrRegistry
}
