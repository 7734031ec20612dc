// Package alerts notifies people of conditions, and of their end, where there is no Prometheus: by
// a webhook in Alertmanager's format, and by a command.
//
// It promises, for each receiver and each condition by itself:
//
//  1. A condition that has lasted for its For is sent as firing; again when it becomes more
//     severe; again after each repeat_interval.
//  2. It is sent as resolved once it has been absent for a while, longer the more often it
//     returns: a condition that flaps is firing.
//  3. Resolved is sent to every receiver that may have got firing, however long that takes, and to
//     no other.
//  4. There is no queue. A notification is the difference between the present and what the
//     receiver took last: a receiver that was down gets the latest state, not the history.
//  5. The end of the process resolves nothing.
//  6. Nothing is stored on disk: a new process sends every present condition, and has no record of
//     what its predecessor sent.
//  7. Update does not block: no receiver can delay the relay or the other receiver.
//
// The files:
//
//	alerts.go   Notifier: the conditions of each second
//	serve.go    sending to a receiver until the process ends
//	incident.go when a condition is firing, how severe, and when it is over
//	delivery.go what a receiver took, and what is pending
//	message.go  the payload: labels and annotations, as Alertmanager has them
//	webhook.go  a receiver that gets an HTTP POST
//	command.go  a receiver that is a program
//	trial.go    the test notification of `postrider alerts test`
//	config.go   the section [alerts]
package alerts
