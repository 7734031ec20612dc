package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteLetters does what docs/DEAD-LETTERS.md recommends, when nothing is open.
func (p *poisonRig) deleteLetters(t testing.TB) {
	t.Helper()
	request := kmsg.NewPtrDeleteRecordsRequest()
	request.TimeoutMillis = 10_000
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic = p.letters
	for partition, end := range p.broker.EndOffsets(t, p.letters) {
		of.Partitions = append(of.Partitions, kmsg.DeleteRecordsRequestTopicPartition{Partition: partition, Offset: end})
	}
	request.Topics = append(request.Topics, of)
	for _, shard := range p.broker.Client(t).RequestSharded(t.Context(), request) {
		require.NoError(t, shard.Err)
	}
}

// The broker refuses a row, and one behind it of the same key is too large: its letter is in the topic first. With the beginning of the topic
// deleted, dedup must not take the one that comes later for published.
func TestFault20_DedupKeepsALetterThatComesBehindALaterOne(t *testing.T) {
	t.Parallel()
	p := newPoisonRig(t, "dead_letter")
	p.dedup()
	p.settings["replication.max_row_bytes"] = "200000"
	large := fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number) VALUES ('%s', 'k', jsonb_build_object('pad', repeat('x', 300000)), 7);`, p.topic)
	execute(t, p.dsn, large)
	relay := p.started(t)
	p.drained(t, time.Minute)
	relay.stop(t)
	_, errs, code := p.cli(t, "deadletter", "discard", "--all", "--yes")
	require.Zero(t, code, errs)
	p.deleteLetters(t)

	p.alter(t, "outbox.event."+p.topic, "message.timestamp.before.max.ms", "3600000")
	execute(t, p.dsn, "BEGIN;"+fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, payload, number, happened)
		VALUES ('%s', 'k', '{"key": "k", "number": 1}', 1, '2001-02-03T04:05:06Z');`, p.topic)+large+"COMMIT")
	relay = p.started(t)
	p.drained(t, time.Minute)
	relay.stop(t)
	causes := map[string]int{}
	for _, r := range p.broker.All(t, p.letters) {
		causes[headerOf(r, "postrider.dead_letter.cause")]++
	}
	t.Log("letters:", causes, "in the topic:", p.numbers(t, "k"))
	require.Equal(t, map[string]int{"refused": 1, "too_large": 1}, causes)
}
