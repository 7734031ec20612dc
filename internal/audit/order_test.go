package audit

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// delivery is what concurrent writers committed and what a relay made of it.
type delivery struct {
	random  *rand.Rand
	rows    []Row       // in the order of created_at, which is not that of the commits
	commits []*arrival  // in the order of commits
	topic   [][]arrival // by partition, in the order of offsets
}

// arrival is one record, or the row that it is of.
type arrival struct {
	row         int
	id, key     string
	transaction uint64
	position    Position
	redriven    bool
}

const deliverySource = "7300000000000000000/1/postrider/postrider"

// deliver has so many writers write to each key side by side: who began later may commit earlier,
// a few transactions are long, the clocks that fill created_at differ by minutes, and the relay
// publishes in the order of commits.
func deliver(seed uint64, n, writers, partitions int) *delivery {
	d := &delivery{random: rand.New(rand.NewPCG(seed, 0)), topic: make([][]arrival, partitions)}
	keys := max(1, n/200)
	type written struct {
		arrival
		created, began, ends int
	}
	var all []written
	for began := 0; len(all) < n; began++ {
		writer := d.random.IntN(writers)
		ends := began*10 + d.random.IntN(10*writers)
		if d.random.IntN(100) == 0 {
			ends += d.random.IntN(1000 * writers)
		}
		for range min(1+d.random.IntN(6), n-len(all)) {
			key := d.random.IntN(keys)
			all = append(all, written{
				arrival: arrival{id: fmt.Sprint("row ", len(all)), key: fmt.Sprint("key ", key),
					transaction: uint64(began + 700)},
				created: began*10 + (writer%5-2)*5000, began: began, ends: ends,
			})
		}
	}
	slices.SortStableFunc(all,
		func(a, b written) int {
			return cmp.Or(cmp.Compare(a.ends, b.ends), cmp.Compare(a.began, b.began))
		})
	index := uint32(0)
	for i := range all {
		if index++; i == 0 || all[i].began != all[i-1].began {
			index = 0
		}
		lsn := uint64(0x16_0000_0000 + all[i].ends*1_000_000 + all[i].began)
		// The time of a commit is taken before its place in the WAL: two that commit at once may
		// have it the other way round.
		all[i].position = Position{Source: []byte(deliverySource), LSN: lsn, Index: index,
			Time: int64(all[i].ends*1000 + d.random.IntN(9000))}
	}
	slices.SortStableFunc(all, func(a, b written) int { return cmp.Compare(a.created, b.created) })
	for i := range all {
		all[i].row = i
		d.rows = append(d.rows,
			Row{ID: []byte(all[i].id), Key: []byte(all[i].key), Transaction: all[i].transaction,
				Judged: true})
		d.commits = append(d.commits, &all[i].arrival)
	}
	slices.SortFunc(d.commits, func(a, b *arrival) int {
		return cmp.Or(cmp.Compare(a.position.LSN, b.position.LSN),
			cmp.Compare(a.position.Index, b.position.Index))
	})
	for _, c := range d.commits {
		p := hashOf(c.key) % int64(partitions)
		d.topic[p] = append(d.topic[p], *c)
	}
	return d
}

// hashOf stands for Kafka's.
func hashOf(key string) (hash int64) {
	for _, b := range []byte(key) {
		hash = (hash*31 + int64(b)) % (1<<31 - 1)
	}
	return hash
}

func (d *delivery) Partitions() (parts []Partition) {
	for i := range d.topic {
		parts = append(parts, Partition{Topic: "events", Number: int32(i),
			End: int64(len(d.topic[i]))})
	}
	return parts
}

func (d *delivery) Records(_ context.Context, each func(*Record) error) error {
	for p := range d.topic {
		for at := range d.topic[p] {
			a := &d.topic[p][at]
			r := Record{Partition: p, Offset: int64(at), ID: []byte(a.id), Key: []byte(a.key),
				Hash: hashOf(a.key) + 1, Position: a.position, Redriven: a.redriven}
			if err := each(&r); err != nil {
				return err
			}
		}
	}
	return nil
}

// readCommits gives the ids of rows as the WAL has them.
func (d *delivery) readCommits(_ context.Context, each func(id []byte) error) error {
	for _, c := range d.commits {
		if err := each([]byte(c.id)); err != nil {
			return err
		}
	}
	return nil
}

// inOrder is a write log: the rows in the order of their commits.
func (d *delivery) inOrder() (rows writing) {
	for _, c := range d.commits {
		rows = append(rows, d.rows[c.row])
	}
	return rows
}

