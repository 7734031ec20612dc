// Package alerts sends notifications of conditions and of their end where there is no Prometheus,
// to a webhook in Alertmanager's format and to a command.
//
// It guarantees, for each receiver and each condition separately:
//
//  1. A condition that has lasted for its For is sent as firing, again when it becomes more
//     severe, and again after each repeat_interval.
//  2. It is sent as resolved once it has been absent for a while, the longer the more often it
//     returns: a condition that flaps is firing.
//  3. Resolved is sent to every receiver that may have accepted firing, without a limit of time,
//     and to no other.
//  4. There is no queue. A notification is the difference between the present state and the one
//     that the receiver accepted last. After an outage it gets the present state, not the history.
//  5. The end of the process does not resolve a condition.
//  6. Nothing is stored on disk: a new process sends every present condition again.
//  7. Update does not block: a receiver cannot delay the relay or the other receiver.
//
// The files:
//
//	alerts.go   Notifier: the conditions of each second
//	serve.go    sending to a receiver until the process ends
//	incident.go when a condition is firing, how severe, and when it is over
//	delivery.go what a receiver has accepted, and what is pending
//	message.go  the payload: Alertmanager's labels and annotations
//	webhook.go  a receiver of HTTP POST requests
//	command.go  a receiver that is a program
//	trial.go    the test notification of `postrider alerts test`
//	config.go   the section [alerts]
package alerts
