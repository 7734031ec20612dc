package debezium

import "strings"

// Files that a person has to write: their content is secret, or has to be converted first.
const (
	kafkaPasswordFile = "/etc/postrider/kafka-password"
	clientSecretFile  = "/etc/postrider/kafka-client-secret"
	kafkaCAFile       = "/etc/postrider/kafka-ca.pem"
	kafkaCertFile     = "/etc/postrider/kafka-client.pem"
	kafkaKeyFile      = "/etc/postrider/kafka-client.key"
)

// securityOptions are those of the producer that count only with a security.protocol.
var securityOptions = []string{
	"sasl.mechanism", "sasl.jaas.config", "sasl.client.callback.handler.class",
	"sasl.login.callback.handler.class", "sasl.login.class", "sasl.kerberos.service.name",
	"ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
	"ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.password",
	"ssl.keystore.type", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.key.password",
	"ssl.endpoint.identification.algorithm",
}

// security maps TLS and login of the producer.
func (t *translator) security() {
	const name = override + "security.protocol"
	v, given := t.get(name)
	protocol := strings.ToUpper(v)
	tls := setting{"sink.kafka.tls", "enabled", true, ""}
	switch {
	case !given:
	case protocol == "PLAINTEXT":
		t.notNeeded(name, "neither TLS nor login is postrider's default")
	case protocol == "SSL":
		t.mapped(name, "", tls)
	case protocol == "SASL_PLAINTEXT":
		t.mapped(name, "login without TLS")
	case protocol == "SASL_SSL":
		t.mapped(name, "login over TLS", tls)
	default:
		t.refuse(name, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL")
		return
	}
	login, encrypted := strings.HasPrefix(protocol, "SASL_"), strings.HasSuffix(protocol, "SSL")
	if login {
		t.login()
	}
	if encrypted {
		t.trust()
		t.ownCertificate()
	}
	missing := "counts only with " + name + ", which is not in the file: the worker has it. Add it"
	for _, o := range securityOptions {
		switch _, left := t.left[override+o]; {
		case !left, login && known().rule(override+o) != nil:
		case given:
			t.notNeeded(override+o, "the security protocol does not use it")
		default:
			t.refuse(override+o, missing)
		}
	}
	if !given {
		t.refuseBelow(override+"sasl.", missing)
	}
}

// store is the place of a keystore or truststore, and whether postrider can read it as it is.
func (t *translator) store(kind string) (location string, given, readable bool) {
	location, given = t.get(override + "ssl." + kind + ".location")
	pem := strings.EqualFold(t.value(override+"ssl."+kind+".type", "JKS"), "PEM")
	return location, given, pem && !t.provided(location)
}

// trust maps the certificate authorities.
func (t *translator) trust() {
	const store = override + "ssl.truststore."
	ca := setting{"sink.kafka.tls", "ca_file", kafkaCAFile, ""}
	switch location, given, readable := t.store("truststore"); {
	case readable && given:
		t.mapped(store+"location", "", setting{"sink.kafka.tls", "ca_file", location, ""})
		if t.doc.get(oauthSection, "token_url") != nil { // Kafka trusts the same for the provider
			t.doc.set(setting{oauthSection, "ca_file", location, ""})
		}
	case given:
		t.mapped(store+"location", "postrider reads PEM: keytool -list -rfc -keystore TRUSTSTORE > "+
			kafkaCAFile, ca).attend()
	}
	t.mapGiven(store+"certificates", "write the certificates into the file", ca).attend()
	t.given(store+"type", "ca_file is PEM")
	t.given(store+"password", "a PEM file of certificates has none")

	const check = override + "ssl.endpoint.identification.algorithm"
	if v, given := t.get(check); given && v == "" {
		t.refuse(check, "turns the check of the broker's name off, and postrider always checks it: set "+
			"sink.kafka.tls.server_name to the name in the certificate and give this line the value https")
	}
	t.given(check, "postrider always checks the broker's name")
}

// ownCertificate maps the client certificate of mTLS.
func (t *translator) ownCertificate() {
	const store = override + "ssl.keystore."
	files := func(cert, key string) []setting {
		return []setting{
			{"sink.kafka.tls", "cert_file", cert, ""}, {"sink.kafka.tls", "key_file", key, ""},
		}
	}
	written := files(kafkaCertFile, kafkaKeyFile)
	switch location, given, readable := t.store("keystore"); {
	case readable && given:
		t.mapped(store+"location", "one file with certificate and key", files(location, location)...)
	case given:
		t.mapped(store+"location", "postrider reads PEM: keytool -importkeystore -srckeystore KEYSTORE "+
			"-destkeystore client.p12 -deststoretype PKCS12, then openssl pkcs12 -in client.p12 -nokeys "+
			"-out "+kafkaCertFile+" and openssl pkcs12 -in client.p12 -nocerts -nodes -out "+kafkaKeyFile,
			written...).attend()
	}
	t.mapGiven(store+"certificate.chain", "write the certificates into the file", written...).attend()
	t.mapGiven(store+"key", "is never copied: write the key into the file, without a password and "+
		"readable by postrider only", written...).attend()
	t.given(override+"ssl.key.password", "postrider reads a key without a password: decrypt it "+
		"(openssl pkey -in KEY -out "+kafkaKeyFile+")").attend()
	t.given(store+"type", "cert_file and key_file are PEM")
	t.given(store+"password", "PEM files have none")
}
