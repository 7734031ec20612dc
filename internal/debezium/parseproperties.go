package debezium

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/magiconair/properties"
)

var lineNumber = regexp.MustCompile(`[Ll]ine (\d+)`)

// parseProperties reads Java properties: of a standalone worker's connector, or of Debezium
// Server.
func parseProperties(data []byte) (Connector, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		if m := lineNumber.FindStringSubmatch(err.Error()); m != nil {
			return Connector{}, fmt.Errorf("line %s: not valid Java properties", m[1])
		}
		return Connector{}, errors.New("not valid Java properties")
	}
	flat := p.Map()
	for name := range flat {
		if strings.HasPrefix(name, "debezium.") {
			return serverConnector(flat)
		}
	}
	c := Connector{Name: flat["name"], Properties: flat, wraps: true}
	return c, c.check()
}

// serverConnector turns Debezium Server's configuration into that of a connector. Its sink and its
// formats become what Kafka Connect would have, with the defaults of the server.
func serverConnector(flat map[string]string) (Connector, error) {
	c := Connector{
		Server: true, Properties: map[string]string{}, written: map[string]string{}, wraps: true,
	}
	profile := regexp.MustCompile(`^%[a-z]+\.`)
	for written, v := range flat {
		name := connectName(written)
		if profile.MatchString(written) {
			return Connector{}, fmt.Errorf("%s belongs to a profile: keep the lines of one profile, "+
				"without its name", written)
		}
		if other, twice := c.written[name]; twice {
			return Connector{}, fmt.Errorf("%s and %s are the same: keep one", min(other, written),
				max(other, written))
		}
		c.Properties[name], c.written[name] = unescapeServer(v), written
	}
	if kind := c.Properties["debezium.sink.type"]; kind != "kafka" {
		return Connector{}, fmt.Errorf("debezium.sink.type is not kafka: postrider publishes to Kafka")
	}
	c.Properties["debezium.sink.type"] = "kafka"
	for _, part := range []string{"key", "value", "header"} {
		serverFormat(c, part)
	}
	return c, c.check()
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

// unescapeServer undoes the escapes of Quarkus for a dollar sign.
func unescapeServer(v string) string {
	return strings.NewReplacer(`\${`, "${", "$${", "${", `\\${`, "${").Replace(v)
}

// serverFormat gives a part its converter. An option may be set for the part, or for all formats.
func serverFormat(c Connector, part string) {
	name := part + ".converter"
	written := "debezium.format." + part
	format, given := c.Properties[written]
	if !given {
		format = "json"
	}
	class, known := known().serverFormats[strings.ToLower(strings.TrimSpace(format))]
	if !known {
		class = format
	}
	if given {
		delete(c.Properties, written)
		delete(c.written, written)
	}
	c.Properties[name], c.written[name] = class, written
	if class != jsonConverter {
		return
	}
	option := name + ".schemas.enable"
	if _, given := c.Properties[option]; given {
		return
	}
	if all, given := c.Properties["debezium.format.schemas.enable"]; given {
		c.Properties[option], c.written[option] = all, written+".schemas.enable"
	}
}
