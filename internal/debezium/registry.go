package debezium

import (
	"net/url"
	"regexp"
	"strings"
)

const (
	registrySection      = "registry"
	registryPasswordFile = "/etc/postrider/registry-password"
	registrySecretFile   = "/etc/postrider/registry-client-secret"
	// Placeholders make the file valid before the registry and its login are known.
	placeholderRegistry = "https://registry.example.com:8081"
	placeholderTokens   = "https://login.example.com/token"
	placeholderName     = "postrider"
	// fromElsewhere is the comment of a placeholder.
	fromElsewhere = "Not in the connector's file."
)

// strategies are Confluent's classes by the last part of their names.
var strategies = map[string]string{
	"TopicNameStrategy": "topic", "RecordNameStrategy": "record",
	"TopicRecordNameStrategy": "topic_record",
}

// registered reports whether a format needs a schema registry.
func registered(format string) bool {
	return format == "avro" || format == "json_schema" || format == "protobuf"
}

// registryOptions maps the options of Confluent's converters. Keys and values share one registry.
func (t *translator) registryOptions(part, format string) {
	prefix := part + ".converter."
	for _, name := range []string{"schema.registry.url", "basic.auth.user.info"} {
		ours, given := t.get(prefix + name)
		if theirs, both := t.get("key.converter." + name); part == "value" && given && both &&
			ours != theirs {
			t.refuse(prefix+name, "differs from that of the key: postrider has one registry, with one "+
				"login. Use a converter without a registry for the key")
		}
	}
	t.registryURL(prefix + "schema.registry.url")
	t.registryLogin(prefix)
	type option struct {
		name      string
		otherwise bool
	}
	options := []option{{"auto.register.schemas", true}, {"normalize.schemas", false},
		{"use.latest.version", false}, {"ignore.default.for.nullables", false}}
	switch format {
	case "avro":
		options = append(options, option{"enhanced.avro.schema.support", false},
			option{"connect.meta.data", true}, option{"scrub.invalid.names", false})
	case "json_schema":
		options = append(options, option{"object.additional.properties", true})
		t.jsonSchemaOptions(part)
	case "protobuf":
		options = append(options, option{"scrub.invalid.names", false},
			option{"optional.for.nullables", false})
		if t.is(prefix+"optional.for.nullables", "true") &&
			t.is(prefix+"wrapper.for.nullables", "true") {
			t.refuse(prefix+"wrapper.for.nullables", "is a second way for what optional.for.nullables "+
				"does: remove one, and compare the schemas")
		} else {
			options = append(options, option{"wrapper.for.nullables", false})
		}
		t.protobufOptions(part)
	}
	for _, o := range options {
		if v, ok := t.boolean(prefix+o.name, o.otherwise); ok {
			t.mapGiven(prefix+o.name, "", formatSetting(part, o.name, v))
		}
	}
	strategy := prefix + part + ".subject.name.strategy"
	if class, given := t.get(strategy); given {
		if name := strategies[simpleName(class)]; name != "" {
			t.mapped(strategy, "", formatSetting(part, "subject.name.strategy", name))
		} else {
			t.refuse(strategy, simpleName(class)+" is code that postrider cannot run: use "+
				"TopicNameStrategy, RecordNameStrategy or TopicRecordNameStrategy")
		}
	}
	for _, name := range t.below(prefix + "schema.registry.ssl.") {
		t.notNeeded(name, "postrider reads PEM: set registry.tls.ca_file, and cert_file and key_file "+
			"for a client certificate").attend()
	}
	for _, name := range []string{"schemas.cache.size", "schemas.cache.config",
		"max.schemas.per.subject", "latest.cache.size", "latest.cache.ttl.sec", "plugin.version"} {
		t.given(prefix+name, "bounds a cache, or names a version")
	}
}

// jsonSchemaOptions maps those that only JsonSchemaConverter has.
func (t *translator) jsonSchemaOptions(part string) {
	prefix := part + ".converter."
	switch v := strings.ToUpper(t.value(prefix+"decimal.format", "BASE64")); v {
	case "BASE64", "NUMERIC":
		t.mapGiven(prefix+"decimal.format", "", formatSetting(part, "decimal.format", v))
	default:
		t.refuse(prefix+"decimal.format", "is neither BASE64 nor NUMERIC: Kafka Connect refuses it too")
	}
	for _, name := range []string{"use.optional.for.nonrequired", "ignore.modern.dialects",
		"flatten.singleton.unions", "json.fail.invalid.schema"} {
		t.given(prefix+name, "concerns reading, or a check of what is written")
	}
}

// protobufOptions decides about those that only ProtobufConverter has.
func (t *translator) protobufOptions(part string) {
	prefix := part + ".converter."
	t.defaultsAlone(prefix, map[string]bool{"generalized.sum.type.support": false,
		"skip.known.types": true})
	for _, name := range []string{"enhanced.protobuf.schema.support", "int.for.enums",
		"optional.for.proto2", "wrapper.for.raw.primitives", "generate.struct.for.nulls",
		"generate.index.for.unions", "flatten.unions"} {
		t.given(prefix+name, "concerns reading alone")
	}
}

// defaultsAlone refuses other values of options than their defaults.
func (t *translator) defaultsAlone(prefix string, options map[string]bool) {
	for name, otherwise := range options {
		if v, ok := t.boolean(prefix+name, otherwise); ok && v != otherwise {
			t.refuse(prefix+name, "postrider has the default of this option alone: remove it, and compare "+
				"the schemas")
		}
		t.given(prefix+name, "the default")
	}
}

