package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// writing is a write log in memory.
type writing []Row

func (w writing) Count(context.Context) (int64, error) { return int64(len(w)), nil }

func (w writing) Rows(_ context.Context, each func(*Row) error) error {
	for i := range w {
		if err := each(&w[i]); err != nil {
			return err
		}
	}
	return nil
}

// reading is topics in memory: partitions of one topic, and of one with dead letters.
type reading struct {
	parts   []Partition
	records []Record
}

func (r *reading) Partitions() []Partition { return r.parts }

func (r *reading) Records(_ context.Context, each func(*Record) error) error {
	for i := range r.records {
		if err := each(&r.records[i]); err != nil {
			return err
		}
	}
	return nil
}

// run is a delivery that can be spoilt: the ids of each partition in order.
type run struct {
	rows        []Row
	partitions  [][]string
	deadLetters []string
}

const testPartitions = 3

// goodRun delivers n rows of some keys in transactions of four.
func goodRun(n, keys int) *run {
	r := &run{partitions: make([][]string, testPartitions)}
	for i := range n {
		key := i * 7 % keys
		id := fmt.Sprintf("%d-%d", key, i)
		r.rows = append(r.rows,
			Row{ID: []byte(id), Key: fmt.Appendf(nil, "key %d", key), Transaction: uint64(i/4 + 1),
				Judged: true})
		r.partitions[key%testPartitions] = append(r.partitions[key%testPartitions], id)
	}
	return r
}

func (r *run) judge(t testing.TB, cfg JudgeConfig) Report {
	t.Helper()
	from := &reading{}
	add := func(p Partition, ids []string) {
		p.From, p.End = 100, 100+2*int64(len(ids))
		from.parts = append(from.parts, p)
		for i, id := range ids {
			// every other offset is a marker's
			record := Record{Partition: len(from.parts) - 1, Offset: p.From + 2*int64(i),
				Key: []byte("k")}
			if id != "" {
				record.ID = []byte(id)
			}
			from.records = append(from.records, record)
		}
	}
	for i, ids := range r.partitions {
		add(Partition{Topic: "events", Number: int32(i)}, ids)
	}
	add(Partition{Topic: "dead", DeadLetter: true}, r.deadLetters)
	report, err := Judge(t.Context(), cfg, writing(r.rows), from)
	require.NoError(t, err)
	return report
}

var wholeRun = JudgeConfig{Memory: 64 << 20, Ordered: true, Examples: 3}

