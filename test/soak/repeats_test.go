package soak

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/audit/topics"
	"github.com/postrider/postrider/router"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka"
	"github.com/postrider/postrider/test/parts"
)

// session is one of a relay: it publishes what was committed at or beyond its confirmed position,
// each event once.
type session struct {
	process   int // from 1
	began     time.Time
	confirmed pglogrepl.LSN
	after     string // action that came last before it
	ended     string // why the one before it has ended; empty: its process has
	repeats   int    // records that it has published and an earlier session too
	late      int    // records of an earlier session that came after it began
}

// sessionsOf reads the sessions from the logs of a relay's processes.
func sessionsOf(t *testing.T, logs [][]line, strokes []stroke) (found []session) {
	t.Helper()
	for i, lines := range logs {
		ended := ""
		for _, l := range lines {
			switch l.Message {
			case "session ended", "relay paused; the slot is free, and keeps WAL until the relay is resumed":
				ended = cmp.Or(l.Reason, "paused")
			case "streaming started":
				confirmed, err := pglogrepl.ParseLSN(l.LSN)
				require.NoError(t, err, l.text)
				s := session{process: i + 1, began: l.Time, confirmed: confirmed, ended: ended}
				for _, stroke := range strokes {
					if stroke.at.Before(l.Time) {
						s.after = stroke.name
					}
				}
				found = append(found, s)
			}
		}
	}
	return found
}

// record is a record of a topic.
type record struct {
	key      string
	number   uint64
	lsn      pglogrepl.LSN // of its commit
	written  time.Time     // before its commit
	appended time.Time     // by the broker's clock, which is ours
}

func (r record) String() string {
	return fmt.Sprintf("event %d of key %s, committed at %s, appended at %s", r.number, r.key, r.lsn,
		r.appended.Format(time.RFC3339Nano))
}

// ledger compares the records of a topic with the sessions that can have published them.
type ledger struct {
	sessions []session
	tally    *audit.Tally
	keys     map[string]*keyRecords

	unexplained []string // repeats, and repetitions that end too soon
}

type keyRecords struct {
	first  []time.Time // of each event
	copies []int       // of each event
	last   uint64      // event that came last
	late   bool        // it came late
	newest uint64
}

// received takes the next record of a partition.
func (l *ledger) received(r record) {
	k := l.keys[r.key]
	if k == nil {
		k = &keyRecords{}
		l.keys[r.key] = k
	}
	for uint64(len(k.first)) < r.number {
		k.first, k.copies = append(k.first, time.Time{}), append(k.copies, 0)
	}
	i, late := r.number-1, false
	k.copies[i]++
	if l.tally.Received(r.key, r.number) {
		k.first[i] = r.appended
	} else {
		late = l.explain(r, k.first[i], k.copies[i])
	}
	if r.number > k.last+1 && !late && !k.late {
		l.unexplained = append(l.unexplained, fmt.Sprintf("%s: comes after event %d", r, k.last))
	}
	k.last, k.late, k.newest = r.number, late, max(k.newest, r.number)
}

// explain explains the copy of an event that is number copies of all, and reports whether it came
// late. Each session publishes an event at most once, and only if its commit is not below the
// confirmed position. So a copy takes a session that began after the first one was appended. A copy
// that has none is a request that the broker executed after the session that sent it had ended
// (docs/GUARANTEES.md, "Requests that arrive late"): then each copy has a session nevertheless that
// had not ended when the event was written.
func (l *ledger) explain(r record, first time.Time, copies int) (late bool) {
	since, all, latest := 0, 0, -1
	for i, s := range l.sessions {
		if s.began.After(r.appended) || s.confirmed > r.lsn ||
			i+1 < len(l.sessions) && l.sessions[i+1].began.Before(r.written) {
			continue
		}
		all++
		if s.began.After(first) {
			since++
			latest = i
		}
	}
	switch {
	case copies <= 1+since:
		l.sessions[latest].repeats++
		return false
	case copies <= all:
		l.current(r.appended).late++
		return true
	}
	l.unexplained = append(l.unexplained, fmt.Sprintf("%s: copy %d, the first one appended at %s: of %d "+
		"sessions that can have published it %d began since then", r, copies,
		first.Format(time.RFC3339Nano), all, since))
	return false
}

// current is the session of a time.
func (l *ledger) current(at time.Time) *session {
	i := 0
	for i+1 < len(l.sessions) && !l.sessions[i+1].began.After(at) {
		i++
	}
	return &l.sessions[i]
}