// registryURL maps the addresses of the registry, without the login that they may contain.
func (t *translator) registryURL(name string) {
	v, given := t.get(name)
	var urls []string
	hidden := false // a login in a URL
	for _, raw := range list(v) {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || t.provided(raw) {
			continue
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		if u.User != nil {
			t.registryUser(u.User.Username())
			u.User, hidden = nil, true
		}
		u.RawQuery, u.Fragment = "", ""
		urls = append(urls, u.String())
	}
	s := setting{registrySection, "urls", urls, ""}
	if len(urls) > 0 && !t.provided(v) {
		if hidden {
			t.mapped(name, "the password is never copied: write it into the file of "+
				"registry.password_file, readable by postrider only", s).attend()
			return
		}
		t.mapped(name, "", s)
		return
	}
	s.value, s.comment = []string{placeholderRegistry}, fromElsewhere
	t.doc.set(s)
	if given {
		t.mapped(name, "comes from elsewhere, or is no URL: write registry.urls, with the login", s).
			attend()
		return
	}
	t.mapped(name, "is the worker's: write registry.urls, with the login", s).attend()
}

// registryUser is a login by user and password, which is never copied. user may be empty: it
// is not known.
func (t *translator) registryUser(user string) []setting {
	comment := ""
	if user == "" {
		user, comment = placeholderName, fromElsewhere
	}
	s := []setting{
		{registrySection, "username", user, comment},
		{registrySection, "password_file", registryPasswordFile,
			"Write the password into this file, readable by postrider only."},
	}
	for _, one := range s {
		t.doc.set(one)
	}
	return s
}

func (t *translator) registryLogin(prefix string) {
	for _, name := range []string{"basic.auth.user.info", "schema.registry.basic.auth.user.info"} {
		v, given := t.get(prefix + name)
		if !given {
			continue
		}
		user, _, _ := strings.Cut(v, ":")
		if strings.Contains(user, "${") {
			user = ""
		}
		t.mapped(prefix+name, "the password is never copied: write it into the file, readable by "+
			"postrider only", t.registryUser(user)...).attend()
	}
	if t.is(prefix+"basic.auth.credentials.source", "SASL_INHERIT") {
		t.mapped(prefix+"basic.auth.credentials.source", "is the login of Kafka: write it as "+
			"registry.username and password_file", t.registryUser("")...).attend()
	}
	t.given(prefix+"basic.auth.credentials.source",
		"registry.username and password_file are the login")
	if !t.is(prefix+"bearer.auth.credentials.source", "OAUTHBEARER") {
		return
	}
	const section = registrySection + ".oauth"
	t.given(prefix+"bearer.auth.credentials.source", "registry.oauth is the login")
	for _, o := range [][3]string{
		{"bearer.auth.issuer.endpoint.url", "token_url", placeholderTokens},
		{"bearer.auth.client.id", "client_id", placeholderName},
		{"bearer.auth.scope", "scope", placeholderName},
	} {
		t.orPlaceholder(prefix+o[0], t.value(prefix+o[0], ""), section, o[1], o[2])
	}
	t.mapGiven(prefix+"bearer.auth.client.secret", "is never copied: write it into the file, "+
		"readable by postrider only",
		setting{section, "client_secret_file", registrySecretFile, ""}).attend()
	var headers []string
	for _, h := range [][2]string{{"bearer.auth.logical.cluster", "target-sr-cluster"},
		{"bearer.auth.identity.pool.id", "Confluent-Identity-Pool-Id"}} {
		v, given := t.get(prefix + h[0])
		if !given {
			continue
		}
		elsewhere := t.provided(v)
		if elsewhere {
			v = placeholderName
		}
		headers = append(headers, h[1]+"="+v)
		i := t.mapped(prefix+h[0], "", setting{registrySection, "headers", headers, ""})
		if elsewhere {
			i.Text, i.Attention = "comes from elsewhere: write it behind "+h[1]+"=", true
		}
	}
}

// orPlaceholder sets a key to a value that may be empty, which sets nothing, or come from a config
// provider, and maps the property that may have it.
func (t *translator) orPlaceholder(name, v, section, key, placeholder string) {
	if v == "" {
		t.given(name, "is empty")
		return
	}
	s, text, elsewhere := setting{section, key, v, ""}, "", t.provided(v)
	if elsewhere {
		s.value, s.comment = placeholder, fromElsewhere
		text = "comes from elsewhere: write " + section + "." + key
	}
	t.doc.set(s)
	t.mapGiven(name, text, s).Attention = elsewhere
}

// avroName is what Avro takes in names, and the dots between their parts.
var avroName = regexp.MustCompile(`^[A-Za-z0-9_.]*$`)

// schemaNames decides about schema.name.adjustment.mode, which changes what Avro refuses in names.
func (t *translator) schemaNames() {
	const name = "schema.name.adjustment.mode"
	if !t.is(name, "avro") && !t.is(name, "avro_unicode") {
		return // the catalog has a rule
	}
	tables, _ := t.captured()
	for _, part := range append([]string{t.prefix()}, tables...) {
		if !avroName.MatchString(part) {
			t.refuse(name, "changes the names of schemas that contain "+part+", which postrider does not: "+
				"use names of letters, digits and underscores")
			return
		}
	}
	t.notNeeded(name, "topic.prefix and tables have nothing that it changes. A row whose aggregate "+
		"type has other characters than letters, digits and underscores stands in the name of an "+
		"envelope's schema: it could not be published").attend()
}
