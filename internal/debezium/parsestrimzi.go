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
			return Connector{}, notValid("YAML", err)
		}
		var object struct{ Kind yaml.Node }
		if doc.Decode(&object) == nil && object.Kind.Value == "KafkaConnector" {
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
		return c, err
	}
	for written, v := range all {
		name := strings.TrimPrefix(written, "spec.config.")
		switch {
		case written == "spec.class":
			name = "connector.class"
		case written == "spec.tasksMax":
			name = "tasks.max"
		case written == "metadata.name":
			c.Name = v
		case written == "kind" || written == "apiVersion" || strings.HasPrefix(written, "status."):
			continue // Kubernetes' own
		}
		if err := c.put(name, written, v); err != nil {
			return c, err
		}
	}
	return c, nil
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
	property := strings.HasPrefix(path, "spec.config.")
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null" && property:
		return fmt.Errorf("line %d: %s is null: remove the line for the default", n.Line, path)
	case n.Kind == yaml.SequenceNode && property:
		return fmt.Errorf("line %d: %s is a list: a connector's configuration is flat, with commas "+
			"in a text", n.Line, path)
	case n.Kind == yaml.ScalarNode, n.Kind == yaml.SequenceNode:
		into[path] = n.Value
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			if err := flatten(n.Content[i+1], name, depth+1, into); err != nil {
				return err
			}
		}
	}
	return nil
}
