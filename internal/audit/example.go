package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
)

// Kind is a kind of fault: its name in the JSON of a Report.
type Kind string

// The kinds, in the order in which they are reported.
const (
	Lost               Kind = "lost"
	Duplicated         Kind = "duplicated"
	OutOfOrder         Kind = "out_of_order"
	PartialReplay      Kind = "torn_replay"
	Phantom            Kind = "phantom"
	PartialTransaction Kind = "torn_transaction"
	PartitionChange    Kind = "partition_change"
)

var kinds = []Kind{
	Lost, Duplicated, OutOfOrder, PartialReplay, Phantom, PartialTransaction, PartitionChange,
}

// Example is one fault. It has neither payload nor key.
type Example struct {
	Kind        Kind   `json:"kind"`
	ID          string `json:"id,omitempty"`
	KeyHash     string `json:"key_hash,omitempty"` // keyHash of the key; empty: no key
	Topic       string `json:"topic,omitempty"`    // empty: no topic has it
	Partition   int32  `json:"partition"`
	Offset      int64  `json:"offset"`
	Transaction uint64 `json:"transaction,omitempty"`
	Arrived     int64  `json:"arrived,omitempty"` // rows of a partial transaction
	Missing     int64  `json:"missing,omitempty"`
}

// keyHash returns what to show of a confidential key: the first 12 hexadecimal digits of its
// SHA-256.
func keyHash(key []byte) string {
	if key == nil {
		return ""
	}
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:6])
}

// example adds an example of a fault to the report, unless it has enough of its kind.
func (j *judge) example(kind Kind, r *Record) {
	if !j.lacks(kind) {
		return
	}
	p := &j.parts[r.Partition]
	j.keep(Example{
		Kind: kind, ID: string(r.ID), KeyHash: keyHash(r.Key),
		Topic: p.Topic, Partition: p.Number, Offset: r.Offset,
	})
}

// lacks reports whether the report has room for another example of a kind.
func (j *judge) lacks(kind Kind) bool { return j.shown[kind] < j.cfg.Examples }

func (j *judge) keep(e Example) {
	j.shown[e.Kind]++
	j.report.Examples = append(j.report.Examples, e)
}

// transactionMemory is for one transaction with a lost row, in bytes: an entry of a map that may
// be half empty.
const transactionMemory = 96

// examineLost reads the rows twice more: for the ids of lost rows, and for the other rows of their
// transactions.
func (j *judge) examineLost(ctx context.Context) error {
	if j.report.Lost == 0 {
		return nil
	}
	memory := max(1, j.cfg.Memory-baseMemory)
	parts := uint64(1 + j.report.Lost*transactionMemory/memory) //nolint:gosec // not negative
	for part := range parts {
		partial := map[uint64]transactionRows{} // transactions with a lost row
		err := j.rows(ctx, func(r *Row, e judged) error {
			if !j.lost.has(int64(e.at)) {
				return nil
			}
			if part == 0 && j.lacks(Lost) {
				j.keep(Example{
					Kind: Lost, ID: string(r.ID), KeyHash: keyHash(r.Key),
					Transaction: r.Transaction, Partition: -1, Offset: -1,
				})
			}
			if r.Transaction != 0 && r.Transaction%parts == part {
				rows := partial[r.Transaction]
				rows.missing++
				partial[r.Transaction] = rows
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = j.rows(ctx, func(r *Row, e judged) error {
			rows, ok := partial[r.Transaction]
			if ok && e.bits&bitJudged != 0 && !j.lost.has(int64(e.at)) {
				rows.arrived++
				partial[r.Transaction] = rows
			}
			return nil
		})
		if err != nil {
			return err
		}
		j.reportPartial(partial)
	}
	return nil
}

// transactionRows counts the rows of a transaction.
type transactionRows struct{ arrived, missing int64 }

func (j *judge) reportPartial(transactions map[uint64]transactionRows) {
	for _, id := range slices.Sorted(maps.Keys(transactions)) {
		rows := transactions[id]
		if rows.arrived == 0 {
			continue
		}
		j.report.PartialTransactions++
		if j.lacks(PartialTransaction) {
			j.keep(Example{
				Kind: PartialTransaction, Transaction: id, Arrived: rows.arrived,
				Missing: rows.missing, Partition: -1, Offset: -1,
			})
		}
	}
}
