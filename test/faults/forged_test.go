package faults

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/test/parts"
)

// TestFault35_AcknowledgementBeyondTheWAL_IsBlocked has a caller acknowledge everything that will ever be. PostgreSQL would believe
// it, move the slot into the future, and leave out every row up to there.
func TestFault35_AcknowledgementBeyondTheWAL_IsBlocked(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		pg, err := pgconn.ParseConfig(r.dsn)
		require.NoError(t, err)
		pg.RuntimeParams["replication"] = "database"
		cfg := replication.DefaultConfig()
		cfg.Publication, cfg.StatusInterval = r.publication, 100*time.Millisecond
		// read reads the rows up to what was committed before, and acknowledges with the buggy caller.
		read := func(want int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := replication.Open(ctx, pg, cfg, r.slot, zerolog.Nop())
			require.NoError(t, err)
			stop, stopNow := context.WithCancel(ctx)
			out, ended := make(chan *replication.Batch), make(chan error, 1)
			go func() { // ends with Run
				ended <- s.Run(ctx, stop, out, func() pglogrepl.LSN { return math.MaxUint64 })
			}()
			got := 0
			for b := range out {
				for _, e := range b.Events {
					if e.Kind == replication.Insert {
						got++
					}
				}
				b.Release()
				if got == want {
					stopNow()
				}
			}
			stopNow()
			require.NoError(t, <-ended)
			drained := make(chan struct{})
			close(drained)
			require.NoError(t, s.Finish(ctx, drained))
			require.Equal(t, want, got)
			require.LessOrEqual(t, r.confirmed(t), currentLSN(t, r.dsn), "the slot stands in the future")
		}
		const rounds = 5
		for range rounds {
			r.transaction(t, 100)
			read(100)
		}
		matrix(t, 35, "", fmt.Sprintf("%d streams acknowledged up to FFFFFFFF/FFFFFFFF: no row was left out", rounds))
	})
}

// TestFault36_ForgedMessages_AreNotPublished sends what anybody who may connect can send.
func TestFault36_ForgedMessages_AreNotPublished(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		r.settings["replication.messages"] = `["outbox"]`
		r.settings["replication.transactional_only"] = "true"
		elsewhere := parts.NewDatabase(t, r.dsn).DSN()
		p := r.started(t)
		l := r.load(t, 50)
		l.more(t, 50)
		content := fmt.Sprintf(`{"id": "1", "aggregate_type": "%s", "aggregate_id": "forged", "event_type": "e", "payload": "x"}`, r.topic)
		forged := 0
		emit := func(dsn, around string, transactional bool, prefix string) {
			execute(t, dsn, fmt.Sprintf(around, fmt.Sprintf("SELECT pg_logical_emit_message(%t, '%s', '%s')", transactional, prefix, content)))
			forged++
		}
		for _, prefix := range []string{"outbox2", "Outbox", "", " outbox", "outbox ", "*"} {
			emit(r.dsn, "%s", true, prefix)
			emit(r.dsn, "%s", false, prefix)
		}
		for _, transactional := range []bool{true, false} {
			emit(elsewhere, "%s", transactional, "outbox")
			emit(r.dsn, "BEGIN; %s; ROLLBACK", transactional, "outbox")
		}
		emit(r.dsn, "%s", false, "outbox")
		emit(r.dsn, "BEGIN; INSERT INTO outbox (aggregate_type, aggregate_id, payload, number) VALUES ('x', 'y', '{}', 1); %s; ROLLBACK", false, "outbox")
		l.more(t, 50)
		l.end(t)
		r.drained(t, time.Minute)
		p.stop(t)
		matrix(t, 36, "", fmt.Sprintf("%d messages, none published", forged))
		requireExact(t, r.judge(t)) // a forged one would be a phantom
	})
}
