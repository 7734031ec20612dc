package debezium

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	eventRouter = "io.debezium.transforms.outbox.EventRouter"
	decodeSMT   = "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent"
)

// connector is a complete one, with what a test adds to it.
func connector(more map[string]string) Connector {
	p := map[string]string{
		"connector.class":                     "io.debezium.connector.postgresql.PostgresConnector",
		"database.hostname":                   "db",
		"database.dbname":                     "shop",
		"plugin.name":                         "pgoutput",
		"topic.prefix":                        "pg",
		"table.include.list":                  "public.outbox",
		"key.converter":                       "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":                     "org.apache.kafka.connect.storage.StringConverter",
		"transforms":                          "outbox",
		"transforms.outbox.type":              eventRouter,
		"producer.override.bootstrap.servers": "kafka-1:9092",
	}
	maps.Copy(p, more)
	return Connector{Properties: p}
}

func TestTranslate_GivesEveryPropertyOneItem(t *testing.T) {
	c := connector(map[string]string{"no.such.thing": "x", "slot.name": "outbox", "tasks.max": "1"})
	seen := map[string]int{}
	for _, i := range Translate(c, Options{}).Items {
		if !i.Default {
			seen[i.Property]++
		}
	}
	for name := range c.Properties {
		require.Equal(t, 1, seen[name], name)
	}
	require.Len(t, seen, len(c.Properties))
}

// itemOf is the item of one property.
func itemOf(t *testing.T, tr *Translation, property string) Item {
	t.Helper()
	for _, i := range tr.Items {
		if i.Property == property {
			return i
		}
	}
	t.Fatalf("no item for %s", property)
	return Item{}
}

// of translates the complete connector with a few properties more and finds one of them.
func of(t *testing.T, property string, more map[string]string) Item {
	t.Helper()
	return itemOf(t, Translate(connector(more), Options{}), property)
}

func TestTranslate_RefusesNothingOfACompleteConnector(t *testing.T) {
	require.Empty(t, Translate(connector(nil), Options{}).Refused())
}