// everyRecord changes the records as they are in the topic.
func (d *delivery) everyRecord(change func(partition, at int, a *arrival)) {
	for p := range d.topic {
		for at := range d.topic[p] {
			change(p, at, &d.topic[p][at])
		}
	}
}

func (d *delivery) withoutPositions() {
	d.everyRecord(func(_, _ int, a *arrival) { a.position = Position{} })
}

// records counts them.
func (d *delivery) records() (n int64) {
	for _, of := range d.topic {
		n += int64(len(of))
	}
	return n
}

func (d *delivery) judge(t testing.TB, cfg JudgeConfig, w Written) Report {
	t.Helper()
	cfg.Memory = cmp.Or(cfg.Memory, 512<<20)
	r, err := Judge(t.Context(), cfg, w, d)
	require.NoError(t, err)
	r.Examples = nil
	return r
}

// repeat has the relay die again and again, and go on from an earlier place.
func (d *delivery) repeat(times int) (repeated int64) {
	for p, of := range d.topic {
		var out []arrival
		next := 0
		for range times {
			died := next + d.random.IntN(len(of)-next)
			out = append(out, of[next:died]...)
			next = max(0, died-d.random.IntN(500))
			repeated += int64(died - next)
		}
		d.topic[p] = append(out, of[next:]...)
	}
	return repeated
}

