package debezium

import (
	"regexp"
	"slices"
	"strings"
)

const (
	saslSection     = "sink.kafka.sasl"
	oauthSection    = "sink.kafka.sasl.oauth"
	kerberosSection = "sink.kafka.sasl.kerberos"
)

// The properties of the producer that make a login.
const (
	saslMechanism  = override + "sasl.mechanism"
	saslJAAS       = override + "sasl.jaas.config"
	loginHandler   = override + "sasl.login.callback.handler.class"
	clientHandler  = override + "sasl.client.callback.handler.class"
	tokenEndpoint  = override + "sasl.oauthbearer.token.endpoint.url"
	oauthPrefix    = override + "sasl.oauthbearer."
	kerberosPrefix = override + "sasl.kerberos."
)

// placeholderAssertion makes the file valid before the assertion is known.
const placeholderAssertion = "/etc/postrider/assertion"

// passwordMechanisms take a user and a password.
var passwordMechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

func (t *translator) login() {
	given := t.value(saslMechanism, "GSSAPI")
	mechanism := strings.ToUpper(given)
	handler := t.value(loginHandler, t.value(clientHandler, ""))
	switch {
	case slices.Contains(passwordMechanisms, mechanism):
		t.mapped(saslMechanism, "", setting{saslSection, "mechanism", mechanism, ""})
		t.jaas()
	case mechanism == "AWS_MSK_IAM", mechanism == "OAUTHBEARER" && isMSK(handler):
		t.msk(mechanism)
	case mechanism == "OAUTHBEARER" && strings.HasPrefix(handler, "com.google.cloud.hosted.kafka"):
		t.cloud("google_managed_kafka", "with the application default credentials, as Google's handler")
	case mechanism == "OAUTHBEARER" && isOAuth(handler):
		t.oauth(handler)
	case mechanism == "GSSAPI":
		t.kerberos()
	default:
		t.refuse(saslMechanism, given+" with the handler "+handler+" is code that logs in: postrider "+
			"has OAUTHBEARER for token endpoints, Amazon MSK, Azure Event Hubs and Google, GSSAPI, PLAIN "+
			"and SCRAM (docs/SIGN-IN.md)")
		t.refuseBelow(override+"sasl.", "belongs to a login that postrider does not have")
	}
}

func isMSK(handler string) bool {
	return strings.HasPrefix(handler, "software.amazon.msk.auth.iam.")
}

// isOAuth reports whether a handler is Kafka's own, in its three places, or Strimzi's.
func isOAuth(handler string) bool {
	name := simpleName(handler)
	return handler == "" ||
		strings.HasPrefix(handler, "org.apache.kafka.") && name == "OAuthBearerLoginCallbackHandler" ||
		strings.HasPrefix(handler, "io.strimzi.kafka.oauth.") &&
			name == "JaasClientOauthLoginCallbackHandler"
}

// token is the mechanism with a provider of tokens.
func (t *translator) token(provider, text string) {
	t.mapped(saslMechanism, text, setting{saslSection, "mechanism", "OAUTHBEARER", ""},
		setting{saslSection, "provider", provider, ""})
	why := "postrider logs in by itself (docs/SIGN-IN.md)"
	t.given(loginHandler, why)
	t.given(clientHandler, why)
}

// cloud is a provider whose identity is that of the machine.
func (t *translator) cloud(provider, text string) {
	t.token(provider, text)
	t.given(saslJAAS, "postrider logs in by itself (docs/SIGN-IN.md)")
}

