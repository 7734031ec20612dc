package debezium

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseStrimzi reads a KafkaConnector, alone or among other documents of the file.
func parseStrimzi(data []byte) (Connector, error) {
	var found []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if m := lineNumber.FindStringSubmatch(err.Error()); m != nil {
				return Connector{}, fmt.Errorf("line %s: not valid YAML", m[1])
			}
			return Connector{}, errors.New("not valid YAML")
		}
		if len(doc.Content) != 1 {
			continue
		}
		if kind := member(doc.Content[0], "kind"); kind != nil && kind.Value == "KafkaConnector" {
			found = append(found, doc.Content[0])
		}
	}
	switch len(found) {
	case 0:
		return Connector{}, fmt.Errorf("no document of kind KafkaConnector: %w", ErrNotConnector)
	case 1:
		return strimziConnector(found[0])
	}
	return Connector{}, fmt.Errorf("%d documents of kind KafkaConnector: keep one of them",
		len(found))
}

func strimziConnector(doc *yaml.Node) (Connector, error) {
	c := Connector{Properties: map[string]string{}, written: map[string]string{}}
	all := map[string]string{}
	if err := flatten(doc, "", 0, all); err != nil {
		return Connector{}, err
	}
	for written, v := range all {
		name := written
		switch {
		case strings.HasPrefix(written, "spec.config."):
			name = strings.TrimPrefix(written, "spec.config.")
		case written == "spec.class":
			name = "connector.class"
		case written == "spec.tasksMax":
			name = "tasks.max"
		case written == "metadata.name":
			c.Name = v
		case written == "kind" || written == "apiVersion" || strings.HasPrefix(written, "status."):
			continue // Kubernetes' own
		}
		if other, twice := c.written[name]; twice {
			return Connector{}, fmt.Errorf("%s and %s are the same: keep one", min(other, written),
				max(other, written))
		}
		c.Properties[name], c.written[name] = v, written
	}
	return c, c.check()
}

// Limits for mappings that contain themselves, or each other many times over.
const (
	mostLevels  = 20
	mostEntries = 5000
)

// flatten writes a tree of mappings as dotted names. Scalars keep the text they have in the file.
func flatten(n *yaml.Node, path string, depth int, into map[string]string) error {
	if depth > mostLevels || len(into) > mostEntries {
		return fmt.Errorf("line %d: more than %d levels deep, or more than %d entries", n.Line,
			mostLevels, mostEntries)
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" && strings.HasPrefix(path, "spec.config.") {
			return fmt.Errorf("line %d: %s is null: remove the line for the default", n.Line, path)
		}
		into[path] = n.Value
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if path != "" {
				name = path + "." + name
			}
			if err := flatten(n.Content[i+1], name, depth+1, into); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		if strings.HasPrefix(path, "spec.config.") {
			return fmt.Errorf("line %d: %s is a list: a connector's configuration is flat, with commas "+
				"in a text", n.Line, path)
		}
		into[path] = ""
	}
	return nil
}

func member(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}