func TestJudge_AccusesNoCorrectTopic(t *testing.T) {
	const n = 10_000
	for name, c := range map[string]struct {
		change func(d *delivery)
		want   func(d *delivery, r *Report)
	}{
		"positions": {func(*delivery) {}, func(*delivery, *Report) {}},
		"no positions": {(*delivery).withoutPositions,
			func(_ *delivery, r *Report) { r.OrderJudged, r.OrderNotJudged = 0, n }},
		"positions without a source": {
			func(d *delivery) {
				d.everyRecord(func(_, _ int, a *arrival) { a.position.Source = nil })
			},
			func(_ *delivery, r *Report) { r.OrderJudged, r.OrderNotJudged = 0, n },
		},
		"positions from the middle on": {
			func(d *delivery) {
				d.everyRecord(func(p, at int, a *arrival) {
					if at < len(d.topic[p])/2 {
						a.position = Position{}
					}
				})
			},
			func(d *delivery, r *Report) {
				for _, of := range d.topic {
					r.OrderNotJudged += int64(len(of) / 2)
				}
				r.OrderJudged -= r.OrderNotJudged
			},
		},
		"rows of a snapshot first, in the order of a column": {
			func(d *delivery) {
				for p, of := range d.topic {
					early := of[:len(of)/3]
					for i := range early {
						early[i].position = Position{}
					}
					slices.SortFunc(early,
						func(a, b arrival) int { return cmp.Compare(a.row, b.row) })
					d.topic[p] = of
				}
			},
			func(d *delivery, r *Report) {
				for _, of := range d.topic {
					r.OrderNotJudged += int64(len(of) / 3)
				}
				r.OrderJudged -= r.OrderNotJudged
			},
		},
		"the database fails over, and positions are of another timeline": {
			func(d *delivery) {
				d.everyRecord(func(p, at int, a *arrival) {
					if at >= len(d.topic[p])/2 {
						a.position.Source = []byte("7300000000000000000/2/postrider/postrider")
						a.position.LSN -= 0x15_0000_0000
					}
				})
			},
			nil,
		},
		"a copy of the database takes the place of the first": {
			func(d *delivery) {
				d.everyRecord(func(p, at int, a *arrival) {
					if at >= len(d.topic[p])/2 {
						a.position.LSN -= 0x15_0000_0000
						a.position.Time += 3600_000_000
					}
				})
			},
			nil,
		},
		"the server's clock is set back and forth": {
			func(d *delivery) {
				d.everyRecord(func(_, _ int, a *arrival) {
					a.position.Time += int64(a.position.LSN>>33%3) * 60_000_000
				})
			},
			func(*delivery, *Report) {},
		},
		"two relays, one of which was paused": {
			// the second publishes what the first has not confirmed; then the first goes on with
			// what it has read
			func(d *delivery) {
				for p, of := range d.topic {
					theirs := slices.Clone(of[len(of)/2:])
					for i := range theirs {
						p := &theirs[i].position
						p.Source = []byte("7300000000000000000/1/second/postrider")
					}
					d.topic[p] = slices.Concat(of[:len(of)/2], theirs, of[len(of)/2:])
				}
			},
			nil,
		},
		"repetitions": {
			func(d *delivery) { d.repeat(20) },
			func(*delivery, *Report) {},
		},
		"repetitions without positions": {
			func(d *delivery) { d.repeat(20); d.withoutPositions() },
			func(_ *delivery, r *Report) { r.OrderJudged, r.OrderNotJudged = 0, n },
		},
		"dead letters that were redriven": {
			func(d *delivery) {
				for p, of := range d.topic {
					for range 20 {
						at := d.random.IntN(len(of) - 1)
						if of[at].redriven {
							continue
						}
						letter := of[at]
						letter.position, letter.redriven = Position{}, true
						of = append(slices.Delete(of, at, at+1), letter)
					}
					d.topic[p] = of
				}
			},
			nil,
		},
		"partitions are added": {
			func(d *delivery) {
				moved := make([][]arrival, 2*len(d.topic))
				for i, c := range d.commits {
					in := hashOf(c.key) % int64(len(moved))
					if i < n/2 {
						in = hashOf(c.key) % int64(len(d.topic))
					}
					moved[in] = append(moved[in], *c)
				}
				d.topic = moved
			},
			nil,
		},
		"partitions are added twice, and rows repeated": {
			func(d *delivery) {
				moved := make([][]arrival, 7)
				for turn, partitions := range []int{3, 5, 7} {
					for _, c := range d.commits[max(0, n*turn/3-50) : n*(turn+1)/3] {
						in := hashOf(c.key) % int64(partitions)
						moved[in] = append(moved[in], *c)
					}
				}
				d.topic = moved
			},
			nil,
		},
		"another relay places keys by rules of its own": {
			func(d *delivery) {
				moved := make([][]arrival, len(d.topic))
				for i, c := range d.commits {
					in := (hashOf(c.id) + int64(i)) % int64(len(moved))
					moved[in] = append(moved[in], *c)
				}
				d.topic = moved
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, writers := range []int{2, 8, 32} {
				seed := rand.Uint64()
				t.Logf("%d writers, seed %d", writers, seed)
				d := deliver(seed, n, writers, 3)
				c.change(d)
				got := d.judge(t, JudgeConfig{}, writing(d.rows))
				require.Zero(t,
					got.Lost+got.OutOfOrder+got.PartialReplays+got.Phantom+got.PartialTransactions+
						got.PartitionChanges, "%+v", got)
				require.EqualValues(t, []int64{n, n},
					[]int64{got.Delivered, got.OrderJudged + got.OrderNotJudged})
				require.Equal(t, d.records()-n, got.Duplicated)
				if name == "dead letters that were redriven" { // they have a place by what tells it without records
					byWAL := d.judge(t, JudgeConfig{Commits: d.readCommits}, writing(d.rows))
					require.True(t, byWAL.Clean(), "by the WAL: %+v", byWAL)
					byLog := d.judge(t, JudgeConfig{Ordered: true}, d.inOrder())
					require.True(t, byLog.Clean(), "by a write log: %+v", byLog)
				}
				if c.want == nil { // what can be judged depends on how keys and sources meet
					require.Greater(t, got.OrderJudged, int64(n*3/4), "%+v", got)
					continue
				}
				want := Report{Written: n, Delivered: n, Records: d.records(),
					Duplicated: got.Duplicated, LongestRepeat: got.LongestRepeat, OrderJudged: n,
					Passes: 1}
				c.want(d, &want)
				require.Equal(t, want, got)
			}
		})
	}
}

// injected are faults at places that do not touch each other, and how many there are of each kind.
type injected struct{ swaps, losses, duplicates, tornTransactions int }

var injectedFaults = injected{swaps: 100, losses: 100, duplicates: 100, tornTransactions: 20}

