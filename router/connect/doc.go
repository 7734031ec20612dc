// Package connect has the values and schemas of Kafka Connect, as Debezium makes them of
// PostgreSQL's text, and Connect's converters, which write them to bytes.
//
// A value is one of: nil, Text, bool, int64, float32, float64, Decimal, Buffer, ByteArray, Date,
// []any, Map, *Structure.
//
//   - schema.go describes values; value.go has their kinds, and their text in JSON, Java, headers;
//   - encoder.go is a converter with its options; charset.go its character sets; unwritable.go its
//     errors;
//   - json.go writes JSON strings, jsonread.go reads documents;
//   - expand.go makes a schema and value of a JSON text; merge.go merges schemas of array items;
//   - pgtype.go names PostgreSQL's types; codec.go maps each to a schema and a reader;
//   - arrays.go maps arrays; arraytext.go reads the text of arrays and hstore;
//   - times.go maps dates, times, intervals; timetext.go reads and writes their text;
//   - decimal.go is BigDecimal; geometry.go maps points and shapes; javafloat.go prints floats;
//   - defaults.go reads column defaults.
package connect