// msk maps Amazon's libraries, which take the same options for both mechanisms.
func (t *translator) msk(mechanism string) {
	text := "with AWS's default credential chain, as Amazon's library"
	if mechanism == "AWS_MSK_IAM" {
		text += ". MSK takes the same login as OAUTHBEARER at the same port"
	}
	t.token("aws_msk_iam", text)
	v, given := t.get(saslJAAS)
	if !given {
		return
	}
	options := jaasOptions(v)
	var settings []setting
	for _, o := range [][2]string{{"awsProfileName", "profile"}, {"awsRoleArn", "role_arn"},
		{"awsRoleSessionName", "role_session_name"}, {"awsRoleExternalId", "external_id"},
		{"awsStsRegion", "region"}} {
		if value := options[o[0]]; value != "" && !t.provided(value) {
			settings = append(settings, setting{"sink.kafka.sasl.aws", o[1], value, ""})
		}
	}
	if len(settings) == 0 {
		t.notNeeded(saslJAAS, "postrider logs in by itself (docs/SIGN-IN.md)")
		return
	}
	t.mapped(saslJAAS, "", settings...)
}

// oauth maps a token endpoint: by properties of its own since Kafka 4.1, by options of the JAAS
// line before that, and by Strimzi's. It never copies the secret.
func (t *translator) oauth(handler string) {
	t.token("oidc", "")
	jaas, _ := t.get(saslJAAS)
	options := jaasOptions(jaas)
	if v, _ := t.get(tokenEndpoint); strings.HasPrefix(strings.ToLower(v), "file:") {
		path := "/" + strings.TrimLeft(v[len("file:"):], "/")
		t.mapped(tokenEndpoint, "", setting{oauthSection, "token_file", path, ""})
		t.given(saslJAAS, "the token is in the file")
		return
	}
	first := func(property string, names ...string) string {
		if v, given := t.get(oauthPrefix + property); given {
			return v
		}
		for _, name := range names {
			if v := options[name]; v != "" {
				return v
			}
		}
		return ""
	}
	url := setting{oauthSection, "token_url",
		first("token.endpoint.url", "oauth.token.endpoint.uri"), ""}
	if url.value == "" || t.provided(url.value.(string)) {
		t.refuse(saslMechanism+" (token endpoint)", "is not in the file: write "+oauthSection+
			".token_url")
		url.value, url.comment = placeholderTokens, fromElsewhere
	}
	t.doc.set(url)
	t.mapGiven(tokenEndpoint, "", url)
	t.doc.set(setting{oauthSection, "client_id", placeholderName, fromElsewhere})
	t.orPlaceholder(oauthPrefix+"client.credentials.client.id",
		first("client.credentials.client.id", "clientId", "oauth.client.id"), oauthSection, "client_id",
		placeholderName)
	t.clientSecret(first("client.credentials.client.secret", "clientSecret", "oauth.client.secret"))
	for _, o := range []struct{ property, key, option, strimzi string }{
		{"scope", "scope", "scope", "oauth.scope"},
		{"audience", "audience", "", "oauth.audience"},
	} {
		t.orPlaceholder(oauthPrefix+o.property, first(o.property, o.option, o.strimzi), oauthSection,
			o.key, placeholderName)
	}
	var extensions []string
	for name, value := range options {
		if extension, found := strings.CutPrefix(name, "extension_"); found {
			if t.provided(value) {
				value = placeholderName
			}
			extensions = append(extensions, extension+"="+value)
		}
	}
	if slices.Sort(extensions); len(extensions) > 0 {
		t.doc.set(setting{saslSection, "extensions", extensions, ""})
	}
	if jaas != "" {
		t.given(saslJAAS, "its options are keys of [sink.kafka.sasl.oauth]; the secret is never "+
			"copied, nor what comes from elsewhere: write that").Attention = t.provided(jaas)
	}
}

// clientSecret has the secret of an OAuth client read from a file, or from the environment.
func (t *translator) clientSecret(v string) {
	const property = oauthPrefix + "client.credentials.client.secret"
	if file, given := t.get(oauthPrefix + "assertion.file"); given {
		t.orPlaceholder(oauthPrefix+"assertion.file", file, oauthSection, "assertion_file",
			placeholderAssertion)
		t.doc.set(setting{oauthSection, "grant", "jwt_bearer", ""})
		t.given(property, "the assertion takes its place")
		return
	}
	if variable, ok := t.variable(v); ok {
		t.variables = append(t.variables, variable)
		s := setting{oauthSection, "client_secret", "${" + variable + "}", ""}
		t.doc.set(s)
		t.mapGiven(property, "", s)
		return
	}
	s := setting{oauthSection, "client_secret_file", clientSecretFile,
		"Write the secret into this file, readable by postrider only."}
	t.doc.set(s)
	t.mapGiven(property, "is never copied: write it into the file, readable by postrider only", s).
		attend()
}

