package takeover

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What postrider would publish is what Debezium publishes, as the page's own command finds out
// beside the running connector.
func TestCompare_FindsPostriderEqualToDebezium(t *testing.T) {
	t.Parallel()
	const json = "org.apache.kafka.connect.json.JsonConverter"
	for name, properties := range map[string]map[string]string{
		"strings": nil,
		"json with schemas": {
			"key.converter": json, "key.converter.schemas.enable": "true", "value.converter": json,
			"value.converter.schemas.enable":                      "true",
			"transforms.outbox.table.fields.additional.placement": "type:header:eventType,id:envelope:event",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, nil, properties)
			s.follow(t, "1. Translate the configuration")
			writing := startWriters(t, s.db, s.tally, 1)
			s.published(t, 100)
			const compare = "3. Compare first"
			require.Contains(t, s.commands[compare], "--duration 24h")
			s.commands[compare] = strings.Replace(s.commands[compare], "--duration 24h",
				"--duration 5s", 1)
			said := s.follow(t, compare)
			require.Regexp(t, `equal: [0-9]{2,} events, byte for byte`, said)
			require.Contains(t, said, "0 differing")
			writing.end(t)
		})
	}
}
