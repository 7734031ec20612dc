package backfill

import (
	"encoding/json"

	"github.com/jackc/pglogrepl"
)

// Report is what a Recovery has found and done.
type Report struct {
	Slot              string
	State             string // usable, lost or missing, before anything was done
	Reason            string // why it was lost; empty: not known
	ConfirmedFlushLSN pglogrepl.LSN
	CurrentLSN        pglogrepl.LSN
	// the slot sends what is committed after it; zero: there is no slot yet
	ConsistentPoint pglogrepl.LSN
	BySlot          int64 // rows of the tables that the slot will send
	// of a Plan: transactions that may have committed rows which are not visible, and so not counted
	OpenTransactions []string
	Tables           []TableReport
	Topics           []TopicReport
	Published        int64
	Recreated        bool  // the slot can be streamed, and could not before
	Refusal          error // why Publish would refuse; nil: it would not

	refused error // of the first row that the router refuses
	parked  int   // rows to be published that must follow open dead letters of their keys
	// rows to be published with the id of a dead letter of a relation that no table is now
	renamed     int64
	renamedFrom string // one of these relations
}

// TableReport is what was found in one table.
type TableReport struct {
	Table       string `json:"table"`
	TimeColumn  string `json:"time_column,omitempty"` // that rows are selected by
	Rows        int64  `json:"rows"`                  // compared with the topics
	Delivered   int64  `json:"delivered"`             // found in the topics
	DeadLetters int64  `json:"dead_letters"`          // found in the dead-letter topic
	NoMessage   int64  `json:"no_message"`            // the configuration makes no message of them
	Refused     int64  `json:"refused"`               // the router refuses them
	Undelivered int64  `json:"undelivered"`           // to be published, or published
	First       *Place `json:"first,omitempty"`
	Last        *Place `json:"last,omitempty"`
}

// Place identifies a row to the user, without its content.
type Place struct {
	ID   string `json:"id"`
	Time string `json:"time,omitempty"` // of its time column, as PostgreSQL prints it
}

// TopicReport is what was found in one topic.
type TopicReport struct {
	Topic   string `json:"topic"`
	Records int64  `json:"records"` // read
	// no record was deleted by retention or compaction
	Whole bool `json:"whole"`
	// what follows an open transaction of another producer could not be read
	Open        bool  `json:"open_transaction"`
	Undelivered int64 `json:"undelivered"` // to be published to it, or published

	// of a topic that is not whole: rows that are not in it, while a later one of the key is
	overtaken int64
}

// addUndelivered counts a row that was not delivered.
func (t *TableReport) addUndelivered(row routed, timeColumn string) {
	_, id := row.origin()
	place := &Place{ID: id}
	place.Time = string(row.column(timeColumn))
	if t.Undelivered == 0 {
		t.First = place
	}
	t.Last = place
	t.Undelivered++
}

// Undelivered returns how many rows are to be published, or were.
func (r *Report) Undelivered() (n int64) {
	for _, t := range r.Tables {
		n += t.Undelivered
	}
	return n
}

// MarshalJSON writes LSNs in PostgreSQL's text form, and omits unknown values.
func (r *Report) MarshalJSON() ([]byte, error) {
	text := func(lsn pglogrepl.LSN) string {
		if lsn == 0 {
			return ""
		}
		return lsn.String()
	}
	refusal := ""
	if r.Refusal != nil {
		refusal = r.Refusal.Error()
	}
	return json.Marshal(struct {
		Slot              string        `json:"slot"`
		State             string        `json:"state"`
		Reason            string        `json:"invalidation_reason,omitempty"`
		ConfirmedFlushLSN string        `json:"confirmed_flush_lsn,omitempty"`
		CurrentLSN        string        `json:"current_wal_lsn,omitempty"`
		ConsistentPoint   string        `json:"consistent_point,omitempty"`
		BySlot            int64         `json:"by_slot"`
		Undelivered       int64         `json:"undelivered"`
		Published         int64         `json:"published"`
		Recreated         bool          `json:"recreated"`
		Refusal           string        `json:"refusal,omitempty"`
		OpenTransactions  []string      `json:"open_transactions,omitempty"`
		Tables            []TableReport `json:"tables"`
		Topics            []TopicReport `json:"topics"`
	}{
		r.Slot, r.State, r.Reason, text(r.ConfirmedFlushLSN), text(r.CurrentLSN),
		text(r.ConsistentPoint),
		r.BySlot, r.Undelivered(), r.Published, r.Recreated, refusal, r.OpenTransactions, r.Tables,
		r.Topics,
	})
}
