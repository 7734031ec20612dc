package debezium

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lines is a connector that leaves nothing to refuse, with more lines behind it.
func lines(more string) []byte {
	return []byte(`connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
topic.prefix=shop
database.hostname=db
database.dbname=shop
table.include.list=public.outbox
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
transforms=outbox
transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
` + more + "\n")
}

func translateLines(t *testing.T, more string) *Translation {
	t.Helper()
	c, err := Parse("connector.properties", lines(more))
	require.NoError(t, err)
	return Translate(c, Options{})
}

func spelt(items []Item) string {
	var b strings.Builder
	for _, i := range items {
		b.WriteString(i.Property + " " + i.Text + "\n")
	}
	return b.String()
}

func TestTranslate_DoesNotShowTheRestOfAWrappedValue(t *testing.T) {
	for _, more := range []string{
		"producer.override.security.protocol=SASL_SSL\nproducer.override.sasl.mechanism=PLAIN\nproducer.override.sasl.jaas.config=x.PlainLoginModule required\n  username=\"u\"\n  S3CRETpass;",
		"producer.override.security.protocol=SSL\nproducer.override.ssl.keystore.type=PEM\nproducer.override.ssl.keystore.key=-----BEGIN PRIVATE KEY-----\nMIIEvS3CRETqwertyabc",
	} {
		tr := translateLines(t, more)
		all := spelt(tr.Items) + string(tr.TOML())
		require.NotContains(t, all, "S3CRET")
		require.Contains(t, spelt(tr.Refused()), "(not shown) a line that begins like no option")
	}
	require.Contains(t, spelt(translateLines(t, "some.unheard.of.option=1").Refused()),
		"some.unheard.of.option is unknown", "options are named")
}

func TestParse_TakesACertificateInProperties(t *testing.T) {
	tr := translateLines(t, "producer.override.security.protocol=SSL\nproducer.override.ssl.truststore.type=PEM\n"+
		"producer.override.ssl.truststore.certificates=\\\n-----BEGIN "+
		"CERTIFICATE-----\\\nMIIB\\\n-----END CERTIFICATE-----")
	require.Empty(t, tr.Refused(), spelt(tr.Refused()))
}

func TestTranslate_RequiresTheProtocolThatIsTheWorkers(t *testing.T) {
	tr := translateLines(t, "producer.override.sasl.jaas.config=x required username=\"u\" "+
		"password=\"S3CRET\";")
	require.Contains(t, spelt(tr.Refused()), "counts only with "+
		"producer.override.security.protocol, which is not in the file")
	require.NotContains(t, spelt(tr.Items), "did you mean")
}

func TestTranslate_RefusesALoginThatIsCode(t *testing.T) {
	tr := translateLines(t, "producer.override.security.protocol=SASL_SSL\nproducer.override.sasl.mechanism=PLAIN\n"+
		"producer.override.sasl.jaas.config=x required username=\"u\" "+
		"password=\"p\";\nproducer.override.sasl.client.callback.handler.class=com.example.Login")
	require.Contains(t, spelt(tr.Refused()), "producer.override.sasl.client.callback.handler.class "+
		"is code that logs in")
}

func TestTranslate_TellsWhatASecondRouterDrops(t *testing.T) {
	tr := translateLines(t, `table.include.list=public.a,public.b
transforms=a,b
transforms.a.type=io.debezium.transforms.outbox.EventRouter
transforms.a.predicate=isA
transforms.b.type=io.debezium.transforms.outbox.EventRouter
transforms.b.predicate=isA
transforms.b.negate=true
predicates=isA
predicates.isA.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches
predicates.isA.pattern=shop\\.public\\.a`)
	for _, i := range tr.Items {
		if i.Property == "transforms.b.negate" {
			require.True(t, i.Attention)
			require.Contains(t, i.Text, "drops those whose value is null")
			return
		}
	}
	require.Fail(t, "no item for the negated predicate")
}