// inject spoils the delivery. What is lost beside the parts of transactions are whole ones.
func (d *delivery) inject(t testing.TB, f injected) {
	t.Helper()
	byTransaction := map[uint64][]*arrival{}
	for _, c := range d.commits {
		byTransaction[c.transaction] = append(byTransaction[c.transaction], c)
	}
	transactions := make([]uint64, 0, len(byTransaction))
	for _, c := range d.commits {
		if byTransaction[c.transaction][0] == c {
			transactions = append(transactions, c.transaction)
		}
	}
	d.random.Shuffle(len(transactions),
		func(i, j int) { transactions[i], transactions[j] = transactions[j], transactions[i] })
	gone, whole := map[string]bool{}, map[uint64]bool{}
	losses, torn := 0, 0
	for _, x := range transactions {
		rows := byTransaction[x]
		switch {
		case torn < f.tornTransactions && len(rows) > 1:
			gone[rows[d.random.IntN(len(rows))].id] = true
			torn++
		case losses < f.losses && len(rows) == 1:
			gone[rows[0].id] = true
			losses++
		default:
			whole[x] = true
		}
	}
	require.Equal(t, []int{f.losses, f.tornTransactions}, []int{losses, torn})
	duplicates, swaps := 0, 0
	for p, of := range d.topic {
		of = slices.DeleteFunc(of, func(a arrival) bool { return gone[a.id] })
		last := map[string]int{} // of each key: its record before, in out
		var out []arrival
		for _, a := range of {
			before, known := last[a.key]
			last[a.key] = len(out)
			out = append(out, a)
			switch d.random.IntN(40) {
			case 0:
				if known && swaps < f.swaps*(p+1)/len(d.topic) {
					out[before], out[len(out)-1] = out[len(out)-1], out[before]
					delete(last, a.key) // the next of the key touches no other fault
					swaps++
				}
			case 1:
				if duplicates < f.duplicates*(p+1)/len(d.topic) {
					out = append(out, a)
					delete(last, a.key)
					duplicates++
				}
			}
		}
		d.topic[p] = out
	}
	require.Equal(t, []int{f.swaps, f.duplicates}, []int{swaps, duplicates})
}

// found is the report of the injected faults in n rows, judged in all they are judged in.
func (f injected) found(d *delivery, ordered bool) Report {
	n, lost := int64(len(d.rows)), int64(f.losses+f.tornTransactions)
	r := Report{
		Written: n, Records: d.records(), Delivered: n - lost, Lost: lost,
		Duplicated: int64(f.duplicates), LongestRepeat: 1,
		PartialTransactions: int64(f.tornTransactions), OrderNotJudged: n - lost, Passes: 1,
	}
	if ordered {
		r.OutOfOrder, r.OrderJudged, r.OrderNotJudged = int64(f.swaps), n-lost, 0
	}
	return r
}

func TestJudge_FindsEveryInjectedFault(t *testing.T) {
	for _, writers := range []int{2, 8, 32} {
		seed := rand.Uint64()
		t.Logf("%d writers, seed %d", writers, seed)
		d := deliver(seed, 20_000, writers, 3)
		d.inject(t, injectedFaults)
		requireInjected(t, d)
	}
}

// requireInjected judges by each thing that tells the order of commits, and by none.
func requireInjected(t testing.TB, d *delivery) {
	t.Helper()
	require.Equal(t, injectedFaults.found(d, true), d.judge(t, JudgeConfig{}, writing(d.rows)),
		"by positions")
	d.withoutPositions()
	require.Equal(t, injectedFaults.found(d, true),
		d.judge(t, JudgeConfig{Commits: d.readCommits}, writing(d.rows)), "by the WAL")
	require.Equal(t, injectedFaults.found(d, true),
		d.judge(t, JudgeConfig{Ordered: true}, d.inOrder()), "by a write log")
	require.Equal(t, injectedFaults.found(d, false), d.judge(t, JudgeConfig{}, writing(d.rows)),
		"by nothing")
}

func TestJudge_FindsARecordInAnotherPartitionByPositions(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for from := range 6 {
		for to := range 6 {
			d := deliver(seed, 6_000, 8, 6)
			if from == to {
				continue
			}
			at := len(d.topic[from]) / 2
			d.topic[to] = slices.Insert(d.topic[to], len(d.topic[to])/2, d.topic[from][at])
			d.topic[from] = slices.Delete(d.topic[from], at, at+1)
			got := d.judge(t, JudgeConfig{}, writing(d.rows))
			require.EqualValues(t, []int64{1, 0}, []int64{got.PartitionChanges, got.KeysMoved},
				"from %d to %d", from, to)
		}
	}
}

// The bar of the large form: 3 million rows of 32 writers a key, and the faults among them.
func BenchmarkJudge_ThreeMillionRows(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		d := deliver(rand.Uint64(), 3_000_000, 32, 12)
		b.StartTimer()
		got := d.judge(b, JudgeConfig{}, writing(d.rows))
		b.StopTimer()
		require.True(b, got.Clean(), "%+v", got)
		require.EqualValues(b, 3_000_000, got.OrderJudged)
		d.inject(b, injectedFaults)
		requireInjected(b, d)
		b.StartTimer()
	}
}
