package slot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// mostHolders is how many of a kind are listed, the oldest first: the rest waits for them anyway.
const mostHolders = 5

// rights are what the login may ask for beyond what everybody may. PostgreSQL looks at them when a statement begins, so what may not be
// asked must not stand in it.
type rights struct {
	checkpoint   bool // pg_control_checkpoint()
	walDirectory bool // pg_ls_waldir()
	activity     bool // all columns of pg_stat_activity and pg_stat_replication
}

const selectRights = `SELECT
	pg_catalog.has_function_privilege('pg_catalog.pg_control_checkpoint()', 'EXECUTE'),
	pg_catalog.has_function_privilege('pg_catalog.pg_ls_waldir()', 'EXECUTE'),
	pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')`

func askRights(ctx context.Context, conn *pgx.Conn) (r rights, err error) {
	if err := conn.QueryRow(ctx, selectRights).Scan(&r.checkpoint, &r.walDirectory, &r.activity); err != nil {
		return rights{}, fmt.Errorf("read what the monitor may ask for: %w", postgres.Error(err))
	}
	return r, nil
}

// notes say what is absent since the login may not ask for it.
func (r rights) notes(user string, volume int64) []Note {
	var notes []Note
	if !r.checkpoint {
		notes = append(notes, Note{"checkpoint", "pg_control_checkpoint() may not be called, so the time until the slot is lost is a wide guess: " +
			"GRANT EXECUTE ON FUNCTION pg_control_checkpoint() TO " + quoteName(user) + ";"})
	}
	if !r.walDirectory && volume > 0 {
		notes = append(notes, Note{"wal_directory", "pg_ls_waldir() may not be called, so the time until the disk is full is not known: GRANT pg_monitor TO " +
			quoteName(user) + ";"})
	}
	if !r.activity {
		notes = append(notes, Note{"activity", "of other users' connections only pid, user, database and application are seen, and a transaction's age since the monitor " +
			"first saw it: GRANT pg_read_all_stats TO " + quoteName(user) + ";"})
	}
	return notes
}

// observeSQL asks for everything in one statement: a look is one round trip. $1 is the slot, $2 whether the size of pg_wal is wanted. A setting
// comes with its unit ("256MB", "5min"), which pg_size_bytes and interval read.
func observeSQL(major int, r rights, volume int64) string {
	bytes := func(setting string) string {
		return `pg_catalog.pg_size_bytes(NULLIF(pg_catalog.current_setting('` + setting + `'), '-1'))`
	}
	seconds := func(setting string) string {
		return `EXTRACT(epoch FROM COALESCE(pg_catalog.current_setting('` + setting + `', true), '0')::interval)`
	}
	members := []string{
		`'now', pg_catalog.clock_timestamp()`,
		`'version', pg_catalog.current_setting('server_version')`,
		`'standby', pg_catalog.pg_is_in_recovery()`,
		`'started_at', pg_catalog.pg_postmaster_start_time()`,
		`'current', (` + currentLSN + `)::text`,
		`'max_slot_wal_keep_size', ` + bytes("max_slot_wal_keep_size"),
		`'wal_keep_size', ` + bytes("wal_keep_size"),
		`'max_wal_size', ` + bytes("max_wal_size"),
		`'wal_segment_size', ` + bytes("wal_segment_size"),
		`'shared_buffers', ` + bytes("shared_buffers"),
		`'checkpoint_timeout', ` + seconds("checkpoint_timeout"),
		`'checkpoint_completion_target', pg_catalog.current_setting('checkpoint_completion_target')::float8`,
		`'idle_timeout', ` + seconds("idle_replication_slot_timeout"),
		`'gate', pg_catalog.current_setting('synchronized_standby_slots', true)`,
		`'slots', (SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(s) || pg_catalog.jsonb_build_object('xmin_age', pg_catalog.age(s.xmin),
			'catalog_xmin_age', pg_catalog.age(s.catalog_xmin)) ORDER BY s.slot_name) FROM pg_catalog.pg_replication_slots s)`,
		`'stream', (SELECT pg_catalog.jsonb_build_object('pid', r.pid, 'application', r.application_name, 'user', r.usename, 'state', r.state,
			'sent', r.sent_lsn::text) FROM pg_catalog.pg_stat_replication r JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
			WHERE s.slot_name = $1)`,
		`'decoding', (SELECT pg_catalog.to_jsonb(d) FROM pg_catalog.pg_stat_replication_slots d WHERE d.slot_name = $1)`,
		`'transactions', (SELECT pg_catalog.jsonb_agg(t) FROM (` + transactionsSQL + `) t)`,
		`'prepared', (SELECT pg_catalog.jsonb_agg(t) FROM (` + preparedSQL + `) t)`,
		`'pages', ` + changedPages(major),
	}
	if r.checkpoint {
		members = append(members, `'checkpoint', (SELECT pg_catalog.jsonb_build_object('time', c.checkpoint_time, 'redo', c.redo_lsn::text,
			'timeline', c.timeline_id) FROM pg_catalog.pg_control_checkpoint() c)`)
	}
	if r.walDirectory && volume > 0 {
		members = append(members, `'wal_directory', (SELECT sum(w.size) FROM pg_catalog.pg_ls_waldir() w)`)
	}
	return `SELECT pg_catalog.jsonb_build_object(` + strings.Join(members, ",\n") + `)`
}