func TestJudge_FindsEachKindOfFault(t *testing.T) {
	const n, keys = 600, 10
	// Partition 1 has the keys 1, 4 and 7 in turn.
	for name, c := range map[string]struct {
		spoil func(r *run)
		want  func(v *Report)
	}{
		"a good run": {func(*run) {}, func(*Report) {}},
		"a record lost": {
			func(r *run) { r.partitions[1] = slices.Delete(r.partitions[1], 50, 51) },
			func(v *Report) { v.Lost, v.PartialTransactions = 1, 1 },
		},
		"half a transaction lost": {
			func(r *run) {
				for _, row := range r.rows[40:42] {
					for i, ids := range r.partitions {
						r.partitions[i] = slices.DeleteFunc(slices.Clone(ids),
							func(id string) bool { return id == string(row.ID) })
					}
				}
			},
			func(v *Report) { v.Lost, v.PartialTransactions = 2, 1 },
		},
		"a whole transaction lost": {
			func(r *run) {
				for _, row := range r.rows[40:44] {
					for i, ids := range r.partitions {
						r.partitions[i] = slices.DeleteFunc(slices.Clone(ids),
							func(id string) bool { return id == string(row.ID) })
					}
				}
			},
			func(v *Report) { v.Lost = 4 },
		},
		"a run repeated": {
			func(r *run) {
				r.partitions[1] = slices.Insert(r.partitions[1], 90, r.partitions[1][70:90]...)
			},
			func(v *Report) { v.Duplicated, v.LongestRepeat = 20, 20 },
		},
		"a repetition with something new between": {
			func(r *run) {
				p := r.partitions[1]
				r.partitions[1] = slices.Concat(p[:90], p[87:90], p[90:100], p[95:100], p[100:])
			},
			func(v *Report) { v.Duplicated, v.LongestRepeat = 8, 5 },
		},
		"a repetition that ends too soon": {
			func(r *run) {
				r.partitions[1] = slices.Insert(r.partitions[1], 90, r.partitions[1][30:33]...)
			},
			func(v *Report) { v.Duplicated, v.LongestRepeat, v.PartialReplays = 3, 3, 3 },
		},
		"a repetition that ends too soon, at the end": {
			func(r *run) { r.partitions[1] = append(r.partitions[1], r.partitions[1][30:33]...) },
			func(v *Report) { v.Duplicated, v.LongestRepeat, v.PartialReplays = 3, 3, 3 },
		},
		"a repetition that leaves out one of each key": {
			func(r *run) {
				p := r.partitions[1]
				r.partitions[1] = slices.Concat(p[:90], p[81:84], p[87:90], p[90:])
			},
			func(v *Report) { v.Duplicated, v.LongestRepeat, v.PartialReplays = 6, 6, 3 },
		},
		"two of a key swapped": {
			func(r *run) { p := r.partitions[1]; p[30], p[33] = p[33], p[30] },
			func(v *Report) { v.OutOfOrder = 1 },
		},
		"two of different keys swapped": {
			func(r *run) { p := r.partitions[1]; p[30], p[31] = p[31], p[30] },
			func(*Report) {},
		},
		"one of a key at the end": {
			func(r *run) {
				id := r.partitions[1][30]
				r.partitions[1] = append(slices.Delete(r.partitions[1], 30, 31), id)
			},
			func(v *Report) { v.OutOfOrder = 1 },
		},
		"one of a key before three others": { // which also stand in order among themselves
			func(r *run) {
				id := r.partitions[1][39]
				r.partitions[1] = slices.Insert(slices.Delete(r.partitions[1], 39, 40), 30, id)
			},
			func(v *Report) { v.OutOfOrder = 3 },
		},
		"unexpected records, one without an id": {
			func(r *run) {
				r.partitions[2] = slices.Insert(r.partitions[2], 5, "rolled back", "",
					"rolled back")
			},
			func(v *Report) { v.Phantom = 3 },
		},
		"a record in another partition": {
			func(r *run) {
				id := r.partitions[1][30]
				r.partitions[1] = slices.Delete(r.partitions[1], 30, 31)
				r.partitions[2] = slices.Insert(r.partitions[2], 4, id)
			},
			func(v *Report) { v.PartitionChanges = 1 },
		},
		"two records of a key, each in another partition": {
			func(r *run) {
				p := r.partitions[1]
				r.partitions[0] = slices.Insert(r.partitions[0], 4, p[30])
				r.partitions[2] = slices.Insert(r.partitions[2], 4, p[33])
				r.partitions[1] = slices.Delete(slices.Delete(p, 33, 34), 30, 31)
			},
			func(v *Report) { v.PartitionChanges = 1 },
		},
		"dead letters": {
			func(r *run) {
				r.deadLetters = []string{r.partitions[1][30], r.partitions[1][31],
					"of another table"}
				r.partitions[1] = slices.Delete(r.partitions[1], 30, 31)
			},
			func(v *Report) { v.DeadLettered = 1 },
		},
		"rows out of the time that was asked for": {
			func(r *run) {
				for i := range 100 {
					r.rows[i].Judged = false
				}
				r.partitions[1] = slices.Delete(r.partitions[1], 0, 5)
			},
			func(v *Report) { v.Written, v.NotJudged = n-100, 100 },
		},
		"nothing delivered": {
			func(r *run) { r.partitions = make([][]string, testPartitions) },
			func(v *Report) { v.Lost = n },
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodRun(n, keys)
			c.spoil(r)
			v := r.judge(t, wholeRun)
			want := Report{Written: n, Passes: 1}
			for _, ids := range r.partitions {
				want.Records += int64(len(ids))
			}
			c.want(&want)
			want.Delivered = want.Written - want.Lost - want.DeadLettered
			want.OrderJudged = want.Delivered
			if want.NotJudged > 0 {
				want.Records = v.Records // of judged rows alone
			}
			examples := v.Examples
			v.Examples = nil
			require.Equal(t, want, v)
			require.Equal(t, want.Clean(), v.Clean())

			shown := map[Kind]int64{}
			for _, e := range examples {
				shown[e.Kind]++
			}
			for kind, count := range map[Kind]int64{
				Lost: v.Lost, Duplicated: v.Duplicated, OutOfOrder: v.OutOfOrder,
				Phantom: v.Phantom, PartialTransaction: v.PartialTransactions,
				PartitionChange: v.PartitionChanges,
			} {
				require.Equal(t, min(count, 3), shown[kind], kind)
			}
		})
	}
}

