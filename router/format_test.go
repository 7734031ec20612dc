package router

import (
	"testing"

	"github.com/postrider/postrider/router/connect"
	"github.com/stretchr/testify/require"
)

func TestEncoder_WritesNumbersInTheirBinaryForm(t *testing.T) {
	rel := outbox()
	for _, c := range []struct {
		format    string
		oid       uint32
		text      any
		want      string
		unwritten bool
	}{
		{"short", 21, "-2", "\xff\xfe", false},
		{"integer", 23, "5", "\x00\x00\x00\x05", false},
		{"long", 20, "5", "\x00\x00\x00\x00\x00\x00\x00\x05", false},
		{"float", 700, "1.5", "\x3f\xc0\x00\x00", false},
		{"double", 701, "1.5", "\x3f\xf8\x00\x00\x00\x00\x00\x00", false},
		{"float", 700, "NaN", "\x7f\xc0\x00\x00", false},
		{"double", 701, "NaN", "\x7f\xf8\x00\x00\x00\x00\x00\x00", false},
		{"boolean", 16, "t", "\x01", false},
		{"long", 23, "5", "", true},
		{"long", oidText, "5", "", true},
	} {
		rel.Columns[2].TypeOID = c.oid
		m, err := newRouter(t, Format{Key: c.format, Value: "string", Headers: "simple"}, func(cfg *Config) { cfg.NullKey = "publish" }).
			Route(insert(rel, baseID, "User", c.text, "T", "{}"))
		if c.unwritten {
			require.ErrorContains(t, err, "format long takes a value of type int64")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, string(m.Key), c.format)

		m, err = newRouter(t, Format{Key: c.format, Value: "string", Headers: "simple"}, func(cfg *Config) { cfg.NullKey = "publish" }).
			Route(insert(rel, baseID, "User", nil, "T", "{}"))
		require.NoError(t, err)
		require.Nil(t, m.Key)
		rel = outbox()
	}
}

func TestEncoder_FollowsTheOptionsOfAConverter(t *testing.T) {
	for what, c := range map[string]struct {
		oid    uint32
		mod    int32
		text   any
		format Format
		want   string
	}{
		"decimals as numbers": {1700, 10<<16 + 2 + 4, "-0.01", Format{Value: "json", ValueDecimals: "numeric"}, "-0.01"},
		"decimals as numbers with their schema": {1700, 10<<16 + 2 + 4, "12.30", Format{Value: "json+schema", ValueDecimals: "NUMERIC"},
			`{"schema":{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"10"}},"payload":12.30}`},
		"another character set":       {oidText, -1, "é€", Format{Value: "string", ValueEncoding: "ISO-8859-1"}, "\xe9?"},
		"two bytes for each":          {oidText, -1, "aé", Format{Value: "string", ValueEncoding: "UTF-16"}, "\xfe\xff\x00a\x00\xe9"},
		"ASCII":                       {oidText, -1, "aé", Format{Value: "string", ValueEncoding: "us-ascii"}, "a?"},
		"text beside bytes":           {oidText, -1, "x", Format{Value: "binary", ValueDelegate: "json"}, `"x"`},
		"bytes beside text":           {17, -1, `\x78`, Format{Value: "binary", ValueDelegate: "json"}, `x`},
		"no text beside bytes":        {oidText, -1, nil, Format{Value: "binary", ValueDelegate: "json"}, `null`},
		"a number for a text, schema": {23, -1, "7", Format{Value: "binary", ValueDelegate: "json+schema"}, `{"schema":{"type":"int32","optional":true},"payload":7}`},
	} {
		t.Run(what, func(t *testing.T) {
			rel := outbox()
			rel.Columns[4].TypeOID, rel.Columns[4].TypeMod = c.oid, c.mod
			c.format.Key, c.format.Headers = "string", "simple"
			m, err := newRouter(t, c.format, nil).Route(insert(rel, baseID, "User", "k", "T", c.text))
			require.NoError(t, err)
			require.Equal(t, c.want, string(m.Value))
		})
	}
}

func TestEncoder_PutsDefaultsInThePlaceOfNullIfAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		f := Format{Key: "string", Value: "json", Headers: "simple", ValueDefaults: asked}
		r, err := New([]Config{DefaultConfig()}, f, Options{Describe: func(uint32, uint32) (*Table, error) {
			return &Table{Columns: []tableColumn{{Name: "payload", Default: `'{"a": 1}'::jsonb`, Type: *connect.Builtin(3802, -1)}}}, nil
		}})
		require.NoError(t, err)
		m, err := r.Route(insert(outbox(), baseID, "User", "k", "T", nil))
		require.NoError(t, err)
		require.Equal(t, map[bool]string{false: `null`, true: `"{\"a\": 1}"`}[asked], string(m.Value))
	}
}

func TestFormat_NamesEveryWrongOption(t *testing.T) {
	f := Format{Key: "xml", Value: "string", Headers: "simple", KeyDecimals: "HEX", ValueEncoding: "EBCDIC", ValueDelegate: "avro",
		ValueOptional: true, ValueWrappers: true, KeyLatest: true, KeySchemaReferences: []string{"customers-value:1"},
		ValueLatest: true, ValueSchemaFile: "order.avsc", ValueSchemaMessage: "Order"}
	err := f.Validate()
	for _, want := range []string{
		`format.key = "xml": must be one of string, json, json+schema, binary, avro, json_schema, protobuf, framed, boolean, double`,
		`format.key.decimal.format = "HEX": must be one of BASE64, NUMERIC`,
		`format.value.encoding = "EBCDIC": must be UTF-8, UTF-16, UTF-32, US-ASCII or`,
		`format.value.delegate = "avro"`,
		`value.optional.for.nullables and value.wrapper.for.nullables are two ways`,
		`format.value.schema.file and value.use.latest.version are two schemas`,
		`format.key.schema.file and key.use.latest.version need format.key = "avro", "json_schema" or "protobuf"`,
		`format.key.schema.references needs key.schema.file`,
		`format.key.schema.references: "customers-value:1" is not NAME=SUBJECT:VERSION`,
		`format.value.schema.message needs format.value = "protobuf"`,
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestParseReference(t *testing.T) {
	r, err := ParseReference("shop/customer.proto=:.context:customers-value:12")
	require.NoError(t, err)
	require.Equal(t, Reference{"shop/customer.proto", ":.context:customers-value", 12}, r)
	for _, text := range []string{"", "a", "a=b", "a=b:", "a=b:0", "a=b:latest", "=b:1", "a=:1"} {
		_, err := ParseReference(text)
		require.ErrorContains(t, err, "is not NAME=SUBJECT:VERSION", text)
	}
}