// The locks that transactions hold on their own ids are seen by everybody, unlike pg_stat_activity.backend_xid.
var transactionsSQL = fmt.Sprintf(`
	SELECT l.pid, min(l.transactionid::text) AS xid, max(pg_catalog.age(l.transactionid)) AS age, max(a.application_name) AS application,
		max(a.usename::text) AS "user", max(a.datname::text) AS database, max(a.state) AS state, max(a.xact_start) AS since
	FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted AND l.pid IS NOT NULL
	GROUP BY l.pid ORDER BY max(pg_catalog.age(l.transactionid)) DESC LIMIT %d`, mostHolders)

var preparedSQL = fmt.Sprintf(`
	SELECT p.gid, p.transaction::text AS xid, pg_catalog.age(p.transaction) AS age, p.owner::text AS "user", p.database::text AS database,
		p.prepared AS since
	FROM pg_catalog.pg_prepared_xacts p ORDER BY pg_catalog.age(p.transaction) DESC LIMIT %d`, mostHolders)

// answer is what observeSQL returns.
type answer struct {
	Now            time.Time     `json:"now"`
	Version        string        `json:"version"`
	Standby        bool          `json:"standby"`
	StartedAt      time.Time     `json:"started_at"`
	Current        *string       `json:"current"`
	MaxSlotWALKeep *int64        `json:"max_slot_wal_keep_size"`
	WALKeep        int64         `json:"wal_keep_size"`
	MaxWALSize     int64         `json:"max_wal_size"`
	SegmentSize    int64         `json:"wal_segment_size"`
	SharedBuffers  int64         `json:"shared_buffers"`
	Timeout        float64       `json:"checkpoint_timeout"`
	Target         float64       `json:"checkpoint_completion_target"`
	IdleTimeout    float64       `json:"idle_timeout"`
	Gate           *string       `json:"gate"`
	Slots          []slotAnswer  `json:"slots"`
	Stream         *streamAnswer `json:"stream"`
	Decoding       *decodingJSON `json:"decoding"`
	Transactions   []heldAnswer  `json:"transactions"`
	Prepared       []heldAnswer  `json:"prepared"`
	Pages          *int64        `json:"pages"`
	Checkpoint     *struct {
		Time     time.Time `json:"time"`
		Redo     string    `json:"redo"`
		Timeline int32     `json:"timeline"`
	} `json:"checkpoint"`
	WALDirectory *int64 `json:"wal_directory"`
}

type slotAnswer struct {
	slotRow
	Xmin           json.RawMessage `json:"xmin"`
	XminAge        *int64          `json:"xmin_age"`
	CatalogXminAge *int64          `json:"catalog_xmin_age"`
}

type streamAnswer struct {
	PID         int32   `json:"pid"`
	Application string  `json:"application"`
	User        string  `json:"user"`
	State       string  `json:"state"`
	Sent        *string `json:"sent"`
}

type decodingJSON struct {
	SpillTxns   int64      `json:"spill_txns"`
	SpillBytes  int64      `json:"spill_bytes"`
	StreamTxns  int64      `json:"stream_txns"`
	StreamBytes int64      `json:"stream_bytes"`
	TotalTxns   int64      `json:"total_txns"`
	TotalBytes  int64      `json:"total_bytes"`
	StatsReset  *time.Time `json:"stats_reset"`
}

type heldAnswer struct {
	PID         int32      `json:"pid"`
	XID         string     `json:"xid"`
	Age         int64      `json:"age"`
	Application string     `json:"application"`
	User        string     `json:"user"`
	Database    string     `json:"database"`
	State       string     `json:"state"`
	GID         string     `json:"gid"`
	Since       *time.Time `json:"since"`
}