func TestJudge_NamesWhatItFound(t *testing.T) {
	r := goodRun(600, 10)
	id := r.partitions[1][30]
	r.partitions[1] = slices.Insert(r.partitions[1], 31, id)
	v := r.judge(t, wholeRun)
	require.Equal(t, []Example{{Kind: Duplicated, ID: id, KeyHash: keyHash([]byte("k")),
		Topic: "events", Partition: 1, Offset: 100 + 2*31}}, v.Examples)

	r = goodRun(600, 10)
	r.partitions[1] = slices.Delete(r.partitions[1], 30, 31)
	v = r.judge(t, wholeRun)
	row := r.rows[slices.IndexFunc(r.rows, func(row Row) bool { return string(row.ID) == id })]
	require.Equal(t, []Example{
		{Kind: Lost, ID: id, KeyHash: keyHash(row.Key), Transaction: row.Transaction,
			Partition: -1, Offset: -1},
		{Kind: PartialTransaction, Transaction: row.Transaction, Arrived: 3, Missing: 1,
			Partition: -1, Offset: -1},
	}, v.Examples)
}

// A run spoilt at random has the same verdict however many passes it takes.
func TestJudge_PassesMakeNoDifference(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const n = 20_000
	r := goodRun(n, 1500)
	for i := range r.rows {
		r.rows[i].Judged = random.IntN(50) > 0
	}
	for i, ids := range r.partitions {
		var spoilt []string
		for at := 0; at < len(ids); at++ {
			switch random.IntN(100) {
			case 0: // lost
				continue
			case 1: // repeated
				spoilt = append(spoilt, ids[max(0, at-random.IntN(200)):at+1]...)
			case 2:
				spoilt = append(spoilt, "phantom")
			case 3: // elsewhere
				other := (i + 1) % testPartitions
				r.partitions[other] = append(r.partitions[other], ids[at])
				continue
			case 4: // swapped
				other := random.IntN(len(ids))
				ids[at], ids[other] = ids[other], ids[at]
			case 5:
				r.deadLetters = append(r.deadLetters, ids[at])
				continue
			}
			spoilt = append(spoilt, ids[at])
		}
		r.partitions[i] = spoilt
	}
	one := r.judge(t, wholeRun)
	for _, count := range []int64{one.Lost, one.Duplicated, one.OutOfOrder, one.PartialReplays,
		one.Phantom, one.PartialTransactions, one.PartitionChanges, one.DeadLettered,
		one.NotJudged} {
		require.Positive(t, count, "%+v", one)
	}
	several := wholeRun
	several.Memory = baseMemory + n/8 + rowMemory*1000 + 3*100_000/8
	many := r.judge(t, several)
	require.Greater(t, many.Passes, 5)
	for _, v := range []*Report{&one, &many} {
		require.NotEmpty(t, v.Examples)
		v.Examples, v.Passes = nil, 0
	}
	require.Equal(t, one, many)
	t.Logf("%+v", one)
}

func TestJudge_RefusesWhatDoesNotFit(t *testing.T) {
	r := goodRun(200_000, 1)
	_, err := Judge(t.Context(),
		JudgeConfig{Memory: baseMemory + rowMemory*100_000, Ordered: true}, writing(r.rows),
		&reading{})
	require.ErrorIs(t, err, ErrMemory)
	require.ErrorContains(t, err, "one key has about 200000 rows")

	_, err = Judge(t.Context(), wholeRun, writing(r.rows),
		&reading{parts: []Partition{{Topic: "large", End: 1 << 30}}})
	require.ErrorIs(t, err, ErrMemory)

	r.rows[7].ID = r.rows[9].ID
	_, err = Judge(t.Context(), wholeRun, writing(r.rows), &reading{})
	require.ErrorIs(t, err, ErrSameID)
}

func TestJudge_WithoutAnOrderSaysNothingOfIt(t *testing.T) {
	r := goodRun(600, 10)
	slices.Reverse(r.partitions[1])
	unordered := wholeRun
	unordered.Ordered = false
	v := r.judge(t, unordered)
	require.True(t, v.Clean(), "%+v", v)
	require.EqualValues(t, []int64{0, 600}, []int64{v.OrderJudged, v.OrderNotJudged})
}