// kerberos maps Java's login module with a keytab.
func (t *translator) kerberos() {
	t.mapped(saslMechanism, "", setting{saslSection, "mechanism", "GSSAPI", ""})
	v, _ := t.get(saslJAAS)
	options := jaasOptions(v)
	t.orPlaceholder(kerberosPrefix+"service.name",
		t.value(kerberosPrefix+"service.name", options["serviceName"]), kerberosSection,
		"service_name", "kafka")
	principal := setting{kerberosSection, "principal", options["principal"], ""}
	keytab := setting{kerberosSection, "keytab", options["keyTab"], ""}
	if options["principal"] == "" || options["keyTab"] == "" || t.provided(v) {
		t.refuse(saslJAAS, "names no principal with a keytab that can be read: postrider has no ticket "+
			"cache. Set sink.kafka.sasl.kerberos.principal and keytab")
		principal.value, principal.comment = "postrider@EXAMPLE.COM", "Not in the connector's file."
		keytab.value, keytab.comment = "/etc/postrider/postrider.keytab", "Not in the connector's file."
		t.doc.set(principal)
		t.doc.set(keytab)
		return
	}
	t.mapped(saslJAAS, "", principal, keytab)
}

// jaasOption is one option of a JAAS line: name="value", name='value' or name=value.
var jaasOption = regexp.MustCompile(`([A-Za-z][A-Za-z0-9_.]*)\s*=\s*` +
	`(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)

func jaasOptions(line string) map[string]string {
	options := map[string]string{}
	for _, m := range jaasOption.FindAllStringSubmatch(line, -1) {
		options[m[1]] = m[2] + m[3] + m[4]
	}
	return options
}

// jaas maps the user in sasl.jaas.config. It never copies the password.
func (t *translator) jaas() {
	const name = override + "sasl.jaas.config"
	v, given := t.get(name)
	user := setting{"sink.kafka.sasl", "username", "postrider", "Not in the connector's file."}
	password := setting{"sink.kafka.sasl", "password_file", kafkaPasswordFile, ""}
	if !given {
		t.refuse(name, "is missing: the login is in the worker's file. Set sink.kafka.sasl.username "+
			"and password_file, and remove this from the report by adding it")
		t.doc.set(user)
		t.doc.set(password)
		return
	}
	options := jaasOptions(v)
	password.comment = "Write the password into this file, readable by postrider only."
	username := options["username"]
	if username == "" || t.provided(username) || t.provided(v) && len(options) == 0 {
		user.comment = "Comes from elsewhere in the connector's file: put the user's name here."
		t.doc.set(user)
		t.doc.set(password)
		if t.provided(v) {
			t.item(name, Item{
				Outcome:  Mapped,
				Settings: []string{"sink.kafka.sasl.username", password.String()}, Attention: true,
				Text: "comes from a config provider: write the user's name into sink.kafka.sasl.username " +
					"and the password into the file",
			})
		}
		t.refuse(name, "names no username that can be read: set sink.kafka.sasl.username and "+
			"password_file")
		return
	}
	user = setting{"sink.kafka.sasl", "username", username, ""}
	if variable, ok := t.variable(options["password"]); ok {
		t.variables = append(t.variables, variable)
		t.mapped(name, "", user, setting{"sink.kafka.sasl", "password", "${" + variable + "}", ""})
		return
	}
	t.mapped(name, "the password is never copied: write it into the file, readable by postrider only",
		user, password).attend()
}
