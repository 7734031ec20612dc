package debezium

import (
	"regexp"
	"strings"
)

// Files that a person has to write: their content is secret, or has to be converted first.
const (
	kafkaPasswordFile = "/etc/postrider/kafka-password"
	kafkaCAFile       = "/etc/postrider/kafka-ca.pem"
	kafkaCertFile     = "/etc/postrider/kafka-client.pem"
	kafkaKeyFile      = "/etc/postrider/kafka-client.key"
)

// security maps TLS and login of the producer.
func (t *translator) security() {
	const name = override + "security.protocol"
	protocol, given := t.get(name)
	if !given {
		for _, name := range append(t.below(override+"ssl."), t.below(override+"sasl.")...) {
			if _, known := securityOptions[strings.TrimPrefix(name, override)]; !known {
				continue
			}
			t.refuse(name, "says how to connect, and "+override+"security.protocol, which says whether, "+
				"is not in the file: the worker has it. Add it")
		}
		return
	}
	tls := false
	switch strings.ToUpper(protocol) {
	case "PLAINTEXT":
		t.notNeeded(name, "neither TLS nor login is postrider's default")
	case "SSL":
		tls = true
		t.mapped(name, "", setting{"sink.kafka.tls", "enabled", true, ""})
	case "SASL_PLAINTEXT":
		t.mapped(name, "login without TLS")
		t.login()
	case "SASL_SSL":
		tls = true
		t.mapped(name, "login over TLS", setting{"sink.kafka.tls", "enabled", true, ""})
		t.login()
	default:
		t.refuse(name, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL")
		return
	}
	if tls {
		t.trust()
		t.ownCertificate()
	}
	t.unusedSecurity()
}

// mechanisms are those that postrider has.
var mechanisms = map[string]bool{"PLAIN": true, "SCRAM-SHA-256": true, "SCRAM-SHA-512": true}

func (t *translator) login() {
	name := override + "sasl.mechanism"
	mechanism, given := t.get(name)
	if !mechanisms[strings.ToUpper(mechanism)] {
		what := mechanism
		if !given {
			what = "GSSAPI, the default,"
		}
		t.refuse(name, what+" is not among postrider's mechanisms: make a user for PLAIN, "+
			"SCRAM-SHA-256 or SCRAM-SHA-512, or use a client certificate (mTLS)")
		t.refuseBelow(override+"sasl.", "belongs to a mechanism that postrider does not have")
		return
	}
	t.mapped(name, "", setting{"sink.kafka.sasl", "mechanism", strings.ToUpper(mechanism), ""})
	t.jaas()
	for _, rest := range t.below(override + "sasl.") {
		if strings.HasPrefix(rest, override+"sasl.kerberos.") ||
			strings.HasPrefix(rest, override+"sasl.login.") ||
			strings.HasPrefix(rest, override+"sasl.oauthbearer.") {
			t.notNeeded(rest, "belongs to other mechanisms")
		}
	}
}

// jaasOption is one option of a JAAS line: name="value", name='value' or name=value.
var jaasOption = regexp.MustCompile(`([A-Za-z][A-Za-z0-9_.]*)\s*=\s*` +
	`(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))`)

// jaas maps the user in sasl.jaas.config. It never copies the password.
func (t *translator) jaas() {
	name := override + "sasl.jaas.config"
	v, given := t.get(name)
	if !given {
		t.refuse(name, "is missing: the login is in the worker's file. Set sink.kafka.sasl.username "+
			"and password_file, and remove this from the report by adding it")
		t.doc.set(setting{"sink.kafka.sasl", "username", "postrider", "Not in the connector's file."})
		t.doc.set(setting{"sink.kafka.sasl", "password_file", kafkaPasswordFile, ""})
		return
	}
	options := map[string]string{}
	for _, m := range jaasOption.FindAllStringSubmatch(v, -1) {
		options[m[1]] = m[2] + m[3] + m[4]
	}
	username := options["username"]
	if username == "" || t.provided(username) || t.provided(v) && len(options) == 0 {
		t.doc.set(setting{
			"sink.kafka.sasl", "username", "postrider",
			"Comes from elsewhere in the connector's file: put the user's name here.",
		})
		t.doc.set(setting{
			"sink.kafka.sasl", "password_file", kafkaPasswordFile,
			"Write the password into this file, readable by postrider only.",
		})
		if t.provided(v) {
			t.item(name, Item{Outcome: Mapped, Settings: []string{
				"sink.kafka.sasl.username", "sink.kafka.sasl.password_file = '" + kafkaPasswordFile + "'",
			},
				Text: "comes from a config provider: write the user's name into sink.kafka.sasl.username " +
					"and the password into the file", Attention: true})
			return
		}
		t.refuse(name, "names no username that can be read: set sink.kafka.sasl.username and "+
			"password_file")
		return
	}
	user := setting{"sink.kafka.sasl", "username", username, ""}
	if variable, ok := t.variable(options["password"]); ok {
		t.variables = append(t.variables, variable)
		t.mapped(name, "", user, setting{"sink.kafka.sasl", "password", "${" + variable + "}", ""})
		return
	}
	password := setting{
		"sink.kafka.sasl", "password_file", kafkaPasswordFile,
		"Write the password into this file, readable by postrider only.",
	}
	t.mapped(name, "the password is never copied: write it into the file, readable by postrider only",
		user, password).attend()
}

// trust maps the certificate authorities.
func (t *translator) trust() {
	location, given := t.get(override + "ssl.truststore.location")
	kind := strings.ToUpper(t.value(override+"ssl.truststore.type", "JKS"))
	name := override + "ssl.truststore.location"
	switch {
	case given && kind == "PEM" && !t.provided(location):
		t.mapped(name, "", setting{"sink.kafka.tls", "ca_file", location, ""})
	case given:
		t.mapped(name, "postrider reads PEM: keytool -list -rfc -keystore TRUSTSTORE > "+kafkaCAFile,
			setting{"sink.kafka.tls", "ca_file", kafkaCAFile, ""}).attend()
	}
	name = override + "ssl.truststore.certificates"
	if _, given := t.get(name); given {
		t.mapped(name, "write the certificates into the file",
			setting{"sink.kafka.tls", "ca_file", kafkaCAFile, ""}).attend()
	}
	t.given(override+"ssl.truststore.type", "ca_file is PEM")
	t.given(override+"ssl.truststore.password", "a PEM file of certificates has none")

	name = override + "ssl.endpoint.identification.algorithm"
	if v, given := t.get(name); given && v == "" {
		t.refuse(name, "turns the check of the broker's name off, and postrider always checks it: set "+
			"sink.kafka.tls.server_name to the name in the certificate and give this line the value https")
	} else if given {
		t.notNeeded(name, "postrider always checks the broker's name")
	}
}

// ownCertificate maps the client certificate of mTLS.
func (t *translator) ownCertificate() {
	location, given := t.get(override + "ssl.keystore.location")
	kind := strings.ToUpper(t.value(override+"ssl.keystore.type", "JKS"))
	name := override + "ssl.keystore.location"
	cert := func(c, k string) []setting {
		return []setting{{"sink.kafka.tls", "cert_file", c, ""}, {"sink.kafka.tls", "key_file", k, ""}}
	}
	switch {
	case given && kind == "PEM" && !t.provided(location):
		t.mapped(name, "one file with certificate and key", cert(location, location)...)
	case given:
		t.mapped(name, "postrider reads PEM: keytool -importkeystore -srckeystore KEYSTORE "+
			"-destkeystore client.p12 -deststoretype PKCS12, then openssl pkcs12 -in client.p12 -nokeys "+
			"-out "+
			kafkaCertFile+" and openssl pkcs12 -in client.p12 -nocerts -nodes -out "+kafkaKeyFile,
			cert(kafkaCertFile, kafkaKeyFile)...).attend()
	}
	if _, given := t.get(override + "ssl.keystore.certificate.chain"); given {
		t.mapped(override+"ssl.keystore.certificate.chain", "write the certificates into the file",
			cert(kafkaCertFile, kafkaKeyFile)...).attend()
	}
	if _, given := t.get(override + "ssl.keystore.key"); given {
		t.mapped(override+"ssl.keystore.key", "is never copied: write the key into the file, without "+
			"a password and readable by postrider only", cert(kafkaCertFile, kafkaKeyFile)...).attend()
	}
	if _, given := t.get(override + "ssl.key.password"); given {
		t.notNeeded(override+"ssl.key.password", "postrider reads a key without a password: decrypt "+
			"it (openssl pkey -in KEY -out "+kafkaKeyFile+")").attend()
	}
	t.given(override+"ssl.keystore.type", "cert_file and key_file are PEM")
	t.given(override+"ssl.keystore.password", "PEM files have none")
}

// unusedSecurity makes the items of options that the protocol does not use, or that Go's TLS
// negotiates.
func (t *translator) unusedSecurity() {
	for _, name := range append(t.below(override+"ssl."), t.below(override+"sasl.")...) {
		switch option := strings.TrimPrefix(name, override); option {
		case "ssl.engine.factory.class":
			t.refuse(name, "is code that postrider cannot run: give the certificates as PEM files "+
				"(sink.kafka.tls)")
		case "sasl.client.callback.handler.class", "sasl.login.callback.handler.class",
			"sasl.login.class":
			protocol, _ := t.get(override + "security.protocol")
			if strings.HasPrefix(strings.ToUpper(protocol), "SASL_") {
				t.refuse(name, "is code that logs in, which postrider cannot run: it has PLAIN and SCRAM "+
					"with a user name and a password")
			} else {
				t.notNeeded(name, "the security protocol does not use it")
			}
		case "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.provider",
			"ssl.keymanager.algorithm", "ssl.trustmanager.algorithm",
			"ssl.secure.random.implementation":
			t.notNeeded(name, "TLS 1.2 and 1.3 are negotiated")
		default:
			if _, known := securityOptions[option]; known {
				t.notNeeded(name, "the security protocol does not use it")
			}
		}
	}
}

var securityOptions = map[string]bool{
	"sasl.mechanism": true, "sasl.jaas.config": true, "sasl.client.callback.handler.class": true,
	"sasl.login.callback.handler.class": true,
	"sasl.login.class":                  true, "sasl.kerberos.service.name": true,
	"ssl.truststore.location": true, "ssl.truststore.password": true, "ssl.truststore.type": true,
	"ssl.truststore.certificates": true,
	"ssl.keystore.location":       true, "ssl.keystore.password": true, "ssl.keystore.type": true,
	"ssl.keystore.key":               true,
	"ssl.keystore.certificate.chain": true, "ssl.key.password": true,
	"ssl.endpoint.identification.algorithm": true,
}
