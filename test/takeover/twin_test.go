package takeover

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/test/parts"
)

// copySlot makes another slot that stands where the connector's does, and returns its name.
func (s *site) copySlot(t *testing.T) string {
	t.Helper()
	twin := s.name + "_twin"
	s.db.Exec(t, `SELECT pg_copy_logical_replication_slot('`+s.name+`', '`+twin+`')`)
	return twin
}

// repeatedByDebezium is what Debezium itself would have published a second time: those of the
// published events that a connector publishes which has the stored offset, and the copied slot.
// Its topic is its own.
func (s *site) repeatedByDebezium(t *testing.T, twin string, stored []byte,
	published []event) []event {
	t.Helper()
	config := maps.Clone(s.config)
	topic := twin + ".order"
	maps.Copy(config, map[string]string{
		"slot.name": twin, "topic.prefix": twin, "publication.autocreate.mode": "disabled",
		"transforms.outbox.route.topic.replacement": twin + ".${routedByValue}",
	})
	s.broker.CreateTopic(t, topic, 1, nil)
	worker := parts.KafkaConnect(t, s.broker, nil)
	request(t, http.MethodPost, worker.URL()+"/connectors",
		map[string]any{"name": twin, "config": config, "initial_state": "STOPPED"})
	worker.Stop(t, twin)
	request(t, http.MethodPatch, worker.URL()+"/connectors/"+twin+"/offsets",
		map[string]any{"offsets": []any{
			map[string]any{"partition": map[string]string{"server": twin},
				"offset": json.RawMessage(stored)},
		}})
	worker.Resume(t, twin)

	before := map[event]bool{}
	for _, e := range published {
		before[e] = true
	}
	var repeated []event
	s.broker.ConsumeUntil(t, []string{topic}, func(records []*kgo.Record) bool {
		events, _ := receive(t, audit.New(), records)
		repeated = repeated[:0]
		for _, e := range events {
			if !before[e] {
				return true // the first that is new: the rest is, too
			}
			repeated = append(repeated, e)
		}
		return false
	})
	return repeated
}

func request(t *testing.T, method, url string, body any) {
	t.Helper()
	document, err := json.Marshal(body)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(document))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	said, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Less(t, answer.StatusCode, http.StatusMultipleChoices, "%s %s: %s", method, url, said)
}
