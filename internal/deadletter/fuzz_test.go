package deadletter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
)

// FuzzParse gives a record that anybody may have written to the dead-letter topic. It is one of ours or an error; a row that comes out of it can be
// routed, or is refused, like one from the server.
func FuzzParse(f *testing.F) {
	id := strings.Repeat("0f", len(ID{}))
	f.Add("message", id, "0/16B3748/2", "1", "1700000000000", []byte(`{"a":1}`))
	f.Add("row", id, "0/16B3748/2", "x", "", []byte(`{"kind":"update","schema":"public","table":"outbox","oid":7,"columns":[{"name":"id","type":25,"key":true,"value":"1"},`+
		`{"name":"aggregate_type","type":25,"value":"Order","old":"Other"},{"name":"aggregate_id","type":25,"unchanged":true},{"name":"payload","type":3802,"value":"{}"}]}`))
	f.Add("row", id, "0/16B3748/2", "", "-1", []byte(`{"kind":"message","prefix":"outbox","content":"e30="}`))
	f.Add("claim", id, "FFFFFFFF/FFFFFFFF/4294967295", "-2", "99999999999999999999", []byte(`{"kind":"insert","columns":[{}]}`))
	f.Add("resolution", "", "", "", "", []byte(`{"action":"redriven","letters":["`+id+`"]}`))
	f.Add("unparked", "", "", "", "", []byte(`{"topic":"t","key":"AA=="}`))
	f.Fuzz(func(t *testing.T, form, id, position, partition, timestamp string, value []byte) {
		m := &sink.Message{Value: value, Headers: []sink.Header{{Key: HeaderForm, Value: []byte(form)}, {Key: HeaderID, Value: []byte(id)},
			{Key: HeaderPosition, Value: []byte(position)}, {Key: HeaderPartition, Value: []byte(partition)}, {Key: HeaderTimestamp, Value: []byte(timestamp)}}}
		e, err := parse(m, 1)
		if err != nil {
			require.Equal(t, entry{}, e)
			return
		}
		if e.letter == nil {
			return
		}
		require.Equal(t, strings.ToLower(id), e.letter.ID.String())
		again, err := parsePosition(e.letter.position.String())
		require.NoError(t, err)
		require.Equal(t, e.letter.position, again)
		d, err := parseDocument(value)
		if err != nil {
			return
		}
		ev, err := d.event()
		if err != nil {
			return
		}
		if ev.Kind != replication.Message {
			require.Len(t, ev.Values, len(ev.Relation.Columns))
		}
		if ev.Old != nil {
			require.Len(t, ev.Old, len(ev.Values))
		}
		r, err := router.New([]router.Config{router.DefaultConfig()}, router.DefaultFormat(), router.Options{})
		require.NoError(t, err)
		_, _ = r.Route(ev) // any answer is right; a panic is not
	})
}
