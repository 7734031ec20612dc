// Package topics reads the records of topics through sarama. The relay writes them through
// franz-go, which shares no code with it: neither hides a defect of the other
// (docs/decisions/0029). There is no consumer group.
//
//	client.go    the connection: sarama's settings, its errors
//	login.go     the login, as that of the relay
//	reader.go    Reader: the records of topics, up to their ends
//	follower.go  Follower: new records
package topics
