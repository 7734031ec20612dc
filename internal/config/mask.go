package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/secret"
)

const mask = "********"

// userinfo is the part of a URL where passwords stand.
var userinfo = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*://)([^/?#@]*)@`)

// MaskURL masks the password of a URL and every other part that may contain one, and a key or
// certificate. It returns any other text as it is.
func MaskURL(s string) string {
	if strings.Contains(s, "-----BEGIN") {
		return mask
	}
	if !strings.Contains(s, "://") {
		return s
	}
	m := userinfo.FindStringSubmatch(s)
	rest := s
	if m != nil {
		rest = s[len(m[0]):]
	}
	u, err := url.Parse(s)
	// An @ in the rest follows a password with a special character; a URL that cannot be parsed may
	// have a password in the place of the port.
	if err != nil || strings.Contains(rest, "@") {
		scheme, _, _ := strings.Cut(s, "://")
		return scheme + "://" + mask
	}
	if m != nil {
		user, _, hasPassword := strings.Cut(m[2], ":")
		if hasPassword {
			user += ":" + mask
		}
		rest = m[1] + user + "@" + rest
	}
	rest, _, hasFragment := strings.Cut(rest, "#")
	if before, _, found := strings.Cut(rest, "?"); found {
		rest = before + maskQuery(u)
	}
	if hasFragment {
		rest += "#" + mask
	}
	return rest
}

// harmlessQuery are parameters of database URLs that are no secrets. All others are masked: in a
// web address any name may be that of a token.
var harmlessQuery = []string{
	"user", "host", "hostaddr", "port", "dbname", "sslmode", "sslrootcert", "sslcert", "sslkey",
	"connect_timeout", "application_name", "target_session_attrs", "load_balance_hosts", "krbsrvname",
	"gssencmode", "channel_binding", "require_auth", "sslnegotiation",
}

func maskQuery(u *url.URL) string {
	parts := strings.Split(u.RawQuery, "&")
	for i, part := range parts {
		name, _, valued := strings.Cut(part, "=")
		switch {
		case slices.Contains(harmlessQuery, name):
		case valued:
			parts[i] = name + "=" + mask
		default:
			parts[i] = mask
		}
	}
	return "?" + strings.Join(parts, "&")
}

// maskSecret is a secret as it may be printed; nil: it is not set. Of a database URL it shows the
// parts that are no secret, of anything else nothing.
func maskSecret(s secret.Secret) any {
	switch {
	case !s.IsSet():
		return nil
	case s.Path() != "":
		return maskPath(s.Path())
	}
	v, err := s.Reveal()
	if err != nil || !userinfoURL(v) {
		return s.String()
	}
	return MaskURL(v)
}

// maskPath masks a path that may be the secret itself.
func maskPath(path string) string {
	if strings.ContainsAny(path, "\r\n") {
		return mask
	}
	return MaskURL(path)
}

// userinfoURL reports whether a secret looks like a database URL, of which MaskURL masks the
// password only.
func userinfoURL(s string) bool {
	scheme, _, found := strings.Cut(s, "://")
	return found && (scheme == "postgres" || scheme == "postgresql")
}

