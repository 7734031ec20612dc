package router

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
)

// Each logical message has members of its own, which are not those of the message before.
func TestEnvelope_OfAMessageHasItsOwnMembers(t *testing.T) {
	for _, first := range []bool{false, true} {
		cfg := DefaultConfig()
		cfg.AdditionalPlacement = "tenant:envelope,region:envelope"
		cfg.AdditionalMissing, cfg.FirstSchemaName = "ignore", first
		f := DefaultFormat()
		f.Value = "json"
		r, err := New([]Config{cfg}, f, Options{MessagePrefixes: []string{AnyPrefix}})
		require.NoError(t, err)
		route := func(members string) (string, error) {
			m, err := r.Route(&replication.Event{Kind: replication.Message, Time: committed, Prefix: "foo",
				Content: []byte(`{"id": "1", "aggregatetype": "User", "aggregateid": "k", "type": "T", "payload": "x"` + members + `}`)})
			if err != nil {
				return "", err
			}
			return string(m.Value), nil
		}
		for i, members := range []string{"", `,"tenant":"a"`, `,"region":"eu"`, `,"region":"eu","tenant":"a"`, `,"tenant":1`, `,"tenant":1.5`, ""} {
			v, err := route(members)
			if first && i > 0 && i < 6 { // what does not fit in the first one's schema
				var fault *RowError
				require.ErrorAs(t, err, &fault)
				continue
			}
			require.NoError(t, err)
			want := `{"payload":"x"` + members + `}`
			require.JSONEq(t, want, v)
		}
	}
}

// What is kept of envelopes is bounded: names, versions and payloads come from rows.
func TestEnvelope_KeepsABoundedNumberOfSchemas(t *testing.T) {
	r := newRouter(t, DefaultFormat(), func(c *Config) {
		c.AdditionalPlacement, c.FirstSchemaName, c.ExpandJSONPayload = "type:envelope", true, true
	})
	rel := outbox()
	for i := range shapesKept + 10 {
		_, err := r.Route(insert(rel, baseID, "User", "k", "T", fmt.Sprintf(`{"member%d": 1}`, i)))
		require.NoError(t, err)
	}
	kept := r.rules[0].schemas
	require.Len(t, kept, 1)
	require.Len(t, kept[schemaKey{}], shapesKept)

	r = newRouter(t, DefaultFormat(), func(c *Config) { c.AdditionalPlacement = "type:envelope" })
	for _, routed := range []string{"User", strings.Repeat("a", maxCachedValue+1)} { // no topic has such a name
		_, err := r.Route(insert(rel, baseID, routed, "k", "T", `{}`))
		require.Equal(t, routed == "User", err == nil)
	}
	require.Len(t, r.planOf(insert(rel)).schemas, 1)
}
