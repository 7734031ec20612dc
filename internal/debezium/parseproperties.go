package debezium

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/magiconair/properties"
)

var lineNumber = regexp.MustCompile(`[Ll]ine (\d+)`)

// notValid is the error of a parser without the text that it quotes.
func notValid(format string, err error) error {
	if m := lineNumber.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("line %s: not valid %s", m[1], format)
	}
	return errors.New("not valid " + format)
}

// parseProperties reads Java properties: of a standalone worker's connector, or of Debezium
// Server.
func parseProperties(data []byte) (Connector, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return Connector{}, notValid("Java properties", err)
	}
	flat := p.Map()
	for name := range flat {
		if strings.HasPrefix(name, "debezium.") {
			return serverConnector(flat)
		}
	}
	return Connector{Name: flat["name"], Properties: flat, wraps: true}, nil
}

// profile is how the name of a property of one of Quarkus's profiles begins.
var profile = regexp.MustCompile(`^%[a-z]+\.`)

// unescape undoes the escapes of Quarkus for a dollar sign.
var unescape = strings.NewReplacer(`\${`, "${", "$${", "${", `\\${`, "${")

// serverConnector turns Debezium Server's configuration into that of a connector. Its sink and its
// formats become what Kafka Connect would have, with the defaults of the server.
func serverConnector(flat map[string]string) (Connector, error) {
	c := Connector{
		Server: true, Properties: map[string]string{}, written: map[string]string{}, wraps: true,
	}
	for written, v := range flat {
		if profile.MatchString(written) {
			return c, fmt.Errorf("%s belongs to a profile: keep the lines of one profile, without its name",
				written)
		}
		if err := c.put(connectName(written), written, unescape.Replace(v)); err != nil {
			return c, err
		}
	}
	if c.Properties["debezium.sink.type"] != "kafka" {
		return c, errors.New("debezium.sink.type is not kafka: postrider publishes to Kafka")
	}
	for _, part := range []string{"key", "value", "header"} {
		c.serverFormat(part)
	}
	return c, nil
}

// connectName is the connector's name of a property of the server. A property of the server alone
// keeps its name.
func connectName(written string) string {
	for _, p := range [][2]string{
		{"debezium.source.", ""},
		{"debezium.sink.kafka.producer.", override},
		{"debezium.transforms", "transforms"},
		{"debezium.predicates", "predicates"},
		{"debezium.format.key.", "key.converter."},
		{"debezium.format.value.", "value.converter."},
		{"debezium.format.header.", "header.converter."},
	} {
		if rest, found := strings.CutPrefix(written, p[0]); found {
			return p[1] + rest
		}
	}
	return written
}

// serverFormat gives a part its converter. An option may be set for the part, or for all formats.
func (c Connector) serverFormat(part string) {
	name, written := part+".converter", "debezium.format."+part
	format, given := c.Properties[written]
	if !given {
		format = "json"
	}
	class, listed := known().ServerFormats[strings.ToLower(strings.TrimSpace(format))]
	if !listed {
		class = format
	}
	delete(c.Properties, written)
	delete(c.written, written)
	c.Properties[name], c.written[name] = class, written
	option := name + ".schemas.enable"
	_, given = c.Properties[option]
	all, givenForAll := c.Properties["debezium.format.schemas.enable"]
	if class == jsonConverter && !given && givenForAll {
		c.Properties[option], c.written[option] = all, written+".schemas.enable"
	}
}
