package soak

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
)

// spell is the longest time between an action and the next one, once the relays have caught up, and
// between two samples.
func spell() (longest, between time.Duration) {
	if long() {
		return 20 * time.Second, 2 * time.Second
	}
	return 2 * time.Second, 500 * time.Millisecond
}

func TestSoak_LosesNothingRepeatsWithReasonAndStaysLevel(t *testing.T) {
	t.Logf("go test ./test/soak -v -duration %s -seed %d", *duration, *seed)
	s := startServers(t)
	c := &scene{servers: s, random: random(0), victim: s.newRelay("victim"), witness: s.newRelay("witness")}
	victim := &ledger{tally: audit.New(), keys: map[string]*keyRecords{}}
	witness := &ledger{tally: audit.New(), keys: map[string]*keyRecords{}}
	caughtUp(t, c.victim, c.witness)
	l := s.load(*duration/days, victim.tally, witness.tally)
	measured := &samples{relay: c.witness, values: map[string][]point{}}
	strokes := c.strike(measured)

	l.end()
	caughtUp(t, c.victim, c.witness)
	for _, r := range []*relay{c.victim, c.witness} {
		r.process().Stop(t)
	}
	require.Len(t, c.witness.processes, 1)
	c.judge(c.victim, victim, strokes)
	c.judge(c.witness, witness, strokes)
	growing := measured.report()
	if *duration < fromGrowth {
		t.Logf("growth is judged from %s on", fromGrowth)
	} else if len(growing) > 0 {
		t.Errorf("the witness grows: %s", strings.Join(growing, "; "))
	}
	t.Logf("%d events, %d actions, seed %d", l.committed.Load(), len(strokes), *seed)
}

// strike has one action follow another until the time is over. In between the relays catch up, but
// for every fifth time, and samples of the witness are taken for a while.
func (s *scene) strike(measured *samples) (strokes []stroke) {
	d, began, quiet := newDeck(s.random), time.Now(), true
	longest, between := spell()
	for time.Since(began) < *duration {
		next := d.next()
		s.t.Logf("%8.1f s  %3d  %s", time.Since(began).Seconds(), len(strokes)+1, next.name)
		strokes = append(strokes, stroke{time.Now(), next.name, quiet, max(several[next.name], 1)})
		next.strike(s)
		require.True(s.t, s.witness.process().Running(), "the witness has ended")
		if quiet = s.random.IntN(5) > 0; !quiet {
			s.pause(time.Second)
			continue
		}
		for end := time.Now().Add(time.Duration(s.random.Int64N(int64(longest)))); ; {
			caughtUp(s.t, s.victim, s.witness)
			measured.take()
			if time.Now().After(end) {
				looked(s.t, s.victim, s.witness)
				break
			}
			wait(s.t.Context(), between)
		}
	}
	return strokes
}

// judge reads the topic of a relay to its end, and its logs. Both have ended.
func (s *scene) judge(r *relay, l *ledger, strokes []stroke) {
	t := s.t
	t.Helper()
	var logs [][]line
	for _, p := range r.processes {
		logs = append(logs, linesOf(p.Log.Bytes()))
	}
	l.sessions = sessionsOf(t, logs, strokes)
	l.read(r)
	v := l.tally.Verdict()
	t.Logf("%s: %d processes, %d sessions, verdict %+v\n%s", r.name, len(r.processes), len(l.sessions), v,
		l.table())
	if v.Written == 0 || v.Lost > 0 || v.OutOfOrder > 0 || v.Phantom > 0 {
		t.Errorf("%s: lost, out of order or published and never committed: %+v", r.name, v)
	}
	const most = 50
	if n := len(l.unexplained); n > 0 {
		t.Errorf("%s: %d repeats that no session explains:\n%s", r.name, n,
			strings.Join(l.unexplained[:min(n, most)], "\n"))
	}
	for _, lines := range logs {
		for _, found := range repeated(lines, strokes) {
			t.Errorf("%s: a log line is repeated for one cause: %s", r.name, found)
		}
	}
}
