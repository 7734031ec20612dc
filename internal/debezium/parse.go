package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNotConnector marks a file that is none of the kinds that Parse reads.
var ErrNotConnector = errors.New("not the configuration of a connector")

// Parse reads a connector's configuration: the JSON of Kafka Connect's REST interface, bare or
// with name and config; Java properties; Debezium Server's application.properties; or a Strimzi
// KafkaConnector. The kind is known by the content. Errors name the line, never the text: it may
// be a password.
func Parse(filename string, data []byte) (Connector, error) {
	c, err := parse(filename, data)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Connector{}, fmt.Errorf("%s: %w", filename, err)
	}
	return c, nil
}

func parse(filename string, data []byte) (Connector, error) {
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return Connector{}, fmt.Errorf("the file is empty: %w", ErrNotConnector)
	case bytes.IndexByte(text, 0) >= 0:
		return Connector{}, fmt.Errorf("the file is no text: %w", ErrNotConnector)
	case text[0] == '{' || text[0] == '[':
		return parseJSON(data)
	case isYAML(filename, text):
		return parseStrimzi(data)
	}
	return parseProperties(data)
}

// isYAML recognises YAML by lines that every Kubernetes object has, or by the name of the file.
func isYAML(filename string, text []byte) bool {
	for line := range strings.Lines(string(text)) {
		if hasPrefix(line, "apiVersion:", "kind:") || strings.TrimRight(line, " \r\n") == "---" {
			return true
		}
	}
	return slices.Contains([]string{".yaml", ".yml"}, strings.ToLower(filepath.Ext(filename)))
}

// check refuses a file that is no connector's, before each of its properties is unknown.
func (c Connector) check() error {
	for name := range c.Properties {
		if name == "connector.class" || hasPrefix(name, "database.", "transforms") {
			return nil
		}
	}
	for _, name := range []string{
		"group.id", "offset.storage.topic", "offset.storage.file.filename", "config.storage.topic",
	} {
		if _, worker := c.Properties[name]; worker {
			return fmt.Errorf("it is the configuration of a worker, not of a connector (from a worker's, "+
				"--brokers takes bootstrap.servers, --key-converter and --value-converter the "+
				"converters): %w", ErrNotConnector)
		}
	}
	return fmt.Errorf("it has neither connector.class nor database properties: %w", ErrNotConnector)
}

// put adds a property that has another name in the file.
func (c Connector) put(name, written, value string) error {
	if other, twice := c.written[name]; twice {
		return fmt.Errorf("%s and %s are the same: keep one", min(other, written), max(other, written))
	}
	c.Properties[name], c.written[name] = value, written
	return nil
}

// parseJSON reads requests and answers of Kafka Connect's REST interface: {"name", "config"}, the
// map of config alone, and of one connector GET /connectors?expand=info.
func parseJSON(data []byte) (c Connector, err error) {
	var doc any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return c, jsonError(data, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("line %d: there is more behind the end of the JSON: keep one connector to "+
			"a file", lineAt(data, d.InputOffset()))
	}
	if l, ok := doc.([]any); ok && len(l) == 1 {
		doc = l[0]
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return c, fmt.Errorf("expected one JSON object with the connector's properties: %w",
			ErrNotConnector)
	}
	if object, err = expanded(object); err != nil {
		return c, err
	}
	c.Name, _ = object["name"].(string)
	if config, ok := object["config"].(map[string]any); ok {
		object = config
	}
	c.Properties = make(map[string]string, len(object))
	for name, v := range object {
		switch v.(type) {
		case string, json.Number, bool:
			c.Properties[name] = fmt.Sprint(v)
		case nil:
			return c, fmt.Errorf("%s is null: remove the line for the default", name)
		default:
			return c, fmt.Errorf("%s is not a text, a number or a boolean: a connector's configuration is "+
				"flat", name)
		}
	}
	return c, nil
}

// expanded finds the connector in an answer of GET /connectors?expand=info, where it is below its
// name and "info".
func expanded(object map[string]any) (map[string]any, error) {
	found, names := object, []string{}
	for name, v := range object {
		entry, _ := v.(map[string]any)
		info, ok := entry["info"].(map[string]any)
		if !ok {
			return object, nil
		}
		config, _ := info["config"].(map[string]any)
		class, _ := config["connector.class"].(string)
		if strings.HasSuffix(class, "PostgresConnector") {
			found, names = info, append(names, name)
		}
	}
	if len(names) > 1 {
		slices.Sort(names)
		return nil, fmt.Errorf("the file has %d connectors for PostgreSQL (%s): keep one of them",
			len(names), strings.Join(names, ", "))
	}
	return found, nil
}

// jsonError gives the line, and does not quote it.
func jsonError(data []byte, err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("line %d: the JSON ends in the middle: the file is not complete",
			lineAt(data, int64(len(bytes.TrimSpace(data)))))
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: not valid JSON; often a comma or a quotation mark is missing or "+
			"too many, here or in the line before", lineAt(data, syntax.Offset-1))
	}
	return errors.New("not valid JSON")
}

// lineAt is the line of a byte.
func lineAt(data []byte, offset int64) int {
	offset = min(max(offset, 0), int64(len(data)))
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}
