package producer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// With more rows to remember than there is room for, the ends are read again further on, and
// nothing comes twice.
func TestPublished_ReadsOnWhereItHadNoRoom(t *testing.T) {
	ms := transactions("orders", us, 400)
	var log modelLog
	for _, m := range ms[:300] {
		log.add(modelRecord{ours: &keyedEvent{placeOf(m.Origin.LSN, m.Origin.Index), m.Key != nil}})
	}
	var now *tail
	reads := 0
	for i, m := range ms {
		p := placeOf(m.Origin.LSN, m.Origin.Index)
		if now == nil || now.needsRereading(p) {
			now = readModel(t, []*modelLog{&log}, p, 4, &tails{}, now)
			reads++
		}
		require.Equal(t, i < 300, now.has(p, m.Key), "row %d", i)
	}
	require.Equal(t, 300/10/4+1, reads)
}

func placeOf(lsn pglogrepl.LSN, index uint32) position {
	return position{lsn: lsn, index: index, time: committed.UnixMicro()}
}

// modelLog is a partition: what is left of its records, and the offsets that it begins with and
// gives out next.
type modelLog struct {
	records []modelRecord
	start   int
	end     int
}

type modelRecord struct {
	at   int // offset
	key  string
	ours *keyedEvent // nil: of somebody else
	size int64
}

func (l *modelLog) add(r modelRecord) {
	r.at = l.end
	l.records = append(l.records, r)
	l.end++
}

// readModel reads the tail of a topic, of which before was read last.
func readModel(t require.TestingT, partitions []*modelLog, from position, room int, all *tails,
	before *tail) *tail {
	r := tailReader{log: zerolog.Nop(), topic: "orders", from: from, gap: 1000,
		tail: newTail(zerolog.Nop(), "orders", room, all)}
	for _, l := range partitions {
		_, err := r.search(int64(l.start), int64(l.end), func(from, to int64) (backStep, error) {
			s := backStep{reader: &r}
			for _, rec := range l.records {
				if int64(rec.at) >= from && int64(rec.at) < to {
					s.bytes += rec.size
					if rec.ours != nil {
						s.events = append(s.events, *rec.ours)
					}
				}
			}
			return s, nil
		})
		require.NoError(t, err)
	}
	if before != nil {
		r.tail.inheritKeys(before)
	}
	return r.tail
}

// modelTopic is a topic, and the relay whose sessions publish the rows of a table to it.
type modelTopic struct {
	t          *rapid.T
	rows       []modelRow
	partitions []*modelLog
	room       int
	keys       int // of which a row may be missing; zero: tailKeys

	confirmed int     // rows that the slot does not send any more
	next      int     // row that the session has not looked up
	tail      *tail   // of the session
	tails     *tails  // of the session
	known     int     // partitions, to the session
	flying    [][]int // rows on their way, by partition
	done      []bool  // rows that the session has left out or that were acknowledged
	repeats   int     // rows that came although they had come before
}

type modelRow struct {
	position
	key       []byte // nil: none
	partition int    // negative: by key
	came      bool
	last      map[int]int // offset of the last record, by partition
}

// begin ends the session, of which nothing that is on its way arrives any more, and begins
// another.
func (m *modelTopic) begin(confirmed int) {
	m.confirmed, m.next, m.tail, m.known = confirmed, confirmed, nil, len(m.partitions)
	m.tails = &tails{limit: m.keys}
	m.flying, m.done = make([][]int, 16), make([]bool, len(m.rows))
}

// settled is the row up to which the session may have confirmed.
func (m *modelTopic) settled() int {
	n := m.confirmed
	for n < len(m.done) && m.done[n] {
		n++
	}
	return n
}

func (m *modelTopic) send() {
	row := &m.rows[m.next]
	if m.tail == nil || m.tail.needsRereading(row.position) {
		m.tail = readModel(m.t, m.partitions, row.position, m.room, m.tails, m.tail)
	}
	for len(m.done) < len(m.rows) {
		m.done = append(m.done, false)
	}
	if m.tail.has(row.position, row.key) {
		if !row.came {
			m.t.Fatalf("row %d is left out, and was never published", m.next)
		}
		m.done[m.next] = true
	} else {
		at := row.partition
		if home, hasKey := homeOf(row.key, int32(m.known)); at < 0 && hasKey {
			at = int(home)
		} else if at < 0 {
			at = rapid.IntRange(0, m.known-1).Draw(m.t, "any partition")
		}
		m.flying[at] = append(m.flying[at], m.next)
	}
	m.next++
}

// arrive has the broker append and acknowledge what was sent first to a partition.
func (m *modelTopic) arrive(partition int) {
	n := m.flying[partition][0]
	m.flying[partition] = m.flying[partition][1:]
	row, l := &m.rows[n], m.partitions[partition]
	if row.came {
		m.repeats++
	}
	row.came, row.last[partition], m.done[n] = true, l.end, true
	l.add(modelRecord{key: string(row.key), ours: &keyedEvent{row.position, row.key != nil},
		size: 10})
}

