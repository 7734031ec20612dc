package debezium

import (
	"net"
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
	for _, part := range []string{"key.converter.", "value.converter."} {
		if hasPrefix(name, part+"schema.registry.", part+"basic.auth.", part+"bearer.auth.") {
			return true
		}
	}
	return hasPrefix(name, "database.", override+"sasl.", override+"ssl.", override+"bootstrap.") ||
		strings.HasPrefix(name, "transforms.") && strings.HasSuffix(name, ".route.topic.replacement")
}

// variable is the environment variable that is the whole value:
// ${env:NAME} of Kafka's EnvVarConfigProvider, also ${env::NAME}, and in Debezium Server ${NAME}.
func (t *translator) variable(v string) (string, bool) {
	m := reference.FindStringSubmatch(v)
	if m == nil || m[0] != v {
		return "", false
	}
	provider, name, found := strings.Cut(m[1], ":")
	switch {
	case found && !strings.EqualFold(provider, "env") && !strings.EqualFold(provider, "envVar"):
		return "", false
	case !found && !t.connector.Server:
		return "", false
	case !found:
		name = m[1]
	}
	name = strings.TrimPrefix(name, ":")
	return name, variableName.MatchString(name)
}

// inURL is the one setting that many properties become.
var inURL = []string{"postgres.url"}

// connection turns database.* into postgres.url.
func (t *translator) connection() {
	for _, name := range []string{"database.hostname", "database.dbname"} {
		if _, given := t.get(name); !given {
			t.refuse(name, "is missing: Debezium refuses that too")
		}
	}
	host := t.value("database.hostname", "localhost")
	if strings.Contains(host, "@") {
		t.refuse("database.hostname", "is no host name: it contains an @")
		host = "localhost"
	}
	u := "postgres://"
	password := t.value("database.password", "")
	if user, given := t.get("database.user"); given {
		u += t.urlPart(user, "DATABASE_USER")
		if name, ok := t.variable(password); ok {
			u += ":${" + name + "}"
			t.variables = append(t.variables, name)
		}
		u += "@"
	}
	hosts := list(host)
	for n, h := range hosts {
		switch {
		case strings.HasPrefix(h, "${"), !strings.Contains(h, ":"):
			h = t.urlPart(h, "DATABASE_HOSTNAME")
		case net.ParseIP(h) != nil:
			h = "[" + h + "]"
		case !strings.HasSuffix(h, "]"):
			continue // of several hosts in JDBC's form the last one has its port behind it
		}
		hosts[n] = h + ":" + t.urlPart(t.value("database.port", "5432"), "DATABASE_PORT")
	}
	u += strings.Join(hosts, ",") + "/" + t.urlPart(t.value("database.dbname", ""), "DATABASE_NAME")
	if query := t.urlParameters(); len(query) > 0 {
		u += "?" + strings.Join(query, "&")
	}
	s := setting{"postgres", "url", u, ""}
	t.doc.set(s)
	t.mapGiven("database.hostname", "", s)
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
				"postrider requires a verified certificate of a host that is not local: add " +
				"sslmode=disable to postgres.url for a database without TLS, or sslmode=require and " +
				"sslrootcert",
		})
	}
}

func (t *translator) databasePassword(url setting) {
	const name = "database.password"
	password, given := t.get(name)
	if !given {
		return
	}
	if variable, ok := t.variable(password); ok {
		t.item(name, Item{Outcome: Mapped, Settings: inURL, Text: "from the environment variable " +
			variable + "; special characters in it are percent-encoded"})
		return
	}
	url.comment = "The password is not written here: set PGPASSWORD in the environment of " +
		"postrider, or use url_file."
	t.doc.set(url)
	t.item(name, Item{
		Outcome: Mapped, Settings: []string{"PGPASSWORD"}, Attention: true,
		Text: "is never copied: set PGPASSWORD in the environment of postrider, write it to " +
			"~/.pgpass, or put the whole URL into a file (postgres.url_file)",
	})
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
func (t *translator) urlParameters() (query []string) {
	if t.is("database.sslmode", "prefer") || t.is("database.sslmode", "allow") {
		t.item("database.sslmode", Item{
			Outcome: Mapped, Settings: []string{"postgres.url: without sslmode"}, Attention: true,
			Text: "postrider never goes on without TLS by itself: it requires a verified certificate " +
				"of a host that is not local. Add sslmode=disable to postgres.url for a database without TLS",
		})
	}
	for _, name := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey"} {
		property, text := "database."+name, ""
		v, given := t.get(property)
		if _, left := t.left[property]; !given || !left {
			continue
		}
		switch {
		case name == "sslmode" && !reference.MatchString(v):
			v = strings.ToLower(v)
		case name == "sslkey":
			text = "must be PEM: convert a key in PKCS-8 DER with openssl pkcs8 -inform DER -outform PEM " +
				"-nocrypt"
		}
		parameter := name + "=" + t.urlPart(v, "DATABASE_"+strings.ToUpper(name))
		query = append(query, parameter)
		t.item(property, Item{
			Outcome: Mapped, Settings: []string{"postgres.url: " + parameter}, Text: text,
			Attention: text != "",
		})
	}
	t.given("database.sslpassword", "postrider reads a key without a password: decrypt it into a "+
		"file that only postrider may read (openssl pkey -in KEY -out FILE), and name that as sslkey "+
		"in postgres.url").attend()
	return query
}
