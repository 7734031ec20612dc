package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

// A transaction of somebody else that stays open keeps WAL, and delays nothing that was committed.
func TestFault25_AForeignTransactionIsNamed(t *testing.T) {
	onOldestAndNewest(t, func(t *testing.T, version string) {
		r := newRig(t, server(t, version), parts.RealKafka(t))
		r.settings["monitor.interval"], r.settings["health.held_warning"] = `"1s"`, `"1s"`
		p := r.started(t)
		l := r.load(t, 50)

		conn := parts.Connect(t, r.dsn)
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "SET application_name = 'nightly report'; SELECT pg_current_xact_id()")
		require.NoError(t, err)
		named := fmt.Sprintf("the transaction of pid %d (nightly report", conn.PgConn().PID())
		var status string
		eventually(t, time.Minute, "the status says: "+named, func() bool {
			body, _ := p.get("/status")
			status = string(body)
			return strings.Contains(status, named)
		})
		at := strings.Index(status, named)
		require.Regexp(t, `^[^"]* (has been open|open|idle|for) [^"]*[0-9]+ ?(s|seconds|m|h)`, status[at:], "its age")
		l.more(t, 300)
		l.end(t)
		r.drained(t, time.Minute) // it does not wait for the transaction
		require.NoError(t, tx.Rollback(t.Context()))
		p.stop(t)
		requireExact(t, r.judge(t))
		said, _, _ := strings.Cut(status[at:], `"`)
		matrix(t, 25, "", "the status says: "+strings.ReplaceAll(said, r.dsn, ""))
	})
}
