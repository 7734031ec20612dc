package debezium

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTranslate_MapsLogins(t *testing.T) {
	const callback = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
	const module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
	for name, tt := range map[string]struct {
		with map[string]string // below producer.override.
		want []string
	}{
		"OIDC by properties (Kafka 4.1)": {map[string]string{
			"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
			"sasl.oauthbearer.client.credentials.client.id":     "me",
			"sasl.oauthbearer.client.credentials.client.secret": "c4n4ry",
			"sasl.oauthbearer.scope":                            "kafka", "sasl.jaas.config": module + ";",
		}, []string{"mechanism = 'OAUTHBEARER'", "provider = 'oidc'", "token_url = 'https://idp/token'",
			"client_id = 'me'", "client_secret_file = '" + clientSecretFile + "'", "scope = 'kafka'"}},
		"OIDC by the JAAS line": {map[string]string{
			"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": callback,
			"sasl.oauthbearer.token.endpoint.url": "https://idp/token",
			"sasl.jaas.config": module + `clientId="me" clientSecret="c4n4ry" scope="kafka" ` +
				`extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";`,
			"ssl.truststore.type": "PEM", "ssl.truststore.location": "/etc/kafka/ca.pem",
		}, []string{"client_id = 'me'", "scope = 'kafka'",
			"extensions = ['identityPoolId=pool-1', 'logicalCluster=lkc-1']", "ca_file = '/etc/kafka/ca.pem'"}},
		"secret from the environment": {map[string]string{
			"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
			"sasl.jaas.config": module + `clientId="me" clientSecret="${env:CLIENT_SECRET}";`,
		}, []string{"client_secret = '${CLIENT_SECRET}'"}},
		"token in a file": {map[string]string{
			"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "file:///var/run/token",
		}, []string{"token_file = '/var/run/token'"}},
		"assertion": {map[string]string{
			"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
			"sasl.oauthbearer.assertion.file": "/var/run/assertion",
		}, []string{"assertion_file = '/var/run/assertion'", "grant = 'jwt_bearer'"}},
		"Strimzi": {map[string]string{
			"sasl.mechanism":                    "OAUTHBEARER",
			"sasl.login.callback.handler.class": "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
			"sasl.jaas.config": module + `oauth.client.id="me" oauth.client.secret="c4n4ry" ` +
				`oauth.token.endpoint.uri="https://keycloak/token" oauth.scope="kafka" oauth.audience="brokers";`,
		}, []string{"token_url = 'https://keycloak/token'", "client_id = 'me'", "scope = 'kafka'",
			"audience = 'brokers'"}},
		"MSK": {map[string]string{
			"sasl.mechanism":                     "AWS_MSK_IAM",
			"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
			"sasl.jaas.config": `software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="orders" ` +
				`awsRoleArn="arn:aws:iam::123456789012:role/r" awsRoleSessionName="s" awsRoleExternalId="e" awsStsRegion="eu-central-1";`,
		}, []string{"mechanism = 'OAUTHBEARER'", "provider = 'aws_msk_iam'", "profile = 'orders'",
			"role_arn = 'arn:aws:iam::123456789012:role/r'", "role_session_name = 's'", "external_id = 'e'",
			"region = 'eu-central-1'"}},
		"MSK by OAUTHBEARER": {map[string]string{
			"sasl.mechanism":                     "OAUTHBEARER",
			"sasl.login.callback.handler.class":  "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
			"sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
			"sasl.jaas.config":                   module + ";",
		}, []string{"provider = 'aws_msk_iam'"}},
		"Google": {map[string]string{
			"sasl.mechanism":                    "OAUTHBEARER",
			"sasl.login.callback.handler.class": "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
			"sasl.jaas.config":                  module + ";",
		}, []string{"provider = 'google_managed_kafka'"}},
		"Kerberos": {map[string]string{
			"sasl.kerberos.service.name": "brokers",
			"sasl.jaas.config": `com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true ` +
				`keyTab="/etc/me.keytab" principal="me@EXAMPLE.COM";`,
		}, []string{"mechanism = 'GSSAPI'", "service_name = 'brokers'", "principal = 'me@EXAMPLE.COM'",
			"keytab = '/etc/me.keytab'"}},
	} {
		t.Run(name, func(t *testing.T) {
			with := map[string]string{"producer.override.security.protocol": "SASL_SSL"}
			for k, v := range tt.with {
				with["producer.override."+k] = v
			}
			tr := Translate(connector(maps.Clone(with)), Options{})
			require.Empty(t, tr.Refused())
			for _, line := range tt.want {
				require.Contains(t, "\n"+string(tr.TOML()), "\n"+line+"\n")
			}
			require.NotContains(t, described(tr), canary)
		})
	}
}

func TestTranslate_RefusesLoginsThatItDoesNotHave(t *testing.T) {
	for name, with := range map[string]map[string]string{
		"code": {"producer.override.sasl.mechanism": "OAUTHBEARER",
			"producer.override.sasl.login.callback.handler.class": "com.example.Handler"},
		"ticket cache": {"producer.override.sasl.jaas.config": "com.sun.security.auth.module." +
			"Krb5LoginModule required useTicketCache=true;"},
		"no endpoint": {"producer.override.sasl.mechanism": "OAUTHBEARER"},
	} {
		t.Run(name, func(t *testing.T) {
			with["producer.override.security.protocol"] = "SASL_SSL"
			require.NotEmpty(t, Translate(connector(with), Options{}).Refused())
		})
	}
}

// A reference is nothing that Kafka, or its token endpoint, could be given.
func TestTranslate_WritesNoReferenceOfALogin(t *testing.T) {
	for _, with := range []map[string]string{
		{"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://login/token",
			"sasl.oauthbearer.client.credentials.client.id": "${file:/s:id}",
			"sasl.oauthbearer.scope":                        "${file:/s:scope}",
			"sasl.oauthbearer.audience":                     "${file:/s:audience}",
			"sasl.oauthbearer.assertion.file":               "${file:/s:assertion}"},
		{"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://login/token",
			"sasl.jaas.config": `x required clientId="${file:/s:id}" scope="${file:/s:scope}" ` +
				`clientSecret="s" extension_cluster="${file:/s:cluster}";`},
		{"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "${file:/s:service}",
			"sasl.jaas.config": `x required principal="p@R" keyTab="/k";`},
	} {
		c := connector(map[string]string{"producer.override.security.protocol": "SASL_SSL"})
		for name, value := range with {
			c.Properties["producer.override."+name] = value
		}
		tr := Translate(c, Options{})
		require.Empty(t, tr.Refused())
		require.NotContains(t, string(tr.TOML()), "${")
		for name, value := range with {
			if strings.Contains(value, "${") {
				require.True(t, itemOf(t, tr, "producer.override."+name).Attention, name)
			}
		}
	}
}
