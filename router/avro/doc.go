// Package avro writes values of Kafka Connect as Avro, as Confluent's AvroConverter does.
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
