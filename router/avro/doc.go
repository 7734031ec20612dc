// Package avro writes values of Kafka Connect as Avro, as Confluent's AvroConverter does.
//
//   - converter.go has the options, and makes an Avro schema of a Connect schema;
//   - text.go writes that schema; names.go its names, enum.go its enums, defaults.go its defaults;
//   - anything.go is the schema of what has none;
//   - write.go writes values by it.
package avro
