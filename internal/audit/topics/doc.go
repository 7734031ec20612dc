// Package topics reads what was published, through sarama: a client that shares no code with
// franz-go, by which it was written. So a defect of the one does not hide one of the other
// (docs/decisions/0029). It leaves no trace in the cluster: there is no consumer group.
//
//	client.go    the connection: sarama's settings, its errors
//	reader.go    Reader: the records of topics, up to their ends
//	follower.go  Follower: what is published from now on
package topics
