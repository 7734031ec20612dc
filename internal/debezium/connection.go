package debezium

import (
	"net/url"
	"regexp"
	"strings"
)

// reference is what Kafka Connect's config providers replace, ${provider:path:key} or
// ${provider:key}, and in Debezium Server an environment variable, ${NAME} or ${NAME:default}.
var reference = regexp.MustCompile(`\$\{([^{}]*)\}`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// provided reports whether a value comes from a config provider, so that it is not in the file.
func (t *translator) provided(v string) bool {
	for _, m := range reference.FindAllStringSubmatch(v, -1) {
		if strings.Contains(m[1], ":") || t.connector.Server {
			return true
		}
	}
	return false
}

// canRefer reports whether a property's value may come from a config provider: those of
// connections, logins and certificates may. The groups in a topic replacement have the same form.
func canRefer(name string) bool {
	for _, prefix := range []string{"database.", override + "sasl.", override + "ssl.", override +
		"bootstrap."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return strings.HasPrefix(name, "transforms.") &&
		strings.HasSuffix(name, ".route.topic.replacement")
}

// variable is the environment variable that is the whole value:
// ${env:NAME} of Kafka's EnvVarConfigProvider, also ${env::NAME}, and in Debezium Server ${NAME}.
func (t *translator) variable(v string) (string, bool) {
	m := reference.FindStringSubmatch(v)
	if m == nil || m[0] != v {
		return "", false
	}
	name := m[1]
	if provider, rest, found := strings.Cut(name, ":"); found {
		if name = strings.TrimPrefix(rest, ":"); !strings.EqualFold(provider, "env") &&
			!strings.EqualFold(provider, "envVar") {
			return "", false
		}
	} else if !t.connector.Server {
		return "", false
	}
	return name, variableName.MatchString(name)
}

// inURL is the one setting that many properties become.
var inURL = []string{"postgres.url"}

// connection turns database.* into postgres.url.
func (t *translator) connection() {
	host, given := t.get("database.hostname")
	if !given {
		t.refuse("database.hostname", "is missing: Debezium refuses that too")
		host = "localhost"
	}
	if strings.Contains(host, "@") {
		t.refuse("database.hostname", "is no host name: it contains an @")
		host = "localhost"
	}
	if _, given := t.get("database.dbname"); !given {
		t.refuse("database.dbname", "is missing: Debezium refuses that too")
	}
	port := t.value("database.port", "5432")
	u := "postgres://"
	if user, given := t.get("database.user"); given {
		u += t.urlPart(user, "DATABASE_USER")
		if password, given := t.get("database.password"); given {
			if name, ok := t.variable(password); ok {
				u += ":${" + name + "}"
				t.variables = append(t.variables, name)
			}
		}
		u += "@"
	}
	hosts := list(host)
	for n, h := range hosts {
		// Of several hosts in JDBC's form the last one has its port behind it.
		if !strings.Contains(h, ":") || strings.HasPrefix(h, "${") {
			h = t.urlPart(h, "DATABASE_HOSTNAME") + ":" + t.urlPart(port, "DATABASE_PORT")
		}
		hosts[n] = h
	}
	u += strings.Join(hosts, ",") + "/" + t.urlPart(t.value("database.dbname", ""), "DATABASE_NAME")
	if query := t.urlParameters(); len(query) > 0 {
		u += "?" + strings.Join(query, "&")
	}
	s := setting{"postgres", "url", u, ""}
	if _, given := t.get("database.hostname"); given {
		t.mapped("database.hostname", "", s)
	}
	t.doc.set(s)
	for _, name := range []string{"database.port", "database.user", "database.dbname"} {
		if _, given := t.get(name); given {
			t.item(name, Item{Outcome: Mapped, Settings: inURL})
		}
	}
	t.databasePassword(s)
	if _, given := t.get("database.sslmode"); !given {
		t.item("database.sslmode", Item{
			Outcome: Mapped, Settings: inURL, Attention: true,
			Text: "is not in the file, so Debezium uses TLS only if the server offers it (prefer). " +
				"postrider asks a host that is not local for a verified certificate: add sslmode=disable to " +
				"postgres.url for a database without TLS, or sslmode=require and sslrootcert",
		})
	}
}

func (t *translator) databasePassword(url setting) {
	name := "database.password"
	password, given := t.get(name)
	if !given {
		return
	}
	if variable, ok := t.variable(password); ok {
		t.item(name, Item{Outcome: Mapped, Settings: inURL, Text: "from the environment variable " +
			variable + "; special characters in it are percent-encoded"})
		return
	}
	t.doc.set(url.with("The password is not written here: set PGPASSWORD in the environment of " +
		"postrider, or use url_file."))
	i := t.item(name, Item{
		Outcome: Mapped, Settings: []string{"PGPASSWORD"},
		Text: "is never copied: set PGPASSWORD in the environment of postrider, write it to " +
			"~/.pgpass, or put the whole URL into a file (postgres.url_file)",
	})
	i.attend()
}

// urlPart escapes a part of a URL; a value of a config provider becomes an environment variable.
func (t *translator) urlPart(v, variable string) string {
	if name, ok := t.variable(v); ok {
		variable = name
	} else if !reference.MatchString(v) {
		return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(v))
	}
	t.variables = append(t.variables, variable)
	return "${" + variable + "}"
}

// urlParameters are libpq's names of the driver's options.
func (t *translator) urlParameters() []string {
	var query []string
	for _, p := range []struct{ property, parameter, text string }{
		{"database.sslmode", "sslmode", ""},
		{"database.sslrootcert", "sslrootcert", ""},
		{"database.sslcert", "sslcert", ""},
		{"database.sslkey", "sslkey", "must be PEM: convert a key in PKCS-8 DER with openssl pkcs8 " +
			"-inform DER -outform PEM -nocrypt"},
	} {
		v, given := t.get(p.property)
		if !given {
			continue
		}
		parameter := p.parameter + "=" + t.urlPart(v, strings.ToUpper(strings.ReplaceAll(p.property, ".",
			"_")))
		switch {
		case p.parameter == "sslmode" && (strings.EqualFold(v, "prefer") ||
			strings.EqualFold(v, "allow")):
			t.item(p.property, Item{
				Outcome: Mapped, Settings: []string{"postgres.url: without sslmode"},
				Text: "postrider never goes on without TLS by itself: it asks a host that is not local for " +
					"a verified certificate. Add sslmode=disable to postgres.url for a database without TLS",
				Attention: true,
			})
			continue
		case p.parameter == "sslmode" && v != strings.ToLower(v):
			parameter = strings.ToLower(parameter)
		}
		query = append(query, parameter)
		t.item(p.property, Item{
			Outcome: Mapped, Settings: []string{"postgres.url: " + parameter}, Text: p.text,
			Attention: p.text != "",
		})
	}
	if _, given := t.get("database.sslpassword"); given {
		t.item("database.sslpassword", Item{
			Outcome: NotNeeded, Attention: true,
			Text: "postrider reads a key without a password: decrypt it into a file that only postrider " +
				"may read (openssl pkey -in KEY -out FILE), and name that as sslkey in postgres.url",
		})
	}
	return query
}
