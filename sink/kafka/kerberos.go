package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/krberror"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"

	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink"
)

const saslKerberos = "GSSAPI"

// KerberosConfig is the section [sink.kafka.sasl.kerberos]. The files are read again for each
// client.
type KerberosConfig struct {
	ServiceName string `toml:"service_name"` // the brokers' sasl.kerberos.service.name
	Principal   string `toml:"principal"`    // name@REALM; without a realm the default one
	Keytab      string `toml:"keytab"`       // file with the principal's keys
	ConfigFile  string `toml:"config_file"`  // empty: KRB5_CONFIG, else /etc/krb5.conf
}

const defaultServiceName = "kafka"

// isSet reports whether any key of the section is given.
func (k *KerberosConfig) isSet() bool {
	return *k != KerberosConfig{} && *k != KerberosConfig{ServiceName: defaultServiceName}
}

func (k *KerberosConfig) validate(bad func(key, format string, args ...any)) {
	if k.ServiceName == "" {
		bad("sasl.kerberos.service_name", "is empty; the brokers' sasl.kerberos.service.name is it")
	}
	if name, realm, found := strings.Cut(k.Principal, "@"); name == "" || found && realm == "" {
		bad("sasl.kerberos.principal", `%q is not like "postrider@EXAMPLE.COM"`, k.Principal)
	}
	if k.Keytab == "" {
		bad("sasl.kerberos.keytab", "is empty; give the file with the keys of the principal")
	}
	for key, path := range map[string]string{"keytab": k.Keytab, "config_file": k.ConfigFile} {
		if err := secret.CheckPath(path); err != nil {
			bad("sasl.kerberos."+key, "%v", err)
		}
	}
}

// Path is the file of Kerberos' own configuration.
func (k *KerberosConfig) Path() string {
	if k.ConfigFile != "" {
		return k.ConfigFile
	}
	if path := os.Getenv("KRB5_CONFIG"); path != "" {
		return path
	}
	return "/etc/krb5.conf"
}

// settings reads Kerberos' own configuration.
func (k *KerberosConfig) settings() (*config.Config, error) {
	text, err := os.ReadFile(k.Path())
	if err != nil {
		return nil, fmt.Errorf("sink.kafka.sasl.kerberos.config_file: %w", err)
	}
	settings, err := config.NewFromString(string(text))
	// What this library does not have is no reason to refuse what other programs read.
	if unsupported := (config.UnsupportedDirective{}); err != nil && !errors.As(err, &unsupported) {
		return nil, fmt.Errorf("sink.kafka.sasl.kerberos.config_file: %s: %w", k.Path(), err)
	}
	return settings, nil
}

// Names are the principal's name and realm.
func (k *KerberosConfig) Names() (name, realm string, err error) {
	name, realm, found := strings.Cut(k.Principal, "@")
	if !found {
		settings, err := k.settings()
		if err != nil {
			return "", "", err
		}
		realm = settings.LibDefaults.DefaultRealm
	}
	return name, realm, nil
}

// client makes one that has not logged in.
func (k *KerberosConfig) client() (*client.Client, error) {
	settings, err := k.settings()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(k.Keytab)
	if err != nil {
		return nil, fmt.Errorf("sink.kafka.sasl.kerberos.keytab: %w", err)
	}
	keys := keytab.New()
	if err := keys.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("sink.kafka.sasl.kerberos.keytab: %s is no keytab: %w", k.Keytab, err)
	}
	name, realm, err := k.Names()
	if err != nil {
		return nil, err
	}
	// FAST is not used, and Active Directory does not answer a request to negotiate it.
	return client.NewWithKeytab(name, realm, keys, settings, client.DisablePAFXFAST(true)), nil
}

// kerberosMechanism logs in to the KDC, for all connections of one client, which ends it. Tickets
// are renewed before they end.
func (c *Config) kerberosMechanism() (sasl.Mechanism, error) {
	krb, err := c.SASL.Kerberos.client()
	if err != nil {
		return nil, err
	}
	auth := kerberos.Auth{Client: krb, Service: c.SASL.Kerberos.ServiceName}
	return kerberosMechanism{auth.AsMechanismWithClose(), krb, &c.SASL.Kerberos}, nil
}