func TestTranslate_MapsConverters(t *testing.T) {
	const json, str = "org.apache.kafka.connect.json.JsonConverter",
		"org.apache.kafka.connect.storage.StringConverter"
	const bin = "io.debezium.converters.BinaryDataConverter"
	for name, tt := range map[string]struct {
		with map[string]string
		want []string // lines of the file
	}{
		"string": {map[string]string{"value.converter": str},
			[]string{`value = 'string'`}},
		"schemas by default": {map[string]string{"value.converter": json},
			[]string{`value = 'json+schema'`, `"value.replace.null.with.default" = true`}},
		"without schemas": {map[string]string{
			"value.converter": json, "value.converter.schemas.enable": "False",
		}, []string{`value = 'json'`}},
		"key without schemas": {map[string]string{
			"key.converter": json, "key.converter.schemas.enable": "false",
		}, []string{`key = 'json'`}},
		"decimals": {map[string]string{
			"value.converter": json, "value.converter.decimal.format": "numeric",
		}, []string{`"value.decimal.format" = 'NUMERIC'`}},
		"no defaults": {map[string]string{
			"value.converter": json, "value.converter.replace.null.with.default": "false",
		},
			[]string{`"value.replace.null.with.default" = false`}},
		"encoding": {map[string]string{
			"key.converter": str, "key.converter.converter.encoding": "ISO-8859-1",
		}, []string{`"key.encoding" = 'ISO-8859-1'`}},
		"short encoding": {map[string]string{
			"key.converter": str, "key.converter.encoding": "ISO-8859-1",
		}, []string{`key = 'string'`}},
		"Kafka's bytes": {map[string]string{"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}, []string{`value = 'binary'`}},
		"Debezium's bytes": {map[string]string{"value.converter": bin},
			[]string{`value = 'binary'`}},
		"delegate with schemas": {map[string]string{
			"value.converter": bin, "value.converter.delegate.converter.type": json,
		},
			[]string{`value = 'binary'`, `"value.delegate" = 'json+schema'`}},
		"delegate without": {map[string]string{
			"value.converter": bin, "value.converter.delegate.converter.type": json,
			"value.converter.delegate.converter.type.schemas.enable": "false",
		},
			[]string{`"value.delegate" = 'json'`}},
		"delegate string": {map[string]string{
			"value.converter": bin, "value.converter.delegate.converter.type": str,
		}, []string{`"value.delegate" = 'string'`}},
		"long":    {map[string]string{"key.converter": "org.apache.kafka.connect.converters.LongConverter"}, []string{`key = 'long'`}},
		"integer": {map[string]string{"key.converter": "org.apache.kafka.connect.converters.IntegerConverter"}, []string{`key = 'integer'`}},
		"alias": {map[string]string{
			"key.converter": "ShortConverter", "value.converter": "Json",
		}, []string{`key = 'short'`, `value = 'json+schema'`}},
		"headers": {map[string]string{
			"header.converter": json, "header.converter.schemas.enable": "false",
		}, []string{`headers = 'json'`}},
		"string headers": {map[string]string{"header.converter": str}, []string{`headers = 'string'`}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := Translate(connector(tt.with), Options{})
			require.Empty(t, tr.Refused())
			for _, line := range tt.want {
				require.Contains(t, "\n"+string(tr.TOML()), "\n"+line+"\n")
			}
		})
	}
}

func TestTranslate_NamesConvertersItDoesNotHave(t *testing.T) {
	for class, alternative := range map[string]string{
		"io.apicurio.registry.utils.converter.AvroConverter":          `framing = "apicurio"`,
		"com.amazonaws.services.schemaregistry.kafkaconnect.Whatever": `framing = "glue"`,
		"io.debezium.converters.CloudEventsConverter":                 `format.cloudevents = "structured"`,
		"org.apache.kafka.connect.storage.SimpleHeaderConverter":      "StringConverter",
		"com.example.MyConverter":                                     "StringConverter",
	} {
		for _, part := range []string{"key", "value"} {
			i := of(t, part+".converter", map[string]string{part + ".converter": class})
			require.Equal(t, Refused, i.Outcome, class)
			require.Contains(t, i.Text, simpleName(class))
			require.Contains(t, i.Text, alternative)
		}
	}
	require.Equal(t, Refused, of(t, "header.converter",
		map[string]string{"header.converter": "org.apache.kafka.connect.converters.LongConverter"}).Outcome)
}

func TestTranslate_MapsJsonSchemaConverter(t *testing.T) {
	tr := Translate(connector(map[string]string{
		"value.converter":                              "io.confluent.connect.json.JsonSchemaConverter",
		"value.converter.schema.registry.url":          "https://a:8081,https://b:8081",
		"value.converter.decimal.format":               "numeric",
		"value.converter.auto.register.schemas":        "false",
		"value.converter.object.additional.properties": "false",
		"value.converter.value.subject.name.strategy":  "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy",
	}), Options{})
	require.Empty(t, tr.Refused())
	for _, line := range []string{"value = 'json_schema'", `"value.decimal.format" = 'NUMERIC'`, `"value.auto.register.schemas" = false`,
		`"value.object.additional.properties" = false`, `"value.subject.name.strategy" = 'topic_record'`, "urls = ['https://a:8081', 'https://b:8081']"} {
		require.Contains(t, string(tr.TOML()), line)
	}
	require.NotEmpty(t, Translate(connector(map[string]string{
		"value.converter": "io.confluent.connect.json.JsonSchemaConverter", "value.converter.decimal.format": "text",
	}), Options{}).Refused())
}

func TestTranslate_MapsProtobufConverter(t *testing.T) {
	const class = "io.confluent.connect.protobuf.ProtobufConverter"
	tr := Translate(connector(map[string]string{"key.converter": class, "value.converter": class, "value.converter.schema.registry.url": "https://a:8081",
		"value.converter.optional.for.nullables": "true", "value.converter.scrub.invalid.names": "true", "value.converter.flatten.unions": "true",
		"value.converter.normalize.schemas": "true", "value.converter.use.latest.version": "true",
		"value.converter.ignore.default.for.nullables": "true"}), Options{})
	require.Empty(t, tr.Refused())
	for _, line := range []string{"key = 'protobuf'", "value = 'protobuf'", `"value.optional.for.nullables" = true`, `"value.scrub.invalid.names" = true`,
		`"value.normalize.schemas" = true`, `"value.use.latest.version" = true`, `"value.ignore.default.for.nullables" = true`} {
		require.Contains(t, string(tr.TOML()), line)
	}
	for option, value := range map[string]string{"generalized.sum.type.support": "true", "skip.known.types": "false"} {
		require.NotEmpty(t, Translate(connector(map[string]string{"value.converter": class, "value.converter." + option: value}), Options{}).Refused(), option)
	}
}

func TestTranslate_RefusesWhatTheRegistryCannotBe(t *testing.T) {
	const class = "io.confluent.connect.protobuf.ProtobufConverter"
	with := func(more map[string]string) *Translation {
		all := map[string]string{"key.converter": class, "value.converter": class}
		maps.Copy(all, more)
		return Translate(connector(all), Options{})
	}
	for name, more := range map[string]map[string]string{
		"value.converter.schema.registry.url":   {"key.converter.schema.registry.url": "https://a:8081", "value.converter.schema.registry.url": "https://b:8081"},
		"value.converter.basic.auth.user.info":  {"key.converter.basic.auth.user.info": "a:b", "value.converter.basic.auth.user.info": "c:d"},
		"value.converter.wrapper.for.nullables": {"value.converter.optional.for.nullables": "true", "value.converter.wrapper.for.nullables": "true"},
	} {
		require.Equal(t, Refused, itemOf(t, with(more), name).Outcome, name)
	}
	tr := with(map[string]string{"value.converter.schema.registry.url": "https://user:SECRET1@a:8081?x=SECRET2", "value.converter.basic.auth.credentials.source": "URL"})
	i := itemOf(t, tr, "value.converter.schema.registry.url")
	require.True(t, i.Attention)
	require.Contains(t, i.Text, "password is never copied")
	require.Contains(t, string(tr.TOML()), "urls = ['https://a:8081']")
	require.NotContains(t, string(tr.TOML())+fmt.Sprint(tr.Items), "SECRET")
	require.NotContains(t, string(with(map[string]string{"value.converter.schema.registry.url": "mock://x"}).TOML()), "mock")
	i = itemOf(t, with(map[string]string{"value.converter.basic.auth.credentials.source": "SASL_INHERIT"}), "value.converter.basic.auth.credentials.source")
	require.True(t, i.Attention)
	require.Contains(t, i.Text, "login of Kafka")
}

func TestTranslate_AssumesAWorkersConverterAloud(t *testing.T) {
	c := connector(nil)
	delete(c.Properties, "value.converter")
	i := itemOf(t, Translate(c, Options{}), "value.converter")
	require.True(t, i.Attention)
	require.True(t, i.Default)
	require.Equal(t, []string{"format.value = 'json+schema'"}, i.Settings)
	require.Contains(t, i.Text, "--value-converter")
	for given, want := range map[string]string{
		"json": "json", "org.apache.kafka.connect.storage.StringConverter": "string",
	} {
		i = itemOf(t, Translate(c, Options{ValueConverter: given}), "value.converter")
		require.Equal(t, []string{"format.value = '" + want + "'"}, i.Settings)
	}
	i = itemOf(t, Translate(c, Options{ValueConverter: "io.confluent.connect.avro.AvroConverter"}),
		"value.converter")
	require.Equal(t, []string{"format.value = 'avro'"}, i.Settings)
	i = itemOf(t, Translate(c, Options{ValueConverter: "io.confluent.connect.json.JsonSchemaConverter"}),
		"value.converter")
	require.Equal(t, []string{"format.value = 'json_schema'"}, i.Settings)
	i = itemOf(t, Translate(c, Options{ValueConverter: "com.example.Converter"}), "value.converter")
	require.Equal(t, Refused, i.Outcome)
}

// Most workers have schemas.enable=false, which the name of the class does not say.
func TestTranslate_MarksAClassThatMayWriteSchemas(t *testing.T) {
	c := connector(nil)
	delete(c.Properties, "value.converter")
	for flag, want := range map[string]bool{
		jsonConverter: true, "JsonConverter": true, "json+schema": false, "json": false,
		"org.apache.kafka.connect.storage.StringConverter": false,
	} {
		i := itemOf(t, Translate(c, Options{ValueConverter: flag}), "value.converter")
		require.Equal(t, want, i.Attention, flag)
		require.Equal(t, want, strings.Contains(i.Text, "--value-converter json if"), flag)
	}
}

// Kafka Connect ignores them, and so does the file.
func TestTranslate_WritesNoOptionsThatAreIgnored(t *testing.T) {
	for flag, options := range map[string]map[string]string{
		"avro": {"auto.register.schemas": "false", "basic.auth.user.info": "me:x",
			"value.subject.name.strategy": "x.RecordNameStrategy",
			"schema.registry.url":         "https://ignored:8081"},
		"json_schema": {"decimal.format": "NUMERIC", "bearer.auth.client.id": "ignored",
			"bearer.auth.credentials.source": "OAUTHBEARER"},
	} {
		c, plain := connector(nil), connector(nil)
		delete(c.Properties, "value.converter")
		delete(plain.Properties, "value.converter")
		for name, value := range options {
			c.Properties["value.converter."+name] = value
		}
		tr := Translate(c, Options{ValueConverter: flag})
		require.Equal(t, string(Translate(plain, Options{ValueConverter: flag}).TOML()),
			string(tr.TOML()))
		for name := range options {
			i := itemOf(t, tr, "value.converter."+name)
			require.Equal(t, NotNeeded, i.Outcome, name)
			require.Contains(t, i.Text, "ignores it", name)
		}
	}
}

func TestTranslate_FindsTheTables(t *testing.T) {
	inDatabase := func(tables ...string) Options {
		return Options{Tables: tables}
	}
	for name, tt := range map[string]struct {
		with    map[string]string
		options Options
		want    string // the list in the file
		refused string // or the text of the refused property
		of      string
	}{
		"escaped": {map[string]string{"table.include.list": `public\.outbox`}, Options{},
			`['public.outbox']`, "", ""},
		"with blanks": {map[string]string{"table.include.list": " a.b , c.d ,"}, Options{},
			`['a.b', 'c.d']`, "", ""},
		"quoted names": {map[string]string{"table.include.list": "Sales Dept.Out Box"}, Options{},
			`['Sales Dept.Out Box']`, "", ""},
		"alternatives": {map[string]string{"table.include.list": `(a|b)\.outbox(_old)?`}, Options{},
			`['a.outbox', 'a.outbox_old', 'b.outbox', 'b.outbox_old']`, "", ""},
		"a class": {map[string]string{"table.include.list": `public.outbox_[1-3]`}, Options{},
			`['public.outbox_1', 'public.outbox_2', 'public.outbox_3']`, "", ""},
		"anchors": {map[string]string{"table.include.list": `^public\.outbox$`}, Options{},
			`['public.outbox']`, "", ""},
		"an open pattern": {map[string]string{"table.include.list": `public\..*`}, Options{}, "",
			"--table", "table.include.list"},
		"no schema": {map[string]string{"table.include.list": `outbox`}, Options{}, "",
			"is not schema.table", "table.include.list"},
		"in the database": {map[string]string{"table.include.list": `PUBLIC\.out.*`},
			inDatabase("public.outbox", "public.other", "public.outbox2"),
			`['public.outbox', 'public.outbox2']`, "", ""},
		"not there": {map[string]string{"table.include.list": `nope\..*`},
			inDatabase("public.outbox"), "", "no table matches", "table.include.list"},
		"Java's own": {map[string]string{"table.include.list": `public\.[a-z&&[^x]]+`},
			inDatabase("public.outbox", "public.other"), `['public.other']`, "", ""},
		"unreadable in the database": {map[string]string{"table.include.list": `public\.(outbox`},
			inDatabase("public.outbox"), "", "at character 16", "table.include.list"},
		"unreadable": {map[string]string{"table.include.list": `public\.(outbox`}, Options{}, "",
			"--table", "table.include.list"},
		"minus excluded": {map[string]string{
			"table.include.list": "a.b,a.c", "table.exclude.list": `a\.c`,
		}, Options{}, `['a.b']`, "", ""},
		"minus schemas": {map[string]string{
			"table.include.list": "a.b,c.d", "schema.exclude.list": "c",
		}, Options{}, `['a.b']`, "", ""},
		"of schemas": {map[string]string{
			"table.include.list": "a.b,c.d", "schema.include.list": "c",
		}, Options{}, `['c.d']`, "", ""},
		"none left": {map[string]string{"table.include.list": "a.b", "schema.include.list": "c"},
			Options{}, "", "left without a table", "table.include.list"},
		"minus signals": {map[string]string{
			"table.include.list": "a.b,a.s", "signal.data.collection": "a.s",
		}, Options{}, `['a.b']`, "", ""},
		"after another": {map[string]string{
			"table.include.list": "a.b,a.c", "predicates": "p", "predicates.p.type": "TopicNameMatches",
			"predicates.p.pattern": "pg.a.b", "transforms.outbox.predicate": "p",
		}, Options{}, "", "no EventRouter is for a.c",
			"table.include.list"},
		"routed names": {map[string]string{
			"predicates": "p", "predicates.p.type": "x.TopicNameMatches",
			"predicates.p.pattern": "outbox.event.*", "transforms.outbox.predicate": "p",
		}, Options{}, "", "pg.public.outbox, not to the one",
			"transforms.outbox.predicate"},
		"not a tombstone": {map[string]string{
			"predicates": "p", "predicates.p.type": "RecordIsTombstone", "transforms.outbox.predicate": "p",
			"transforms.outbox.negate": "true",
		}, Options{}, `['public.outbox']`, "", ""},
		"by a header": {map[string]string{
			"predicates": "p", "predicates.p.type": "HasHeaderKey", "predicates.p.name": "h",
			"transforms.outbox.predicate": "p",
		}, Options{}, "",
			"HasHeaderKey cannot be decided", "transforms.outbox.predicate"},
		"an odd name": {map[string]string{
			"table.include.list": "S D.O B", "predicates": "p", "predicates.p.type": "TopicNameMatches",
			"predicates.p.pattern": "pg.S_D.O_B", "transforms.outbox.predicate": "p",
		}, Options{}, `['S D.O B']`, "", ""},
		"a name above U+FFFF": {map[string]string{
			"table.include.list": "a.out📤", "predicates": "p", "predicates.p.type": "TopicNameMatches",
			"predicates.p.pattern": "pg.a.out__", "transforms.outbox.predicate": "p",
		}, Options{}, "['a.out📤']", "", ""},
		"a missing one": {map[string]string{"transforms.outbox.predicate": "p"}, Options{}, "",
			"predicates.p.type is missing", "transforms.outbox.predicate"},
		"look-ahead": {map[string]string{
			"predicates": "p", "predicates.p.type": "TopicNameMatches",
			"predicates.p.pattern": `(?!pg\.other).*`, "transforms.outbox.predicate": "p",
		}, Options{}, `['public.outbox']`, "", ""},
		"quoted topic": {map[string]string{
			"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": `\Qpg.\E.*`,
			"transforms.outbox.predicate": "p",
		}, Options{}, `['public.outbox']`, "", ""},
		"unreadable topic": {map[string]string{
			"predicates": "p", "predicates.p.type": "TopicNameMatches", "predicates.p.pattern": `pg.[`,
			"transforms.outbox.predicate": "p",
		}, Options{}, "", `pattern "pg.["`, "transforms.outbox.predicate"},
		"a match without end": {map[string]string{
			"predicates": "p", "predicates.p.type": "TopicNameMatches",
			"predicates.p.pattern": `(?=(a+)+$)a*b`, "topic.prefix": strings.Repeat("a", 60),
			"transforms.outbox.predicate": "p",
		}, Options{}, "", "match timeout", "transforms.outbox.predicate"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := Translate(connector(tt.with), tt.options)
			if tt.refused != "" {
				i := itemOf(t, tr, tt.of)
				require.Equal(t, Refused, i.Outcome)
				require.Contains(t, i.Text, tt.refused)
				return
			}
			require.Empty(t, tr.Refused())
			require.Contains(t, string(tr.TOML()), "\ntables = "+tt.want+"\n")
		})
	}
}

