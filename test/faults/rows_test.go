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
	{2, "SIGTERM under load, 100 times", "0", "0", "exit status 0 in time; the slot confirms what was published last"},
	{3, "SIGTERM while Kafka is down", "0", "window", "ends by the drain timeout, with an exit status of its own"},
	{4, "SIGSTOP of the relay for longer than wal_sender_timeout; another takes over; SIGCONT", "0", "window, counted", "`exactly_once`: the one that was stopped publishes nothing stale"},
	{5, "fast stop and start of PostgreSQL: relay idle, with a backlog, with Kafka down", "0", "window; before 17 also since the slot was last saved", "the server does not wait for the relay"},
	{6, "kill -9 of PostgreSQL, 50 times", "0", "window and since the slot was last saved, reported", "`dedup = \"tail\"`: 0 duplicates"},
	{7, "walsender terminated, every second for 5 minutes", "0", "window, for each", "the pause before the next session stays bounded; no goroutine is left over"},
	{8, "promotion of a standby with a failover slot (17, 18)", "0 of what the new primary has", "window", "the new timeline is logged; events that it lacks are reported"},
	{9, "listed standby down, which the failover slot waits for", "0", "0", "the status shows that the stream waits for the standby"},
	{10, "slot invalidated, by size and by idle timeout (18)", "the gap is named", "n/a", "stops, never recreates the slot, names the range and the recovery"},
	{11, "slot dropped while streaming, or recreated by another session", "the gap is named", "n/a", "does not start on a slot that is ahead of its own memory without consent"},
	{12, "publication dropped, table removed or recreated, inserts no longer published", "noticed within 10 s", "0", "confirms nothing after it, also on 18, where the server goes on"},
	{13, "columns added, dropped, renamed, widened, table renamed, between and inside transactions", "0", "0", "a column that is needed and gone halts, by name"},
	{14, "broker killed and restarted, again and again", "0", "0", ""},
	{15, "all brokers down for 10 minutes at 2,000 events/s", "0", "0", "memory flat; the replication connection stays; retained WAL reported; catches up faster than is written"},
	{16, "1 to 5 % of the writes to the broker cut, leader moves, NOT_LEADER", "0", "0; window, for each cut of the connection to PostgreSQL beside them", ""},
	{17, "acknowledgement lost after the append, request timeout, NOT_ENOUGH_REPLICAS_AFTER_APPEND", "0", "0", ""},
	{18, "OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, UNKNOWN_PRODUCER_ID", "0", "window", "a new producer, and the stream again from the confirmed position"},
	{19, "TOPIC_AUTHORIZATION_FAILED, unknown topic, topic deleted in mid-stream", "0", "0", "the whole slot waits, and the status names the topic"},
	{20, "MESSAGE_TOO_LARGE and rows over our own limit", "0, or dead-lettered once", "window, for each that the broker refuses", "the dead letter carries headers and hash"},
	{21, "poison: invalid JSON, NUL in a key, unknown type, bad headers", "policy", "0", ""},
	{22, "a transaction of 3 million rows, one of 5 GB, a row of 200 MB", "0", "0", "memory within its budget; the connection stays"},
	{23, "100,000 tiny transactions of 64 sessions, with savepoints and rollbacks", "0", "0", "nothing rolled back is published"},
	{24, "idle outbox beside a busy database", "0", "0", "positions are confirmed and WAL is released"},
	{25, "a foreign transaction that stays open", "0", "0", "the status names its pid and its age"},
	{26, "wall clock of the relay off by an hour, time jumps", "0", "0", "no storm of timers, no negative latency"},
	{27, "half-open network, 500 ms latency, 1 Mbit/s, one byte at a time, to PostgreSQL and to Kafka", "0", "window", ""},
	{28, "address of a host, password and certificate change", "0", "window", "no restart of the relay for what is read from a file"},
	{29, "disk full under PostgreSQL's WAL", "0", "window", "the relay goes on draining"},
	{30, "read-only or full disk under the relay", "0", "0", "the relay writes no file"},
	{31, "memory limits of 64, 128 and 256 MiB", "0", "window", ""},
	{32, "two relays on one slot, killed at random", "0", "window, for each kill", "one leads at any time; the other takes over"},
	{33, "database restored to an earlier point, another cluster behind the same name", "refuses to start", "n/a", "system identifier, timeline and position are compared"},
	{34, "upgrade of the server from 17 to 18 with the slot kept", "0", "window", ""},
	{35, "a flush beyond what was seen", "blocked", "n/a", "impossible by construction, shown by property tests"},
	{36, "logical messages: not transactional, forged prefix, another database", "0", "0", "not published"},
	{37, "hostile operators, functions and types in the database", "0", "0", "never called, by whatever command"},
	{38, "publication or table changed and put back between two looks", "the window is named", "0; window, for each session that ends", "stops, reports between which positions, and `recover` publishes the rows"},
	{39, "unlogged table or partition", "the partition is named", "0", "refused at the start, and stops when it is attached later"},
	{40, "partition detached or dropped, or a copy of the outbox made, with rows not yet relayed", "0", "0; window, for each session that ends", "halts in front of a row of which it cannot be known whether it is one of the outbox, and names it"},
	{41, "request of a killed relay that is carried out late", "0", "one batch of each partition, late", "`exactly_once`: 0 duplicates, nothing stale; what the relay's kernel has not sent is not carried out"},
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
	require.Len(t, rows, 41)
}
