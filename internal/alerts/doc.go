// Package alerts tells people when something is not well, and when it is over, for those who run no Prometheus: by a webhook in
// Alertmanager's format, and by a command.
//
// What it promises, for each receiver by itself, and each condition by its name:
//
//  1. A condition that has held for its For is told as firing; again when it gets graver than was told; again each repeat_interval.
//
//  2. It is told as resolved once it has been gone for a while, longer the more often it comes back: what flaps is firing.
//
//  3. Resolved is told to nobody who cannot have heard of the condition, and to everybody who can, however long that takes.
//
//  4. There is no queue: what is told is the difference between how things are and what the receiver took last. A receiver that was away
//     hears the latest, not the history.
//
//  5. The end of the process is the end of no condition.
//
//  6. Nothing is kept on disk: a new process tells of everything that holds, and knows of nothing that its predecessor told.
//
//  7. Update waits for nobody: no receiver can delay the relay, or the other receiver.
//
// The files:
//
//	alerts.go  Notifier: takes the conditions of each second to the receivers
//	episode.go when a condition is worth a notification, when it repeats and when it is over
//	message.go the payload: labels and annotations, as Alertmanager has them
//	webhook.go a receiver that is sent an HTTP POST
//	command.go a receiver that is a program
//	trial.go   the test notification of `postrider alerts test`
//	told.go    what has been sent, and what is still to be sent, for each receiver
//	config.go  the section [alerts]
package alerts
