package takeover

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// What the slot sends after the advance must begin with the first row that Debezium did not
// publish, or with the transaction of that row.
func TestSlotAdvance_FitsTheOffsetsOfDebezium(t *testing.T) {
	broker := parts.RealKafka(t)
	// Offsets are stored as they come, or the test would wait a minute for each.
	worker := parts.KafkaConnect(t, broker, map[string]string{
		"offset.flush.interval.ms": "100",
		// which a connector takes that has failed to publish a row
		"offset.flush.timeout.ms": "1000",
	})
	for name, test := range map[string]func(*rig){
		"last row of a transaction":       lastRow,
		"transaction published in part":   part,
		"rows of one COPY":                oneCopy,
		"COPY in a transaction":           copyInside,
		"heartbeat":                       heartbeat,
		"transaction metadata":            metadata,
		"logical message":                 message,
		"logical message outside of one":  messageAlone,
		"nothing of the stream published": nothing,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, worker, broker)
			test(r)
			worker.Delete(t, r.name)
		})
	}
}

// Debezium is not done with the transaction, but with all of it that it publishes.
func lastRow(r *rig) {
	r.start()
	r.exec(row("open", "p1"))
	r.transaction(row("open", "p2"), row("open", "p3"), `UPDATE outbox SET payload = ''`,
		`INSERT INTO business VALUES (1)`, `DELETE FROM outbox`)
	r.published(3)
	r.stopped(func(o offset) bool { return o.Type == "INSERT" })
	r.exec(row("open", "p4"))
	_, again := r.advance()
	require.Zero(r.t, again)
	require.Equal(r.t, []string{"p4"}, r.left())
}

func part(r *rig) {
	r.start()
	r.exec(row("open", "p1"))
	r.transaction(row("open", "p2"), row("open", "p3"), row("missing", "p4"), row("open", "p5"))
	require.Equal(r.t, []string{"p1", "p2", "p3"}, r.published(3))
	r.stopped(func(o offset) bool { return o.Type == "INSERT" })
	_, again := r.advance()
	require.Equal(r.t, 2, again)
	require.Equal(r.t, []string{"p2", "p3", "p4", "p5"}, r.left())

	// These two are what Debezium would have left out.
	r.broker.CreateTopic(r.t, r.name+".missing", 1, nil)
	r.worker.Resume(r.t, r.name)
	require.Equal(r.t, []string{"p1", "p2", "p3", "p5"}, r.published(4))
}

// The rows of a COPY share one LSN, and if it begins the transaction, the Begin has that too.
// Debezium then takes the Begin for a row when it starts again, so the number that it stores is
// one too high from there on.
func oneCopy(r *rig) {
	r.start()
	r.copied("open", "p1", "p2", "p3", "p4", "p5")
	r.published(5)
	o := r.stopped(func(o offset) bool { return o.Type == "INSERT" && o.Events == 5 })
	covered, again := r.advance()
	require.Equal(r.t, 4, covered)
	require.Equal(r.t, 4, again)
	require.Equal(r.t, []string{"p1", "p2", "p3", "p4", "p5"}, r.left(),
		"it may as well have been the fourth row, for the second time")

	r.setOffset(func(stored map[string]any) { stored["lsn_events_processed"] = o.Events - 2 })
	r.worker.Resume(r.t, r.name)
	require.Equal(r.t, []string{"p1", "p2", "p3", "p4", "p5", "p3", "p4", "p5"}, r.published(8),
		"the third row was published")
	r.stopped(func(o offset) bool { return o.Events == 6 })
	_, again = r.advance()
	require.Zero(r.t, again)
	require.Empty(r.t, r.left())
}

func copyInside(r *rig) {
	r.start()
	r.exec("BEGIN")
	r.exec("INSERT INTO business VALUES (1)")
	r.copied("open", "p1", "p2", "p3", "p4", "p5")
	r.exec("COMMIT")
	r.published(5)
	o := r.stopped(func(o offset) bool { return o.Type == "INSERT" && o.Events == 5 })
	covered, again := r.advance("--dry-run")
	require.Equal(r.t, 5, covered)
	require.Zero(r.t, again)

	r.setOffset(func(stored map[string]any) { stored["lsn_events_processed"] = o.Events - 2 })
	r.worker.Resume(r.t, r.name)
	require.Equal(r.t, []string{"p1", "p2", "p3", "p4", "p5", "p4", "p5"}, r.published(7))
}

// A heartbeat stores the end of a transaction of which nothing was published.
func heartbeat(r *rig) {
	r.config["heartbeat.interval.ms"] = "50"
	r.start()
	r.exec(row("open", "p1"))
	r.published(1)
	r.exec("INSERT INTO business VALUES (1)")
	r.stopped(func(o offset) bool { return o.Type == "COMMIT" && o.LSN == o.CommitLSN })
	r.exec(row("open", "p2"))
	_, again := r.advance()
	require.Zero(r.t, again)
	require.Equal(r.t, []string{"p2"}, r.left())
}

// The record that announces a transaction stores its begin.
func metadata(r *rig) {
	r.config["provide.transaction.metadata"] = "true"
	r.start()
	r.exec(row("open", "p1"))
	r.exec(row("missing", "p2"))
	r.stopped(func(o offset) bool { return o.Type == "BEGIN" })
	_, again := r.advance()
	require.Zero(r.t, again)
	require.Equal(r.t, []string{"p2"}, r.left())
}

func message(r *rig) {
	r.start()
	r.exec(row("open", "p1"))
	r.transaction(row("open", "p2"), emit(true, "p3"), row("missing", "p4"))
	o := r.stopped(func(o offset) bool { return o.Type == "MESSAGE" })
	require.NotZero(r.t, o.TxID)
	_, again := r.advance()
	require.Equal(r.t, 2, again)
	require.Equal(r.t, []string{"p2", "p3", "p4"}, r.left())
}

func messageAlone(r *rig) {
	r.start()
	r.exec(row("open", "p1"))
	r.exec(emit(false, "p2"))
	o := r.stopped(func(o offset) bool { return o.Type == "MESSAGE" })
	require.Zero(r.t, o.TxID)
	r.exec(row("open", "p3"))
	_, again := r.advance()
	require.Zero(r.t, again)
	require.Equal(r.t, []string{"p3"}, r.left())
}

// A connector that came upon a row that it cannot publish has stored nothing.
func nothing(r *rig) {
	r.start()
	r.exec(row("missing", "p1"))
	r.stopped(func(o offset) bool { return o == offset{} })
	_, stderr, code := r.postrider("slot", "advance", r.name, "--debezium-offsets", "offsets.json",
		"--yes")
	require.NotZero(r.t, code)
	require.Contains(r.t, stderr, "no offset is stored")
	require.Equal(r.t, []string{"p1"}, r.left())
}
