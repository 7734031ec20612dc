package backfill

import (
	"time"

	"github.com/rs/zerolog"
)

// logInterval is the time between two log lines about a snapshot under way.
const logInterval = 10 * time.Second

// State is how far a Copy has come.
type State struct {
	Table         string  // that is being copied; empty: not begun
	Rows          int64   // read and acknowledged, over all tables, by this and earlier Copies
	EstimatedRows int64   // that there are, by the planner
	RowsPerSecond float64 // of this Copy
}

type progress struct {
	table     string
	rows      int64
	before    int64 // of them, copied before this Copy
	estimated int64
	started   time.Time
	logged    time.Time
	reporter  func(State)
	log       zerolog.Logger
}

// advance counts a chunk.
func (p *progress) advance(rows int64) {
	p.rows += rows
	p.report()
	if time.Since(p.logged) < logInterval {
		return
	}
	p.logged = time.Now()
	st := p.state()
	p.log.Info().Str("relation", st.Table).Int64("rows", st.Rows).
		Int64("estimated_rows", st.EstimatedRows).
		Float64("rows_per_second", st.RowsPerSecond).Msg("snapshot in progress")
}

func (p *progress) report() { p.reporter(p.state()) }

func (p *progress) state() State {
	st := State{Table: p.table, Rows: p.rows, EstimatedRows: p.estimated}
	if seconds := time.Since(p.started).Seconds(); seconds > 0 {
		st.RowsPerSecond = float64(p.rows-p.before) / seconds
	}
	return st
}
