// Package registry holds no code but tests: clients of the other side decode what postrider frames
// for a schema registry, Confluent's Python client, the registry client of kafkajs and Apicurio's
// Java deserializers. The programs are in clients; what their package managers install is kept in
// the user's cache directory. The registry is franz-go's fake, or for the first two that of
// POSTRIDER_TEST_REGISTRY, a URL.
//
// A runtime that is missing is a missing part: python, node, mvn.
package registry
