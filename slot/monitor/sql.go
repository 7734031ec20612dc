package monitor

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// mostBlockers is how many blockers of a kind are listed, the oldest first.
const mostBlockers = "5"

// rights are those of the login beyond what every role may read. PostgreSQL checks them when a
// statement begins, so a statement must not contain a function that the login may not call.
type rights struct {
	checkpoint   bool // pg_control_checkpoint()
	walDirectory bool // pg_ls_waldir()
	archive      bool // pg_ls_archive_statusdir(); of use only with walDirectory
	activity     bool // all columns of pg_stat_activity and pg_stat_replication
	// The error of a function that the login may call, as managed services refuse it. The function
	// is called again after refusalAge.
	checkpointRefused, walDirectoryRefused, archiveRefused string
	refusedAt                                              time.Time
}

const refusalAge = 5 * time.Minute

// without returns r without one of the rights that the statement used, after it failed with err;
// false: it used none.
func (r rights) without(err error, volume int64) (rights, bool) {
	r.refusedAt = time.Now()
	switch {
	case r.archive && r.walDirectory && volume > 0:
		r.archive, r.archiveRefused = false, err.Error()
	case r.walDirectory && volume > 0:
		r.walDirectory, r.walDirectoryRefused = false, err.Error()
	case r.checkpoint:
		r.checkpoint, r.checkpointRefused = false, err.Error()
	default:
		return r, false
	}
	return r, true
}

// selectRights reads the rights. A server that is not stock may lack a function.
const selectRights = `SELECT
	COALESCE(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_control_checkpoint()'), 'EXECUTE'), false),
	COALESCE(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_ls_waldir()'), 'EXECUTE'), false),
	COALESCE(pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_ls_archive_statusdir()'), 'EXECUTE'), false),
	pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')`

// read reads the rights of the login.
func (r *rights) read(ctx context.Context, conn *pgx.Conn) error {
	err := conn.QueryRow(ctx, selectRights).Scan(&r.checkpoint, &r.walDirectory, &r.archive,
		&r.activity)
	return postgres.Wrap(err, "read the rights of the monitor")
}

// notes returns a note for each value that a missing right makes absent.
func (r rights) notes(user string, volume int64) []Note {
	var notes []Note
	grant := func(what string) string {
		return "GRANT " + what + " TO " + postgres.QuoteName(user) + ";"
	}
	absent := func(value, function, refused, so, right string) {
		if refused != "" {
			notes = append(notes, Note{value, "the server refuses " + function + ", so " + so +
				": " + refused})
			return
		}
		notes = append(notes, Note{value, function + " may not be called, so " + so + ": " +
			grant(right)})
	}
	if !r.checkpoint {
		absent("checkpoint", "pg_control_checkpoint()", r.checkpointRefused,
			"the time until the slot is lost is a wide guess",
			"EXECUTE ON FUNCTION pg_control_checkpoint()")
	}
	if !r.walDirectory && volume != 0 {
		absent("wal_directory", "pg_ls_waldir()", r.walDirectoryRefused,
			"the time until the disk is full is not known", "pg_monitor")
	}
	if r.walDirectory && !r.archive && volume != 0 {
		absent("archive", "pg_ls_archive_statusdir()", r.archiveRefused,
			"WAL that waits for archive_command is not seen", "pg_monitor")
	}
	if !r.activity {
		notes = append(notes, Note{"activity", "of other users' connections only pid, user, database " +
			"and application are seen, a transaction's age is counted from when the monitor first saw " +
			"it, and how far the walsender has sent is not seen: " + grant("pg_read_all_stats")})
	}
	return notes
}