// catchUp has the session send all rows, and all of them arrive.
func (m *modelTopic) catchUp() {
	for m.next < len(m.rows) {
		m.send()
	}
	for partition := range m.flying {
		for len(m.flying[partition]) > 0 {
			m.arrive(partition)
		}
	}
}

// delete removes what is before an offset.
func (l *modelLog) delete(before int) {
	l.start = before
	l.records = slices.DeleteFunc(l.records, func(r modelRecord) bool { return r.at < before })
}

// compact removes what a newer record of its key supersedes, in the first part of a partition.
func (l *modelLog) compact(before int) {
	last := map[string]int{}
	for _, r := range l.records {
		last[r.key] = r.at
	}
	l.records = slices.DeleteFunc(l.records, func(r modelRecord) bool {
		return r.at < before && r.key != "" && r.at < last[r.key]
	})
}

// requireOrder requires that the rows of a key came last in the order of their commits in each
// partition, as far as they are settled.
func (m *modelTopic) requireOrder() {
	type place struct {
		key       string
		partition int
	}
	last := map[place]int{}
	for n, row := range m.rows {
		for partition, at := range row.last {
			p := place{string(row.key), partition}
			if before, found := last[p]; found && row.key != nil && at < before {
				m.t.Fatalf("row %d came last at offset %d of partition %d, and one of its key that was committed before it at %d", n, at, partition, before)
			}
			last[p] = at
		}
	}
}

// Whatever becomes of sessions, slots, partitions and records, no row is left out that was not
// published. Rows of a key are in order if no partitions were added, and while sessions are only
// killed and slots rewound, no row comes twice.
func TestTail_LosesNothingAndKeepsTheOrderOfKeys(t *testing.T) {
	repeats, runs := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := &modelTopic{t: t, room: rapid.IntRange(1, 8).Draw(t, "room")}
		for range rapid.IntRange(1, 3).Draw(t, "partitions") {
			m.partitions = append(m.partitions, &modelLog{})
		}
		calm, added := rapid.Bool().Draw(t, "calm"), false
		if !calm {
			m.keys = rapid.IntRange(1, 8).Draw(t, "keys")
		}
		keys := rapid.IntRange(1, 5).Draw(t, "keys of rows")
		m.begin(0)
		upset := func() {
			if calm {
				t.Skip()
			}
		}
		anywhere := func() int { return rapid.IntRange(0, len(m.partitions)-1).Draw(t, "partition") }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "rows") {
					n := len(m.rows)
					row := modelRow{position: position{lsn: pglogrepl.LSN(1000 + n/3*100), index: uint32(n % 3)},
						partition: -1, last: map[int]int{}}
					if k := rapid.IntRange(0, keys).Draw(t, "key"); k > 0 {
						row.key = fmt.Append(nil, "key-", k)
						if k == 5 {
							row.partition = 0
						}
					}
					m.rows = append(m.rows, row)
				}
			},
			"send": func(t *rapid.T) {
				if m.next == len(m.rows) {
					t.Skip()
				}
				for range rapid.IntRange(1, 30).Draw(t, "rows") {
					if m.next < len(m.rows) {
						m.send()
					}
				}
			},
			"arrive": func(t *rapid.T) {
				at := anywhere()
				for range rapid.IntRange(1, 30).Draw(t, "records") {
					if len(m.flying[at]) > 0 {
						m.arrive(at)
					}
				}
			},
			"catch up": func(*rapid.T) { m.catchUp() },
			"kill": func(t *rapid.T) {
				m.begin(rapid.IntRange(m.confirmed, m.settled()).Draw(t, "confirmed"))
			},
			"rewind": func(t *rapid.T) { m.begin(rapid.IntRange(0, m.settled()).Draw(t, "confirmed")) },
			"write of others": func(t *rapid.T) {
				size := int64(10)
				if !calm {
					size = rapid.Int64Range(10, 2000).Draw(t, "bytes")
				}
				m.partitions[anywhere()].add(modelRecord{size: size})
			},
			"add a partition": func(t *rapid.T) {
				if upset(); rapid.IntRange(0, 9).Draw(t, "really") > 0 || len(m.partitions) == 6 {
					t.Skip()
				}
				m.partitions, added = append(m.partitions, &modelLog{}), true
			},
			"learn of partitions": func(*rapid.T) { m.known = len(m.partitions) },
			"delete": func(t *rapid.T) {
				upset()
				l := m.partitions[anywhere()]
				l.delete(rapid.IntRange(l.start, l.end).Draw(t, "start"))
			},
			"delete and rewind": func(t *rapid.T) {
				upset()
				for _, l := range m.partitions {
					l.delete(rapid.IntRange(l.start, l.end).Draw(t, "start"))
				}
				m.begin(0)
			},
			"compact": func(t *rapid.T) {
				upset()
				l := m.partitions[anywhere()]
				l.compact(rapid.IntRange(l.start, l.end).Draw(t, "before"))
			},
		})
		m.catchUp()
		for n, row := range m.rows {
			if !row.came {
				t.Fatalf("row %d never came", n)
			}
		}
		if !added {
			m.requireOrder()
		}
		if calm && m.repeats > 0 {
			t.Fatalf("%d rows came twice", m.repeats)
		}
		repeats, runs = repeats+m.repeats, runs+1
	})
	t.Logf("%d rows came again in %d runs", repeats, runs)
}