func TestTranslate_RefusesWhatLosesOrChangesEvents(t *testing.T) {
	for property, value := range map[string]string{
		"errors.tolerance":                                    "all",
		"event.processing.failure.handling.mode":              "warn",
		"slot.drop.on.stop":                                   "true",
		"snapshot.mode":                                       "always",
		"provide.transaction.metadata":                        "true",
		"exactly.once.support":                                "sometimes",
		"skipped.operations":                                  "c,t",
		"plugin.name":                                         "wal2json",
		"column.mask.hash.SHA-256.with.salt.x":                "public.outbox.payload",
		"column.truncate.to.20.chars":                         "public.outbox.payload",
		"field.name.adjustment.mode":                          "avro",
		"money.fraction.digits":                               "many",
		"connector.class":                                     "io.debezium.connector.mysql.MySqlConnector",
		"database.initial.statements":                         "SET x = 1",
		"producer.override.partitioner.class":                 "com.example.P",
		"producer.override.partitioner.ignore.keys":           "true",
		"producer.override.interceptor.classes":               "com.example.I",
		"producer.override.compression.type":                  "brotli",
		"producer.override.max.request.size":                  "209715200",
		"producer.override.security.protocol":                 "TLS",
		"topic.creation.default.cleanup.policy":               "compact",
		"topic.creation.default.replication.factor":           "-1",
		"transforms.outbox.route.by.field":                    "",
		"transforms.outbox.table.fields.additional.placement": "type:header:a:b",
		"transforms.outbox.table.expand.json.payload":         "yes",
		"transforms.outbox.table.json.payload.null.behavior":  "keep",
		"transforms.outbox.collection.field.event.id":         "id",
		"message.prefix.include.list":                         "outbox",
		"slot.name":                                           "${vault:secret/slot:name}",
		"heartbeat.interval.ms":                               "soon",
		"transforms.outbox.some.option":                       "x",
		"value.converter.some.option":                         "x",
		"no.such.property":                                    "x",
		"driver.loggerLevel":                                  "x",
	} {
		i := of(t, property, map[string]string{property: value})
		require.Equal(t, Refused, i.Outcome, property)
		require.Greater(t, len(i.Text), 20, property)
	}
}

