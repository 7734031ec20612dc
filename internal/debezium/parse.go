package debezium

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ErrNotConnector marks a file that is none of the kinds that Parse knows.
var ErrNotConnector = errors.New("not the configuration of a connector")

// Parse reads a connector's configuration: the JSON of Kafka Connect's REST interface, bare or
// with name and config; Java properties; Debezium Server's application.properties; or a Strimzi
// KafkaConnector. The kind is known by the content. Errors name the line, never the text: it may
// be a password.
func Parse(filename string, data []byte) (Connector, error) {
	c, err := parse(filename, data)
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
	for _, line := range bytes.Split(text, []byte("\n")) {
		if l := string(line); strings.HasPrefix(l, "apiVersion:") || strings.HasPrefix(l, "kind:") ||
			strings.TrimRight(l, " \r") == "---" {
			return true
		}
	}
	extension := strings.ToLower(filepath.Ext(filename))
	return extension == ".yaml" || extension == ".yml"
}

// lineAt is the line of a byte.
func lineAt(data []byte, offset int64) int {
	offset = min(max(offset, 0), int64(len(data)))
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}