// With too many keys of which a row is not there, nothing counts as published any more.
func TestTail_GivesUpWithTooManyKeys(t *testing.T) {
	now := newTail(zerolog.Nop(), "orders", 0, &tails{})
	for i := range 10 {
		now.seen.add(position{lsn: pglogrepl.LSN(1000 + i)})
	}
	now.newest = position{lsn: 2000}
	require.True(t, now.has(position{lsn: 1000}, []byte("there")))
	for i := range tailKeys {
		require.False(t, now.has(position{lsn: 1000, index: 1}, fmt.Append(nil, i)))
	}
	require.True(t, now.has(position{lsn: 1001}, []byte("there")))
	require.False(t, now.has(position{lsn: 1001, index: 1}, []byte("one too many")))
	require.False(t, now.has(position{lsn: 1002}, []byte("there")))
	require.Nil(t, now.republished)
}

// What is older than the session's first message ends the search only where nothing
// newer stands before it.
func TestTail_CountsAsOlderWhatNothingNewerStandsBefore(t *testing.T) {
	r := &tailReader{from: position{lsn: 100}}
	r.tail = newTail(zerolog.Nop(), "orders", 0, &tails{})
	at := func(all ...pglogrepl.LSN) *backStep {
		s := &backStep{reader: r}
		for _, lsn := range all {
			s.events = append(s.events, keyedEvent{position: position{lsn: lsn}})
		}
		return s
	}
	var f partitionResult
	require.Equal(t, 0, r.add(&f, at(101, 98, 99)))
	require.Equal(t, 2, r.add(&f, at(97, 98, 100)))
	require.Equal(t, 3, r.add(&f, at(95, 96, 97)))
	require.Equal(t, 1, r.add(&f, at(94, 102, 96)))
	require.Equal(t, 3, f.count)
}

// A row that is not there is on its way while the ends are read again: what follows of its key
// still must not be left out.
func TestPublished_ReadsOnAndKeepsWhatIsNotToBeOvertaken(t *testing.T) {
	ms := transactions("orders", us, 400)
	var log modelLog
	for _, m := range ms[1:300] {
		log.add(modelRecord{ours: &keyedEvent{placeOf(m.Origin.LSN, m.Origin.Index), m.Key != nil}})
	}
	var now *tail
	for i, m := range ms {
		p := placeOf(m.Origin.LSN, m.Origin.Index)
		if now == nil || now.needsRereading(p) {
			now = readModel(t, []*modelLog{&log}, p, 4, &tails{}, now)
		}
		require.Equal(t, i < 300 && string(m.Key) != string(ms[0].Key), now.has(p, m.Key), "row %d", i)
	}
}

// The bounds of the search are for what is not ours, and for rows that are older than all that is
// looked for: newer ones begin both anew.
func TestTail_SearchesOnWhereItFindsNewerRows(t *testing.T) {
	var log modelLog
	from := placeOf(1000, 0)
	for i := range 1000 {
		for _, lsn := range []pglogrepl.LSN{900, 1000 + pglogrepl.LSN(i)} {
			// without keys nothing is overtaken
			log.add(modelRecord{ours: &keyedEvent{placeOf(lsn, 0), false}, size: 100})
		}
	}
	now := readModel(t, []*modelLog{&log}, from, 0, &tails{}, nil)
	for i := range 1000 {
		require.True(t, now.has(placeOf(1000+pglogrepl.LSN(i), 0), nil), "row %d", i)
	}
}

// A row without a key has no order: an older row with a key behind it means nothing for it.
func TestTail_OvertakesOnlyRowsWithKeys(t *testing.T) {
	r := &tailReader{from: position{lsn: 100}}
	r.tail = newTail(zerolog.Nop(), "orders", 0, &tails{})
	var f partitionResult
	r.add(&f, &backStep{reader: r, events: []keyedEvent{{position{lsn: 105}, false},
		{position{lsn: 106}, true}, {position{lsn: 101}, true}}})
	for lsn, there := range map[pglogrepl.LSN]bool{105: true, 106: false, 101: true} {
		require.Equal(t, there, r.tail.seen.has(position{lsn: lsn}), "row at %s", lsn)
	}

	r.tail, f = newTail(zerolog.Nop(), "orders", 0, &tails{}), partitionResult{}
	r.add(&f, &backStep{reader: r, events: []keyedEvent{{position{lsn: 104}, true},
		{position{lsn: 102}, false}}})
	require.True(t, r.tail.seen.has(position{lsn: 104}), "a row without a key overtakes none")
}
