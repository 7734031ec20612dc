package bench

import (
	"fmt"
	"time"
)

// Kind is the kind of a workload.
type Kind string

// The kinds of workloads.
const (
	Drain Kind = "drain" // a backlog is written, then the relay is started
	Rate  Kind = "rate"  // one-row transactions are written at a steady rate
	Idle  Kind = "idle"  // the outbox is idle, and the database writes other things
)

// Workload is one thing to measure. Fields that its kind does not name are zero.
type Workload struct {
	Kind     Kind          `json:"workload"`
	Rows     int64         `json:"rows,omitempty"` // drain
	Tx       int64         `json:"tx,omitempty"`   // drain: rows per transaction
	Size     int           `json:"size"`           // of a payload, in bytes
	Rate     int           `json:"rate,omitempty"` // transactions a second; idle: in another table
	Duration time.Duration `json:"-"`              // rate, idle; JSON has seconds
	Seconds  float64       `json:"duration_seconds,omitempty"`
}

// Bounds of a workload.
const (
	maxRows     = 50_000_000 // about 1 GiB in bench: it keeps the arrival of each row
	maxRate     = 1_000_000
	minDuration = time.Second
	maxDuration = time.Hour

	// maxMemory bounds the values in a broker that keeps its records in memory, in bytes.
	maxMemory = 1 << 30
)

// Validate returns an error for what cannot be measured. inMemory: the broker is the in-process
// one.
func (w Workload) Validate(inMemory bool) error {
	if w.Size < MinSize || w.Size > MaxSize {
		return fmt.Errorf("a payload of %d bytes: it must have %d to %d, since a broker takes "+
			"records up to 1 MB by default", w.Size, MinSize, MaxSize)
	}
	rows := w.Rows
	switch w.Kind {
	case Drain:
		switch {
		case w.Rows < 1 || w.Rows > maxRows:
			return fmt.Errorf("%d rows: there must be 1 to %d", w.Rows, maxRows)
		case w.Tx < 1:
			return fmt.Errorf("%d rows per transaction: there must be at least 1", w.Tx)
		case w.Tx > w.Rows:
			return fmt.Errorf("%d rows per transaction are more than the %d rows", w.Tx, w.Rows)
		}
	case Rate, Idle:
		switch {
		case w.Rate < 1 || w.Rate > maxRate:
			return fmt.Errorf("%d transactions a second: there must be 1 to %d", w.Rate, maxRate)
		case w.Duration < minDuration || w.Duration > maxDuration:
			return fmt.Errorf("a duration of %s: it must lie between %s and %s", w.Duration,
				minDuration, maxDuration)
		}
		if rows = w.total(); w.Kind == Rate && rows > maxRows {
			return fmt.Errorf("%d/s for %s are %d rows: there must be at most %d", w.Rate,
				w.Duration, rows, maxRows)
		}
		if w.Kind == Idle {
			rows = 0 // of another table
		}
	}
	if total := rows * int64(w.Size); inMemory && total > maxMemory {
		return fmt.Errorf("%d rows of %d bytes are %d MB, and the in-process broker keeps them "+
			"in memory, at most %d MB", rows, w.Size, total/1_000_000, maxMemory/1_000_000)
	}
	return nil
}

// total is how many transactions are due in the duration.
func (w Workload) total() int64 { return int64(float64(w.Rate) * w.Duration.Seconds()) }

// outboxRows is how many rows a run writes to the outbox, at most.
func (w Workload) outboxRows() int64 {
	switch w.Kind {
	case Drain:
		return w.Rows
	case Rate:
		return int64(float64(w.Rate)*warmUp.Seconds()) + w.total()
	}
	return 2 * idleRows
}

// String is how it is called in progress lines and tables: "drain, 10 rows per transaction, 200
// B".
func (w Workload) String() string {
	switch w.Kind {
	case Drain:
		if w.Tx == 1 {
			return "drain, 1 row per transaction, " + sizeText(w.Size)
		}
		return fmt.Sprintf("drain, %s rows per transaction, %s", w.txText(), sizeText(w.Size))
	case Rate:
		return fmt.Sprintf("rate, %d/s, %s", w.Rate, sizeText(w.Size))
	}
	return fmt.Sprintf("idle beside %d/s", w.Rate)
}

func (w Workload) txText() string {
	if w.Tx == w.Rows {
		return "all"
	}
	return fmt.Sprint(w.Tx)
}

func sizeText(bytes int) string {
	if bytes >= 1000 && bytes%1000 == 0 {
		return fmt.Sprintf("%d kB", bytes/1000)
	}
	return fmt.Sprintf("%d B", bytes)
}