// asked is an answer, with when it was asked for and when it came, by our clock.
type asked struct {
	answer
	before, after time.Time
}

func ask(ctx context.Context, conn *pgx.Conn, r rights, name string, volume int64) (asked, error) {
	a := asked{before: time.Now()}
	var document []byte
	if err := conn.QueryRow(ctx, observeSQL(major(conn), r, volume), name).Scan(&document); err != nil {
		return asked{}, fmt.Errorf("observe the server: %w", postgres.Error(err))
	}
	a.after = time.Now()
	if err := json.Unmarshal(document, &a.answer); err != nil {
		return asked{}, fmt.Errorf("observe the server: read its answer: %w", err)
	}
	return a, nil
}

// clock is what the answer says of the server's clock. It was read somewhere between our two.
func (a asked) clock() *Clock {
	half := a.after.Sub(a.before) / 2
	return &Clock{Skew: Seconds(a.Now.Sub(a.before.Add(half)).Seconds()), Error: Seconds(half.Seconds())}
}

func (a asked) server() Server {
	s := Server{Version: a.Version, Standby: a.Standby, StartedAt: a.StartedAt}
	if a.Checkpoint != nil {
		s.Timeline = a.Checkpoint.Timeline
	}
	return s
}

func (a asked) limit(volume int64) Limit {
	l := Limit{
		MaxSlotWALKeepSize: a.MaxSlotWALKeep, WALKeepSize: a.WALKeep, MaxWALSize: a.MaxWALSize, SegmentSize: a.SegmentSize, SharedBuffers: a.SharedBuffers,
		CheckpointTimeout: Seconds(a.Timeout), CheckpointTarget: a.Target, IdleTimeout: Seconds(a.IdleTimeout), VolumeSize: volume, WALDirectory: a.WALDirectory,
	}
	if a.MaxSlotWALKeep != nil {
		l.Effective = new(max(*a.MaxSlotWALKeep, a.WALKeep))
	}
	return l
}

// statuses are all slots of the server, by name.
func (a asked) statuses() (all []Status, ages map[string]slotAnswer, err error) {
	current, err := parseLSN(a.Current)
	if err != nil {
		return nil, nil, err
	}
	ages = map[string]slotAnswer{}
	for _, row := range a.Slots {
		s, err := row.slot()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, newStatus(s, current, a.after))
		ages[s.Name] = row
	}
	return all, ages, nil
}

func (a asked) walsender() (*Walsender, error) {
	if a.Stream == nil {
		return nil, nil
	}
	sent, err := parseLSN(a.Stream.Sent)
	return &Walsender{PID: a.Stream.PID, Application: a.Stream.Application, User: a.Stream.User, State: a.Stream.State, SentLSN: sent}, err
}

func (a asked) decoding() *Decoding {
	d := a.Decoding
	if d == nil {
		return nil
	}
	out := &Decoding{
		SpillTransactions: d.SpillTxns, SpillBytes: d.SpillBytes, StreamTransactions: d.StreamTxns, StreamBytes: d.StreamBytes,
		TotalTransactions: d.TotalTxns, TotalBytes: d.TotalBytes,
	}
	if d.StatsReset != nil {
		out.ResetAt = *d.StatsReset
	}
	return out
}

// gate is empty unless a slot with failover has to wait for others.
func (a asked) gate(own Slot, all []Status) []GateSlot {
	if !own.Failover || a.Gate == nil {
		return nil
	}
	var gate []GateSlot
	for name := range strings.SplitSeq(*a.Gate, ",") {
		name = strings.Trim(strings.TrimSpace(name), `"`)
		if name == "" {
			continue
		}
		g := GateSlot{Name: name, Blocks: true}
		if i := slices.IndexFunc(all, func(s Status) bool { return s.Name == name }); i >= 0 {
			s := all[i]
			g.Exists, g.Active, g.InactiveSince, g.WALStatus = true, s.Active, s.InactiveSince, s.WALStatus
			g.Blocks = !s.Active || s.Lost()
		}
		gate = append(gate, g)
	}
	return gate
}

// Observe looks once: there are no rates, and nothing is known of before. ErrNotFound if there is no slot of this name.
func Observe(ctx context.Context, conn *pgx.Conn, name string, cfg MonitorConfig) (Observation, error) {
	m := Monitor{need: Requirements{Slot: Config{Name: name}}, cfg: cfg}
	status, err := m.observe(ctx, conn)
	o := m.observation
	o.Slot = status
	return o, err
}
