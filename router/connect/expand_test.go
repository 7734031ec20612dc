package connect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseJSON_FindsManyMembersWithoutALookAtEach(t *testing.T) {
	const n = 20_000
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"member%d":%d`, i, i)
	}
	doc, err := ParseJSON([]byte("{" + strings.Join(members, ",") + "}"))
	require.NoError(t, err)
	require.Len(t, doc.places, n)
}

// FuzzExpand gives table.expand.json.payload any text.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}]}`, `{"a":[1,"x"]}`, `[[],[[]]]`, `{"a":{"a":{"a":1e400}}}`, `{"a":1,"a":"2"}`, `{"\ud800":0}`, strings.Repeat("[", 300)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, keep := range []bool{false, true} {
			e := Expander{KeepNulls: keep, KeepEmpty: keep, Adjustment: "avro_unicode"}
			if x := e.Expand(Text(payload)); x.Done && !x.Poison && x.Schema != nil && x.Schema.Kind != KindStruct {
				t.Fatalf("%q became %v", payload, x.Schema)
			}
		}
	})
}
