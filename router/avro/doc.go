// Package avro writes values of Kafka Connect as Avro, as Confluent's AvroConverter does.
//
// A Converter makes the Avro schema of a Connect schema, with the text that AvroConverter
// registers, and writes values by it:
//
//   - an optional value is a union with null, which comes first; behind the type where there is
//     a default, since Avro takes the default of a union for its first type;
//   - a struct is a record. Its name is split at the last dot; one without a name is
//     ConnectDefault, ConnectDefault2 and so on, of the namespace io.confluent.connect.avro.
//     A struct that appears again is written as its name;
//   - Decimal, Date, Time and Timestamp of Connect have Avro's logical types. Debezium's, such as
//     io.debezium.time.MicroTimestamp, are the numbers and texts that they are in Connect, with
//     their names in connect.name;
//   - what Avro has no place for is in properties: connect.name, connect.version, connect.doc,
//     connect.default, connect.parameters and connect.type;
//   - bytes at the top are written without their length, as Confluent's serializer does.
//
// A Declared is a schema that was given, in a file or by a registry. A JSON document is written by
// it as plain JSON, without the tags that Avro's own JSON has for unions:
//
//   - members are found by name: one that is missing has its default, one too many is an error;
//   - a union takes the value as the first of its types that it fits;
//   - bytes are in Base64; floats that are not finite are the texts NaN, Infinity and -Infinity;
//   - dates, times and timestamps are numbers as Avro has them, or texts of ISO 8601: a timestamp
//     with a zone, a local one without. Digits beyond the unit of the schema are cut;
//   - decimals are numbers or texts. Digits for which the schema has no place are an error.
//
// Where the files are:
//
//   - converter.go has the options, and makes an Avro schema of a Connect schema;
//   - text.go writes that schema; names.go its names, enum.go its enums, defaults.go its defaults;
//   - anything.go is the schema of what has none;
//   - write.go writes values by it;
//   - declared.go is a schema that was given, with its defaults; parse.go reads it, node.go is
//     what was read;
//   - fit.go writes JSON and Connect's values by it, with logical.go for dates, numbers and bytes,
//     and decimal.go for decimals.
package avro
