// Package examples holds no code but tests: it runs the programs of examples as their pages say,
// against a real PostgreSQL, through one relay into Kafka, and compares what arrives with what
// they print. What their package managers install is kept in the user's cache directory until the
// files that they install from change.
//
// A runtime that is missing is a missing part: python, node, prisma (a Node that is new enough),
// mvn, sqlc.
package examples
