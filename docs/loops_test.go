package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// waits lists every function of the product with a loop that may turn for as long as a neighbour likes: one without a condition, or whose condition is that a
// context has not ended, or that has a pause in it. For each it says what spaces the turns, and at least by how much. A new one fails this test until
// somebody has thought of what it does with a neighbour that answers at once.
var waits = map[string]string{
	"inbox.Consumer.Process":                            "5 ms, doubling up to 200 ms, ten times",
	"inbox/kgoinbox.Run":                                "one turn for each answer with records, and one for each error that the client reports, after its own back-off",
	"inbox/saramainbox.Run":                             "one turn for each session of the group; an error ends it",
	"inbox/saramainbox.handler.ConsumeClaim":            "one turn for each message",
	"internal/alerts.Notifier.serve":                    "0.5 s after a failure, doubling up to 15 min; nothing is pending after a success (TestTurns_NoAnswerOfAReceiverMakesTheNotifierSpin)",
	"internal/audit.hashTable.find":                     "no neighbour: ends at a free slot, and a quarter of them are",
	"internal/audit/topics.Follower.Run":                "one turn for each record, and a ticker of 2 s",
	"internal/audit/topics.Follower.open":               "1 s, ten times",
	"internal/audit/topics.Reader.fetchSpan":            "50 ms when an answer brings nothing, for sink.kafka.delivery_timeout (TestReader_DoesNotSpinOnAnswersThatBringNothing)",
	"internal/audit/topics.Reader.retry":                "1 s, five times",
	"internal/auditor.comparing.watch":                  "a ticker of 50 ms",
	"internal/backfill.Recovery.await":                  "10 s: the server's lock_timeout for the creation, or what slot.AwaitCommitted waits",
	"internal/backfill.Recovery.table":                  "one turn for each row",
	"internal/backfill.Rows.Next":                       "one turn for each answer with rows",
	"internal/backfill.source.next":                     "one turn for each row",
	"internal/bench.StartBroker":                        "2 ms, until the process has written its address or ended",
	"internal/bench.bench.createTopics":                 "20 ms, until a deadline",
	"internal/bench.run.writeUnrelated":                 "a ticker",
	"internal/bench.relay.await":                        "a ticker; ends after a minute or so",
	"internal/bench.steady.writer":                      "the next due time of the load",
	"internal/catalog.Catalog.Query":                    "no wait: two turns at most",
	"internal/cli.app.watchStatus":                      "a ticker of 2 s",
	"internal/daemon.Daemon.watch":                      "a ticker of 1 s, and one turn for each signal",
	"internal/daemon.Pipeline.reportBlocked":            "a ticker of 3 s",
	"internal/deadletter.redrive.redriveNew":            "the Store's own pause of 50 ms when nothing came; 50 rounds at most",
	"internal/deadletter.Tracker.Wait":                  "until the hold of the key is over, and one turn for each resolution; 1 s in all",
	"internal/deadletter.Tracker.poll":                  "the Store's own pause of 50 ms when nothing came; 1 s after an error (TestTurns_ATrackerWhoseTopicCannotBeReadDoesNotSpin)",
	"internal/debezium.parseStrimzi":                    "no neighbour: through a text",
	"internal/demo.AwaitProgress":                       "5 ms at least; ends after 30 s without progress",
	"internal/demo.Demo.Run":                            "10 ms",
	"internal/demo.Demo.reportProgress":                 "a ticker of 1 s",
	"internal/demo.createTopics":                        "100 ms",
	"internal/httpserver.stream.ServeHTTP":              "one turn for each poll",
	"internal/httpserver.stream.run":                    "a ticker of 1 s",
	"internal/memory.Limit":                             "no neighbour: one turn for each control group above",
	"internal/postgres.Poll":                            "the interval of its callers: 20 ms, and 2 s (slot/partition), 10 s (slot) or 15 s (slot/monitor) in all; 50 ms and 5 s in all (slot.AwaitRelease); 100 or 200 ms and 30 s in all (internal/prune); 200 ms for a slot, or 1 s for the lock of a snapshot (TestTurns_WhoStandsByLooksNowAndThen)",
	"internal/postgres.answering":                       "one turn for each host, and one when the look ends",
	"internal/prune.Pruner.Run":                         "prune.interval from the end of a run",
	"internal/writeback.Writer.Run":                     "write_back.interval from the end of a sweep; after a failed one doubled up to 30 s",
	"internal/writeback.Writer.batches":                 "no neighbour waits: ends with a batch that is not full",
	"internal/prune.rows.delete":                        "a pause as long as the chunk took; after a failed one lock_timeout, doubled up to five seconds, ten times",
	"internal/ratelimit.Limiter.Wait":                   "20 ms, or 1 s while the delay lasts (TestLimiter_WaitsAtLeastForABatch)",
	"internal/registry.Client.checkFramed":              "100 ms, for 2 s, once a minute if it is in vain",
	"internal/registry.glueRegistry.available":          "200 ms, for registry.timeout",
	"internal/ratelimit.Pacer.Publish":                  "one turn for each part of a list",
	"internal/status.Pause":                             "a ticker of 100 ms or more",
	"relay.Relay.Run":                                   "one turn for each pause that somebody asks for",
	"relay.Relay.keepGauges":                            "a ticker of 1 s",
	"relay.Relay.keepHeartbeat":                         "a ticker of relay.heartbeat_interval",
	"relay.Relay.stayPaused":                            "one turn for each request, and one when the time is over",
	"relay.Relay.work":                                  "half of relay.backoff_min, doubling up to relay.backoff_max without progress, or to 500 ms while what is missed is said to be back each time (TestTurns_NoErrorMakesTheRelaySpin, TestTurns_NoReturnMakesTheRelaySpin, TestTurns_AStandbyDoesNotSpinHoweverTheSlotLooks)",
	"relay.session.add":                                 "one turn for each acknowledgement, or 250 ms",
	"relay.session.drain":                               "one turn for each acknowledgement, or 250 ms",
	"relay.session.follow":                              "one turn for each hold of a key, which is asked for once",
	"relay.session.pump":                                "one turn for each batch, or a ticker of 1 s",
	"relay.session.awaitUnacknowledged":                 "one turn for each acknowledgement, or 250 ms",
	"relay.session.waitForRoom":                         "250 ms",
	"replication.Stream.Run":                            "one turn for each read that brought something, or until the next status is due",
	"replication.Stream.awaitEnd":                       "one turn for each read that brought something, for 5 s",
	"replication.Stream.handOver":                       "until the next status is due",
	"replication.Stream.sendStatuses":                   "a ticker of replication.status_interval, or of 300 ms in KeepAlive",
	"router/connect.jsonReader.list":                    "no neighbour: through a text",
	"router/javaregex.translator.class":                 "no neighbour: through a text",
	"sink/kafka.AwaitAnswer":                            "a tenth of the time since the first question, from 100 ms to 500 ms (TestTurns_WhoAwaitsABrokerAsksNowAndThen)",
	"sink/kafka.Client.partitions":                      "sink.kafka.retry_backoff, doubling, for 300 ms or read_timeout",
	"sink/kafka.Client.idempotence":                     "sink.kafka.retry_backoff, doubling, for 5 s",
	"sink/kafka/producer.DeadLetters.read":              "50 ms when an answer brings nothing, for sink.kafka.delivery_timeout (TestTurns_ReadsDoNotSpinOnAnswersThatBringNothing)",
	"sink/kafka/producer.Sink.waitForRoom":              "one turn for each acknowledgement that makes room",
	"sink/kafka/producer.topics.awaitPartition":         "a pause between two questions, until a deadline",
	"sink/kafka/producer.base.watch":                    "a ticker of 1 s, or a tenth of sink.kafka.delivery_timeout",
	"sink/kafka/producer.tailReader.readableEnd":        "25 ms, for sink.kafka.delivery_timeout",
	"sink/kafka/producer.transactionWriter.awaitStored": "100 us, growing to 50 ms",
	"sink/kafka/producer.transactionWriter.run":         "one turn for each time that the queue is filled",
	"sink/kafka/topicreader.Reader.Scan":                "50 ms when an answer brings nothing, for sink.kafka.delivery_timeout (TestTurns_ReadsDoNotSpinOnAnswersThatBringNothing)",
	"sink/kafka/topicreader.Reader.fetch":               "50 ms, and what the broker says of its quota, for sink.kafka.delivery_timeout (TestTurns_ReadsDoNotSpinOnAnswersThatBringNothing)",
	"sink/kafka/topicreader.Reader.retry":               "100 ms, doubling, six times",
	"sink/memory.session.Publish":                       "for tests",
	"sink/memory.session.answer":                        "for tests",
	"slot.CreateWaiting":                                "10 s: the server's lock_timeout for the creation",
	"slot/monitor.Monitor.Run":                          "while the server is away a tenth of the time, from 100 ms to 500 ms; where it refuses 250 ms, doubling up to 5 s (TestTurns_TheMonitorDoesNotSpin)",
	"slot/monitor.Monitor.query":                        "no wait: one turn for each right that is refused, and there are a few",
	"slot/monitor.Monitor.watch":                        "slot.check_interval or monitor.interval; a connection that does not live for 250 ms ends it (TestTurns_TheMonitorDoesNotSpin)",
	"slot/monitor.listen":                               "one turn for each notification",
	"slot/monitor.presence.AwaitReturn":                 "one turn for each connection of Monitor.Run that finds the server back",
}