// shown are the keys whose text is no secret: names, addresses and words. The text of every other
// key is masked where it could be printed, so that a new key is masked by default. Keys of
// accepted are shown, too.
var shown = strings.Fields(`
	postgres.aws.region postgres.aws.profile postgres.aws.role_arn postgres.aws.role_session_name
	postgres.azure.tenant_id postgres.azure.client_id postgres.google.credentials_file

	slot.name replication.publication replication.tables replication.messages

	router.table.field.event.id router.table.field.event.key router.table.field.event.type
	router.table.field.event.payload router.table.field.event.timestamp
	router.table.field.event.schema.version router.table.fields.additional.placement
	router.route.by.field router.route.topic.regex router.route.topic.replacement
	router.tracing.span.context.field router.tracing.operation.name
	router.unavailable.value.placeholder router.topic.prefix router.tables router.messages
	router.header_id router.headers_column router.topic_allow

	format.key.encoding format.value.encoding format.key.schema.file format.value.schema.file
	format.key.schema.references format.value.schema.references format.key.schema.message
	format.value.schema.message
	format.cloudevents.source format.cloudevents.datacontenttype

	sink.kafka.brokers sink.kafka.client_id sink.kafka.version sink.kafka.tls.ca_file
	sink.kafka.tls.cert_file sink.kafka.tls.key_file sink.kafka.tls.server_name
	sink.kafka.sasl.username sink.kafka.sasl.extensions sink.kafka.sasl.oauth.token_url
	sink.kafka.sasl.oauth.client_id sink.kafka.sasl.oauth.assertion_file
	sink.kafka.sasl.oauth.scope sink.kafka.sasl.oauth.audience sink.kafka.sasl.oauth.ca_file
	sink.kafka.sasl.oauth.token_file
	sink.kafka.sasl.aws.region sink.kafka.sasl.aws.profile sink.kafka.sasl.aws.role_arn
	sink.kafka.sasl.aws.role_session_name sink.kafka.sasl.azure.tenant_id
	sink.kafka.sasl.azure.client_id sink.kafka.sasl.google.credentials_file

	sink.kafka.sasl.kerberos.service_name sink.kafka.sasl.kerberos.principal
	sink.kafka.sasl.kerberos.keytab sink.kafka.sasl.kerberos.config_file

	registry.urls registry.username registry.tls.ca_file registry.tls.cert_file
	registry.tls.key_file registry.tls.server_name registry.oauth.token_url
	registry.oauth.client_id registry.oauth.assertion_file registry.oauth.scope
	registry.oauth.audience registry.oauth.ca_file registry.oauth.token_file
	registry.registry_name registry.aws.region registry.aws.profile registry.aws.role_arn
	registry.aws.role_session_name

	snapshot.mode snapshot.order_by snapshot.topic
	relay.heartbeat_topic relay.dedup relay.position_topic relay.rate

	deadletter.not_routable deadletter.invalid_topic deadletter.too_large deadletter.refused
	deadletter.malformed deadletter.unknown_topic deadletter.topic

	alerts.severity alerts.external_url http.listen admin.listen`)

// Shown reports whether the value of a key may be printed. A password in a URL is masked
// nevertheless.
func Shown(key string) bool {
	key = unnumbered(key)
	return slices.Contains(shown, key) || accepted[key] != nil
}

// private reports whether the key's text must not be printed.
func (k key) private() bool {
	return k.secret() || (k.kind == text || k.kind == list) && !Shown(k.name)
}

// NotShown stands in a printed command for a value that must not be printed. No flag takes it: the
// command as it is printed fails, and does not go on with another value.
const NotShown = "..."

// InCommand is the text of a key as a printed command has it: as it is, or NotShown. known is
// false if there is no key of that name.
func InCommand(name, text string) (shown string, known bool) {
	c := Default() // which has one [router]
	k, known := newIndex(&c).byName[unnumbered(name)]
	if known && (text == "" || k.harmless(text)) {
		return text, true
	}
	return NotShown, known
}

// LeadingKey is the longest name of a key that text begins with; empty: there is none.
func LeadingKey(text string) (longest string) {
	c := Default() // which has one [router]
	text = unnumbered(text)
	for _, name := range newIndex(&c).names {
		if len(name) > len(longest) && strings.HasPrefix(text, name) {
			longest = name
		}
	}
	return longest
}

// harmless reports whether the key's text may be printed as it is.
func (k key) harmless(text string) bool {
	switch k.kind {
	case secretText:
		return userinfoURL(text) && MaskURL(text) == text // it has no password
	case secretFile:
		return maskPath(text) == text
	}
	return !k.private() && k.masked(text) == text
}

// masked is text of the key as it may be printed.
func (k key) masked(text string) string {
	at := strings.LastIndex(text, "@")
	switch {
	case k.private():
		return mask
	case k.name == "sink.kafka.brokers" && at >= 0 && !strings.Contains(text, "://"):
		// A broker has no user.
		return mask + text[at:]
	case strings.HasSuffix(k.name, fileSuffix):
		return maskPath(text)
	}
	return MaskURL(text)
}
