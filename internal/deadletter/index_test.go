package deadletter

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

// record is one of the topic, as a writer of ours makes it. The text of the letter's ID is the number, repeated.
func record(partition int32, form Form, headers map[string]string, value any) *sink.Message {
	m := &sink.Message{Partition: partition, Headers: []sink.Header{{Key: HeaderForm, Value: []byte(form)}}}
	for key, text := range headers {
		m.Headers = append(m.Headers, sink.Header{Key: key, Value: []byte(text)})
	}
	if value != nil {
		m.Value, _ = json.Marshal(value)
	}
	return m
}

// numbered is the ID of letterRecord.
func numbered(n byte) (id ID) {
	for i := range id {
		id[i] = n
	}
	return id
}

// letterRecord is a parking letter of the key "k" with the number as its ID.
func letterRecord(partition int32, n byte, source, position string, at time.Time) *sink.Message {
	m := record(partition, FormMessage, map[string]string{
		HeaderID: numbered(n).String(), HeaderCause: string(Refused), HeaderTopic: "orders", HeaderRelation: "public.outbox", HeaderPosition: position,
		HeaderSource: source, HeaderParks: "true", HeaderAt: at.Format(time.RFC3339Nano),
	}, nil)
	m.Key = []byte("k")
	return m
}

func resolutionRecord(partition int32, action, who string, numbers ...byte) *sink.Message {
	r := Resolution{Action: action, Who: who, At: start}
	for _, n := range numbers {
		r.Letters = append(r.Letters, numbered(n))
	}
	return record(partition, FormResolution, nil, r)
}

// indexOf takes records in their order. Each has the next offset of its partition.
func indexOf(records ...*sink.Message) *Index {
	x := NewIndex()
	next := map[int32]int64{}
	for _, m := range records {
		x.Take(m, next[m.Partition])
		next[m.Partition]++
	}
	return x
}

func idsOf(list []*Entry) (ids []byte) {
	for _, e := range list {
		ids = append(ids, e.ID[0])
	}
	return ids
}

func TestIndex_TheFirstLetterAndTheFirstResolutionCount(t *testing.T) {
	x := indexOf(
		letterRecord(0, 1, ours, "0/64/0", start),
		letterRecord(0, 1, ours, "0/64/0", start.Add(time.Hour)), // of a row that was read again
		resolutionRecord(0, Discarded, "ann@a", 1),
		resolutionRecord(0, Redriven, "bob@b", 1, 9),
	)
	all := x.List(Filter{All: true})
	require.Len(t, all, 1)
	require.Equal(t, []any{int64(0), start.UTC()}, []any{all[0].Offset, all[0].At})
	require.Equal(t, []any{Discarded, "ann@a", start.UTC()}, []any{all[0].Action, all[0].ResolvedBy, all[0].ResolvedAt.UTC()})
	require.Empty(t, x.List(Filter{}))
	require.Empty(t, x.Parked())
}

func TestIndex_LeavesOutWhatItCannotRead(t *testing.T) {
	x := indexOf(
		record(0, FormMessage, map[string]string{HeaderID: "no ID"}, nil),
		record(0, FormResolution, nil, "no resolution"),
		record(0, "of a later version", nil, nil),
		letterRecord(0, 1, ours, "0/64/0", start),
	)
	require.Len(t, x.Unknown, 2)
	require.Equal(t, []byte{1}, idsOf(x.List(Filter{})))
}

func TestIndex_ListsWhatIsMeant(t *testing.T) {
	other := letterRecord(0, 2, ours, "0/64/1", start.Add(time.Minute))
	other.Key = nil
	other.Headers = append(other.Headers, sink.Header{Key: HeaderTopic, Value: []byte("payments")}, sink.Header{Key: HeaderRelation, Value: []byte("public.other")},
		sink.Header{Key: HeaderCause, Value: []byte(TooLarge)}, sink.Header{Key: HeaderParks, Value: []byte("false")})
	x := indexOf(letterRecord(0, 1, ours, "0/64/0", start), other, letterRecord(0, 3, ours, "0/64/2", start), resolutionRecord(0, Discarded, "ann@a", 3))
	key, empty := "k", ""
	for name, c := range map[string]struct {
		filter Filter
		want   []byte
	}{
		"open ones":       {Filter{}, []byte{1, 2}},
		"all":             {Filter{All: true}, []byte{1, 2, 3}},
		"cause":           {Filter{Cause: TooLarge}, []byte{2}},
		"key":             {Filter{Key: &key}, []byte{1}},
		"no key is none":  {Filter{Key: &empty}, nil},
		"topic":           {Filter{Topic: "payments"}, []byte{2}},
		"relation":        {Filter{Relation: "public.outbox"}, []byte{1}},
		"since, included": {Filter{Since: start.Add(time.Minute)}, []byte{2}},
		"nothing":         {Filter{Since: start.Add(time.Hour)}, nil},
	} {
		require.Equal(t, c.want, idsOf(x.List(c.filter)), name)
	}
	require.Equal(t, map[Address][]byte{ordersK: {1}}, func() map[Address][]byte {
		parked := map[Address][]byte{}
		for address, letters := range x.Parked() {
			parked[address] = idsOf(letters)
		}
		return parked
	}(), "one that does not park, and one that is dealt with, are not among them")
	parks := x.Parks()
	require.True(t, parks(&sink.Message{Topic: "orders", Key: []byte("k")}))
	require.False(t, parks(&sink.Message{Topic: "payments", Key: []byte("k")}))
	require.False(t, parks(&sink.Message{Topic: "orders"}))
}