func TestTranslate_NamesEachTransformWithItsEffect(t *testing.T) {
	for class, want := range map[string][]string{
		"org.apache.kafka.connect.transforms.RegexRouter": {"RegexRouter, behind the EventRouter",
			"renames topics", "route.topic.replacement"},
		"org.apache.kafka.connect.transforms.ReplaceField$Value": {"ReplaceField$Value",
			"removes or renames fields"},
		"io.debezium.transforms.Filter": {"Filter", "drops records"},
		"com.example.Custom":            {"Custom", "cannot run"},
	} {
		with := map[string]string{
			"transforms": "outbox,other", "transforms.other.type": class, "transforms.other.x": "y",
		}
		i := of(t, "transforms.other.type", with)
		require.Equal(t, Refused, i.Outcome)
		for _, w := range want {
			require.Contains(t, i.Text, w)
		}
		require.Equal(t, Refused, of(t, "transforms.other.x", with).Outcome)
	}
	i := of(t, "transforms.other.type", map[string]string{
		"transforms":            "other,outbox",
		"transforms.other.type": "io.debezium.transforms.ExtractNewRecordState",
	})
	require.Contains(t, i.Text, "before the EventRouter")
	require.Equal(t, Refused, of(t, "transforms", map[string]string{"transforms": ""}).Outcome)
}

