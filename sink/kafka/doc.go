// Package kafka is the connection to Apache Kafka, through franz-go: configuration, one set of
// connections, questions about the cluster and its topics, and one table of errors. What writes is
// package producer, what reads package topicreader.
//
//	config.go       Config: what a user can set, defaults, validation, sizes that follow from it
//	client.go       Client: one set of connections, each option with its reason
//	dialer.go       connections, all closed at once when it must end
//	compression.go  codecs, lz4 in small blocks
//	answers.go      the lengths of what a broker sends are checked before memory is taken
//	tls.go          TLS, its files read again for each connection
//	sasl.go         logins: which belongs to which mechanism; PLAIN and SCRAM
//	oauth.go        OAUTHBEARER: where tokens come from
//	kerberos.go     GSSAPI: Kerberos with a keytab
//	reach.go        reach a broker, and distinguish why not
//	advertised.go   the addresses that brokers advertise
//	stall.go        pauses between requests that bring nothing, and for a broker that is away
//	topics.go       is a topic there, how many partitions, create it if configured
//	inspect.go      what the check command reports about brokers and topics
//	transactions.go the same about transactions
//	errors.go       Kafka's errors in the words of package sink
//	command.go      what to type, for advice
package kafka
