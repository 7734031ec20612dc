// Package protobuf writes values of Kafka Connect as messages of Protocol Buffers, with schemas as
// Confluent's ProtobufConverter infers them.
//
//	schema.go   New: the messages of a Connect schema
//	names.go    names of messages and of their fields
//	text.go     the text of a schema, as it is registered
//	write.go    Append: values
//	logical.go  decimals, dates and times
//	declared.go Parse: a schema that was given, by which documents are written
//	known.go    the compiler of texts, with files that need no reference
//	compare.go  Equal: whether two texts describe the same messages
//
// The source of the mapping is ProtobufConverter of Confluent's Schema Registry, release 8.4.
package protobuf