func TestLoops_EachSaysWhatSpacesItsTurns(t *testing.T) {
	var found []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "test" || name == "embedded" || name == "testdata" || name == "sinktest" || name == "inboxtest" || strings.HasPrefix(name, ".") && name != "..") {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, declared := range file.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && f.Body != nil && waitsInALoop(f.Body) {
				found = append(found, strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../")+"."+receiver(f)+f.Name.Name)
			}
		}
		return nil
	})
	require.NoError(t, err)
	slices.Sort(found)
	var listed []string
	for name, spacing := range waits {
		require.NotEmpty(t, spacing, name)
		listed = append(listed, name)
	}
	slices.Sort(listed)
	require.Equal(t, listed, slices.Compact(found), "each loop that waits for a neighbour, with what spaces its turns")
}

func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	name := f.Recv.List[0].Type
	if pointer, ok := name.(*ast.StarExpr); ok {
		name = pointer.X
	}
	if generic, ok := name.(*ast.IndexExpr); ok {
		name = generic.X
	}
	return name.(*ast.Ident).Name + "."
}

func waitsInALoop(body *ast.BlockStmt) (waits bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		loop, ok := n.(*ast.ForStmt)
		if !ok {
			return true
		}
		waits = waits || loop.Cond == nil || calls(loop.Cond, "Err") || calls(loop.Body, "NewTimer", "After", "Sleep", "Pause", "wait", "Look", "look", "pause", "Update", "waitForRoom") || selects(loop.Body)
		return true
	})
	return waits
}

// calls tells whether a function or method of one of these names is called in n.
func calls(n ast.Node, names ...string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch called := call.Fun.(type) {
		case *ast.SelectorExpr:
			found = found || slices.Contains(names, called.Sel.Name)
		case *ast.Ident:
			found = found || slices.Contains(names, called.Name)
		}
		return true
	})
	return found
}

func selects(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		_, is := n.(*ast.SelectStmt)
		found = found || is
		return !found
	})
	return found
}