func TestTranslate_KeepsSecretsOfEveryPlace(t *testing.T) {
	for property, value := range map[string]string{
		"database.password":                                                   "c4n4ry",
		"database.hostname":                                                   "me:c4n4ry@db",
		"database.sslpassword":                                                "c4n4ry",
		"database.pasword":                                                    "c4n4ry",
		"heartbeat.action.query":                                              "SELECT 'c4n4ry'",
		"database.initial.statements":                                         "SELECT 'c4n4ry'",
		"my.secret.token":                                                     "c4n4ry",
		"value.converter.basic.auth.user.info":                                "u:c4n4ry",
		"producer.override.ssl.keystore.key":                                  "c4n4ry",
		"producer.override.ssl.keystore.password":                             "c4n4ry",
		"producer.override.ssl.key.password":                                  "c4n4ry",
		"producer.override.sasl.jaas.config":                                  "x required username=\"u\" password=\"c4n4ry\";",
		"producer.override.sasl.oauthbearer.client.secret":                    "c4n4ry",
		"producer.override.sasl.oauthbearer.client.credentials.client.secret": "c4n4ry",
		"value.converter.schema.registry.url":                                 "https://u:c4n4ry@registry",
		"value.converter.bearer.auth.client.secret":                           "c4n4ry",
		"signal.consumer.sasl.jaas.config":                                    "c4n4ry",
		"schema.history.internal.producer.sasl.jaas.config":                   "c4n4ry",
		"transforms.outbox.password":                                          "c4n4ry",
		"openlineage.integration.config":                                      "c4n4ry",
		"producer.override.confluent.monitoring.interceptor.sasl.jaas.":       "c4n4ry",
	} {
		for _, mechanism := range []string{"PLAIN", "OAUTHBEARER"} {
			c := connector(map[string]string{
				property: value, "producer.override.security.protocol": "SASL_SSL",
				"producer.override.sasl.mechanism": mechanism,
			})
			if strings.HasPrefix(property, "value.converter.") {
				c.Properties["value.converter"] = "io.confluent.connect.avro.AvroConverter"
				c.Properties["value.converter.bearer.auth.credentials.source"] = "OAUTHBEARER"
			}
			require.NotContains(t, described(Translate(c, Options{})), canary, property)
		}
	}
}