// read reads the topic to its end, with the client of the audit, which shares no code with the one
// that published. The partitions come in the order of their numbers: a key only ever moves to one
// with a higher number.
func (l *ledger) read(r *relay) {
	t := r.t
	t.Helper()
	cfg := kafka.DefaultConfig()
	cfg.Brokers = r.broker.Direct()
	ctx := parts.Within(t, 10*time.Minute)
	reader, err := topics.OpenReader(ctx, cfg, true)
	require.NoError(t, err)
	defer reader.Close()
	reader.AppendTimes = true
	spans, err := reader.Spans(ctx, r.topic, time.Time{})
	require.NoError(t, err)
	home := map[string]int32{}
	for i := range spans {
		require.NoError(t, reader.Read(ctx, spans[i:i+1], func(_ int, _ int64, m *sink.Message) error {
			var e event
			if json.Unmarshal(m.Value, &e) != nil || e.Number == 0 || e.Key != string(m.Key) {
				e = event{Key: "not one of ours", Number: 1} // shows as phantom
			}
			at, known := home[e.Key]
			require.True(t, !known || at%partitions == m.Partition%partitions,
				"key %s is in partitions %d and %d", e.Key, at, m.Partition)
			home[e.Key] = m.Partition
			lsn, err := pglogrepl.ParseLSN(header(m, router.HeaderLSN))
			require.NoError(t, err)
			l.received(record{e.Key, e.Number, lsn, e.At, m.Timestamp})
			return nil
		}))
	}
	for key, k := range l.keys {
		if k.last < k.newest && !k.late {
			l.unexplained = append(l.unexplained, fmt.Sprintf("key %s ends with event %d of %d", key,
				k.last, k.newest))
		}
	}
}

func header(m *sink.Message, key string) string {
	for _, h := range m.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// table has a line for each session.
func (l *ledger) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s %7s  %-50s %-24s %12s %8s %5s\n", "began", "process", "after", "end of the last one",
		"from", "repeats", "late")
	for _, s := range l.sessions {
		fmt.Fprintf(&b, "%-15s %7d  %-50s %-24s %12s %8d %5d\n", s.began.Format("15:04:05.000"), s.process,
			s.after, s.ended, s.confirmed, s.repeats, s.late)
	}
	return b.String()
}

// testLedger has two sessions: from position 100 at second 0, and from 150 at second 10. Its
// records are of events that were written a second before the first copy.
func testLedger(records ...copyAt) *ledger {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	l := &ledger{tally: audit.New(), keys: map[string]*keyRecords{}, sessions: []session{
		{began: at(0), confirmed: 100}, {began: at(10), confirmed: 150}}}
	written := map[uint64]time.Time{}
	for _, r := range records {
		if _, known := written[r.number]; !known {
			written[r.number] = at(cmp.Or(r.written, r.second-1))
		}
		l.received(record{"key", r.number, r.lsn, written[r.number], at(r.second)})
	}
	return l
}

type copyAt struct {
	number  uint64
	lsn     pglogrepl.LSN
	second  int // at which it was appended
	written int // second; 0: that before
}

func TestLedger_ExplainsWhatASessionRepeats(t *testing.T) {
	t.Parallel()
	l := testLedger(copyAt{1, 120, 1, 0}, copyAt{2, 150, 2, 0}, copyAt{3, 160, 3, 0},
		copyAt{2, 150, 11, 0}, copyAt{3, 160, 12, 0}, copyAt{4, 170, 13, 0})
	require.Empty(t, l.unexplained)
	require.Equal(t, 2, l.sessions[1].repeats)
}

func TestLedger_FindsARepeatThatNoSessionExplains(t *testing.T) {
	t.Parallel()
	for what, records := range map[string][]copyAt{
		"in the first session":         {{1, 120, 1, 0}, {1, 120, 2, 0}},
		"below its position":           {{1, 149, 1, 0}, {1, 149, 11, 0}},
		"twice in the second one":      {{1, 160, 1, 0}, {1, 160, 11, 0}, {1, 160, 12, 0}},
		"twice, and not before":        {{1, 160, 12, 0}, {1, 160, 13, 0}},
		"late, below its position":     {{1, 149, 11, 8}, {1, 149, 12, 0}},
		"a repeat without its end":     {{1, 160, 1, 0}, {2, 161, 2, 0}, {3, 162, 3, 0}, {1, 160, 11, 0}, {3, 162, 12, 0}},
		"the first without one before": {{2, 160, 1, 0}},
	} {
		require.Len(t, testLedger(records...).unexplained, 1, what)
	}
}

func TestLedger_CountsARequestThatArrivesLate(t *testing.T) {
	t.Parallel()
	l := testLedger(copyAt{1, 160, 11, 8}, copyAt{2, 161, 12, 8}, copyAt{1, 160, 13, 0}, copyAt{3, 162, 14, 0})
	require.Empty(t, l.unexplained)
	require.Equal(t, 1, l.sessions[1].late)
}
