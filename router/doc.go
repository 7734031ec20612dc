// Package router turns rows of an outbox table into messages, as Debezium's Outbox Event Router
// does.
//
// It is pure: no I/O but the functions it is given, no goroutine. Only the ids of runs and spans
// differ from one start to the next.
//
//   - router.go finds the rule set of an event, route.go makes the message; rules.go divides
//     tables among rule sets;
//   - config.go has the options, validate.go their checks;
//   - columns.go is the plan of a relation: which column is what; table.go what the catalog adds;
//   - topic.go names the topic; header.go, tracing.go, position.go make headers; placement.go
//     places additional columns; envelope.go makes the value; timestamp.go the record time;
//   - cloudevents.go makes CloudEvents of messages, cloudeventsvalidate.go checks their options;
//   - message.go reads logical messages, update.go updated rows, heartbeat.go writes heartbeats;
//   - errors.go has the errors.
package router