func TestTranslate_TakesTheUserOutOfJAAS(t *testing.T) {
	for jaas, want := range map[string][2]string{
		`x.PlainLoginModule required username="me" password="p";`: {"me",
			"password_file = '" + kafkaPasswordFile + "'"},
		`x.PlainLoginModule required username='me' password='p' ;`: {"me",
			"password_file"},
		`x.ScramLoginModule required username=me password=p;`: {"me",
			"password_file"},
		"x.ScramLoginModule required\n  username = \"a b\"\n  password = \"p=\\\"q\";": {"a b",
			"password_file"},
		`x.ScramLoginModule required username="me" password="${env:KAFKA_PW}";`: {"me",
			"password = '${KAFKA_PW}'"},
		`x.ScramLoginModule required username="me" password="${file:/x:pw}";`: {"me",
			"password_file"},
		`x.ScramLoginModule required username="${file:/x:user}" password="p";`: {"postrider",
			"password_file"},
		`${file:/x:jaas}`: {"postrider", "password_file"},
	} {
		tr := Translate(connector(map[string]string{
			"producer.override.security.protocol": "SASL_SSL",
			"producer.override.sasl.mechanism":    "SCRAM-SHA-256", "producer.override.sasl.jaas.config": jaas,
		}), Options{})
		require.Empty(t, tr.Refused(), jaas)
		require.Contains(t, string(tr.TOML()), "username = '"+want[0]+"'", jaas)
		require.Contains(t, string(tr.TOML()), want[1], jaas)
	}
}

func TestTranslate_ReadsReferences(t *testing.T) {
	for password, want := range map[string]string{
		"${env:DB_PW}":              "postgres://me:${DB_PW}@db:5432/shop",
		"${env::DB_PW}":             "postgres://me:${DB_PW}@db:5432/shop",
		"${file:/s.properties:pw}":  "postgres://me@db:5432/shop",
		"${secrets:ns/name:pw}":     "postgres://me@db:5432/shop",
		"${DB_PW}":                  "postgres://me@db:5432/shop", // Kafka Connect takes it as it is
		"prefix${env:DB_PW}":        "postgres://me@db:5432/shop",
		"${env:not a name; DROP '}": "postgres://me@db:5432/shop",
	} {
		tr := Translate(connector(map[string]string{
			"database.user": "me", "database.password": password,
		}), Options{})
		require.Contains(t, string(tr.TOML()), "url = '"+want+"'", password)
	}
	for host, want := range map[string]string{
		"[::1]": "[::1]:5433", "::1": "[::1]:5433", "[::1]:5432,[::2]": "[::1]:5432,[::2]:5433",
		"a:5432,b": "a:5432,b:5433",
	} {
		tr := Translate(connector(map[string]string{
			"database.hostname": host, "database.port": "5433",
		}), Options{})
		require.Contains(t, string(tr.TOML()), "url = 'postgres://"+want+"/shop'", host)
	}
	tr := Translate(connector(map[string]string{"database.hostname": "${file:/x:host}",
		"database.dbname": "a b/c"}), Options{})
	require.Contains(t, string(tr.TOML()), "url = 'postgres://${DATABASE_HOSTNAME}:5432/a%20b/c'")
	require.Equal(t, []string{"DATABASE_HOSTNAME"}, tr.Variables)
}

func TestTranslate_TakesReferencesOfARegistry(t *testing.T) {
	options := map[string]string{
		"schema.registry.url": "https://${file:/s:host}:8081", "basic.auth.user.info": "me:${env:SR_PW}",
		"schema.registry.basic.auth.user.info": "${secrets:ns/sr:userinfo}",
		"bearer.auth.credentials.source":       "OAUTHBEARER",
		"bearer.auth.issuer.endpoint.url":      "${file:/s:url}", "bearer.auth.scope": "${file:/s:scope}",
		"bearer.auth.client.id": "${file:/s:id}", "bearer.auth.client.secret": "${file:/s:secret}",
		"bearer.auth.logical.cluster": "${file:/s:cluster}", "bearer.auth.identity.pool.id": "pool",
	}
	for _, part := range []string{"key", "value"} {
		with := map[string]string{part + ".converter": "io.confluent.connect.avro.AvroConverter"}
		for name, value := range options {
			with[part+".converter."+name] = value
		}
		tr := Translate(connector(with), Options{})
		require.Empty(t, tr.Refused())
		for name, value := range options {
			i := itemOf(t, tr, part+".converter."+name)
			require.Equal(t, strings.Contains(value, "${"), i.Attention, name)
		}
		require.NotContains(t, string(tr.TOML()), "${")
		require.Contains(t, string(tr.TOML()), "token_url = '"+placeholderTokens+"'")
		require.Contains(t, string(tr.TOML()), "'Confluent-Identity-Pool-Id=pool'")
	}
}

