// Package topicreader reads topics, up to their ends as they are at one moment, or from where the
// last reading ended: the progress of a snapshot, stored positions, dead letters, what earlier
// sessions have published, and what recovery compares. It sends fetch requests of its own: a
// consumer of the client does not report where a partition ends behind its last record, which is
// how far compaction, aborted transactions and markers reach.
//
//	reader.go       Reader, and one fetch request
//	offsets.go      where partitions begin and end
//	spans.go        reading up to an end
//	transactions.go which records of transactions count
package topicreader
