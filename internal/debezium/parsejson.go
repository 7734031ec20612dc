package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// parseJSON reads requests and answers of Kafka Connect's REST interface: {"name", "config"}, the
// map of config alone, and of one connector GET /connectors?expand=info.
func parseJSON(data []byte) (Connector, error) {
	var doc any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return Connector{}, jsonError(data, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Connector{}, fmt.Errorf("line %d: there is more behind the end of the JSON: keep one "+
			"connector to a file", lineAt(data, d.InputOffset()))
	}
	if l, ok := doc.([]any); ok && len(l) == 1 {
		doc = l[0]
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return Connector{}, fmt.Errorf("expected one JSON object with the connector's properties: %w",
			ErrNotConnector)
	}
	object, err := expanded(object)
	if err != nil {
		return Connector{}, err
	}
	var c Connector
	c.Name, _ = object["name"].(string)
	if config, ok := object["config"].(map[string]any); ok {
		object = config
	}
	if c.Properties, err = flatJSON(object); err != nil {
		return Connector{}, err
	}
	return c, c.check()
}

// expanded finds the connector in an answer of GET /connectors?expand=info, where it is below its
// name and "info".
func expanded(object map[string]any) (map[string]any, error) {
	var found []map[string]any
	var names []string
	for name, v := range object {
		entry, _ := v.(map[string]any)
		info, ok := entry["info"].(map[string]any)
		if !ok {
			return object, nil
		}
		config, _ := info["config"].(map[string]any)
		if class, _ := config["connector.class"].(string); strings.HasSuffix(class,
			"PostgresConnector") {
			found, names = append(found, info), append(names, name)
		}
	}
	switch len(found) {
	case 0:
		return object, nil
	case 1:
		return found[0], nil
	}
	slices.Sort(names)
	return nil, fmt.Errorf("the file has %d connectors for PostgreSQL (%s): keep one of them",
		len(found), strings.Join(names, ", "))
}

func flatJSON(object map[string]any) (map[string]string, error) {
	flat := make(map[string]string, len(object))
	for name, v := range object {
		switch v := v.(type) {
		case string:
			flat[name] = v
		case json.Number:
			flat[name] = v.String()
		case bool:
			flat[name] = fmt.Sprint(v)
		case nil:
			return nil, fmt.Errorf("%s is null: remove the line for the default", name)
		default:
			return nil, fmt.Errorf("%s is not a text, a number or a boolean: a connector's configuration "+
				"is flat", name)
		}
	}
	return flat, nil
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

// check refuses a file that is no connector's, before each of its properties is unknown.
func (c Connector) check() error {
	for name := range c.Properties {
		if name == "connector.class" || strings.HasPrefix(name, "database.") ||
			strings.HasPrefix(name, "transforms") {
			return nil
		}
	}
	for _, name := range []string{
		"group.id", "offset.storage.topic", "offset.storage.file.filename", "config.storage.topic",
	} {
		if _, worker := c.Properties[name]; worker {
			return fmt.Errorf("it is the configuration of a worker, not of a connector (from a worker's, "+
				"--brokers takes bootstrap.servers, "+
				"--key-converter and --value-converter the converters): %w", ErrNotConnector)
		}
	}
	return fmt.Errorf("it has neither connector.class nor database properties: %w", ErrNotConnector)
}
