package faults

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is one fault and what must hold after it. Its tests are named after it: TestFault07_... is one of row 7.
type row struct {
	number     int
	fault      string
	lost       string
	duplicates string // "window": at most what was in flight and what was acknowledged since the last confirmed status
	also       string // what else must hold
}

// rows are the whole matrix. In each of them nothing of a key is delivered out of order, nothing that was rolled back is published,
// and the events of a key stay in one partition: judge looks at that in every test.
var rows = []row{
	{1, "kill -9 of the relay, 200 times at random points", "0", "window, for each kill", "`exactly_once`: 0 duplicates, no partial transaction; `dedup = \"tail\"`: 0 duplicates"},
	{2, "SIGTERM under load, 100 times", "0", "0", "exit status 0 in time; the slot's confirmed position covers the last published row"},
	{3, "SIGTERM while Kafka is down", "0", "window", "the relay ends at `relay.drain_timeout`, with its own exit status"},
	{4, "SIGSTOP of the relay for longer than wal_sender_timeout; another takes over; SIGCONT", "0", "window, counted", "`exactly_once`: the stopped relay publishes nothing late"},
	{5, "fast stop and start of PostgreSQL: relay idle, with a backlog, with Kafka down", "0", "window; before PostgreSQL 17 also what was published since the slot was last saved", "the server does not wait for the relay"},
	{6, "kill -9 of PostgreSQL, 50 times", "0", "window, and what was published since the slot was last saved; reported", "`dedup = \"tail\"`: 0 duplicates"},
	{7, "walsender terminated, every second for 5 minutes", "0", "window, for each termination", "the pause before the next session stays bounded; no goroutine is left over"},
	{8, "promotion of a standby with a failover slot (17, 18)", "0 of what the new primary has", "window", "the new timeline is logged; events that it lacks are reported"},
	{9, "standby of `synchronized_standby_slots` down, which the failover slot waits for", "0", "0", "the status shows that the stream waits for the standby"},
	{10, "slot invalidated, by size and by idle timeout (18)", "the gap is named", "n/a", "the relay stops, never recreates the slot, and names the range and the recovery"},
	{11, "slot dropped while streaming, or recreated by another session", "the gap is named", "n/a", "without consent the relay does not start on a slot ahead of the position it remembers"},
	{12, "publication dropped, table removed or recreated, inserts no longer published", "noticed within 10 s", "0", "the relay confirms nothing after the change, also where the server continues to send (18)"},
	{13, "columns added, dropped, renamed, widened, table renamed, between and inside transactions", "0", "0", "if a column that the relay needs is gone, it halts and names the column"},
	{14, "broker killed and restarted, again and again", "0", "0", ""},
	{15, "all brokers down for 10 minutes at 2,000 events/s", "0", "0", "memory stays within relay.in_flight_bytes and relay.stalled_bytes; the replication connection stays open; retained WAL is reported; the relay catches up faster than rows are written"},
	{16, "1 to 5 % of the writes to the broker cut, leader moves, NOT_LEADER", "0", "0; window, for each cut of the connection to PostgreSQL", ""},
	{17, "acknowledgement lost after the append, request timeout, NOT_ENOUGH_REPLICAS_AFTER_APPEND", "0", "0", ""},
	{18, "OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, UNKNOWN_PRODUCER_ID", "0", "window", "a new producer starts, and the stream begins again at the confirmed position"},
	{19, "TOPIC_AUTHORIZATION_FAILED, unknown topic, topic deleted in mid-stream", "0", "0", "the whole slot waits, and the status names the topic"},
	{20, "MESSAGE_TOO_LARGE, and rows over the limit of the relay itself", "0, or each row is a dead letter once", "window, for each row that the broker refuses", "the dead letter has the headers and the hash"},
	{21, "poison: invalid JSON, NUL in a key, unknown type, bad headers", "as the policy says", "0", ""},
	{22, "a transaction of 3 million rows, one of 5 GB, a row of 200 MB", "0", "0", "memory stays within its budget; the connection stays open"},
	{23, "100,000 tiny transactions of 64 sessions, with savepoints and rollbacks", "0", "0", "nothing rolled back is published"},
	{24, "idle outbox beside a busy database", "0", "0", "positions are confirmed and WAL is released"},
	{25, "a foreign transaction that stays open", "0", "0", "the status names its pid and its age"},
	{26, "wall clock of the relay off by an hour, time jumps", "0", "0", "no storm of timers, no negative latency"},
	{27, "half-open network, 500 ms latency, 1 Mbit/s, one byte at a time, to PostgreSQL and to Kafka", "0", "window", ""},
	{28, "address of a host, password and certificate change", "0", "window", "what is read from a file needs no restart of the relay"},
	{29, "disk full under PostgreSQL's WAL", "0", "window", "the relay continues to drain"},
	{30, "read-only or full disk under the relay", "0", "0", "the relay writes no file"},
	{31, "memory limits of 64, 128 and 256 MiB", "0", "window", ""},
	{32, "two relays on one slot, killed at random", "0", "window, for each kill", "at most one streams at any time; the other takes over"},
	{33, "database restored to an earlier point, another cluster behind the same name", "refuses to start", "n/a", "system identifier, timeline and position are compared"},
	{34, "upgrade of the server from 17 to 18 with the slot kept", "0", "window", ""},
	{35, "a flush position beyond what was received", "blocked", "n/a", "the code cannot send such a position; property tests show it"},
	{36, "logical messages: not transactional, forged prefix, another database", "0", "0", "not published"},
	{37, "hostile operators, functions and types in the database", "0", "0", "no command calls them"},
	{38, "publication or table changed and put back between two looks", "the range is named", "0; window, for each session that ends", "the relay stops and reports between which positions; `recover` publishes the rows"},
	{39, "unlogged table or partition", "the partition is named", "0", "the relay refuses to start, and stops when such a partition is attached later"},
	{40, "partition detached or dropped, or a copy of the outbox made, with rows not yet relayed", "0", "0; window, for each session that ends", "the relay halts in front of a row whose table is not proven, and names it"},
	{41, "request of a killed relay that the broker carries out late", "0", "one batch of each partition, late", "`exactly_once`: 0 duplicates, nothing late; what the relay's kernel has not sent is never carried out"},
	{42, "outbox pruned while the relay is down or killed, the slot lost or recreated, the table out of the publication, a transaction open, the database restored", "0", "n/a", "a row or partition is removed only if it is proven that its rows were delivered"},
	{43, "kill -9 of the relay and of a consumer with an inbox, 100 times each", "0", "window, for each kill; none in the consumer's database", ""},
	{44, "tokens of 10 s for ten minutes; the provider of tokens is away, refuses, or issues what the broker refuses", "0", "0; window, for each session that ends", "tokens that are renewed end no session; a refusal says what to do"},
	{45, "schema registry away, with known schemas and, after kill -9 of the relay, without any", "0", "window, for the kill", "rows with known schemas go on; the others wait, and go on by themselves"},
	{46, "a cluster of three brokers (TLS, SCRAM): each restarted, killed, killed and restarted at once; controller moved, replicas reassigned, leaders elected", "0", "0", "one session; no partition waits for longer than with a plain producer, plus a second"},
	{47, "a third of the partitions without a leader for a minute, then kill -9 of the relay", "0", "what was published since the oldest message that waited", "the other partitions go on, and the status names the partition; `dedup = \"tail\"`: 0 duplicates"},
	{48, "`exactly_once` on the cluster: brokers stopped and killed one after the other, the relay killed 100 times", "0", "0", "no partial transaction is visible"},
	{49, "a primary with two standbys (17, 18): 20 switchovers and 20 failovers under load", "0", "window, for each", "the relay follows each time; no phantom events"},
	{50, "10,000 topics, each of them twice, then kill -9 in a transaction of 20,000 rows", "0", "0 with `dedup = \"tail\"`", "memory stays under 128 MiB"},
	{51, "an outbox of 5,000 partitions, of which some are added and dropped meanwhile", "0", "0", "one session; `check` succeeds"},
	{52, "100,000 savepoints in one transaction, nested, a third of them rolled back (14, 18)", "0", "0", "nothing rolled back is published; memory stays under 96 MiB"},
	{53, "backlogs of 2 GB, of rows of 10 kB and of 1 MB", "0", "0", "memory stays within its budget"},
	{54, "100,000 keys at once, then kill -9 in a transaction of 100,000 rows of as many keys", "0", "0 with `dedup = \"tail\"`", "memory stays under 96 MiB"},
}

// prefix is how the names of a row's tests begin.
func (r row) prefix() string { return fmt.Sprintf("TestFault%02d", r.number) }

// command is the full form of a row.
func (r row) command() string {
	return "go test ./test/faults -run " + r.prefix() + " -long -timeout 0"
}

var rowOfName = regexp.MustCompile(`^TestFault(\d\d)_`)

// rowOf is the number of the row that a test belongs to, by its name, and zero for one outside of the matrix.
func rowOf(name string) int {
	m := rowOfName.FindStringSubmatch(name)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

// tests are the names of this package's tests, which the source has.
func tests() (names []string, err error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func TestMatrix_EveryRowHasATest(t *testing.T) {
	t.Parallel()
	covered := map[int]bool{}
	names, err := tests()
	require.NoError(t, err)
	for _, name := range names {
		if n := rowOf(name); n != 0 {
			covered[n] = true
		}
	}
	for i, r := range rows {
		require.Equal(t, i+1, r.number)
		require.True(t, covered[r.number], "no test %s_... for: %s", r.prefix(), r.fault)
	}
	require.Len(t, rows, 54)
}