// observeSQL returns one statement for the whole answer, which takes one round trip. $1 is the
// slot. Settings have units ("256MB", "5min"), which pg_size_bytes and interval read. Members are
// computed in order: the first and the last are the server's clock at both ends.
func observeSQL(major int, r rights, volume int64) string {
	bytes := func(setting string) string {
		return `pg_catalog.pg_size_bytes(NULLIF(pg_catalog.current_setting('` + setting + `'), '-1'))`
	}
	seconds := func(setting string) string {
		return `EXTRACT(epoch FROM COALESCE(pg_catalog.current_setting('` + setting +
			`', true), '0')::interval)`
	}
	members := []string{
		`'now', pg_catalog.clock_timestamp()`,
		`'server', pg_catalog.jsonb_build_object(
			'version', pg_catalog.current_setting('server_version'),
			'standby', pg_catalog.pg_is_in_recovery(),
			'started_at', pg_catalog.pg_postmaster_start_time())`,
		`'current', (` + slot.CurrentLSNSQL + `)::text`,
		`'limit', pg_catalog.jsonb_build_object(
			'max_slot_wal_keep_size', ` + bytes("max_slot_wal_keep_size") + `,
			'wal_keep_size', ` + bytes("wal_keep_size") + `, 'max_wal_size', ` + bytes("max_wal_size") + `,
			'segment_size', ` + bytes("wal_segment_size") + `,
			'shared_buffers', ` + bytes("shared_buffers") + `,
			'checkpoint_timeout_seconds', ` + seconds("checkpoint_timeout") + `,
			'checkpoint_completion_target',
				pg_catalog.current_setting('checkpoint_completion_target')::float8,
			'idle_replication_slot_timeout_seconds', ` + seconds("idle_replication_slot_timeout") + `)`,
		`'synchronized_standby_slots', pg_catalog.current_setting('synchronized_standby_slots', true)`,
		`'slots', (SELECT pg_catalog.jsonb_agg((` + slot.RowSQL + `) || pg_catalog.jsonb_build_object(
			'xmin_age', pg_catalog.age(s.xmin), 'catalog_xmin_age', pg_catalog.age(s.catalog_xmin))
			ORDER BY s.slot_name) FROM pg_catalog.pg_replication_slots s)`,
		`'stream', (SELECT pg_catalog.jsonb_build_object('pid', r.pid, 'application', r.application_name,
			'user', r.usename, 'state', r.state, 'sent', r.sent_lsn::text, 'wait_event', a.wait_event)
			FROM pg_catalog.pg_stat_replication r
			JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
			JOIN pg_catalog.pg_stat_activity a ON a.pid = r.pid WHERE s.slot_name = $1)`,
		`'decoding', (SELECT pg_catalog.jsonb_build_object('spill_transactions', d.spill_txns,
			'spill_bytes', d.spill_bytes, 'stream_transactions', d.stream_txns,
			'stream_bytes', d.stream_bytes, 'total_transactions', d.total_txns,
			'total_bytes', d.total_bytes, 'reset_at', d.stats_reset, 'counted_since', ` + countedSince + `)
			FROM pg_catalog.pg_stat_replication_slots d WHERE d.slot_name = $1)`,
		`'transactions', (SELECT pg_catalog.jsonb_agg(t) FROM (` + transactionsSQL + `) t)`,
		`'prepared', (SELECT pg_catalog.jsonb_agg(t) FROM (` + preparedSQL + `) t)`,
		`'feedback', (SELECT pg_catalog.jsonb_agg(t) FROM (` + feedbackSQL + `) t)`,
		`'pages', ` + changedPages(major),
	}
	if r.checkpoint {
		members = append(members, `'checkpoint', (SELECT pg_catalog.jsonb_build_object('time',
			c.checkpoint_time, 'redo', c.redo_lsn::text,
			'timeline', `+timeline+`) FROM pg_catalog.pg_control_checkpoint() c)`)
	}
	if r.walDirectory && volume > 0 {
		members = append(members, `'wal_directory', (SELECT pg_catalog.sum(w.size) FROM
			pg_catalog.pg_ls_waldir() w)`)
		if r.archive {
			members = append(members, `'archive', `+archiveSQL)
		}
	}
	members = append(members, `'end', pg_catalog.clock_timestamp()`)
	return `SELECT pg_catalog.jsonb_build_object(` + strings.Join(members, ",\n") + `)`
}

