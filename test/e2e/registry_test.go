package e2e

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hamba/avro/v2"
	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/postrider/postrider/test/parts"
)

// registryConfig publishes expanded JSON as Avro.
const registryConfig = `
[router]
route.topic.regex = ".*"
route.topic.replacement = %q
table.expand.json.payload = true

[format]
value = "avro"

[registry]
urls = [%q]
timeout = "60s" # what is away answers at once

[relay]
backoff_min = "50ms"
backoff_max = "100ms"
`

// decodeAvro reads a value by the schema that the registry has under its id.
func decodeAvro(t *testing.T, registry *srfake.Registry, b []byte) (v map[string]any) {
	t.Helper()
	require.Equal(t, byte(0), b[0])
	api, err := sr.NewClient(sr.URLs(registry.URL()))
	require.NoError(t, err)
	has, err := api.SchemaByID(t.Context(), int(binary.BigEndian.Uint32(b[1:])))
	require.NoError(t, err)
	schema, err := avro.ParseWithCache(has.Schema, "", &avro.SchemaCache{})
	require.NoError(t, err)
	var union map[string]any // of null and one record, since the payload may be NULL
	require.NoError(t, avro.Unmarshal(schema, b[5:], &union))
	require.Len(t, union, 1)
	for _, record := range union {
		v, _ = record.(map[string]any)
	}
	return v
}

func insertJSON(payload string) string {
	return fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload) VALUES ('order', 'a', '%s')`, payload)
}

// A registry that is away costs nothing while schemas are known; a row with a new schema waits for it, and all rows behind that
// one, and the relay goes on by itself.
func TestRegistry_RowsWaitForItWithNewSchemasAlone(t *testing.T) {
	t.Parallel()
	registry := srfake.New()
	t.Cleanup(registry.Close)
	var away atomic.Bool
	registry.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return away.Load()
	})
	c := newCluster(t)
	topic := c.Topic(t, 1)
	s := newShop(t, parts.AnyVersion, outboxSQL, fmt.Sprintf(registryConfig, topic, registry.URL()))
	r := s.run(t)
	s.do(t, insertJSON(`{"id": 1, "note": "fragile", "items": [{"sku": "a", "n": 2}]}`))
	s.awaitConfirmed(t, r)
	away.Store(true)
	s.do(t, insertJSON(`{"id": 2, "note": "heavy", "items": [{"sku": "b", "n": 3}]}`))
	s.awaitConfirmed(t, r)
	require.Equal(t, 1, r.state(t).Sessions, "the schema is known")

	s.do(t, insertJSON(`{"id": 3, "express": true}`), insertJSON(`{"id": 4, "note": "light", "items": []}`))
	parts.Await(t, "a session that ends for want of the registry", func() (bool, error) {
		return strings.Contains(r.Log.String(), `"reason":"registry_unavailable"`), nil
	})
	require.Contains(t, r.Log.String(), "schema registry unavailable: Service Unavailable (503)")
	at := regexp.MustCompile(`commits at ([0-9A-F]+/[0-9A-F]+): schema registry`).FindStringSubmatch(r.Log.String())
	require.NotNil(t, at)
	commit, err := pglogrepl.ParseLSN(at[1])
	require.NoError(t, err)
	require.Less(t, s.confirmed(t), commit, "the WAL is kept")
	away.Store(false)
	s.awaitConfirmed(t, r)
	r.Stop(t)

	records := s.All(t, topic)
	require.Len(t, records, 4, "none is lost, and none comes twice")
	for i, want := range []string{"1", "2", "3", "4"} {
		require.Equal(t, want, fmt.Sprint(decodeAvro(t, registry, records[i].Value)["id"]))
	}
	first := decodeAvro(t, registry, records[0].Value)
	require.Contains(t, fmt.Sprint(first["items"]), "sku")
	require.True(t, registry.SubjectExists(topic+"-value"))
}

// Expanded JSON as Protobuf, in transactions of the producer: members are messages named after them, and a row that Protobuf cannot
// be follows its policy.
func TestRegistry_PublishesProtobufExactlyOnce(t *testing.T) {
	t.Parallel()
	registry := srfake.New()
	t.Cleanup(registry.Close)
	c := newCluster(t)
	topic := c.Topic(t, 1)
	config := strings.Replace(fmt.Sprintf(registryConfig, topic, registry.URL()), `value = "avro"`, `value = "protobuf"`, 1)
	s := newShop(t, parts.AnyVersion, outboxSQL, config+"exactly_once = true\n\n[deadletter]\nnot_routable = \"skip\"\n")
	r := s.run(t)
	s.do(t, insertJSON(`{"id": 1, "item": {"sku": "a"}, "items": [{"n": 2}]}`), insertJSON(`{"id": 2, "grid": [[1]]}`),
		insertJSON(`{"id": 3, "item": {"sku": ""}, "items": [{"n": 4}]}`))
	s.awaitConfirmed(t, r)
	r.Stop(t)

	records := s.All(t, topic)
	require.Len(t, records, 2, "the row with an array of arrays is skipped")
	require.Equal(t, []byte{0, 0x08, 1, 0x12, 3, 0x0a, 1, 'a', 0x1a, 2, 0x08, 2}, records[0].Value[5:])
	require.Equal(t, []byte{0, 0x08, 3, 0x12, 0, 0x1a, 2, 0x08, 4}, records[1].Value[5:])
	has, found := registry.GetSchema(topic+"-value", 1)
	require.True(t, found)
	require.Equal(t, sr.TypeProtobuf, has.Type)
	require.Contains(t, has.Schema.Schema, "int32 id = 1;\n  itemMessage item = 2;\n  repeated itemsMessage items = 3;\n")
}

// A schema that the registry refuses is the row's matter: the relay halts at it, or its policy applies.
func TestRegistry_ARefusedSchemaFollowsTheRowsPolicy(t *testing.T) {
	t.Parallel()
	registry := srfake.New()
	t.Cleanup(registry.Close)
	registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodPost && r.ContentLength > 400
		if refused {
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprint(w, `{"error_code":409,"message":"Schema being registered is incompatible"}`)
		}
		return refused
	})
	c := newCluster(t)
	topic, letters := c.Topic(t, 1), c.Topic(t, 1)
	s := newShop(t, parts.AnyVersion, outboxSQL, fmt.Sprintf(registryConfig, topic, registry.URL()))
	large := "{" + `"id": 2`
	for i := range 40 {
		large += fmt.Sprintf(`, "member%d": %d`, i, i)
	}
	r := s.run(t)
	s.do(t, insertJSON(`{"id": 1}`), insertJSON(large+"}"), insertJSON(`{"id": 3}`))
	require.Equal(t, 1, r.Wait(t), "exit code")
	require.Contains(t, r.Log.String(), "does not fit the versions of subject "+topic+"-value: Schema being registered is incompatible")

	s.configure(t, strings.Replace(fmt.Sprintf(registryConfig, topic, registry.URL()), "[relay]", fmt.Sprintf("[deadletter]\nnot_routable = \"dead_letter\"\n"+
		"topic = %q\n\n[relay]", letters), 1))
	r = s.run(t)
	s.awaitConfirmed(t, r)
	r.Stop(t)
	require.Len(t, s.All(t, letters), 1)
	require.Len(t, s.All(t, topic), 2)
}