// kerberosMechanism classifies errors of the KDC, of which franz-go keeps the text alone.
type kerberosMechanism struct {
	sasl.Mechanism
	client *client.Client
	cfg    *KerberosConfig
}

var _ sasl.ClosingMechanism = kerberosMechanism{}

// Close ends the renewal of tickets.
func (m kerberosMechanism) Close() { m.Mechanism.(sasl.ClosingMechanism).Close() }

func (m kerberosMechanism) Authenticate(ctx context.Context, addr string) (sasl.Session, []byte,
	error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, err
	}
	// The ticket is then in the client's cache.
	if _, _, err := m.client.GetServiceTicket(m.cfg.ServiceName + "/" + host); err != nil {
		return nil, nil, m.cfg.failure(host, err)
	}
	session, first, err := m.Mechanism.Authenticate(ctx, addr)
	return kerberosSession{session}, first, err
}

// kerberosSession classifies a broker's answer that fails.
type kerberosSession struct{ sasl.Session }

func (s kerberosSession) Challenge(answer []byte) (bool, []byte, error) {
	done, response, err := s.Session.Challenge(answer)
	if err != nil {
		err = fmt.Errorf("%w: GSSAPI: %w", sink.ErrAuthentication, err)
	}
	return done, response, err
}

// kerberosError is a login that failed at the KDC.
type kerberosError struct {
	class     error
	text, fix string
}

func (e *kerberosError) Error() string { return e.text + "; " + e.fix }

func (e *kerberosError) Unwrap() error { return e.class }

// Advice is what the user needs besides the text. The consequence for the WAL is not known here.
func (e *kerberosError) Advice() (wal, fix string) { return "", e.fix }

// Temporary has the client try again, for as long as it tries a broker that is away.
func (e *kerberosError) Temporary() bool { return errors.Is(e.class, sink.ErrUnreachable) }

// advices are what to do about an answer of the KDC, by its name in RFC 4120, 7.5.9.
var advices = []struct{ answer, fix string }{
	{"KDC_ERR_C_PRINCIPAL_UNKNOWN",
		"the KDC does not know {principal}, sink.kafka.sasl.kerberos.principal: " +
			"klist -kt {keytab} lists those that the keytab has"},
	{"KDC_ERR_S_PRINCIPAL_UNKNOWN",
		"the KDC does not know {spn}: check sink.kafka.sasl.kerberos.service_name, and that the " +
			"brokers advertise the names in their principals"},
	{"KDC_ERR_PREAUTH_FAILED",
		"the keytab has an old key: write it anew, and try kinit -kt {keytab} {principal}"},
	{"KRB_AP_ERR_SKEW", "synchronise the clocks: chronyc tracking"},
	{"KDC_ERR_CLIENT_REVOKED", "the principal is locked: have it unlocked at the KDC"},
	{"KDC_ERR_ETYPE_NOSUPP", "KDC, keytab and krb5.conf have no encryption type in common: " +
		"klist -ekt {keytab}"},
}

// failure words an error of the library, which has no secrets, and classifies it.
func (k *KerberosConfig) failure(host string, err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if _, answer, found := strings.Cut(text, "KRB Error: "); found {
		text = answer
	}
	e := &kerberosError{sink.ErrAuthentication, "Kerberos: " + text,
		"try kinit -kt {keytab} {principal} where the relay runs"}
	var reported krberror.Krberror
	if errors.As(err, &reported) && reported.RootCause == krberror.NetworkingError {
		e.class = sink.ErrUnreachable
		e.fix = "check that a KDC of the realm answers: " + k.Path()
	}
	for _, a := range advices {
		if strings.Contains(err.Error(), a.answer) {
			e.class, e.fix = sink.ErrAuthentication, a.fix
		}
	}
	e.fix = strings.NewReplacer("{keytab}", k.Keytab, "{principal}", k.Principal,
		"{spn}", k.ServiceName+"/"+host).Replace(e.fix)
	return e
}