// timeline is SQL for the current timeline. After a promotion the last checkpoint has the old one
// for a while; the names of WAL files have the new one.
const timeline = `CASE WHEN pg_catalog.pg_is_in_recovery() THEN c.timeline_id
	ELSE ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()),
	8))::bit(32)::int END`

// transactionsSQL reads the locks of transactions on their own IDs, which every role sees, unlike
// pg_stat_activity.backend_xid. A transaction with subtransactions has several; the oldest is its
// own.
const transactionsSQL = `
	SELECT l.pid, (pg_catalog.array_agg(l.transactionid::text
			ORDER BY pg_catalog.age(l.transactionid) DESC))[1] AS xid,
		pg_catalog.max(pg_catalog.age(l.transactionid)) AS age,
		pg_catalog.max(a.application_name) AS application, pg_catalog.max(a.usename::text) AS "user",
		pg_catalog.max(a.datname::text) AS database, pg_catalog.max(a.state) AS state,
		pg_catalog.max(a.xact_start) AS since
	FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
		AND l.pid IS NOT NULL
	GROUP BY l.pid ORDER BY pg_catalog.max(pg_catalog.age(l.transactionid)) DESC
	LIMIT ` + mostBlockers

const preparedSQL = `
	SELECT p.gid, p.transaction::text AS xid, pg_catalog.age(p.transaction) AS age,
		p.owner::text AS "user", p.database::text AS database, p.prepared AS since
	FROM pg_catalog.pg_prepared_xacts p
	ORDER BY pg_catalog.age(p.transaction) DESC LIMIT ` + mostBlockers

// feedbackSQL reads standbys that stream without a slot: their walsenders hold VACUUM back. The
// catalog_xmin of a slot that exists moves past them.
const feedbackSQL = `
	SELECT r.pid, r.backend_xmin::text AS xid, pg_catalog.age(r.backend_xmin) AS age,
		r.application_name AS application, r.usename::text AS "user"
	FROM pg_catalog.pg_stat_replication r WHERE r.backend_xmin IS NOT NULL
	ORDER BY pg_catalog.age(r.backend_xmin) DESC LIMIT ` + mostBlockers

// changedPages returns SQL for the number of pages of tables and indexes changed since the reset
// of the statistics: new pages, and full-page images, which are written at the first change after
// a checkpoint. Its growth is about the work of the next checkpoint. Any role may read it.
// Backends report once a second, an open transaction at its end.
func changedPages(major int) string {
	return `(` + newPages(major) + ` + ` + firstChanges + `)::bigint`
}

// newPages returns SQL for the pages by which tables and indexes have grown. Before PostgreSQL 16
// it includes pages that backends wrote because no buffer was free.
func newPages(major int) string {
	switch {
	case major >= 18:
		return `(SELECT pg_catalog.sum(extend_bytes) / pg_catalog.current_setting('block_size')::numeric
			FROM pg_catalog.pg_stat_io WHERE object = 'relation')`
	case major >= 16:
		return `(SELECT pg_catalog.sum(extends) FROM pg_catalog.pg_stat_io WHERE object = 'relation')`
	}
	return `(SELECT buffers_backend::numeric FROM pg_catalog.pg_stat_bgwriter)`
}

// firstChanges is SQL for the number of full-page images in the WAL. Without full_page_writes each
// changed row counts as a page, which is too many rather than too few.
const firstChanges = `CASE WHEN pg_catalog.current_setting('full_page_writes')::boolean
	THEN (SELECT wal_fpi::numeric FROM pg_catalog.pg_stat_wal)
	ELSE (SELECT pg_catalog.sum(tup_inserted + tup_updated + tup_deleted) FROM
	pg_catalog.pg_stat_database) END`
