package writeback

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/internal/deadletter"
	"github.com/postrider/postrider/internal/metrics"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/prune"
)

// Parts are what a Writer depends on.
type Parts struct {
	Postgres          postgres.Config
	Config            Config
	Slot, Publication string
	Tables            []prune.Source
	Others            []string // tables of the relay that are not written back
	// Letters returns all dead letters, resolved ones too. nil: there are none.
	Letters func(ctx context.Context) ([]*deadletter.Entry, error)
	// Progress reports whether the relay streams, and how many messages it has published.
	Progress func() (streaming bool, published uint64)
	Metrics  *metrics.Set
	Log      zerolog.Logger
}

// State is how far the rows are written back, for /status.
type State struct {
	Published int64     `json:"published_rows"` // written since the process started
	Failed    int64     `json:"failed_rows"`
	LastSweep time.Time `json:"last_sweep,omitzero"` // the last that left nothing
	Error     string    `json:"error,omitempty"`     // of the last sweep, or empty
	Next      string    `json:"next,omitempty"`      // what to type then
}

// Writer writes back. Run is for one goroutine, State for any.
type Writer struct {
	parts   Parts
	conn    *pgx.Conn // nil: none is open
	prover  *prune.Prover
	system  string          // identifier of the server
	applied map[string]bool // dead letters that are written, with what became of them
	cause   string          // of the last sweep's error, as it was logged; empty: none

	mu    sync.Mutex
	state State
}

// New returns a Writer. It connects to nothing.
func New(parts Parts) *Writer { return &Writer{parts: parts, applied: map[string]bool{}} }

// State returns a snapshot.
func (w *Writer) State() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

const (
	// quietInterval is from one sweep to the next while nothing is published: a row that the relay
	// has skipped is delivered too, and what an error says may have been repaired.
	quietInterval = 30 * time.Second
	// maxPause bounds the pause after a sweep that failed.
	maxPause = 30 * time.Second
)

// Run sweeps after each interval in which the relay has published, until ctx ends. A statement
// that runs then is cancelled. Errors go to log, metrics and State; the next sweep tries again.
func (w *Writer) Run(ctx context.Context) {
	defer w.close()
	tick := time.NewTimer(0)
	defer tick.Stop()
	var swept time.Time
	var published uint64
	again, pause := true, w.parts.Config.Interval
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		streaming, now := w.parts.Progress()
		if streaming && (again || now != published || time.Since(swept) >= quietInterval) {
			n, complete, err := w.sweep(ctx)
			if ctx.Err() != nil {
				return
			}
			swept, published, again = time.Now(), now, !complete
			w.record(n, complete, err)
			switch {
			case err == nil:
				pause = w.parts.Config.Interval
			case complete: // of one table, and the others are written
			default:
				w.close() // a new Prover decides by what is saved
				again, pause = true, min(2*pause, max(maxPause, w.parts.Config.Interval))
			}
		}
		tick.Reset(pause)
	}
}

// close ends the connection, and with it the lock.
func (w *Writer) close() {
	if w.conn != nil {
		postgres.Close(w.conn)
	}
	w.conn, w.prover = nil, nil
}

// record exports a sweep, and logs its error once per cause.
func (w *Writer) record(n counts, complete bool, err error) {
	set := w.parts.Metrics
	set.WriteBackRows.WithLabelValues("published").Add(float64(n.published))
	set.WriteBackRows.WithLabelValues("failed").Add(float64(n.failed))
	now := State{}
	if err != nil {
		now.Error = err.Error()
		if advised, ok := errors.AsType[interface {
			error
			Advice() (wal, fix string)
		}](err); ok {
			_, now.Next = advised.Advice()
		}
	} else if complete {
		now.LastSweep = time.Now()
		set.WriteBackLastSweep.SetTime(now.LastSweep)
	}
	w.mu.Lock()
	now.Published, now.Failed = w.state.Published+n.published, w.state.Failed+n.failed
	if now.LastSweep.IsZero() {
		now.LastSweep = w.state.LastSweep
	}
	w.state = now
	w.mu.Unlock()
	w.log(err, now.Next)
}

func (w *Writer) log(err error, next string) {
	was := w.cause
	if w.cause = causeOf(err); err == nil {
		if was != "" {
			w.parts.Log.Info().Msg("rows are written back again")
		}
		return
	}
	waits := slices.ContainsFunc(waiting, func(target error) bool { return errors.Is(err, target) })
	if !waits {
		w.parts.Metrics.WriteBackFailures.Inc()
	}
	switch {
	case was == w.cause:
	case waits:
		w.parts.Log.Info().Err(err).Msg("the write-back waits")
	default:
		w.parts.Log.Warn().Err(err).Str("next", next).
			Msg("rows are not written back; they are published as before")
	}
}

// waiting are the errors that end without anybody's help.
var waiting = []error{
	prune.ErrBusy, prune.ErrBehind, prune.ErrOpen, prune.ErrChanged, deadletter.ErrUndecided,
}

// causeOf is the same text for errors that differ in positions and times only, or in how a
// connection was lost.
func causeOf(err error) string {
	for _, target := range append(slices.Clip(waiting), postgres.ErrUnreachable) {
		if errors.Is(err, target) {
			return target.Error()
		}
	}
	if state := postgres.SQLState(err); state != "" {
		return state
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