func TestTranslate_TakesColumnsAwayThatNobodyReadsOnly(t *testing.T) {
	require.Equal(t, NotNeeded, of(t, "column.exclude.list",
		map[string]string{"column.exclude.list": `public\.outbox\.note`}).Outcome)
	require.Equal(t, Refused, of(t, "column.exclude.list",
		map[string]string{"column.exclude.list": `public\.outbox\.aggregate.*`}).Outcome)
	require.Equal(t, NotNeeded, of(t, "column.include.list",
		map[string]string{"column.include.list": `public\.outbox\.(id|aggregatetype|aggregateid|payload)`}).Outcome)
	i := of(t, "column.include.list",
		map[string]string{"column.include.list": `public\.outbox\.(id|aggregatetype|aggregateid)`})
	require.Equal(t, Refused, i.Outcome)
	require.Contains(t, i.Text, "public.outbox.payload")
}

// The types of columns stand in the schemas: beside each record, or in a registry under other ids.
func TestTranslate_RefusesTypesOfColumnsInSchemas(t *testing.T) {
	const name = "column.propagate.source.type"
	for _, tt := range []struct {
		converter, class string
		more             map[string]string
		want             Outcome
	}{
		{"key.converter", "io.confluent.connect.avro.AvroConverter", nil, Refused},
		{"value.converter", "io.confluent.connect.json.JsonSchemaConverter", nil, Refused},
		{"value.converter", "io.confluent.connect.protobuf.ProtobufConverter", nil, Refused},
		{"header.converter", jsonConverter, nil, Refused},
		{"value.converter", "io.debezium.converters.BinaryDataConverter",
			map[string]string{"value.converter.delegate.converter.type": jsonConverter}, Refused},
		{"value.converter", "io.debezium.converters.BinaryDataConverter",
			map[string]string{"value.converter.delegate.converter.type": jsonConverter,
				"value.converter.delegate.converter.type.schemas.enable": "false"}, NotNeeded},
		{"value.converter", jsonConverter,
			map[string]string{"value.converter.schemas.enable": "false"}, NotNeeded},
	} {
		with := map[string]string{name: ".*", tt.converter: tt.class}
		maps.Copy(with, tt.more)
		require.Equal(t, tt.want, of(t, name, with).Outcome, with)
	}
}

func TestTranslate_RefusesWhatAConnectorCannotBeWithout(t *testing.T) {
	for _, property := range []string{
		"connector.class", "database.hostname", "database.dbname", "plugin.name", "table.include.list",
		"transforms",
	} {
		c := connector(nil)
		delete(c.Properties, property)
		i := itemOf(t, Translate(c, Options{}), property)
		require.Equal(t, Refused, i.Outcome, property)
		require.True(t, i.Default, property)
	}
}

// The router names the topics without it, and connectors of Debezium 1 have none of that name.
func TestTranslate_DoesWithoutATopicPrefix(t *testing.T) {
	translated := func(o Options, more map[string]string) (Item, string) {
		c := connector(more)
		delete(c.Properties, "topic.prefix")
		tr := Translate(c, o)
		require.Empty(t, tr.Refused())
		return itemOf(t, tr, "topic.prefix"), string(tr.TOML())
	}
	i, toml := translated(Options{}, nil)
	require.True(t, i.Default)
	require.True(t, i.Attention)
	require.Equal(t, []string{`router.topic.prefix = 'postrider'`}, i.Settings)
	require.Contains(t, i.Text, "--topic-prefix")
	require.Contains(t, toml, `topic.prefix = 'postrider'`)
	i, _ = translated(Options{TopicPrefix: "shop"}, nil)
	require.Equal(t, []string{`router.topic.prefix = 'shop'`}, i.Settings)
	_, toml = translated(Options{TopicPrefix: "shop"},
		map[string]string{"heartbeat.interval.ms": "1000"})
	require.Contains(t, toml, `heartbeat_topic = '__debezium-heartbeat.shop'`)
}

func TestTranslate_KnowsTransactionsOfKafka(t *testing.T) {
	required := of(t, "exactly.once.support", map[string]string{"exactly.once.support": "required"})
	require.Equal(t, Mapped, required.Outcome)
	require.Equal(t, []string{"relay.exactly_once = true"}, required.Settings)
	requested := of(t, "exactly.once.support", map[string]string{"exactly.once.support": "requested"})
	require.Equal(t, NotNeeded, requested.Outcome)
	require.Contains(t, requested.Text, "relay.exactly_once = true")
	require.Contains(t, of(t, "transaction.boundary",
		map[string]string{"transaction.boundary": "interval"}).Text, "relay.exactly_once")
	require.Contains(t, of(t, "notification.enabled.channels",
		map[string]string{"notification.enabled.channels": "sink"}).Text, "alerts.webhook")
}

