package avro

import (
	"bytes"
	"testing"

	hamba "github.com/hamba/avro/v2"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/router/connect"
)

const everything = `{"type":"record","name":"All","namespace":"fuzz","fields":[
	{"name":"b","type":"boolean","default":true},
	{"name":"i","type":"int","default":1},
	{"name":"l","type":["null","long"],"default":null},
	{"name":"f","type":"float","default":0.5},
	{"name":"d","type":"double","default":0.5},
	{"name":"s","type":["string","null"],"default":"x"},
	{"name":"y","type":"bytes","default":"\u00ff"},
	{"name":"x","type":{"type":"fixed","name":"F","size":2},"default":"ab"},
	{"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]},"default":"B"},
	{"name":"a","type":{"type":"array","items":["null","int","double","string","All"]},"default":[]},
	{"name":"m","type":{"type":"map","values":["boolean",{"type":"array","items":"All"}]},"default":{}},
	{"name":"day","type":{"type":"int","logicalType":"date"},"default":0},
	{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"},"default":0},
	{"name":"clock","type":{"type":"int","logicalType":"time-millis"},"default":0},
	{"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2},"default":"\u0001"}]}`

// FuzzAppendJSON: whatever the document is, it is refused with connect.Unwritable's error, or
// written as bytes that another decoder reads to their end.
func FuzzAppendJSON(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"b":false,"i":-1,"l":5,"f":1.5,"d":"NaN","s":null,"y":"AQI=","x":"AQI=","e":"A"}`,
		`{"a":[null,1,1.5,"\ud800",{"a":[{}]}],"m":{"k":[{"i":2}],"":true}}`,
		`{"day":"2024-02-29","at":"2024-02-29T12:00:00.123456+01:00","clock":"23:59:59.999","price":-1.25e1}`,
		`{"price":"0.001"}`, `{"at":1e15}`, `[1,`, `{"no":1}`, `null`, "{\"s\":\"\xff\"}", `{} {}`,
	} {
		f.Add([]byte(doc))
	}
	d, err := Parse(everything)
	require.NoError(f, err)
	read, err := hamba.ParseWithCache(everything, "", &hamba.SchemaCache{})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := d.AppendJSON([]byte{}, doc)
		if err != nil {
			var value *connect.ValueError
			require.ErrorAs(t, err, &value)
			require.Less(t, len(err.Error()), 2000+len(doc))
			return
		}
		r := hamba.NewReader(bytes.NewReader(append(got, "end"...)), 512)
		require.IsType(t, map[string]any{}, r.ReadNext(read))
		rest := make([]byte, len("end"))
		r.Read(rest)
		require.NoError(t, r.Error)
		require.Equal(t, "end", string(rest))
	})
}

// FuzzParse: a schema is refused, or what is missing in a document is written.
func FuzzParse(f *testing.F) {
	for _, text := range []string{everything, order, anything, `"int"`, `["null","string"]`, `{"type":"map","values":"bytes"}`,
		`{"type":"record","name":"r","fields":[{"name":"x","type":{"type":"fixed","name":"f","size":3},"default":"ab"}]}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		if _, err := d.AppendJSON(nil, []byte(`{}`)); err != nil {
			var value *connect.ValueError
			require.ErrorAs(t, err, &value)
		}
	})
}
