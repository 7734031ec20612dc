package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/postrider/postrider/internal/ratelimit"
)

// topicRateKeys are the keys of a [[relay.rate]].
var topicRateKeys = []string{"topics", "max_rate"}

// topicRateValue is a [[relay.rate]] for JSON.
type topicRateValue struct {
	Topics  []string       `json:"topics"`
	MaxRate ratelimit.Rate `json:"max_rate"`
}

// topicRatesValue returns nil for no entry: the key has no default.
func topicRatesValue(rates []ratelimit.TopicRate) any {
	if len(rates) == 0 {
		return nil
	}
	values := make([]topicRateValue, len(rates))
	for i, r := range rates {
		values[i] = topicRateValue{append([]string{}, r.Topics...), r.Rate}
	}
	return values
}

// topicRatesText writes entries as TOML on one line.
func topicRatesText(rates []topicRateValue) string {
	items := make([]string, len(rates))
	for i, r := range rates {
		items[i] = fmt.Sprintf("{ topics = %s, max_rate = %s }", quoteList(r.Topics),
			quote(r.MaxRate.String()))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// setTopicRatesText reads the text of a variable or a flag, which is TOML on one line.
func (k key) setTopicRatesText(s string) error {
	var doc map[string]any
	if err := toml.Unmarshal([]byte("rate = "+s), &doc); err != nil || len(doc) != 1 {
		return errors.New(`expected TOML such as [{ topics = ["orders"], max_rate = "500 rows/s" }]`)
	}
	return k.setTopicRates(doc["rate"])
}

// setTopicRates sets the key to what [[relay.rate]] decodes to.
func (k key) setTopicRates(v any) error {
	tables := tablesIn(v)
	if _, isList := v.([]any); !isList || len(tables) != len(v.([]any)) {
		return fmt.Errorf("expected %s, got %s", k.kind.expected(), describe(v, k.masked))
	}
	rates := make([]ratelimit.TopicRate, len(tables))
	for i, table := range tables {
		if err := k.setTopicRate(&rates[i], table.(map[string]any)); err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	k.field.Set(reflect.ValueOf(rates))
	return nil
}

func (k key) setTopicRate(to *ratelimit.TopicRate, table map[string]any) error {
	for name := range table {
		if !slices.Contains(topicRateKeys, name) {
			return fmt.Errorf("unknown key %q; it has %s", name, strings.Join(topicRateKeys, " and "))
		}
	}
	for name, field := range map[string]any{"topics": &to.Topics, "max_rate": &to.Rate} {
		value, given := table[name]
		if !given {
			continue // Validate reports it
		}
		target := reflect.ValueOf(field).Elem()
		kind, _ := kindOf(target.Type(), "")
		part := key{name: k.name, kind: kind, field: target}
		if err := part.setValue(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