func TestTranslate_DividesLogicalMessagesToo(t *testing.T) {
	decode := map[string]string{"transforms": "decode,outbox", "transforms.decode.type": decodeSMT}
	tr := Translate(connector(decode), Options{})
	require.Empty(t, tr.Refused())
	require.Contains(t, string(tr.TOML()), "messages = ['*']")

	two := map[string]string{
		"transforms": "decode,outbox,wal", "transforms.wal.type": eventRouter,
		"message.prefix.include.list": "a,b", "predicates": "p", "predicates.p.type": "TopicNameMatches",
		"predicates.p.pattern": `pg\.message`, "transforms.wal.predicate": "p",
		"transforms.outbox.predicate": "p", "transforms.outbox.negate": "true",
	}
	two["transforms.decode.type"] = decodeSMT
	tr = Translate(connector(two), Options{})
	require.Empty(t, tr.Refused())
	require.Contains(t, string(tr.TOML()), "[[router]]\ntables = []\nmessages = ['a', 'b']\n")
	require.Contains(t, string(tr.TOML()), "[[router]]\ntables = ['public.outbox']\n")

	decode["predicates"], decode["predicates.p.type"], decode["predicates.p.pattern"] = "p",
		"TopicNameMatches", `pg\.public\.outbox`
	decode["transforms.outbox.predicate"] = "p"
	i := itemOf(t, Translate(connector(decode), Options{}), "transforms.decode.predicate")
	require.Contains(t, i.Text, "pg.message")
}

// Debezium ignores the case of letters, and takes a dot for any character.
func TestTranslate_MarksPrefixesThatAreComparedExactly(t *testing.T) {
	i := of(t, "message.prefix.include.list", map[string]string{
		"transforms": "decode,outbox", "transforms.decode.type": decodeSMT,
		"message.prefix.include.list": "Outbox",
	})
	require.Equal(t, []string{"replication.messages = ['Outbox']"}, i.Settings)
	require.True(t, i.Attention)
	require.Contains(t, i.Text, "case")
}

// Debezium captures a table that is created later and matches; postrider relays those it names.
func TestTranslate_MarksPatternsOfTablesThatAreYetToCome(t *testing.T) {
	for _, tt := range []struct {
		list   string
		tables []string // nil: not known
		want   bool
	}{
		{`public\.outbox`, nil, false},
		{`(a|b)\.outbox`, nil, false}, // all of them are named
		{`public.outbox`, []string{"public.outbox"}, false},
		{`public\.outbox_[1-3]`, []string{"public.outbox_1"}, true},
		{`public\.outbox.*`, []string{"public.outbox"}, true},
		{"", []string{"public.outbox"}, true},
	} {
		c := connector(map[string]string{"table.include.list": tt.list})
		if tt.list == "" {
			delete(c.Properties, "table.include.list")
		}
		i := itemOf(t, Translate(c, Options{Tables: tt.tables}), "table.include.list")
		require.Equal(t, Mapped, i.Outcome, tt.list)
		require.Equal(t, tt.want, i.Attention, tt.list)
		require.Equal(t, tt.want, strings.Contains(i.Text, "created later"), tt.list)
	}
}

func TestTranslation_RejectsWhatTheConfigurationRefuses(t *testing.T) {
	tr := Translate(connector(map[string]string{"transforms.outbox.route.topic.regex": "(?m)x"}),
		Options{})
	tr.reject("router.route.topic.regex", "not supported")
	i := itemOf(t, tr, "transforms.outbox.route.topic.regex")
	require.Equal(t, Refused, i.Outcome)
	require.Equal(t, "not supported", i.Text)
	tr.reject("router.route.by.field", "table a.b has no column aggregatetype")
	i = itemOf(t, tr, "router.route.by.field")
	require.True(t, i.Default)
	require.Len(t, tr.Refused(), 2)
}

func TestUnknownText_NamesTheNearest(t *testing.T) {
	for wrong, right := range map[string]string{
		"database.hostnam":                           "database.hostname",
		"tabel.include.list":                         "table.include.list",
		"transforms.outbox.route.topic.replacment":   "transforms.outbox.route.topic.replacement",
		"producer.override.compresion.type":          "producer.override.compression.type",
		"errors.tolerence":                           "errors.tolerance",
		"transforms.outbox.table.field.event.keys":   "transforms.outbox.table.field.event.key",
		"producer.override.ssl.truststore.locations": "producer.override.ssl.truststore.location",
	} {
		require.Contains(t, of(t, wrong, map[string]string{wrong: "1"}).Text, "did you mean "+right+"?",
			wrong)
	}
	require.NotContains(t, of(t, "zzz", map[string]string{"zzz": "1"}).Text, "did you mean")
}