// A letter that parks and whose message has an empty key does not park messages without one: they have no order.
func TestIndex_AnEmptyKeyIsAKey(t *testing.T) {
	m := letterRecord(0, 1, ours, "0/64/0", start)
	m.Key = []byte{}
	parks := indexOf(m).Parks()
	require.True(t, parks(&sink.Message{Topic: "orders", Key: []byte{}}))
	require.False(t, parks(&sink.Message{Topic: "orders"}))
}

// The letters of a key lie in several partitions once some were added to the topic.
func TestIndex_HasTheLettersOfAKeyInTheOrderOfTheirRows(t *testing.T) {
	for name, c := range map[string]struct {
		records []*sink.Message
		want    []byte
	}{
		"of one partition by offset": {[]*sink.Message{letterRecord(0, 1, ours, "0/65/0", start), letterRecord(0, 2, theirs, "0/64/0", start.Add(-1)), letterRecord(0, 3, ours, "0/64/0", start.Add(-2))}, []byte{1, 2, 3}},
		"also those of one source":   {[]*sink.Message{letterRecord(0, 1, ours, "0/65/0", start), letterRecord(0, 2, ours, "0/64/0", start.Add(-1))}, []byte{1, 2}},
		"of one source by position":  {[]*sink.Message{letterRecord(0, 1, ours, "0/65/0", start), letterRecord(1, 2, ours, "0/64/9", start.Add(1)), letterRecord(2, 3, ours, "0/64/10", start.Add(2))}, []byte{2, 3, 1}},
		"of several sources by time": {[]*sink.Message{letterRecord(0, 1, ours, "0/64/0", start.Add(1)), letterRecord(1, 2, theirs, "0/65/0", start)}, []byte{2, 1}},
	} {
		require.Equal(t, c.want, idsOf(indexOf(c.records...).Parked()[ordersK]), name)
	}
}

func TestIndex_FindsALetterByTheBeginningOfItsID(t *testing.T) {
	x := indexOf(letterRecord(0, 0x1a, ours, "0/64/0", start), letterRecord(0, 0x1b, ours, "0/64/1", start), letterRecord(0, 0xa1, ours, "0/64/2", start))
	found, err := x.Find("1A1")
	require.NoError(t, err)
	require.Equal(t, numbered(0x1a), found.ID)
	for text, problem := range map[string]string{"1": "several", "": "is empty", "b1b": "no dead letter", "2": "no dead letter"} {
		_, err = x.Find(text)
		require.ErrorContains(t, err, problem, strconv.Quote(text))
	}
}

// A dead letter that is given twice is published once.
func TestIndex_FindsALetterOnceHoweverOftenItIsGiven(t *testing.T) {
	x := indexOf(letterRecord(0, 0x1a, ours, "0/64/0", start), letterRecord(0, 0xa1, ours, "0/64/2", start))
	found, err := x.FindOpen([]string{"1a", "a1", "1A1"})
	require.NoError(t, err)
	require.Equal(t, x.List(Filter{}), found)
}

func TestParse_RefusesWhatIsNoPosition(t *testing.T) {
	for _, text := range []string{"0/1949F48x/0", "0/1949F4800/0", "0/1949F48", ""} {
		_, err := parsePosition(text)
		require.Error(t, err, text)
	}
}

// A row brings headers of its own, which may have any name.
func TestParse_HeadersOfTheRowSayNothingOfItsLetter(t *testing.T) {
	c := newCluster()
	ev, m := message("k", 1, position{100, 0})
	forged := numbered(7)
	m.Headers = append(m.Headers, sink.Header{Key: HeaderID, Value: []byte(forged.String())}, sink.Header{Key: HeaderForm, Value: []byte(FormResolution)},
		sink.Header{Key: HeaderParks, Value: []byte("false")}, sink.Header{Key: HeaderPosition, Value: []byte("F/0/0")})
	letter, err := openTracker2(t, c, 0).DeadLetter(Poison{Event: ev, Message: m, Cause: Refused, Policy: DeadLetterKey})
	require.NoError(t, err)
	e, err := parse(letter, 0)
	require.NoError(t, err)
	require.NotNil(t, e.letter)
	require.NotEqual(t, forged, e.letter.ID)
	require.Equal(t, position{100, 0}, e.letter.position)
	require.True(t, e.letter.Parks)
}

// The same row has the same ID in every session, and no other row of any table, source or copy of the database has it.
func TestID_IsThatOfOneRow(t *testing.T) {
	at := position{100, 7}
	id := idOf(ours, "public.outbox", at, start)
	require.Equal(t, id, idOf(ours, "public.outbox", at, start.In(time.FixedZone("", 3600))))
	for name, other := range map[string]ID{
		"source":                  idOf(theirs, "public.outbox", at, start),
		"relation":                idOf(ours, "message:outbox", at, start),
		"LSN":                     idOf(ours, "public.outbox", position{101, 7}, start),
		"index":                   idOf(ours, "public.outbox", position{100, 8}, start),
		"commit time":             idOf(ours, "public.outbox", at, start.Add(time.Microsecond)),
		"source and relation run": idOf(ours+"p", "ublic.outbox", at, start),
	} {
		require.NotEqual(t, id, other, name)
	}
}
