// Package router turns rows of an outbox table into messages, as Debezium's Outbox Event Router does.
//
// It is pure: no I/O but the Describe function it is given, no clock, no goroutine.
package router

import (
	"postrider/replication"
	"postrider/sink"
)

// Options say what a Router routes.
type Options struct {
	TopicPrefix     string   // Debezium's topic.prefix: the first part of the names of schemas; empty: "postrider"
	Tables          []string // outbox tables as schema.table; empty: every relation that is met
	MessagePrefixes []string // prefixes of logical messages that carry outbox events

	// Describe asks the catalogue about a relation; it is called once for each *replication.Relation that is met.
	// Nil: types that are not built in are taken as text and columns as nullable unless part of the key.
	Describe func(oid uint32) (*Table, error)
}

// Router maps events to messages. It belongs to one goroutine.
type Router struct{}

// New makes a router of a valid configuration.
func New(cfg Config, f Format, opts Options) (*Router, error) { return &Router{}, nil }

// Route maps an Insert or a Message. A nil message without an error is an event that is not ours: another table, another prefix.
// The error is a *RowError for an event that can never be published, a *ShapeError for a relation that cannot be routed,
// or what Describe returned.
// Everything of the message but Origin.Transaction is set; its slices may alias those of the event.
func (r *Router) Route(ev *replication.Event) (*sink.Message, error) { return nil, nil }

// Check resolves the columns of a relation as Route would, without a row. The error is a *ShapeError.
func (r *Router) Check(rel *replication.Relation) error { return nil }
